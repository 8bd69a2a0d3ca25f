"""Rewrite GroupQueryAttention of com.microsoft: causal attention whose heads of Q share heads of K
and V.

Source: ONNX Runtime, docs/ContribOperators.md, com.microsoft.GroupQueryAttention. Each sequence may
have fewer places in the past than the tensor of the past has. Its new keys then follow these, both
in what it returns and for the positions; the order of keys is of no account for attention itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from boltgen.frontend.onnx.rewrites.contrib.attention import (
    Heads,
    causal,
    joined_heads,
    split_heads,
    weights,
)
from boltgen.frontend.onnx.rewrites.contrib.rotary import counted, extent_of, turned
from boltgen.frontend.onnx.rewrites.registry import Builder, UnsupportedError, rewrites
from boltgen.ir.key_masks import HIDDEN


@dataclass(frozen=True, slots=True, kw_only=True)
class _Past:
    """The places of the past: the number that the tensor has, and the number that each sequence
    uses.

    `lengths` is "" where each has all of them, else of shape (batch).
    """

    places: int
    new: int
    lengths: str


@rewrites("com.microsoft.GroupQueryAttention", why="it is written as products and a causal softmax")
def grouped(build: Builder) -> list[str]:
    """Compute attention of Q, K and V, with a rotary embedding, a window, and keys and values of
    the past.
    """
    _refuse_forms(build)
    count, shared = int(build.get("num_heads")), int(build.get("kv_num_heads"))
    extents = build.extents()
    width = _known(extents[-1], "hidden size") // (
        count if build.operand(1) else count + 2 * shared
    )
    names = list(build.node.input[:3])
    if not build.operand(1):
        names = build.split(build.x, [count * width, shared * width, shared * width])
    query, key, value = (
        split_heads(build, name, number, number * width)
        for name, number in zip(names, (count, shared, shared), strict=True)
    )
    past = _past(build)
    if past and past.lengths and build.operand(10):
        raise UnsupportedError(
            "attention_bias with a past of several lengths",
            "make seqlens_k a constant, or export it without the bias",
        )
    if build.get("do_rotary", 0):
        query, key = _rotated(build, (query, key), width, past)
    rows = keys = extents[1]
    if past:
        key, value = (
            build.Concat(build.operand(place), new, axis=2) for place, new in ((3, key), (4, value))
        )
        rows, keys = past.new, past.places + past.new
    heads = Heads(
        query=query,
        key=_repeated(build, key, count, shared, width, keys),
        value=_repeated(build, value, count, shared, width, keys),
        rows=rows,
        keys=keys,
        hidden=count * width,
    )
    # A row sees its own key and as many before it as the attribute says.
    window = int(build.get("local_window_size", -1)) + 1
    masks = [build.operand(10)]
    masks.append(
        _seen(build, past, window) if past and past.lengths else causal(build, rows, keys, window)
    )
    scale = float(build.get("scale", 0.0) or width**-0.5)
    scores = weights(build, heads, masks, scale=scale, softcap=build.get("softcap", 0.0))
    result = build.MatMul(_softmax(build, scores, count), heads.value)
    presents = [key, value]
    if past and past.lengths:
        presents = [_in_order(build, each, past) for each in presents]
    return [joined_heads(build, result, heads.hidden), *presents]


def _known(extent: int | str | None, what: str) -> int:
    if not isinstance(extent, int):
        raise UnsupportedError(f"an unknown {what}", "give it a size with --shape")
    return extent


def _refuse_forms(build: Builder) -> None:
    outputs = build.node.output
    if build.get("qk_output", 0) and len(outputs) > 3 and outputs[3]:
        raise UnsupportedError("its scores are a result (qk_output)", "export it without them")
    if not build.operand(3) and build.known(6) is not None:
        total, new = int(build.known(6)), build.extents()[1]  # type: ignore[arg-type]
        if total != new:
            raise UnsupportedError(
                f"total_sequence_length={total} of {new} places without a past",
                "give it past_key and past_value",
            )


def _past(build: Builder) -> _Past | None:
    """Return the node's past, or None if it has none.

    Raises:
        UnsupportedError: its tensors have room for the present.
    """
    if not build.operand(3) or build.extents(3)[2] == 0:
        return None
    places = _known(build.extents(3)[2], "number of places of the past")
    new = _known(build.extents()[1], "number of new places")
    total, lengths = build.known(6), build.known(5)
    if total is not None and int(total.reshape(())) != places + new:
        raise UnsupportedError(
            f"a past of {places} places with room for the present "
            f"(total_sequence_length={int(total.reshape(()))})",
            "export it without shared buffers of the past: each step then returns a longer one",
        )
    if lengths is not None and (lengths == places + new - 1).all():
        return _Past(places=places, new=new, lengths="")
    wide = build.Cast(build.operand(5), to=build.scope.onnx.TensorProto.INT64)
    return _Past(places=places, new=new, lengths=build.Add(wide, [1 - new]))


def _rotated(
    build: Builder, heads: tuple[str, str], width: int, past: _Past | None
) -> tuple[str, str]:
    """Rotate Q and K by their places."""
    given, pairs = build.operand(9), build.shape(7)[1]
    own = counted(build, build.extents()[1], 1)
    if past and given:
        places = given
    elif past and past.lengths:
        places = build.Add(build.Unsqueeze(past.lengths, [1]), own)
    elif past:
        places = build.Unsqueeze(build.Add(own, build.constant(past.places)), [0])
    elif given:
        first = build.Slice(build.Reshape(given, [-1]), [0], [1])
        places = build.Unsqueeze(build.Add(first, own), [0])
    else:
        places = build.Unsqueeze(own, [0])
    cos, sin = (
        build.Unsqueeze(build.Gather(build.operand(place), places, axis=0), [1]) for place in (7, 8)
    )
    interleaved = bool(build.get("rotary_interleaved", 0))
    query, key = (
        turned(build, each, cos, sin, width, pairs, interleaved=interleaved) for each in heads
    )
    return query, key


def _repeated(  # noqa: PLR0917
    build: Builder, heads: str, count: int, shared: int, width: int, keys: int | str | None
) -> str:
    """Repeat each head of K or V as often as heads of Q read it."""
    if count == shared:
        return heads
    extents = build.extents()
    places = build.constant([keys]) if isinstance(keys, int) else extent_of(build, keys, 1)
    known = [shared, count // shared], [width]
    shape = build.Concat(extent_of(build, extents[0], 0), known[0], places, known[1], axis=0)
    wide = build.Expand(build.Unsqueeze(heads, [2]), shape)
    return build.Reshape(wide, [0, count, -1, width])


def _seen(build: Builder, past: _Past, window: int) -> str:
    """Hide places of the past that a sequence does not use, and new places after a row's own."""
    number = build.dtype().type
    keys, rows = np.arange(past.places + past.new), np.arange(past.new)[:, None]
    new = keys - past.places
    is_new = (new >= 0) & (new <= rows)
    if window > 0:
        is_new &= new > rows - window
    lengths = build.Unsqueeze(past.lengths, [1, 2, 3])
    is_old = build.And(build.Less(keys, lengths), keys < past.places)
    if window > 0:
        is_old = build.And(is_old, build.Greater(keys, build.Add(lengths, rows - window)))
    is_seen = build.Or(is_old, is_new)
    return build.Where(is_seen, number(0), number(HIDDEN))


