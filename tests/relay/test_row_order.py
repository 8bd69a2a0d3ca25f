"""Windows of images in Relay: norms take rows in their order, spelled out or not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import boltgen.relay  # noqa: F401 - it brings the libraries that TVM is linked with

import tvm  # isort: skip
from tvm import relay  # isort: skip
from boltgen.frontend.relay import steps  # isort: skip
from boltgen.problems.problem import gathered

from benchmarks.harness.relay_oracle_kernels import Model  # isort: skip

BATCH, SIZE, WINDOW, C = 2, 8, 4, 32
RNG = np.random.default_rng(7)
X = RNG.standard_normal((BATCH, SIZE, SIZE, C)).astype(np.float32)
WEIGHTS = [RNG.uniform(-0.3, 0.3, (C, C)).astype(np.float32) for _ in range(3)]
SCALE, SHIFT = (RNG.uniform(-1, 1, C).astype(np.float32) for _ in range(2))
SPLIT = (BATCH, SIZE // WINDOW, WINDOW, SIZE // WINDOW, WINDOW, C)
JOINED = (BATCH, SIZE // WINDOW, SIZE // WINDOW, WINDOW, WINDOW, C)
AXES = (0, 1, 3, 2, 4, 5)
EPSILON = 1e-5


def _layer_norm(x: relay.Expr) -> relay.Expr:
    return relay.nn.layer_norm(x, relay.const(SCALE), relay.const(SHIFT), epsilon=EPSILON)


def _spelled(x: relay.Expr) -> relay.Expr:
    centred = x - relay.mean(x, axis=-1, keepdims=True)
    variance = relay.mean(centred * centred, axis=-1, keepdims=True)
    normed = centred / relay.sqrt(variance + relay.const(np.float32(EPSILON)))
    return normed * relay.const(SCALE) + relay.const(SHIFT)


def _dense(x: relay.Expr, weight: np.ndarray, shape: tuple[int, ...]) -> relay.Expr:
    made = relay.nn.dense(relay.reshape(x, (-1, C)), relay.const(np.ascontiguousarray(weight.T)))
    return relay.reshape(made, shape)


def _exact() -> np.ndarray:
    def norm(x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON) * SCALE + SHIFT

    x = X.astype(np.float64)
    windows = norm(x).reshape(SPLIT).transpose(AXES).reshape(-1, WINDOW**2, C)
    raised = np.exp(windows @ WEIGHTS[0])
    mixed = raised / raised.sum(1, keepdims=True) @ WEIGHTS[1]
    x = x + mixed.reshape(JOINED).transpose(AXES).reshape(x.shape)
    return np.maximum(norm(x) @ WEIGHTS[2], 0)


# The input is FP32, and so is the residual. A norm that is spelled out reads it so, too; TVM takes
# the rows for an operator, which is FP16.
@pytest.mark.parametrize(("norm", "taking"), [(_layer_norm, 1), (_spelled, 2)])
def test_norms_take_the_rows_of_windows(
    norm: Callable[[relay.Expr], relay.Expr], taking: int
) -> None:
    x, shape = relay.var("x", shape=X.shape), (-1, WINDOW**2, C)
    windows = relay.transpose(relay.reshape(norm(x), SPLIT), AXES)
    # A softmax over the tokens of a window stands for attention.
    mixed = relay.nn.softmax(_dense(windows, WEIGHTS[0], shape), axis=1)
    mixed = relay.reshape(_dense(mixed, WEIGHTS[1], shape), JOINED)
    after = x + relay.reshape(relay.transpose(mixed, AXES), X.shape)
    made = relay.nn.relu(_dense(norm(after), WEIGHTS[2], X.shape))
    module = tvm.IRModule.from_expr(relay.Function([x], made))
    partitioned = steps.annotate(module)
    problems = [region.workload.first.problem for region in partitioned.regions]
    assert sum(gathered(each) is not None for each in problems) == taking
    assert all(expr.op != "permute_dims" for expr in partitioned.graphs["main"].exprs)
    (actual,) = Model(partitioned).run(X)
    wanted = _exact()
    error = np.sqrt(np.mean(np.square(actual - wanted)))
    # Five operators round to FP16 twice each.
    assert error <= 2**-11 * np.sqrt(10) * np.sqrt(np.mean(np.square(wanted)))
