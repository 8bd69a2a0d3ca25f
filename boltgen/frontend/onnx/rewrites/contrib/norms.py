"""Norms of com.microsoft, with the sums and the embeddings that ONNX Runtime fuses into them.

Source: ONNX Runtime, docs/ContribOperators.md. Statistics are computed where they are read.
"""

from __future__ import annotations

import numpy as np

from boltgen.frontend.onnx.rewrites.normalisation import reduced
from boltgen.frontend.onnx.rewrites.registry import Builder, UnsupportedError, rewrites

_SPELLED = "it is spelled with standard operators"


def _is_read(build: Builder, place: int) -> bool:
    """Whether something reads the node's result at a place."""
    outputs = build.node.output
    return place < len(outputs) and outputs[place] in build.scope.read


def _sum(build: Builder, *names: str) -> str:
    """The sum of the operands that are there."""
    total, *others = filter(None, names)
    for other in others:
        total = build.Add(total, other)
    return total


def _wide(build: Builder, x: str) -> str:
    """A value in FP32."""
    if build.dtype() == np.float32:
        return x
    return build.Cast(x, to=build.scope.onnx.TensorProto.FLOAT)


def _statistics(build: Builder, x: str, axes: list[int]) -> tuple[str, str]:
    """The mean along axes, and one over the deviation from it, both in FP32."""
    x = _wide(build, x)
    mean = reduced(build, "ReduceMean", x, axes)
    away = build.Sub(x, mean)
    variance = reduced(build, "ReduceMean", build.Mul(away, away), axes)
    epsilon = np.float32(build.get("epsilon", 1e-12))
    return mean, build.Reciprocal(build.Sqrt(build.Add(variance, epsilon)))


def _root_mean_square(build: Builder, x: str, weight: str, axes: list[int]) -> tuple[str, str]:
    """The norm of x by its root mean square, and one over that."""
    wide = _wide(build, x)
    mean = reduced(build, "ReduceMean", build.Mul(wide, wide), axes)
    root = build.Sqrt(build.Add(mean, np.float32(build.get("epsilon", 1e-5))))
    normed = build.Div(wide, root)
    if wide != x:
        code = build.scope.onnx.helper.np_dtype_to_tensor_dtype(build.dtype())
        normed = build.Cast(normed, to=code)
    return build.Mul(normed, weight), build.Reciprocal(root)


@rewrites("com.microsoft.SkipLayerNormalization", why=_SPELLED)
def skip_layer(build: Builder) -> list[str]:
    """The layer norm of a sum, its statistics, and the sum."""
    x, skip, weight = build.node.input[:3]
    shift, bias = build.operand(3), build.operand(4)
    total = _sum(build, x, skip, bias)
    normed = build.LayerNormalization(
        total, weight, shift, axis=-1, epsilon=build.get("epsilon", 1e-12)
    )
    mean, inverse = "", ""
    if _is_read(build, 1) or _is_read(build, 2):
        mean, inverse = _statistics(build, total, [-1])
    return [normed, mean, inverse, total]


@rewrites("com.microsoft.SkipSimplifiedLayerNormalization", why=_SPELLED)
def skip_root_mean_square(build: Builder) -> list[str]:
    """The RMS norm of a sum, one over the root, and the sum.

    Raises:
        UnsupportedError: something reads the mean, which such a norm does not compute.
    """
    if _is_read(build, 1):
        raise UnsupportedError("its mean is read", "it computes none: leave the output out")
    x, skip, weight = build.node.input[:3]
    total = _sum(build, x, skip, build.operand(3))
    normed, inverse = _root_mean_square(build, total, weight, [-1])
    return [normed, "", inverse, total]


@rewrites(
    *("SimplifiedLayerNormalization", "com.microsoft.SimplifiedLayerNormalization"), why=_SPELLED
)
def root_mean_square(build: Builder) -> list[str]:
    """The RMS norm from an axis on, and one over the root."""
    rank = len(build.extents())
    axes = [axis - rank for axis in range(build.get("axis", -1) % rank, rank)]
    return list(_root_mean_square(build, build.x, build.operand(1), axes))


