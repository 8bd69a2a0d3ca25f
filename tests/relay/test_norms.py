"""Norms of rows in Relay: its own operators, and what they are decomposed to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import boltgen.relay  # noqa: F401 - it brings the libraries that TVM is linked with

import tvm  # isort: skip
from tvm import relay  # isort: skip
from boltgen.frontend.relay import steps  # isort: skip
from boltgen.ir.dtypes import DType  # isort: skip
from boltgen.problems.norm.problem import Norm, NormFunction

from benchmarks.harness.relay_oracle_kernels import Model  # isort: skip

SHAPE = (2, 5, 64)
RNG = np.random.default_rng(5)
X, SCALE, SHIFT = (RNG.uniform(-1, 1, shape).astype(np.float32) for shape in (SHAPE, 64, 64))
EPSILON = 1e-5


def _number(value: float) -> relay.Expr:
    return relay.const(np.float32(value))


def _layer_norm(x: relay.Expr) -> relay.Expr:
    return relay.nn.layer_norm(x, relay.const(SCALE), relay.const(SHIFT), epsilon=EPSILON)


def _spelled_layer_norm(x: relay.Expr) -> relay.Expr:
    centred = x - relay.mean(x, axis=-1, keepdims=True)
    variance = relay.mean(relay.power(centred, _number(2.0)), axis=-1, keepdims=True)
    normed = centred / relay.sqrt(variance + _number(EPSILON))
    return normed * relay.const(SCALE) + relay.const(SHIFT)


def _rms_norm(x: relay.Expr) -> relay.Expr:
    variance = relay.mean(x * x, axis=-1, keepdims=True)
    return x * relay.rsqrt(variance + _number(EPSILON)) * relay.const(SCALE)


def _softmax(x: relay.Expr) -> relay.Expr:
    return relay.nn.softmax(x, axis=-1)


def _exact(function: NormFunction) -> np.ndarray:
    x = X.astype(np.float64)
    if function is NormFunction.SOFTMAX:
        raised = np.exp(x - x.max(-1, keepdims=True))
        return raised / raised.sum(-1, keepdims=True)
    if function is NormFunction.RMS:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * SCALE
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON) * SCALE + SHIFT


@pytest.mark.parametrize(
    ("body", "function"),
    [
        (_layer_norm, NormFunction.LAYER),
        (_spelled_layer_norm, NormFunction.LAYER),
        (_rms_norm, NormFunction.RMS),
        (_softmax, NormFunction.SOFTMAX),
    ],
)
def test_a_norm_is_one_region(
    body: Callable[[relay.Expr], relay.Expr], function: NormFunction
) -> None:
    x = relay.var("x", shape=SHAPE)
    partitioned = steps.annotate(tvm.IRModule.from_expr(relay.Function([x], body(x))))
    (region,) = partitioned.regions
    problem = region.workload.single.problem
    assert isinstance(problem, Norm)
    assert problem.function is function
    (actual,) = Model(partitioned).run(X)
    wanted = _exact(function)
    # Layer norm alone is taken into FP16: A, scale and shift are rounded, and the result is. Else
    # statistics of 64 numbers in FP32 are off by some hundred roundings.
    roundings = 4 * 2**-11 if problem.in_dtype is DType.F16 else 256 * 2**-24
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=roundings * np.abs(wanted).max())


@pytest.mark.parametrize(("mode", "takes"), [("clip", True), ("fast", True), ("wrap", False)])
def test_the_rows_of_a_table_are_taken_by_the_kernel(mode: str, takes: bool) -> None:
    """An embedding, its layer norm, and a sum that reads its rows again."""
    table = RNG.uniform(-1, 1, (9, 64)).astype(np.float16)
    ids = np.array([[0, 8, 3, 3, 1], [8, 7, 7, 2, 0]], np.int64)
    x = relay.take(
        relay.const(table), relay.var("ids", shape=SHAPE[:2], dtype="int64"), 0, mode=mode
    )
    scale, shift = (relay.const(each.astype(np.float16)) for each in (SCALE, SHIFT))
    normed = relay.nn.layer_norm(x, scale, shift, epsilon=EPSILON)
    model = relay.Function(relay.analysis.free_vars(normed), relay.concatenate([normed, x], 2))
    partitioned = steps.annotate(tvm.IRModule.from_expr(model))
    (region,) = partitioned.regions
    problem = region.workload.single.problem
    assert isinstance(problem, Norm)
    assert (problem.a_rows == 9) is takes
    assert bool(region.workload.single.further) is takes
    (actual,) = Model(partitioned).run(ids)
    rows = table[ids].astype(np.float64)
    centred = rows - rows.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
    wanted = scaled * SCALE.astype(np.float16) + SHIFT.astype(np.float16)
    assert np.array_equal(actual[..., 64:], table[ids])
    # All that is given are FP16 numbers: the result is rounded, and statistics in FP32 are.
    atol = (2**-11 + 256 * 2**-24) * np.abs(wanted).max()
    np.testing.assert_allclose(actual[..., :64], wanted, rtol=0, atol=atol)
