"""Norms that converters lack, or compute wrongly in some forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from boltgen.frontend.onnx.rewrites.registry import rewrites
from boltgen.frontend.onnx.scope import Builder, attribute, operand, result


def reduced(build: Builder, operator: str, x: str, axes: list[int]) -> str:
    """A reduction along axes that stay with extent 1, in the operator set's form."""
    if operator == "ReduceSum" or build.scope.opset >= 18:
        return build(operator, [x, build.constant(axes)], keepdims=1)
    return build(operator, [x], axes=axes, keepdims=1)


@rewrites("LpNormalization", why="it is written as a division by its norm")
def lp(node: Any, build: Builder) -> bool:
    """Divide by the L1 or L2 norm along an axis; where that is zero, so is the result."""
    dtype = build.scope.dtype(node.input[0])
    if dtype is None:
        return False
    operator = "ReduceL1" if attribute(node, "p", 2) == 1 else "ReduceL2"
    norm = reduced(build, operator, node.input[0], [attribute(node, "axis", -1)])
    empty = build("Equal", [norm, build.constant(0, dtype)])
    divisor = build("Where", [empty, build.constant(1, dtype), norm])
    build("Div", [node.input[0], divisor], out=node.output[0])
    return True


@rewrites("BatchNormalization", why="results that only training has are left out, or computed")
def batch(node: Any, build: Builder) -> bool:
    """Leave statistics out that nobody computes at inference, and compute a batch's own."""
    x, _, _, mean, variance = node.input
    extents = build.scope.extents(x)
    epsilon = attribute(node, "epsilon", 1e-5)
    if attribute(node, "training_mode", 0):
        return extents is not None and _trained(node, build, len(extents), epsilon)
    if len(node.output) == 1:
        return False
    build("BatchNormalization", list(node.input), out=node.output[0], epsilon=epsilon)
    for place, name in enumerate(node.output[1:], 1):
        if name:
            build.rename((variance, mean)[place % 2], name)
    return True


def _trained(node: Any, build: Builder, rank: int, epsilon: float) -> bool:
    """A norm by the statistics of the batch, with the running ones that it gives."""
    x, scale, shift, *running = node.input
    dtype = build.scope.dtype(x)
    if dtype is None:
        return False
    axes = [axis for axis in range(rank) if axis != 1]
    column = build.constant([1, -1] + [1] * (rank - 2))
    centre = reduced(build, "ReduceMean", x, axes)
    away = build("Sub", [x, centre])
    spread = reduced(build, "ReduceMean", build("Mul", [away, away]), axes)
    deviation = build("Sqrt", [build("Add", [spread, build.constant(epsilon, dtype)])])
    scales, shifts = (build("Reshape", [each, column]) for each in (scale, shift))
    scaled = build("Mul", [build("Div", [away, deviation]), scales])
    build("Add", [scaled, shifts], out=node.output[0])
    momentum = attribute(node, "momentum", 0.9)
    flat = build.constant([-1])
    for name, old, new in zip(node.output[1:3], running, (centre, spread), strict=False):
        kept = build("Mul", [old, build.constant(momentum, dtype)])
        fresh = build("Mul", [build("Reshape", [new, flat]), build.constant(1 - momentum, dtype)])
        build("Add", [kept, fresh], out=name)
    return True


@rewrites("LayerNormalization", why="its mean and deviation are computed where they are read")
def layer(node: Any, build: Builder) -> bool:
    """Leave out statistics that nobody reads, and compute those that somebody does."""
    if len(node.output) == 1:
        return False
    x = node.input[0]
    extents, dtype = build.scope.extents(x), build.scope.dtype(x)
    attributes = {key: attribute(node, key) for key in ("axis", "epsilon", "stash_type")}
    build("LayerNormalization", list(node.input), out=node.output[0], **attributes)
    given = [result(node, place) for place in (1, 2)]
    wanted = [name if name in build.scope.read else "" for name in given]
    if not any(wanted):
        return True
    if extents is None or dtype is None:
        return False
    axes = list(range(attribute(node, "axis", -1) % len(extents), len(extents)))
    mean = reduced(build, "ReduceMean", x, axes)
    away = build("Sub", [x, mean])
    variance = reduced(build, "ReduceMean", build("Mul", [away, away]), axes)
    epsilon = build.constant(attribute(node, "epsilon", 1e-5), dtype)
    inverse = build("Reciprocal", [build("Sqrt", [build("Add", [variance, epsilon])])])
    for name, value in zip(wanted, (mean, inverse), strict=True):
        if name:
            build.rename(value, name)
    return True


@rewrites("RMSNormalization", why="it is written out where it joins several axes")
def root_mean_square(node: Any, build: Builder) -> bool:
    """Write the norm out where it takes more than the last axis, which TVM's converter does not."""
    extents, dtype = build.scope.extents(node.input[0]), build.scope.dtype(node.input[0])
    if extents is None or dtype != np.float32:
        return False
    axis = attribute(node, "axis", -1) % len(extents)
    if axis == len(extents) - 1:
        return False
    x, scale = node.input[0], operand(node, 1)
    mean = reduced(build, "ReduceMean", build("Mul", [x, x]), list(range(axis, len(extents))))
    epsilon = build.constant(attribute(node, "epsilon", 1e-5), np.float32)
    root = build("Sqrt", [build("Add", [mean, epsilon])])
    build("Mul", [build("Div", [x, root]), scale], out=node.output[0])
    return True
