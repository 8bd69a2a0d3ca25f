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
from dataclasses import dataclass, replace
from math import inf
from typing import TypeAlias

import numpy as np

from boltgen.graph.attributes import Clip
from boltgen.graph.facts import (
    AND,
    NOT,
    OR,
    are_static,
    axis_of,
    is_static_call,
    is_without_inputs,
    only_reader,
)
from boltgen.graph.graph import Graph, GraphBuilder, mapped, renamed
from boltgen.graph.recursion import Steps, answer
from boltgen.ir.extent import broadcast
from boltgen.ir.key_masks import HIDDEN

_ADD, _CAST, _CLIP, _SOFTMAX = "add", "astype", "clip", "nn.softmax"
_WHERE, _BROADCAST = "where", "broadcast_to"
# Operators on scores of all keys before a softmax, besides a sum with another mask.
_BEFORE = frozenset({_ADD, _CAST, _CLIP, _WHERE, "minimum"})
# A clip of scores must keep all numbers up to FP16's greatest.
_GREATEST = 65504.0


# A tensor of truths, and whether false is what shows a key.
_Truths: TypeAlias = tuple[int, bool]


@dataclass(frozen=True, slots=True)
class _Joint:
    """A choice of `shown` if all booleans show a key, and of `hidden` elsewhere.

    No input has a part in the truths `known`; the truths `keys` are the same for all rows. Before
    the choice is added to scores, it goes through the operators `through`.
    """

    shown: int
    hidden: int
    known: tuple[_Truths, ...]
    keys: tuple[_Truths, ...]
    through: tuple[int, ...] = ()


def with_masks_apart(graph: Graph) -> Graph:
    """Return `graph` with scores added first to a constant mask, then to a mask of keys."""
    return _Walk(graph).run()


