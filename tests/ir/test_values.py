"""Problems, epilogues and their keys: validation messages, and keys that tell values apart."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cases.kernels import PROBLEM_TYPES
from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import DType, Layout, alignment_elements
from boltgen.ir.elementwise import (
    Accumulator,
    Binary,
    BinaryOp,
    ElementwiseGraph,
    Load,
    LoadKind,
    Scalar,
    Unary,
)
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.key import canonical, digest
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm

extents = st.integers(1, 4096)
gemms = st.builds(
    lambda types, **sizes: Gemm(**sizes, **types),
    st.sampled_from(PROBLEM_TYPES),
    m=extents,
    n=extents,
    k=extents,
    batch=st.integers(1, 3),
    b_layout=st.sampled_from(Layout),
)


@given(gemms, gemms)
def test_keys_are_equal_exactly_where_the_values_are(one, other):
    assert (canonical(one) == canonical(other)) == (one == other)
    assert digest(one) == digest(replace(one))


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_keys_tell_all_constants_apart(x, y):
    same_bits = x == y and str(x) == str(y)  # 0.0 and -0.0 are two constants
    assert (digest(Scalar(x)) == digest(Scalar(y))) == same_bits


def test_a_key_names_its_type_and_fields():
    assert canonical(Scalar(1.0)) == "Scalar(value=0x1.0000000000000p+0)"
    assert digest("ab", "c") != digest("a", "bc")
    assert canonical(1) != canonical("1") != canonical(True)
    assert len(digest()) == 64


@pytest.mark.parametrize("value", [[1], {1: 2}, b"x", object(), Gemm, (1, {2})])
def test_an_unknown_kind_of_value_has_no_key(value):
    with pytest.raises(TypeError, match="canonical"):
        digest(value)


def test_a_field_of_an_unknown_kind_has_no_key():
    @dataclass(frozen=True)
    class Odd:
        field: object

    with pytest.raises(TypeError, match="set"):
        digest(Odd({1}))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gemm(m=0, n=1, k=1), "m=0 is out of range"),
        (lambda: Gemm(m=1, n=2**31, k=1), "n=2147483648 is out of range"),
        (
            lambda: Gemm(m=1, n=1, k=1, in_dtype=DType.F32),
            "operands are float32.*convert the model",
        ),
        (lambda: Gemm(batch=0, m=1, n=1, k=1), "batch=0 is out of range"),
        (lambda: Gemm(m=1, n=1, k=1, b_batched=False), "batch=1 has no other product to share"),
        (lambda: Gemm(m=1, n=1, k=1, a_batched=False), "batch=1 has no other product to share"),
        (lambda: Conv2d(n=1, h=2, w=2, c=1, k=1, r=3, s=3), "3x3 filter .* does not fit"),
        (lambda: Conv2d(n=1, h=2, w=2, c=1, k=1, r=1, s=1, stride=(0, 1)), "at least 1"),
        (lambda: ElementwiseGraph((Scalar(1.0),)), "node 0 must be the accumulator"),
        (lambda: ElementwiseGraph((Accumulator(), Accumulator())), "node 1 is the accumulator"),
        (lambda: ElementwiseGraph((Accumulator(second=True),)), "node 0 must be the accumulator"),
        (
            lambda: ElementwiseGraph((Accumulator(), *[Accumulator(second=True)] * 2)),
            "two second accumulators",
        ),
        (
            lambda: ElementwiseGraph((Accumulator(), Unary(UnaryOp.RELU, 1))),
            "reads .*, not earlier",
        ),
        (lambda: ElementwiseGraph((Accumulator(), Unary(UnaryOp.CLIP, 0))), "clip takes constants"),
        (lambda: ElementwiseGraph((Accumulator(), Scalar(float("nan")))), "constant NaN"),
        (
            lambda: ElementwiseGraph((Accumulator(), *(Load(LoadKind.TENSOR),) * 3)),
            "3 loads of kind 'tensor'; at most 2",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused_with_the_numbers(make, message):
    with pytest.raises(InvalidProblemError, match=message):
        make()


def test_an_epilogue_describes_itself():
    graph = ElementwiseGraph(
        (Accumulator(), Load(LoadKind.ROW), Binary(BinaryOp.ADD, 0, 1), Unary(UnaryOp.RELU, 2))
    )
    assert graph.describe() == "relu(add(acc, row0))"
    assert ElementwiseGraph().is_identity
    assert not graph.is_identity


@given(st.lists(extents, min_size=1, max_size=3), st.sampled_from(DType))
def test_alignment_is_the_widest_vector_that_divides(numbers, dtype):
    width = alignment_elements(dtype, *numbers)
    assert width * dtype.size_bytes <= 16
    assert all(number % width == 0 for number in numbers)
    assert width * dtype.size_bytes == 16 or any(number % (2 * width) for number in numbers)


def test_shared_nodes_are_described_once_each():
    b = ElementwiseBuilder()
    last = 0
    for _ in range(2000):
        last = b.binary(BinaryOp.ADD, last, last)
    text = b.build().describe()
    assert len(text) < 100 * 2000
    assert text.startswith("v4 = add(add(add(add(acc, acc), add(acc, acc)), ")
    assert "; v8 = add(add(add(add(v4, v4), add(v4, v4)), " in text
    assert text.rpartition("; ")[2].count("v1996") == 16


def test_a_long_row_of_nodes_is_described_in_proportion():
    b = ElementwiseBuilder()
    last = 0
    for _ in range(20_000):
        last = b.unary(UnaryOp.RELU, last)
    assert len(b.build().describe()) < 20 * 20_000
