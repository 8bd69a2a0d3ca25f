"""Operators of operator sets 7 to 12, in the form that set 13 has for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from boltgen.frontend.onnx.rewrites.registry import UnsupportedError, rewrites
from boltgen.frontend.onnx.scope import Builder, attribute, operand, result

LIFTED = "its old form was lifted to that of operator set 13"


@rewrites("Clip", why=LIFTED, below=11)
def clip(node: Any, build: Builder) -> bool:
    """Write bounds that are attributes as inputs."""
    dtype = build.scope.dtype(node.input[0]) or np.dtype(np.float32)
    bounds = [attribute(node, name) for name in ("min", "max")]
    inputs = ["" if bound is None else build.constant(bound, dtype) for bound in bounds]
    build("Clip", [node.input[0], *inputs], out=node.output[0])
    return True


@rewrites("Slice", why=LIFTED, below=10)
def slice_(node: Any, build: Builder) -> bool:
    """Write starts, ends and axes that are attributes as inputs."""
    starts, ends = attribute(node, "starts"), attribute(node, "ends")
    axes = attribute(node, "axes", list(range(len(starts))))
    inputs = [build.constant(each) for each in (starts, ends, axes)]
    build("Slice", [node.input[0], *inputs], out=node.output[0])
    return True


@rewrites("Pad", why=LIFTED, below=11)
def pad(node: Any, build: Builder) -> bool:
    """Write pads and value that are attributes as inputs."""
    dtype = build.scope.dtype(node.input[0]) or np.dtype(np.float32)
    pads = build.constant(attribute(node, "pads"))
    value = build.constant(attribute(node, "value", 0.0), dtype)
    mode = attribute(node, "mode", "constant")
    build("Pad", [node.input[0], pads, value], out=node.output[0], mode=mode)
    return True


@rewrites("Squeeze", "Unsqueeze", "ReduceSum", why=LIFTED, below=13)
def axes_input(node: Any, build: Builder) -> bool:
    """Write axes that are an attribute as an input."""
    axes = attribute(node, "axes")
    inputs = [node.input[0]] if axes is None else [node.input[0], build.constant(axes)]
    keep = attribute(node, "keepdims", 1) if node.op_type == "ReduceSum" else None
    build(node.op_type, inputs, out=node.output[0], keepdims=keep)
    return True


@rewrites("Split", why=LIFTED, below=13)
def split(node: Any, build: Builder) -> bool:
    """Write the lengths of the parts as an input."""
    lengths = attribute(node, "split")
    inputs = [node.input[0]] if lengths is None else [node.input[0], build.constant(lengths)]
    build.many("Split", inputs, list(node.output), axis=attribute(node, "axis", 0))
    return True


@rewrites("Softmax", "LogSoftmax", "Hardmax", why=LIFTED, below=13)
def softmax(node: Any, build: Builder) -> bool:
    """Write a softmax over all axes from `axis` on as one over a last axis that joins them."""
    extents = build.scope.extents(node.input[0])
    axis = attribute(node, "axis", 1)
    if extents is None and axis != -1:
        return False
    rank = len(extents or ())
    if axis in {-1, rank - 1}:
        build(node.op_type, [node.input[0]], out=node.output[0], axis=-1)
        return True
    flat = build("Flatten", [node.input[0]], axis=axis)
    soft = build(node.op_type, [flat], axis=-1)
    shape = build("Shape", [node.input[0]])
    build("Reshape", [soft, shape], out=node.output[0])
    return True


@rewrites("TopK", why=LIFTED, below=10)
def top_k(node: Any, build: Builder) -> bool:
    """Write k as an input."""
    k = build.constant([attribute(node, "k")])
    axis = attribute(node, "axis", -1)
    build.many("TopK", [node.input[0], k], list(node.output), axis=axis)
    return True


@rewrites("Upsample", why="it is written as the Resize that took its place", below=10)
def upsample(node: Any, build: Builder) -> bool:
    """Write Upsample as Resize, which computes coordinates as it does when told so."""
    scales = operand(node, 1) or build.constant(attribute(node, "scales"), np.float32)
    _old_resize(node, build, scales, "floor")
    return True


@rewrites("Resize", why=LIFTED, below=11)
def resize(node: Any, build: Builder) -> bool:
    """Write the Resize of operator set 10, which knew one rule of coordinates."""
    scales = build.scope.constant(node.input[1])
    if scales is None:
        return False
    # Source: onnxruntime, upsamplebase.h: without a rule, shrinking takes the upper neighbour.
    _old_resize(node, build, node.input[1], "ceil" if scales.min() < 1 else "floor")
    return True


def _old_resize(node: Any, build: Builder, scales: str, nearest: str) -> None:
    mode = attribute(node, "mode", "nearest")
    build(
        "Resize",
        [node.input[0], "", scales],
        out=node.output[0],
        mode="linear" if mode == "bilinear" else mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode=nearest,
    )


@rewrites("Scatter", why="ScatterElements took its place")
def scatter(node: Any, build: Builder) -> bool:
    """Write Scatter as ScatterElements."""
    axis = attribute(node, "axis", 0)
    build("ScatterElements", list(node.input), out=node.output[0], axis=axis)
    return True


@rewrites("Dropout", why="it does nothing outside of training")
def dropout(node: Any, build: Builder) -> bool:
    """Write Dropout as what it is outside of training: its operand, and a mask of ones."""
    training = build.scope.constant(operand(node, 2)) if operand(node, 2) else np.False_
    ratio = build.scope.constant(operand(node, 1)) if operand(node, 1) else None
    keeps_all = ratio is not None and not ratio.any()
    if not keeps_all and (training is None or training.any()):
        raise UnsupportedError("it draws random numbers", "export the model for inference")
    if mask := result(node, 1):
        shape = build("Shape", [node.input[0]])
        ones = build.scope.onnx.helper.make_tensor(
            "ones", build.scope.onnx.TensorProto.BOOL, [1], [1]
        )
        build("ConstantOfShape", [shape], out=mask, value=ones)
    build.rename(node.input[0], node.output[0])
    return True
