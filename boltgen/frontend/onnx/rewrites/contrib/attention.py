"""Rewrite attention of com.microsoft as matmuls and a softmax, which one kernel computes.

Source: ONNX Runtime, docs/ContribOperators.md. Masks are added to scores, a causal mask of known
extents is a constant, and heads of K and V that several heads of Q read are repeated: boltgen's
passes recognise these spellings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from boltgen.frontend.onnx.rewrites.contrib.rotary import counted
from boltgen.frontend.onnx.rewrites.registry import (
    Builder,
    UnknownError,
    UnsupportedError,
    rewrites,
)
from boltgen.ir.key_masks import HIDDEN

_WHY = "it is written as products and a softmax"
_SHARED = "export it without shared buffers of the past: each step then returns a longer one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Q, K and V (batch, heads, places, width).

    `hidden` is the width of V in all heads together; the numbers of places are None if unknown.
    """

    query: str
    key: str
    value: str
    rows: int | str | None
    keys: int | str | None
    hidden: int


def _width(extent: int | str | None) -> int:
    if not isinstance(extent, int):
        raise UnknownError
    return extent


def split_heads(build: Builder, x: str, count: int, hidden: int) -> str:
    """Reshape rows (batch, places, hidden) to heads (batch, heads, places, width)."""
    return build.Transpose(build.Reshape(x, [0, 0, count, hidden // count]), perm=[0, 2, 1, 3])


def joined_heads(build: Builder, heads: str, hidden: int) -> str:
    """Reshape heads to rows (batch, places, hidden)."""
    return build.Reshape(build.Transpose(heads, perm=[0, 2, 1, 3]), [0, 0, hidden])


def weights(
    build: Builder, heads: Heads, masks: Sequence[str], *, scale: float, softcap: float = 0.0
) -> str:
    """Return the scores of all keys; masks are added to them."""
    number = build.dtype().type
    scores = build.MatMul(heads.query, build.Transpose(heads.key, perm=[0, 1, 3, 2]))
    if scale != 1:
        scores = build.Mul(scores, number(scale))
    if softcap:
        scores = build.Mul(build.Tanh(build.Div(scores, number(softcap))), number(softcap))
    for mask in filter(None, masks):
        scores = build.Add(scores, mask)
    return scores


def _chosen(build: Builder, is_seen: str, hidden: float) -> str:
    """Return numbers to add to scores: 0 for a visible key."""
    number = build.dtype().type
    return build.Where(is_seen, number(0), number(hidden))


def causal(build: Builder, rows: int | str | None, keys: int | str | None, window: int = 0) -> str:
    """Hide keys after a row's own place and, with a window, the keys `window` or more before it.

    The last row and the last key are at the same place.
    """
    if isinstance(rows, int) and isinstance(keys, int):
        if rows == 1 and not window:
            return ""
        places = np.arange(keys)
        away = np.arange(rows)[:, None] + keys - rows - places
        seen = (away >= 0) & (away < (window or keys))
        number = build.dtype().type
        return build.constant(np.where(seen, number(0), number(HIDDEN)))
    if rows != keys or rows is None:
        raise UnsupportedError(
            "a causal mask of rows and keys of unknown numbers", "give both a size with --shape"
        )
    own = counted(build, rows, 1)
    before = build.Sub(build.Unsqueeze(own, [1]), own)
    is_seen = build.GreaterOrEqual(before, build.constant(0))
    if window:
        is_seen = build.And(is_seen, build.Less(before, build.constant(window)))
    return _chosen(build, is_seen, HIDDEN)


def padding(build: Builder, place: int, keys: int | str | None, *, lengths: bool = True) -> str:
    """Hide keys by an operand: lengths of sequences, or 1 for each key that is seen.

    Raises:
        UnsupportedError: the operand has another form.
    """
    name, extents = build.operand(place), build.extents(place)
    hidden = build.get("mask_filter_value", -10000.0)
    rank = len(extents)
    if rank == 1 and lengths:
        return _by_length(build, place, keys, hidden)
    if rank not in {2, 3}:
        raise UnsupportedError(
            f"a mask of {rank} axes", "give it one number for each key of each sequence"
        )
    if keys != extents[-1]:
        raise UnsupportedError(
            f"a mask of {extents[-1]} keys where there are {keys}",
            "give it one number for each key, also for keys of the past",
        )
    is_seen = build.Cast(name, to=build.scope.onnx.TensorProto.BOOL)
    return _chosen(build, build.Unsqueeze(is_seen, [1, 2] if rank == 2 else [1]), hidden)


def _by_length(build: Builder, place: int, keys: int | str | None, hidden: float) -> str:
    """Hide keys by lengths (batch), or by the ends and the beginnings of sequences (2 * batch)."""
    name, (count,), batch = build.operand(place), build.extents(place), build.extents()[0]
    proto = build.scope.onnx.TensorProto
    is_double = isinstance(count, int) and isinstance(batch, int) and count == 2 * batch
    if count != batch and not is_double:
        raise UnsupportedError(
            f"a mask of {count} numbers for {batch} sequences",
            "give it the length of each sequence, or one number for each key",
        )
    places = build.constant(np.arange(_width(keys), dtype=np.int32))
    wide = build.Cast(name, to=proto.INT32)
    ends = wide
    if is_double:
        assert isinstance(batch, int)
        ends, begins = build.many("Split", [wide, [batch, batch]], 2, axis=0)
    is_seen = build.Less(places, build.Unsqueeze(ends, [1]))
    if is_double:
        is_seen = build.And(is_seen, build.GreaterOrEqual(places, build.Unsqueeze(begins, [1])))
    return _chosen(build, build.Unsqueeze(is_seen, [1, 2]), hidden)


def added(before: int | str | None, new: int | str | None) -> int | str | None:
    """The number of places of the past and of the present together."""
    if isinstance(before, int) and isinstance(new, int):
        return before + new
    return new if before == 0 else None


def _scale(build: Builder, width: int) -> float:
    return float(build.get("scale", 0.0) or 1 / math.sqrt(width))


def _refuse(build: Builder, places: dict[int, str]) -> None:
    """Refuse operands of decoders that keep their state elsewhere."""
    for place, what in places.items():
        if build.operand(place):
            raise UnsupportedError(f"it has {what}", _SHARED)
    if build.get("past_present_share_buffer", 0):
        raise UnsupportedError("past_present_share_buffer=1", _SHARED)


@rewrites("com.microsoft.MultiHeadAttention", why=_WHY)
def multi_head(build: Builder) -> list[str]:
    """Compute attention of projected Q, K and V, packed or not, with the past's keys and values."""
    _refuse(build, {8: "past_sequence_length", 9: "cache_indirection"})
    return _projected(build, mask=4, bias=3, added_bias=5, past=6)


@rewrites("com.microsoft.DecoderMaskedMultiHeadAttention", why=_WHY)
def decoder(build: Builder) -> list[str]:
    """Compute attention of one place, with keys and values of the past."""
    _refuse(build, {7: "past_sequence_length", 8: "beam_width", 9: "cache_indirection"})
    return _projected(build, mask=3, bias=10, added_bias=4, past=5)


def _projected(build: Builder, *, mask: int, bias: int, added_bias: int, past: int) -> list[str]:
    """Attention whose operands are at these places; K's past is followed by V's."""
    count = int(build.get("num_heads"))
    heads = _packed(build) or _apart(build, count, bias)
    key, value, keys = heads.key, heads.value, heads.keys
    if build.operand(past):
        key, value = (
            build.Concat(build.operand(place), new, axis=2)
            for place, new in ((past, key), (past + 1, value))
        )
        keys = added(build.extents(past)[2], keys)
    heads = replace(heads, key=key, value=value, keys=keys)
    extents = build.extents()
    width = _width(extents[-1]) if len(extents) == 5 else _width(extents[-1]) // count
    masks = [build.operand(added_bias)]
    if build.operand(mask):
        masks.append(padding(build, mask, keys))
    if build.get("unidirectional", 0):
        masks.append(causal(build, heads.rows, keys))
    scores = weights(build, heads, masks, scale=_scale(build, width))
    seen = build.Softmax(scores, axis=-1)
    return [joined_heads(build, build.MatMul(seen, value), heads.hidden), key, value, seen]


def _packed(build: Builder) -> Heads | None:
    """Return heads of one tensor (batch, places, heads, 3, width), or None if Q is separate."""
    extents = build.extents()
    if len(extents) != 5:
        return None
    if extents[3] != 3 or build.operand(3):
        raise UnsupportedError("packed Q, K and V with a bias", "export it with Q, K and V apart")
    parts = [
        build.Transpose(build.Squeeze(part, [3]), perm=[0, 2, 1, 3])
        for part in build.many("Split", [build.x, [1, 1, 1]], 3, axis=3)
    ]
    query, key, value = parts
    hidden = _width(extents[2]) * _width(extents[4])
    places = extents[1]
    return Heads(query=query, key=key, value=value, rows=places, keys=places, hidden=hidden)


def _apart(build: Builder, count: int, bias: int) -> Heads:
    """Return heads of Q, and of K and V that are projected, packed, or heads already."""
    extents = build.extents()
    names: list[str] = [build.x, build.operand(1), build.operand(2)]
    if not names[1]:
        raise UnsupportedError(
            "Q, K and V in one tensor of three axes", "export it with K and V as operands"
        )
    given = build.extents(1)
    is_packed, are_heads = len(given) == 5, len(given) == 4
    if build.operand(bias):
        names = _with_bias(build, names, bias, packed=is_packed, heads=are_heads)
    hidden = _width(extents[-1])
    query = split_heads(build, names[0], count, hidden)
    if is_packed:
        last = hidden
        key, value = (
            build.Transpose(build.Squeeze(part, [3]), perm=[0, 2, 1, 3])
            for part in build.many("Split", [names[1], [1, 1]], 2, axis=3)
        )
    elif are_heads:
        key, value = names[1:]
        last = count * _width(build.extents(2)[-1])
    else:
        last = _width(build.extents(2)[-1])
        key = split_heads(build, names[1], count, hidden)
        value = split_heads(build, names[2], count, last)
    keys = given[2] if are_heads else given[1]
    return Heads(query=query, key=key, value=value, rows=extents[1], keys=keys, hidden=last)


def _with_bias(
    build: Builder, names: list[str], bias: int, *, packed: bool, heads: bool
) -> list[str]:
    """Add a bias's parts to Q, and to K and V if they are projected."""
    if packed:
        raise UnsupportedError("packed K and V with a bias", "export it with K and V apart")
    hidden = _width(build.extents()[-1])
    total = build.shape(bias)[0]
    shares = build.split(build.operand(bias), [hidden, hidden, total - 2 * hidden])
    if heads:
        return [build.Add(names[0], shares[0]), *names[1:]]
    return [build.Add(name, share) for name, share in zip(names, shares, strict=True)]


@rewrites("com.microsoft.Attention", why=_WHY)
def attention(build: Builder) -> list[str]:
    """Attention with the projection of Q, K and V before it, by one matrix."""
    _refuse(build, {6: "past_sequence_length"})
    if build.get("do_rotary", 0):
        raise UnsupportedError("do_rotary=1", "export the rotary embedding as an operator")
    count = int(build.get("num_heads"))
    total = build.shape(1)[1]
    sizes = [int(each) for each in build.get("qkv_hidden_sizes") or [total // 3] * 3]
    projected = build.MatMul(build.x, build.operand(1))
    if build.operand(2):
        projected = build.Add(projected, build.operand(2))
    parts = zip(build.split(projected, sizes), sizes, strict=True)
    query, key, value = (split_heads(build, part, count, size) for part, size in parts)
    rows = keys = build.extents()[1]
    present = ""
    if past := build.operand(4):
        before = [build.Squeeze(p, [0]) for p in build.many("Split", [past, [1, 1]], 2, axis=0)]
        key, value = (
            build.Concat(old, new, axis=2) for old, new in zip(before, (key, value), strict=True)
        )
        keys = added(build.extents(4)[3], keys)
    if len(build.node.output) > 1 and build.node.output[1]:
        present = build.Concat(*(build.Unsqueeze(each, [0]) for each in (key, value)), axis=0)
    heads = Heads(query=query, key=key, value=value, rows=rows, keys=keys, hidden=sizes[2])
    masks = [build.operand(5)]
    if build.operand(3):
        masks.append(padding(build, 3, keys))
    if build.get("unidirectional", 0):
        masks.append(causal(build, rows, keys))
    scores = weights(build, heads, masks, scale=_scale(build, sizes[0] // count))
    seen = build.Softmax(scores, axis=-1)
    return [joined_heads(build, build.MatMul(seen, value), sizes[2]), present]
