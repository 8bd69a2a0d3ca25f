"""Split masks of scores into a constant part and the keys of each sequence. For both IRs.

    scores + where(ahead & seen, 0, lowest), ahead: (M, N) is known, seen: (B, 1, 1, N)
    ->  (scores + where(ahead, 0, lowest)) + where(seen, 0, lowest)

    scores + where(seen, bias, lowest), bias: (1, H, M, N) is known
    ->  (scores + bias) + where(seen, 0, lowest)

    where(ahead & seen, scores, lowest)
    ->  where(seen, where(ahead, scores, lowest), lowest)

The library transformers joins a causal mask, or a bias of positions, with a tokenizer's mask.
Split, no mask of (B, H, M, N) is computed, and a causal kernel loads only the mask of keys. The
split is exact because only a softmax reads the sums: the exponential is 0 for every key that either
part hides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import TypeAlias

import numpy as np

from boltgen.graph.attributes import Clip
from boltgen.graph.facts import (
    AND,
    NOT,
    OR,
    Values,
    are_static,
    axis_of,
    is_static_call,
    is_without_inputs,
    only_reader,
    recursive_fact,
)
from boltgen.graph.graph import Graph, GraphBuilder
from boltgen.graph.patterns import Either, Match, Number, Through, Var, op
from boltgen.graph.recursion import Steps
from boltgen.graph.rules import Rule, rewrite
from boltgen.ir.key_masks import HIDDEN

_ADD, _CAST, _CLIP, _SOFTMAX = "add", "astype", "clip", "nn.softmax"
_WHERE, _BROADCAST = "where", "broadcast_to"
# Operators on scores of all keys before a softmax, besides a sum with another mask.
_BEFORE = frozenset({_ADD, _CAST, _CLIP, _WHERE, "minimum"})
# A clip of scores must keep all numbers up to FP16's greatest.
_GREATEST = 65504.0


# Tensors of truths, and for each whether false is what shows a key.
_Truths: TypeAlias = "tuple[tuple[int, bool], ...]"


def with_masks_apart(graph: Graph) -> Graph:
    """Return `graph` with scores added first to a constant mask, then to a mask of keys."""
    return rewrite(graph, _RULES)


@recursive_fact
def _is_softmaxed(graph: Graph, index: int) -> Steps[int, bool]:
    """Return whether only a softmax along keys reads a value, or its sums with other masks."""
    at = only_reader(graph, index)
    if at is None:
        return False
    reader = graph[at]
    if reader.op == _SOFTMAX and reader.is_static:
        return axis_of(reader) == len(reader.static_shape) - 1
    return reader.op in _BEFORE and (yield at)


def _keeps_hidden(values: Values, index: int) -> bool:
    """Return whether what hides a key still does after an operator on a mask."""
    clip = values[index].attrs
    return not isinstance(clip, Clip) or (clip.low <= HIDDEN and clip.high >= _GREATEST)


def _parts(found: Match) -> tuple[_Truths, _Truths] | None:
    """Return the truths of a choice in which no input has a part, and the truths of keys, which are
    the same for all rows.

    Return None if it has no such truths of keys, chooses no number that hides, or is not read by a
    softmax only.
    """
    values, choice = found.values, found.expr("choice")
    if not all(is_static_call(values, each) for each in found.members):
        return None
    if len(choice.static_shape) < 3 or choice.static_shape[-2] == 1:
        return None
    if found.number("hidden") > HIDDEN or not _is_softmaxed(found.source, found.origin):
        return None
    negated = choice.args[1] == found["hidden"]
    joined = tuple(_joined(values, choice.args[0], negated=negated))
    known = tuple(each for each in joined if is_without_inputs(values, each[0]))
    keys = tuple(each for each in joined if each not in known)
    if not keys or not are_static(values, *(at for at, _ in known)):
        return None
    return (known, keys) if all(_is_of_keys(values, at) for at, _ in keys) else None


def _joined(values: Values, index: int, *, negated: bool) -> Iterator[tuple[int, bool]]:
    """Yield the booleans before broadcasts; all must be true, or `negated`, for `index` to be so.

    Source: De Morgan's laws.
    """
    pending = [(index, negated)]
    found: set[tuple[int, bool]] = set()
    while pending:
        at, is_negated = pending.pop()
        if (at, is_negated) in found:
            continue
        found.add((at, is_negated))
        expr = values[at]
        if is_without_inputs(values, at) or expr.dtype != "bool":
            yield at, is_negated
        elif expr.op == _BROADCAST:
            pending.append((expr.args[0], is_negated))
        elif expr.op in NOT:
            pending.append((expr.args[0], not is_negated))
        elif expr.op in (OR if is_negated else AND):
            pending += ((arg, is_negated) for arg in reversed(expr.args))
        else:
            yield at, is_negated


def _is_of_keys(values: Values, index: int) -> bool:
    expr = values[index]
    return expr.is_static and len(expr.static_shape) > 2 and expr.static_shape[-2] == 1


def _is_no_joint_mask(found: Match) -> str | None:
    parts, shown = _parts(found), found["shown"]
    if parts is None or not is_without_inputs(found.values, shown):
        return ""
    is_known = not parts[0] and found.expr("shown").elements == 1
    return "" if is_known or found.shape("scores") != found.shape() else None


def _added(found: Match, builder: GraphBuilder) -> int:
    """Write scores, plus the constant mask, plus the mask of keys."""
    truths, keys = _parts(found) or ((), ())
    known = found["shown"]
    if truths:
        known = _where(builder, truths, known, found["hidden"])
    for index in reversed(found.path("through")):
        expr = builder[index]
        if expr.op == _CAST:
            known = builder.astype(known, expr.dtype)
        elif expr.op == _CLIP:
            known = builder.elementwise(_CLIP, known, attrs=expr.attrs)
    # Both parts may hide a key, and the sum of both is to be a number.
    lowest = -inf if found.number("hidden") == -inf else HIDDEN
    numbers = (np.array(each, builder.dtype(known)) for each in (0.0, lowest))
    zero, hidden = map(builder.constant, numbers)
    mask = _where(builder, keys, zero, hidden)
    return builder.elementwise(_ADD, builder.elementwise(_ADD, found["scores"], known), mask)


def _is_no_joint_choice(found: Match) -> str | None:
    parts, shown = _parts(found), found["shown"]
    if parts is None or not parts[0] or is_without_inputs(found.values, shown):
        return ""
    return "" if found.shape("shown") != found.shape() else None


def _chosen(found: Match, builder: GraphBuilder) -> int:
    """Write scores chosen by the constant part, and then by the part of keys."""
    (known, keys), hidden = _parts(found) or ((), ()), found["hidden"]
    return _where(builder, keys, _where(builder, known, found["shown"], hidden), hidden)


def _where(
    builder: GraphBuilder, truths: Sequence[tuple[int, bool]], shown: int, hidden: int
) -> int:
    not_ = "logical_not"
    first, *others = (builder.elementwise(not_, at) if no else at for at, no in truths)
    for other in others:
        first = builder.elementwise("logical_and", first, other)
    return builder.where(first, shown, hidden)


_SHOWN, _HIDES = Var("shown"), Number("hidden")
_CHOICES = tuple(
    op(_WHERE, Var("truths"), *each, name="choice") for each in ((_SHOWN, _HIDES), (_HIDES, _SHOWN))
)
_THROUGH = frozenset({_CAST, _BROADCAST, _CLIP})
_MASK = Through(_THROUGH, Either(_CHOICES), name="through", where=_keeps_hidden)
_RULES = (
    Rule(
        name="split a mask",
        pattern=op(_ADD, Var("scores"), _MASK),
        write=_added,
        unless=_is_no_joint_mask,
        needs_shapes=False,
    ),
    *(
        Rule(
            name="split a choice",
            pattern=each,
            write=_chosen,
            unless=_is_no_joint_choice,
            needs_shapes=False,
        )
        for each in _CHOICES
    ),
)