def _softmax(build: Builder, scores: str, count: int) -> str:
    """Compute the softmax of scores; a sink adds one score that belongs to no value."""
    number, sink = build.dtype().type, build.operand(11)
    if not sink and build.get("smooth_softmax", 0) != 1:
        return build.Softmax(scores, axis=-1)
    column = build.Reshape(sink, [1, count, 1, 1]) if sink else np.zeros((1, count, 1, 1), number)
    leading = build.Slice(build.Shape(scores), [0], [3])
    column = build.Expand(column, build.Concat(leading, [1], axis=0))
    wide = build.Softmax(build.Concat(scores, column, axis=-1), axis=-1)
    return build.Slice(wide, [0], [-1], [-1])


def _in_order(build: Builder, joint: str, past: _Past) -> str:
    """Join the past and the new K or V, in the order of places of each sequence."""
    places = np.arange(past.places + past.new)
    lengths = build.Unsqueeze(past.lengths, [1])
    new = build.Min(build.Sub(places, lengths), np.int64(past.new - 1))
    index = build.Where(build.Less(places, lengths), places, build.Add(new, [past.places]))
    shape = build.Shape(joint)
    wide = build.Expand(build.Unsqueeze(index, [1, 3]), shape)
    return build.GatherElements(joint, wide, axis=2)