@rewrites("com.microsoft.LayerNormalization", why=_SPELLED)
def layer(build: Builder) -> list[str]:
    """A layer norm from an axis on, and its statistics."""
    rank, axis = len(build.extents()), build.get("axis", -1)
    epsilon = build.get("epsilon", 1e-5)
    normed = build.LayerNormalization(*build.node.input, axis=axis, epsilon=epsilon)
    if not _is_read(build, 1) and not _is_read(build, 2):
        return [normed]
    axes = [each - rank for each in range(axis % rank, rank)]
    return [normed, *_statistics(build, build.x, axes)]


@rewrites("com.microsoft.EmbedLayerNormalization", why=_SPELLED)
def embedded(build: Builder) -> list[str]:
    """The layer norm of a sum of embeddings, the number of words of each row, and the sum."""
    words, segments = build.operand(0), build.operand(1)
    table, places, kinds, weight, shift = (build.operand(each) for each in range(2, 7))
    mask, given = build.operand(7), build.operand(8)
    total = build.Gather(table, words, axis=0)
    if given:
        total = build.Add(total, build.Gather(places, given, axis=0))
    else:
        length = build.extents()[1]
        end = [length] if isinstance(length, int) else build.Slice(build.Shape(words), [1], [2])
        total = build.Add(total, build.Slice(places, [0], end, [0]))
    if segments and kinds:
        total = build.Add(total, build.Gather(kinds, segments, axis=0))
    normed = build.LayerNormalization(
        total, weight, shift, axis=-1, epsilon=build.get("epsilon", 1e-12)
    )
    counts = ""
    if _is_read(build, 1):
        proto = build.scope.onnx.TensorProto
        counted = mask or build.Mul(build.Cast(words, to=proto.INT32), np.int32(0))
        counts = build.ReduceSum(build.Cast(counted, to=proto.INT32), [1], keepdims=0)
    return [normed, counts, total]


@rewrites("com.microsoft.GroupNorm", "com.microsoft.SkipGroupNorm", why=_SPELLED)
def group(build: Builder) -> list[str]:
    """The norm of groups of channels of a sum, an activation of it, and the sum."""
    is_last, rank = build.get("channels_last", 1), len(build.extents())
    channels = build.shape(1)[0]
    total = build.x
    if skip := build.operand(3):
        if len(build.extents(3)) < rank:
            ones = [1] * (rank - 2)
            skip = build.Reshape(skip, [0, *ones, -1] if is_last else [0, -1, *ones])
        total = build.Add(total, skip)
    if bias := build.operand(4):
        total = build.Add(total, bias if is_last else build.Reshape(bias, _column(rank)))
    first = build.Transpose(total, perm=[0, rank - 1, *range(1, rank - 1)]) if is_last else total
    number, groups = build.dtype().type, build.get("groups")
    units = np.ones(groups, number), np.zeros(groups, number)
    rows = build.Reshape(first, [0, groups, -1])
    normed = build.InstanceNormalization(rows, *units, epsilon=build.get("epsilon", 1e-5))
    shaped = build.Reshape(normed, build.Shape(first))
    code = build.scope.onnx.helper.np_dtype_to_tensor_dtype(build.dtype())
    weight, shift = (
        build.Reshape(
            name if build.dtype(place) == build.dtype() else build.Cast(name, to=code),
            [channels, *_column(rank)[1:]],
        )
        for place, name in ((1, build.operand(1)), (2, build.operand(2)))
    )
    result = build.Add(build.Mul(shaped, weight), shift)
    if build.get("activation", 0):
        result = build.Mul(result, build.Sigmoid(result))
    result = build.Transpose(result, perm=[0, *range(2, rank), 1]) if is_last else result
    return [result, total]


def _column(rank: int) -> list[int]:
    """The shape of one number for each channel of a tensor whose channels are its axis 1."""
    return [-1] + [1] * (rank - 2)
