"""Elementwise operators of com.microsoft, and its doubles of standard operators.

Source: ONNX Runtime, docs/ContribOperators.md. Activations are spelled as exporters spell them,
since boltgen recognises these spellings in an epilogue.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from boltgen.frontend.onnx.rewrites.registry import Builder, UnsupportedError, rewrites

_SPELLED = "it is spelled with standard operators"
_STANDARD = "the standard operator of this name takes its place"


def gelu(build: Builder, x: str) -> str:
    """x / 2 * (1 + erf(x / sqrt(2)))."""
    number = build.dtype().type
    turned = build.Add(build.Erf(build.Div(x, number(math.sqrt(2)))), number(1))
    return build.Mul(build.Mul(x, turned), number(0.5))


@rewrites("com.microsoft.Gelu", "com.microsoft.BiasGelu", why=_SPELLED)
def exact(build: Builder) -> str:
    """Gelu by the error function, of a sum if there is a bias."""
    return gelu(build, _biased(build))


@rewrites("com.microsoft.FastGelu", why=_SPELLED)
def fast(build: Builder) -> str:
    """Gelu by the hyperbolic tangent, of a sum if there is a bias."""
    x, number = _biased(build), build.dtype().type
    cube = build.Mul(build.Mul(build.Mul(x, x), x), number(0.044715))
    inner = build.Mul(build.Add(x, cube), number(math.sqrt(2 / math.pi)))
    return build.Mul(build.Mul(x, number(0.5)), build.Add(build.Tanh(inner), number(1)))


def _biased(build: Builder) -> str:
    return build.Add(build.x, build.operand(1)) if build.operand(1) else build.x


@rewrites("com.microsoft.QuickGelu", why=_SPELLED)
def quick(build: Builder) -> str:
    """x * sigmoid(alpha * x)."""
    x, alpha = build.x, build.get("alpha", 1.702)
    inner = x if alpha == 1 else build.Mul(x, build.dtype().type(alpha))
    return build.Mul(x, build.Sigmoid(inner))


@rewrites("com.microsoft.BiasSplitGelu", why=_SPELLED)
def gated(build: Builder) -> str | None:
    """The first half of the channels times the Gelu of the second."""
    width = build.extents()[-1]
    if not isinstance(width, int):
        raise UnsupportedError("an unknown number of channels", "give them a size with --shape")
    left, right = build.split(_biased(build), [width // 2] * 2)
    return build.Mul(left, gelu(build, right))


@rewrites("com.microsoft.BiasAdd", why=_SPELLED)
def bias_add(build: Builder) -> str:
    """A sum of three."""
    return build.Add(_biased(build), build.operand(2))


@rewrites("com.microsoft.BiasSoftmax", why=_SPELLED)
def bias_softmax(build: Builder) -> str:
    """A softmax of a sum over all axes from `axis` on; a bias broadcasts from either side."""
    extents, bias = build.extents(), build.extents(1)
    rank, own = len(extents), len(bias)
    axis = build.get("axis", 1) % rank
    added = build.operand(1)
    if build.get("is_inner_broadcast", 1) and own < rank:
        # The bias has the batch and the axes of the softmax, with ones or nothing in between.
        ahead = own - (rank - axis)
        kept = [0] * ahead + [1] * (rank - own)
        added = build.Reshape(added, [*kept, *(_number(each) for each in bias[ahead:])])
    total = build.Add(build.x, added)
    if axis == rank - 1:
        return build.Softmax(total, axis=-1)
    flat = build.Reshape(total, [*([0] * axis), -1])
    return build.Reshape(build.Softmax(flat, axis=-1), build.Shape(build.x))


def _number(extent: Any) -> int:
    if not isinstance(extent, int):
        raise UnsupportedError("a bias of unknown extents", "give them sizes with --shape")
    return extent


@rewrites("com.microsoft.ComplexMul", "com.microsoft.ComplexMulConj", why=_SPELLED)
def complex_product(build: Builder) -> str:
    """A product of complex numbers, whose parts the last axis has."""
    (a, b), (c, d) = (
        [build.Slice(name, [part], [part + 1], [-1]) for part in (0, 1)]
        for name in build.node.input
    )
    if build.node.op_type == "ComplexMulConj":
        d = build.Neg(d)
    real = build.Sub(build.Mul(a, c), build.Mul(b, d))
    imaginary = build.Add(build.Mul(a, d), build.Mul(b, c))
    return build.Concat(real, imaginary, axis=-1)


@rewrites("com.microsoft.CDist", why=_SPELLED)
def distances(build: Builder) -> str:
    """Distances of all rows of one matrix from all of another.

    Raises:
        UnsupportedError: they are other than Euclidean, squared or not.
    """
    metric = build.get("metric", "sqeuclidean")
    if metric not in {"euclidean", "sqeuclidean"}:
        raise UnsupportedError(f"metric {metric!r}", "export the distance as operators")
    away = build.Sub(build.Unsqueeze(build.x, [1]), build.Unsqueeze(build.operand(1), [0]))
    total = build.ReduceSum(build.Mul(away, away), [-1], keepdims=0)
    return build.Sqrt(total) if metric == "euclidean" else total


@rewrites("com.microsoft.IsAllFinite", why=_SPELLED)
def all_finite(build: Builder) -> str:
    """Return whether no tensor has an infinity or a NaN, or only one of these kinds."""
    proto = build.scope.onnx.TensorProto
    only_nan, only_infinite = build.get("isnan_only", 0), build.get("isinf_only", 0)
    found = ""
    for name in build.node.input:
        kinds = [] if only_nan else [build.IsInf(name)]
        kinds += [] if only_infinite else [build.IsNaN(name)]
        for kind in kinds:
            numbers = build.Cast(kind, to=proto.FLOAT)
            most = build.ReduceMax(build.Reshape(numbers, [-1]), keepdims=0)
            found = build.Max(found, most) if found else most
    return build.Equal(found, np.float32(0))


@rewrites("com.microsoft.ExpandDims", why=_SPELLED)
def expand(build: Builder) -> str:
    """An axis of one element at a constant place.

    Raises:
        UnsupportedError: the place is computed.
    """
    axis = build.known(1)
    if axis is None:
        raise UnsupportedError("an axis that is computed", "make it a constant")
    return build.Unsqueeze(build.x, [int(axis.reshape(-1)[0])])


@rewrites("com.microsoft.TorchEmbedding", why=_SPELLED)
def embedding(build: Builder) -> str:
    """Rows of a table."""
    return build.Gather(build.x, build.operand(1), axis=0)


@rewrites("com.microsoft.UnfoldTensor", why=_SPELLED)
def unfold(build: Builder) -> str:
    """Windows along an axis, each of them along a new last axis."""
    extents, size, step = build.extents(), build.get("size"), build.get("step", 1)
    rank = len(extents)
    axis = build.get("dim", -1) % rank
    extent = extents[axis]
    if not isinstance(extent, int):
        raise UnsupportedError(f"axis {axis} of unknown extent", "give it a size with --shape")
    starts = np.arange((extent - size) // step + 1)[:, None] * step
    taken = build.Gather(build.x, starts + np.arange(size), axis=axis)
    order = [each for each in range(rank + 1) if each != axis + 1]
    return build.Transpose(taken, perm=[*order, axis + 1])


@rewrites(
    *(f"com.microsoft.{name}" for name in ("GatherND", "Trilu", "Range", "Pad")),
    why=_STANDARD,
)
def standard(build: Builder) -> str:
    """Write an operator as the standard one of its name and form."""
    operands = list(build.node.input)
    if build.node.op_type == "Range" and len(operands) < 3:
        operands.append(build.constant(build.dtype().type(1)))
    if build.node.op_type == "Pad" and len(build.extents(1)) > 1:
        operands[1] = build.Reshape(operands[1], [-1])
    given = {key: build.get(key) for key in ("upper", "mode")}
    return build.many(build.node.op_type, operands, 1, **given)[0]


@rewrites("com.microsoft.GemmaRotaryEmbedding", why=_SPELLED)
def gemma_rotary(build: Builder) -> list[str]:
    """Turn Q and K by angles; their cosines and sines are computed here."""
    code = build.scope.onnx.helper.np_dtype_to_tensor_dtype(build.dtype(1))
    turns = [
        build.Unsqueeze(build.Cast(each, to=code), [1])
        for each in (build.Cos(build.x), build.Sin(build.x))
    ]
    pairs = (build.node.input[1:3], build.node.input[3:5])
    return [build.Add(build.Mul(x, turns[0]), build.Mul(y, turns[1])) for x, y in pairs]
