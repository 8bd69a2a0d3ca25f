"""Forms of operators that ONNX has changed since: they are lifted, or given their new names."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from boltgen.frontend.onnx.rewrites.registry import Builder, Rewriting, UnsupportedError, rewrites

LIFTED = "its old form was lifted to that of operator set 13"
# Attributes that are operands since an operator set, in the order of the operands.
_OPERANDS: dict[str, tuple[int, tuple[str, ...]]] = {
    "Clip": (11, ("min", "max")),
    "Pad": (11, ("pads", "value")),
    "Slice": (10, ("starts", "ends", "axes")),
    "Split": (13, ("split",)),
    **dict.fromkeys(("Squeeze", "Unsqueeze", "ReduceSum"), (13, ("axes",))),
}


def _with_operands(names: tuple[str, ...]) -> Rewriting:
    def lift(build: Builder) -> list[str]:
        """Write attributes as operands."""
        dtype = build.scope.dtype(build.x) or np.dtype(np.float32)
        operands: list[object] = [build.x]
        for value in map(build.get, names):
            is_float = isinstance(value, float)
            operands.append(np.asarray(value, dtype) if is_float else value)
        return build.again(operands, **dict.fromkeys(names))

    return lift


@rewrites("TopK", why=LIFTED, below=10)
def top_k(build: Builder) -> list[str]:
    """Write k as an operand."""
    return build.again([build.x, [build.get("k")]], k=None)


for _operator, (_below, _names) in _OPERANDS.items():
    rewrites(_operator, why=LIFTED, below=_below)(_with_operands(_names))


@rewrites("Softmax", "LogSoftmax", "Hardmax", why=LIFTED, below=13)
def softmax(build: Builder) -> str | None:
    """Write a softmax over all axes from `axis` on as a softmax over one joined last axis."""
    axis = build.get("axis", 1)
    apply: Callable[..., str] = getattr(build, build.node.op_type)
    if axis == -1 or axis == len(build.extents()) - 1:
        return apply(build.x, axis=-1)
    flat = apply(build.Flatten(build.x, axis=axis), axis=-1)
    return build.Reshape(flat, build.Shape(build.x))


@rewrites("Upsample", why="it is written as the Resize that took its place", below=10)
def upsample(build: Builder) -> str:
    """Write Upsample as Resize with the attributes that give the same coordinates."""
    scales = build.operand(1) or np.asarray(build.get("scales"), np.float32)
    return _old_resize(build, scales, "floor")


@rewrites("Resize", why=LIFTED, below=11)
def resize(build: Builder) -> str | None:
    """Write the Resize of operator set 10, which knew one rule of coordinates."""
    scales = build.known(1)
    if scales is None:
        return None
    # Source: onnxruntime, upsamplebase.h: without a rule, shrinking takes the upper neighbour.
    return _old_resize(build, build.operand(1), "ceil" if scales.min() < 1 else "floor")


def _old_resize(build: Builder, scales: object, nearest: str) -> str:
    mode = build.get("mode", "nearest")
    return build.Resize(
        *(build.x, "", scales),
        mode="linear" if mode == "bilinear" else mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode=nearest,
    )


@rewrites("Scatter", why="ScatterElements took its place")
def scatter(build: Builder) -> str:
    """Write Scatter as ScatterElements."""
    return build.ScatterElements(*build.node.input, axis=build.get("axis", 0))


@rewrites("Dropout", why="it does nothing outside of training")
def dropout(build: Builder) -> list[str]:
    """Write Dropout as its operand and a mask of ones, its results outside of training."""
    training = build.known(2) if build.operand(2) else np.False_
    ratio = build.known(1)
    keeps_all = ratio is not None and not ratio.any()
    if not keeps_all and (training is None or training.any()):
        raise UnsupportedError("it draws random numbers", "export the model for inference")
    if len(build.node.output) == 1:
        return [build.x]
    onnx = build.scope.onnx
    ones = onnx.helper.make_tensor("ones", onnx.TensorProto.BOOL, [1], [1])
    return [build.x, build.ConstantOfShape(build.Shape(build.x), value=ones)]