class _Walk:
    """One graph, written anew."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._builder = GraphBuilder()
        self._names: dict[int, int] = {}
        self._softmaxed: dict[int, bool] = {}

    def run(self) -> Graph:
        for index, expr in enumerate(self._graph.exprs):
            total = self._apart(index)
            if total is None:
                total = self._builder.add(renamed(expr, self._names))
            self._names[index] = total
        return self._builder.graph(mapped(self._graph.results, self._names))

    def _apart(self, index: int) -> int | None:
        """Return scores and the two parts of a mask, if `index` adds or chooses by a joint mask."""
        expr = self._graph[index]
        if not expr.is_static or not answer(self._is_softmaxed, index, self._softmaxed):
            return None
        if expr.op == _WHERE:
            return self._chosen(index)
        if expr.op != _ADD:
            return None
        for scores, mask in (expr.args, expr.args[::-1]):
            joint = self._joint(mask)
            if joint is not None and self._graph[scores].shape == expr.shape:
                known, keys = self._parts(joint)
                add = self._builder.elementwise
                return add(_ADD, add(_ADD, self._names[scores], known), keys)
        return None

    def _is_softmaxed(self, index: int) -> Steps[int, bool]:
        """Return whether only a softmax along keys reads a value, or its sums with other masks."""
        at = only_reader(self._graph, index)
        if at is None:
            return False
        reader = self._graph[at]
        if reader.op == _SOFTMAX and reader.is_static:
            return axis_of(reader) == len(reader.static_shape) - 1
        return reader.op in _BEFORE and (yield at)

    def _chosen(self, index: int) -> int | None:
        """Return scores chosen by the constant part, and then by the part of keys."""
        joint = self._choice(index)
        if joint is None or not joint.known or self._is_known(joint.shown):
            return None
        shown, hidden = self._names[joint.shown], self._names[joint.hidden]
        if self._graph[joint.shown].shape != self._graph[index].shape:
            return None
        return self._where(joint.keys, self._where(joint.known, shown, hidden), hidden)

    def _joint(self, index: int) -> _Joint | None:
        """Return the parts of a mask, if it has both."""
        through: list[int] = []
        while self._graph[index].op in {_CAST, _BROADCAST} or self._keeps_hidden(index):
            through.append(index)
            index = self._graph[index].args[0]
        if not are_static(self._graph, *through, index):
            return None
        if any(self._graph[each].pinned for each in (*through, index)):
            return None
        joint = self._choice(index)
        if joint is None or not self._is_known(joint.shown):
            return None
        if not joint.known and self._graph[joint.shown].elements == 1:
            return None
        return replace(joint, through=tuple(reversed(through)))

    def _choice(self, index: int) -> _Joint | None:
        """Match a choice by booleans, of keys among others, of a number that hides."""
        expr = self._graph[index]
        if expr.op != _WHERE or not is_static_call(self._graph, index):
            return None
        if len(expr.static_shape) < 3 or expr.static_shape[-2] == 1:
            return None
        truths, *choices = expr.args
        for hidden, shown in (choices, choices[::-1]):
            number = self._graph[hidden].scalar
            if number is None or number > HIDDEN:
                continue
            joined = tuple(self._joined(truths, negated=hidden == choices[0]))
            known = tuple(each for each in joined if self._is_known(each[0]))
            keys = tuple(each for each in joined if not self._is_known(each[0]))
            are_known = are_static(self._graph, *(each for each, _ in known))
            if keys and are_known and all(self._is_of_keys(each) for each, _ in keys):
                return _Joint(shown, hidden, known, keys)
        return None

    def _keeps_hidden(self, index: int) -> bool:
        clip = self._graph[index].attrs
        return isinstance(clip, Clip) and clip.low <= HIDDEN and clip.high >= _GREATEST

    def _joined(self, index: int, *, negated: bool) -> Iterator[_Truths]:
        """Return the booleans before broadcasts; all must be true, or `negated`, for `index` to be
        so.

        Source: De Morgan's laws.
        """
        pending: list[_Truths] = [(index, negated)]
        found: set[_Truths] = set()
        while pending:
            at, is_negated = pending.pop()
            if (at, is_negated) in found:
                continue
            found.add((at, is_negated))
            expr = self._graph[at]
            if self._is_known(at) or expr.dtype != "bool":
                yield at, is_negated
            elif expr.op == _BROADCAST:
                pending.append((expr.args[0], is_negated))
            elif expr.op in NOT:
                pending.append((expr.args[0], not is_negated))
            elif expr.op in (OR if is_negated else AND):
                pending += ((arg, is_negated) for arg in reversed(expr.args))
            else:
                yield at, is_negated

    def _is_known(self, index: int) -> bool:
        return is_without_inputs(self._graph, index)

    def _is_of_keys(self, index: int) -> bool:
        expr = self._graph[index]
        return expr.is_static and len(expr.static_shape) > 2 and expr.static_shape[-2] == 1

    def _parts(self, joint: _Joint) -> tuple[int, int]:
        """Return the constant mask, and the mask of keys."""
        known = self._names[joint.shown]
        if joint.known:
            known = self._where(joint.known, known, self._names[joint.hidden])
        for index in joint.through:
            known = self._passed(index, known)
        dtype = self._builder.dtype(known)
        # Both parts may hide a key, and the sum of both is to be a number.
        number = self._graph[joint.hidden].scalar
        lowest = -inf if number == -inf else HIDDEN
        zero, hidden = (self._builder.constant(np.array(each, dtype)) for each in (0.0, lowest))
        return known, self._where(joint.keys, zero, hidden)

    def _where(self, truths: Sequence[_Truths], shown: int, hidden: int) -> int:
        joined = [self._seen(*each) for each in truths]
        truth = joined[0]
        for other in joined[1:]:
            truth = self._builder.elementwise("logical_and", truth, other)
        args = truth, shown, hidden
        shape = broadcast(*map(self._builder.shape, args))
        return self._builder.operator(_WHERE, args, shape, self._builder.dtype(shown))

    def _seen(self, index: int, negated: bool) -> int:
        truths = self._names[index]
        return self._builder.elementwise("logical_not", truths) if negated else truths

    def _passed(self, index: int, x: int) -> int:
        """Apply to `x` an operator that a mask goes through."""
        expr = self._graph[index]
        if expr.op == _CAST:
            return self._builder.astype(x, expr.dtype)
        if expr.op == _CLIP:
            return self._builder.elementwise(_CLIP, x, attrs=expr.attrs)
        return x
