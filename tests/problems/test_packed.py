"""Packed weights: their bytes, their values, and what is refused by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boltgen.errors import InvalidProblemError, RecordError
from boltgen.families.json_form import decode, encode
from boltgen.ir.dtypes import BYTES, DType, Layout
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.key import canonical
from boltgen.problems.gemm.packed import BITS, GROUPS, PackedWeights
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem, describe, element_b
from boltgen.problems.reference import run

_FORMS = st.builds(
    PackedWeights,
    bits=st.sampled_from(BITS),
    group=st.sampled_from(GROUPS),
    has_zeros=st.booleans(),
)
_INT4 = PackedWeights(bits=4, group=32)


def _gemm(weights: PackedWeights, **more: object) -> Gemm:
    sizes = {"m": 3, "n": 5, "k": 100, "b_layout": Layout.COLUMN, "weights": weights}
    return Gemm(**{**sizes, **more})  # type: ignore[arg-type]


@given(form=_FORMS, n=st.integers(1, 5), k=st.integers(1, 600), seed=st.integers(0, 99))
def test_what_is_packed_is_unpacked_to_the_rounded_product(
    form: PackedWeights, n: int, k: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    end, groups = 2**form.bits, -(-k // form.group)
    numbers = rng.integers(0, end, (n, k), np.uint8)
    scales = rng.uniform(-1, 1, (n, groups)).astype(np.float16)
    zeros = rng.integers(0, end, (n, groups), np.uint8) if form.has_zeros else None
    packed = form.packed(numbers, scales, zeros)
    own = np.full((n, groups), end // 2) if zeros is None else zeros
    at = np.arange(k) // form.group
    exact = (numbers.astype(float) - own[:, at]) * scales[:, at].astype(float)
    assert packed.shape == (n, form.row_bytes(k))
    assert packed.shape[1] % 16 == 0
    assert np.array_equal(form.unpacked(packed, k), exact.astype(np.float16))


def test_int4_is_half_a_byte_a_number_and_two_for_each_scale() -> None:
    problem = _gemm(_INT4, n=64, k=4096)
    assert problem.b_bytes == 64 * (4096 // 2 + 2 * 4096 // 32)
    assert problem.b_shape == (64, problem.sizes["ldb"])
    assert element_b(problem) is BYTES
    assert "int4 in groups of 32" in describe(problem)


def test_the_oracle_multiplies_the_unpacked_weights() -> None:
    problem, rng = _gemm(_INT4), np.random.default_rng(0)
    b = _INT4.drawn(rng, 5, 100, 1.0)
    a = rng.uniform(-1, 1, (3, 100)).astype(np.float16)
    wide = a.astype(float) @ _INT4.unpacked(b, 100).astype(float).T
    assert np.array_equal(run(problem, ElementwiseGraph(), a, b, ()), wide)


def test_a_plain_product_keeps_its_key_and_its_record() -> None:
    plain = Gemm(m=3, n=5, k=100)
    assert "weights" not in canonical(plain)
    assert "weights" not in str(encode(Problem, plain))
    assert "weights" not in describe(plain)


@given(form=_FORMS)
def test_a_packed_product_is_read_back_from_its_record(form: PackedWeights) -> None:
    problem = _gemm(form)
    assert decode(Problem, encode(Problem, problem)) == problem
    assert canonical(problem) != canonical(_gemm(replace(form, has_zeros=not form.has_zeros)))


@pytest.mark.parametrize(("bits", "group"), [(3, 32), (4, 8), (8, 48), (16, 32)])
def test_other_forms_are_refused(bits: int, group: int) -> None:
    with pytest.raises(InvalidProblemError, match=rf"={bits if bits not in BITS else group};"):
        PackedWeights(bits=bits, group=group)
    form = encode(Problem, _gemm(_INT4))
    assert isinstance(form, dict)
    with pytest.raises(RecordError):
        decode(Problem, {**form, "weights": {"bits": bits, "group": group, "has_zeros": False}})


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"batch": 2}, "batch=2"),
        ({"b_layout": Layout.ROW}, "b_layout=row"),
        ({"in_dtype": DType.BF16, "out_dtype": DType.BF16}, "in_dtype=bfloat16"),
    ],
)
def test_packed_weights_are_of_one_column_major_product_of_float16(
    more: dict[str, object], named: str
) -> None:
    with pytest.raises(InvalidProblemError, match=named):
        _gemm(_INT4, **more)


def test_packing_refuses_numbers_of_more_bits_and_absent_zero_points() -> None:
    scales = np.ones((2, 1), np.float16)
    with pytest.raises(InvalidProblemError, match="numbers reach 16"):
        _INT4.packed(np.full((2, 32), 16, np.uint8), scales, None)
    with pytest.raises(InvalidProblemError, match="zero points"):
        _INT4.packed(np.zeros((2, 32), np.uint8), scales, np.zeros((2, 1), np.uint8))
    with pytest.raises(InvalidProblemError, match="48 bytes"):
        _INT4.unpacked(np.zeros((2, 64), np.uint8), 64)
