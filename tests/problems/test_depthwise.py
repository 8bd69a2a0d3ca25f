"""Depthwise convolutions as problems: shapes, work, checks, and the oracle against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from boltgen.errors import InvalidProblemError
from boltgen.families.json_form import decode, encode
from boltgen.ir.dtypes import DType
from boltgen.ir.extent import Symbol, symbolic
from boltgen.ir.key import canonical
from boltgen.problems.accumulation import accumulation_rounding
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.oracle import enclose
from boltgen.problems.problem import Problem
from boltgen.problems.reference import compare
from boltgen.problems.workload import Layer, Workload

SMALL: dict[str, Any] = {"n": 2, "h": 9, "w": 8, "c": 6, "r": 3, "s": 2}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "strided": {"stride": (2, 3), "padding": (1, 1, 1, 1)},
    "dilated": {"dilation": (2, 3)},
    "asymmetric": {"padding": (0, 1, 2, 3), "r": 5},
    "multiplied": {"multiplier": 3, "padding": (1, 0, 1, 0)},
    "one_row": {"h": 1, "r": 1, "s": 5, "padding": (0, 8, 0, 0), "dilation": (1, 2)},
}


def _random(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape)


@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_pytorch_does(name: str) -> None:
    problem = Depthwise(**{**SMALL, **CASES[name]})
    a, b = _random(problem.a_shape, 0), _random(problem.b_shape, 1)
    top, left, bottom, right = problem.padding
    padded = np.pad(a, ((0, 0), (top, bottom), (left, right), (0, 0)))
    expected = torch.nn.functional.conv2d(
        torch.from_numpy(padded.transpose(0, 3, 1, 2).copy()),
        torch.from_numpy(b.transpose(2, 3, 0, 1).copy()),
        stride=problem.stride,
        dilation=problem.dilation,
        groups=problem.c,
    )
    wanted = expected.numpy().transpose(0, 2, 3, 1)
    assert problem.d_shape == wanted.shape
    np.testing.assert_allclose(problem.product(a, b), wanted, rtol=0, atol=1e-12)


def test_its_input_may_be_its_first_channels() -> None:
    given = {**SMALL, "s": 3, "padding": (1, 1, 1, 1)}
    plain, problem = Depthwise(**given), Depthwise(**given, with_input=True)
    a, b = _random(problem.a_shape, 0), _random(problem.b_shape, 1)
    assert (problem.k, problem.b_shape, problem.flops) == (12, plain.b_shape, plain.flops)
    assert problem.short == "depthwise 2x9x8x6 to 12, 3x3, with its input"
    np.testing.assert_array_equal(problem.product(a, b)[..., :6], a)
    np.testing.assert_array_equal(problem.product(a, b)[..., 6:], plain.product(a, b))
    assert problem.resized(8, 16).c == 8
    assert decode(Problem, encode(Problem, problem)) == problem


@pytest.mark.parametrize("order", [1, -1])
def test_sums_in_fp32_in_any_order_are_within_the_bound(order: int) -> None:
    problem = Depthwise(**SMALL, out_dtype=DType.F32)
    a, b = (_random(s, i).astype(np.float16) for i, s in enumerate((problem.a_shape, (3, 2, 6, 1))))
    sums = np.zeros(problem.d_shape, np.float32)
    taps = [(r, s) for r in range(problem.r) for s in range(problem.s)][::order]
    for r, s in taps:
        window = a[:, r : r + problem.p, s : s + problem.q].astype(np.float32)
        sums = sums + window * b[r, s, :, 0].astype(np.float32)
    found = enclose(Workload.of(problem), a, [LayerInputs(b)])
    assert compare(sums, found.exact, found.bound).within
    assert not compare(sums + np.float32(1e-5), found.exact, found.bound).within


def test_its_bound_is_of_multiply_adds() -> None:
    rounding = accumulation_rounding(Depthwise(**SMALL))
    assert rounding.relative == pytest.approx(6 * 2.0**-24, rel=1e-6)


def test_its_work() -> None:
    problem = Depthwise(n=2, h=56, w=56, c=144, r=3, s=3, padding=(1, 1, 1, 1))
    assert problem.flops == 2 * 2 * 56 * 56 * 144 * 9
    assert problem.a_bytes == 2 * 56 * 56 * 144 * 2
    assert problem.b_bytes == 9 * 144 * 2
    assert problem.short == "depthwise 2x56x56x144, 3x3"
    assert (problem.alignment_a, problem.alignment_d, problem.slice_rows) == (8, 8, 56 * 56)
    sparse = Depthwise(n=1, h=9, w=9, c=8, r=1, s=1, stride=(3, 3))
    assert sparse.a_bytes == 3 * 3 * 8 * 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"c": 0}, "c=0 is out of range"),
        ({"multiplier": 0}, "multiplier=0 is out of range"),
        ({"r": 10}, "a 10x2 filter with dilation .1, 1. does not fit into a 9x8 activation"),
        ({"stride": (0, 1)}, "must be at least 1"),
        ({"padding": (0, 0, -1, 0)}, "padding=.* at least 0"),
        ({"in_dtype": DType.F32, "out_dtype": DType.F32}, "operands are float32"),
        ({"out_dtype": DType.BF16}, "the result is bfloat16"),
        ({"with_input": True}, "an output of 7x7 pixels and 1 filters .* the activation's 9x8"),
    ],
)
def test_what_is_none_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidProblemError, match=message):
        Depthwise(**{**SMALL, **change})


def test_channels_and_filters_change_together() -> None:
    problem = Depthwise(**SMALL, multiplier=2)
    assert problem.resized(8, 16).k == 16
    with pytest.raises(InvalidProblemError, match="8 channels of 2 filters each make 16, not 8"):
        problem.resized(8, 8)


def test_it_has_a_key_a_record_and_symbolic_images() -> None:
    problem = Depthwise(**SMALL)
    assert "Depthwise(n=2,h=9" in canonical(Workload(layers=(Layer(problem=problem),)))
    assert decode(Problem, encode(Problem, problem)) == problem
    batch = Symbol("n", 1, 16)
    workload = Workload.of(Depthwise(**{**SMALL, "n": symbolic(batch)}))
    assert workload.symbols == (batch,)
    assert workload.at({batch: 2}) == Workload.of(problem)
