"""Norms that converters lack, or compute wrongly in some forms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from boltgen.frontend.onnx.rewrites.registry import Builder, rewrites


def reduced(
    build: Builder, operator: str, x: str, axes: Sequence[int], *, keepdims: bool = True
) -> str:
    """A reduction along axes in the operator set's form; by `keepdims` they stay, of extent 1."""
    if build.scope.opset >= 18:
        return build.many(operator, [x, axes], 1, keepdims=int(keepdims))[0]
    return build.many(operator, [x], 1, axes=axes, keepdims=int(keepdims))[0]


@rewrites("LpNormalization", why="it is written as a division by its norm")
def lp(build: Builder) -> str:
    """Divide by the L1 or L2 norm along an axis; if the norm is zero, so is the result."""
    zero, one = build.dtype().type(0), build.dtype().type(1)
    operator = "ReduceL1" if build.get("p", 2) == 1 else "ReduceL2"
    norm = reduced(build, operator, build.x, [build.get("axis", -1)])
    return build.Div(build.x, build.Where(build.Equal(norm, zero), one, norm))


@rewrites("BatchNormalization", why="results that only training has are left out, or computed")
def batch(build: Builder) -> list[str] | None:
    """Leave out statistics that nobody computes at inference, and compute a batch's own."""
    if build.get("training_mode", 0):
        return _trained(build)
    if len(build.node.output) == 1:
        return None
    epsilon = build.get("epsilon", 1e-5)
    mean, variance = build.node.input[3:]
    made = build.BatchNormalization(*build.node.input, epsilon=epsilon)
    return [made, mean, variance, mean, variance]


def _trained(build: Builder) -> list[str]:
    """A norm by the statistics of the batch, with the running ones that it gives."""
    x, scale, shift, *running = build.node.input
    number, rank = build.dtype().type, len(build.extents())
    axes = [axis for axis in range(rank) if axis != 1]
    column = [1, -1] + [1] * (rank - 2)
    centre = reduced(build, "ReduceMean", x, axes)
    away = build.Sub(x, centre)
    spread = reduced(build, "ReduceMean", build.Mul(away, away), axes)
    deviation = build.Sqrt(build.Add(spread, number(build.get("epsilon", 1e-5))))
    scaled = build.Mul(build.Div(away, deviation), build.Reshape(scale, column))
    results = [build.Add(scaled, build.Reshape(shift, column))]
    momentum = build.get("momentum", 0.9)
    for old, new in zip(running, (centre, spread), strict=True):
        fresh = build.Mul(build.Reshape(new, [-1]), number(1 - momentum))
        results.append(build.Add(build.Mul(old, number(momentum)), fresh))
    return results


@rewrites("LayerNormalization", why="its mean and deviation are computed where they are read")
def layer(build: Builder) -> list[str] | None:
    """Leave out statistics that nobody reads; if somebody reads them, write the norm out."""
    statistics = build.node.output[1:]
    if build.scope.read.intersection(filter(None, statistics)):
        return build.defined()
    if not statistics:
        return None
    attributes = {key: build.get(key) for key in ("axis", "epsilon", "stash_type")}
    return [build.LayerNormalization(*build.node.input, **attributes)]


@rewrites("RMSNormalization", why="it is written out where it joins several axes")
def root_mean_square(build: Builder) -> str | None:
    """Write the norm out if it takes more than the last axis: TVM's converter takes only that."""
    x, rank = build.x, len(build.extents())
    axes = list(range(build.get("axis", -1) % rank, rank))
    if build.dtype() != np.float32 or len(axes) == 1:
        return None
    mean = reduced(build, "ReduceMean", build.Mul(x, x), axes)
    root = build.Sqrt(build.Add(mean, np.float32(build.get("epsilon", 1e-5))))
    return build.Mul(build.Div(x, root), build.operand(1))
