"""Rewrite rotary embeddings of com.microsoft: a head's pairs of numbers are turned by their place.

Source: ONNX Runtime, docs/ContribOperators.md, com.microsoft.RotaryEmbedding.
"""

from __future__ import annotations

from boltgen.frontend.onnx.rewrites.registry import (
    Builder,
    UnknownError,
    UnsupportedError,
    rewrites,
)


def turned(  # noqa: PLR0917
    build: Builder, heads: str, cos: str, sin: str, width: int, pairs: int, *, interleaved: bool
) -> str:
    """Turn the first `pairs` pairs of each head (., ., ., width); other elements stay.

    `cos` and `sin` have one number for each pair, and broadcast to the heads.
    """
    kept = ""
    if width > 2 * pairs:
        heads, kept = build.split(heads, [2 * pairs, width - 2 * pairs])
    if interleaved:
        grouped = build.Reshape(heads, [0, 0, 0, pairs, 2])
        parts = build.split(grouped, [1, 1])
        first, second = (build.Squeeze(part, [-1]) for part in parts)
    else:
        first, second = build.split(heads, [pairs, pairs])
    real = build.Sub(build.Mul(first, cos), build.Mul(second, sin))
    imaginary = build.Add(build.Mul(second, cos), build.Mul(first, sin))
    if interleaved:
        wide = [build.Unsqueeze(part, [-1]) for part in (real, imaginary)]
        result = build.Reshape(build.Concat(*wide, axis=-1), [0, 0, 0, 2 * pairs])
    else:
        result = build.Concat(real, imaginary, axis=-1)
    return build.Concat(result, kept, axis=-1) if kept else result


@rewrites("com.microsoft.RotaryEmbedding", why="it is written as products with cosines and sines")
def rotary(build: Builder) -> str:
    """Turn heads (batch, heads, places, width), or rows of all heads (batch, places, hidden).

    Raises:
        UnsupportedError: sequences of several lengths are packed into one, or it has a scale.
    """
    if build.get("is_packed_batching", 0):
        raise UnsupportedError(
            "is_packed_batching=1", "export it with one sequence for each row of the batch"
        )
    if build.get("scale", 1.0) != 1:
        raise UnsupportedError(
            f"scale={build.get('scale')}", "multiply the tables of cosines and sines by it"
        )
    extents, pairs = build.extents(), build.shape(2)[1]
    is_flat = len(extents) == 3
    width = _head_width(build, 2 * pairs)
    axis = 1 if is_flat else 2
    places = build.operand(1)
    if len(build.extents(1)) < 2:
        first = build.Reshape(places, [1])
        places = build.Unsqueeze(build.Add(first, counted(build, extents[axis], axis)), [0])
    cos, sin = (
        build.Unsqueeze(build.Gather(build.operand(place), places, axis=0), [2 if is_flat else 1])
        for place in (2, 3)
    )
    heads = build.Reshape(build.x, [0, 0, -1, width]) if is_flat else build.x
    made = turned(
        build, heads, cos, sin, width, pairs, interleaved=bool(build.get("interleaved", 0))
    )
    return build.Reshape(made, build.Shape(build.x)) if is_flat else made


def _head_width(build: Builder, turned_width: int) -> int:
    last = build.extents()[-1]
    if len(build.extents()) == 4:
        if not isinstance(last, int):
            raise UnknownError
        return last
    if not build.get("rotary_embedding_dim", 0):
        return turned_width
    heads = build.get("num_heads", 0)
    if not heads or not isinstance(last, int):
        raise UnsupportedError(
            "rotary_embedding_dim without num_heads", "export it with its number of heads"
        )
    return last // int(heads)


def counted(build: Builder, extent: int | str | None, axis: int) -> str:
    """The places from 0 on along an axis of the node's first operand."""
    if isinstance(extent, int):
        return build.constant(list(range(extent)))
    # TVM's converter loses the shape of a Range to an unknown extent.
    ones = build.Expand(build.constant([1]), extent_of(build, extent, axis))
    return build.CumSum(ones, build.constant(0), exclusive=1)


def extent_of(build: Builder, extent: int | str | None, axis: int) -> str:
    """An extent of the node's first operand, as a tensor of one number."""
    if isinstance(extent, int):
        return build.constant([extent])
    place = build.Gather(build.Shape(build.x), build.constant(axis), axis=0)
    return build.Unsqueeze(place, [0])
