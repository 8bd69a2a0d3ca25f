"""Masks of scores in parts: what the model itself knows, and the keys of each sequence. For both.

    scores + where(ahead & seen, 0, lowest), ahead: (M, N) is known, seen: (B, 1, 1, N)
    ->  (scores + where(ahead, 0, lowest)) + where(seen, 0, lowest)

    scores + where(seen, bias, lowest), bias: (1, H, M, N) is known
    ->  (scores + bias) + where(seen, 0, lowest)

So transformers joins a causal mask, or a bias of places, and a tokenizer's mask. Apart no mask of
(B, H, M, N) is made, and a kernel that is causal loads no mask but that of keys. Only a softmax
reads the sums: there exponentials are 0 of what either part hides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

import numpy as np

from boltgen.frontend.graph import Graph, GraphBuilder, mapped, renamed
from boltgen.frontend.passes.constant_sums import without_inputs
from boltgen.ir.extent import broadcast
from boltgen.ir.key_masks import HIDDEN

_ADD, _CAST, _CLIP, _SOFTMAX = "add", "astype", "clip", "nn.softmax"
_WHERE, _BROADCAST = "where", "broadcast_to"
_AND = frozenset({"logical_and", "bitwise_and"})
# What scores of all keys go through before a softmax, beside a sum with another mask.
_BEFORE = frozenset({_ADD, _CAST, _CLIP})
# What a clip leaves as it is at least, of what is no mask: the greatest number of FP16.
_GREATEST = 65504.0


@dataclass(frozen=True, slots=True)
class _Joint:
    """A mask `where(truths, shown, hidden)`, and what it goes through before it is added.

    `known` has those of the joined truths that no input has a part in, `keys` those of keys alone.
    """

    truths: int
    shown: int
    hidden: int
    known: tuple[int, ...]
    keys: tuple[int, ...]
    through: tuple[int, ...]


def with_masks_apart(graph: Graph) -> Graph:
    """`graph`, in which scores are added to a mask that is known and to one of keys in turn."""
    return _Walk(graph).run()


class _Walk:
    """One graph, written anew."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known = without_inputs(graph)
        self._builder = GraphBuilder()
        self._names: dict[int, int] = {}

    def run(self) -> Graph:
        for index, expr in enumerate(self._graph.exprs):
            total = self._sum(index)
            if total is None:
                total = self._builder.add(renamed(expr, self._names))
            self._names[index] = total
        return self._builder.graph(mapped(self._graph.results, self._names))

    def _sum(self, index: int) -> int | None:
        """Scores and the two parts of a mask, where `index` adds a joint one to scores."""
        expr = self._graph[index]
        if expr.op != _ADD or not expr.is_static or not _is_softmaxed(self._graph, index):
            return None
        for scores, mask in (expr.args, expr.args[::-1]):
            joint = self._joint(mask)
            if joint is not None and self._graph[scores].shape == expr.shape:
                known, keys = self._parts(joint)
                add = self._builder.elementwise
                return add(_ADD, add(_ADD, self._names[scores], known), keys)
        return None

    def _joint(self, index: int, through: tuple[int, ...] = ()) -> _Joint | None:
        """What a mask is joined of, if it is one that has both parts."""
        expr = self._graph[index]
        if not expr.is_static or expr.pinned or len(expr.static_shape) < 3:
            return None
        if expr.op in {_CAST, _BROADCAST} or (expr.op == _CLIP and self._keeps_hidden(index)):
            return self._joint(expr.args[0], (index, *through))
        if expr.op != _WHERE or expr.static_shape[-2] == 1:
            return None
        truths, shown, hidden = expr.args
        number = self._graph[hidden].scalar
        if number is None or number > HIDDEN or shown not in self._known:
            return None
        joined = tuple(self._joined(truths))
        known = tuple(each for each in joined if each in self._known)
        keys = tuple(each for each in joined if each not in self._known)
        if not keys or not all(map(self._is_of_keys, keys)):
            return None
        if not known and self._graph[shown].elements == 1:
            return None
        return _Joint(truths, shown, hidden, known, keys, through)

    def _keeps_hidden(self, index: int) -> bool:
        low, high = (float(str(self._graph[index].attrs[key])) for key in ("low", "high"))
        return low <= HIDDEN and high >= _GREATEST

    def _joined(self, index: int) -> Iterator[int]:
        """The truths that are joined to those at `index`, as they were before any broadcast."""
        expr = self._graph[index]
        if index not in self._known and expr.op == _BROADCAST:
            yield from self._joined(expr.args[0])
        elif index not in self._known and expr.op in _AND and expr.dtype == "bool":
            for arg in expr.args:
                yield from self._joined(arg)
        else:
            yield index

    def _is_of_keys(self, index: int) -> bool:
        expr = self._graph[index]
        return expr.is_static and len(expr.static_shape) > 2 and expr.static_shape[-2] == 1

    def _parts(self, joint: _Joint) -> tuple[int, int]:
        """The mask that is known, and that of keys."""
        known = self._names[joint.shown]
        if joint.known:
            known = self._choice(joint.known, known, self._names[joint.hidden])
        for index in joint.through:
            known = self._passed(index, known)
        dtype = self._builder.dtype(known)
        # Both parts may hide a key, and the sum of both is to be a number.
        number = self._graph[joint.hidden].scalar
        lowest = -inf if number == -inf else HIDDEN
        zero, hidden = (self._builder.constant(np.array(each, dtype)) for each in (0.0, lowest))
        return known, self._choice(joint.keys, zero, hidden)

    def _choice(self, truths: tuple[int, ...], shown: int, hidden: int) -> int:
        joined, *others = (self._names[each] for each in truths)
        for other in others:
            joined = self._builder.elementwise("logical_and", joined, other)
        args = joined, shown, hidden
        shape = broadcast(*map(self._builder.shape, args))
        return self._builder.operator(_WHERE, args, shape, self._builder.dtype(shown))

    def _passed(self, index: int, x: int) -> int:
        """What an operator that a mask goes through makes of `x`."""
        expr = self._graph[index]
        if expr.op == _CAST:
            return self._builder.astype(x, expr.dtype)
        if expr.op == _CLIP:
            return self._builder.elementwise(_CLIP, x, **expr.attrs)
        return x


def _is_softmaxed(graph: Graph, index: int) -> bool:
    """Whether a softmax along keys alone reads a value, or sums of it with other masks."""
    readers = graph.consumers[index]
    if len(readers) != 1 or index in graph.escaping:
        return False
    reader = graph[readers[0]]
    if reader.op == _SOFTMAX and reader.is_static:
        return reader.attrs["axis"] in {-1, len(reader.static_shape) - 1}
    return reader.op in _BEFORE and _is_softmaxed(graph, readers[0])
