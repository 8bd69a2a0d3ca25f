"""Group norms of images in Relay: its own operators, and reshapes that take groups apart."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import boltgen.relay  # noqa: F401 - it brings the libraries that TVM is linked with

import tvm  # isort: skip
from tvm import relay  # isort: skip
from boltgen.frontend.relay import steps  # isort: skip
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.group_norm.problem import GroupNorm

from benchmarks.harness.relay_oracle_kernels import Model  # isort: skip

RNG = np.random.default_rng(6)
N, C, H, W, GROUPS, EPSILON = 2, 16, 6, 5, 4, 1e-5
X = RNG.uniform(-1, 1, (N, 8, H, W)).astype(np.float32)
FIRST = RNG.uniform(-0.2, 0.2, (C, 8, 3, 3)).astype(np.float32)
LAST = RNG.uniform(-0.2, 0.2, (8, C, 1, 1)).astype(np.float32)
SCALE, SHIFT = (RNG.uniform(0.5, 1.5, C).astype(np.float32) for _ in range(2))


def _by_channels(array: np.ndarray) -> relay.Expr:
    return relay.const(array.reshape(C, 1, 1))


def _group_norm(x: relay.Expr) -> relay.Expr:
    scale, shift = relay.const(SCALE), relay.const(SHIFT)
    return relay.nn.group_norm(x, scale, shift, num_groups=GROUPS, axis=1, epsilon=EPSILON)


def _instance_norm(x: relay.Expr) -> relay.Expr:
    return relay.nn.instance_norm(x, relay.const(SCALE), relay.const(SHIFT), epsilon=EPSILON)


def _as_instances(x: relay.Expr) -> relay.Expr:
    ones, zeros = (relay.const(np.full(GROUPS, each, np.float32)) for each in (1, 0))
    apart = relay.reshape(x, (N, GROUPS, C // GROUPS * H * W))
    made = relay.reshape(relay.nn.instance_norm(apart, ones, zeros, epsilon=EPSILON), (N, C, H, W))
    return made * _by_channels(SCALE) + _by_channels(SHIFT)


def _spelled(x: relay.Expr) -> relay.Expr:
    apart = relay.reshape(x, (N, GROUPS, C // GROUPS, H, W))
    centred = apart - relay.mean(apart, axis=[2, 3, 4], keepdims=True)
    variance = relay.mean(centred * centred, axis=[2, 3, 4], keepdims=True)
    normed = centred / relay.sqrt(variance + relay.const(np.float32(EPSILON)))
    made = relay.reshape(normed, (N, C, H, W))
    return made * _by_channels(SCALE) + _by_channels(SHIFT)


def _exact(groups: int) -> np.ndarray:
    """The convolutions and the norm between in FP64."""
    x, padded = X.astype(np.float64), np.zeros((N, 8, H + 2, W + 2))
    padded[:, :, 1:-1, 1:-1] = x
    made = sum(
        np.einsum("kc,nchw->nkhw", FIRST[:, :, r, s], padded[:, :, r : r + H, s : s + W])
        for r in range(3)
        for s in range(3)
    )
    rows = made.reshape(N, groups, -1)
    rows = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + EPSILON)
    normed = rows.reshape(N, C, H, W) * SCALE[:, None, None] + SHIFT[:, None, None]
    normed = normed / (1 + np.exp(-normed))
    return np.einsum("kc,nchw->nkhw", LAST[:, :, 0, 0], normed)


@pytest.mark.parametrize(
    ("body", "groups"),
    [(_group_norm, GROUPS), (_instance_norm, C), (_as_instances, GROUPS), (_spelled, GROUPS)],
)
def test_a_group_norm_between_convolutions_is_one_region_in_place(
    body: Callable[[relay.Expr], relay.Expr], groups: int
) -> None:
    x = relay.var("x", shape=X.shape)
    first = relay.nn.conv2d(x, relay.const(FIRST), padding=(1, 1), channels=C, kernel_size=(3, 3))
    normed = body(first)
    active = normed * relay.sigmoid(normed)
    last = relay.nn.conv2d(active, relay.const(LAST), channels=8, kernel_size=(1, 1))
    partitioned = steps.annotate(tvm.IRModule.from_expr(relay.Function([x], last)))
    problems = [region.workload.single.problem for region in partitioned.regions]
    norms = [problem for problem in problems if isinstance(problem, GroupNorm)]
    assert len(problems) == 3
    assert isinstance(problems[0], Conv2d)
    assert [(each.a_shape, each.groups) for each in norms] == [((N, H, W, C), groups)]
    assert "transpose" not in str(partitioned.module()["main"])
    (actual,) = Model(partitioned).run(X)
    wanted = _exact(groups)
    # What lies between four layers is rounded to FP16, and so are weights.
    error = np.sqrt(np.mean(np.square(actual - wanted)))
    assert error <= 2**-11 * np.sqrt(8) * np.sqrt(np.mean(np.square(wanted)))
