"""Recognises a softmax that is spelled out: exp(x - max(x)) over its sum along an axis."""

from __future__ import annotations

from dataclasses import dataclass

from boltgen.graph.attributes import Reduce
from boltgen.graph.facts import axis_of
from boltgen.graph.graph import Graph
from boltgen.graph.patterns import Either, Match, Var, matches, op


@dataclass(frozen=True, slots=True)
class SpelledSoftmax:
    """The softmax of `x` along `axis`."""

    x: int
    axis: int


def spelled_softmax(graph: Graph, index: int) -> SpelledSoftmax | None:
    """The softmax whose division is at `index`; without its maximum it is the same function."""
    if not graph[index].is_static:
        return None
    for found in matches(graph, _SOFTMAX, index):
        axis = _axis(found, "sum")
        is_whole = found.shape("power") == found.shape("x") == found.shape()
        if axis is not None and is_whole and ("max" not in found or _axis(found, "max") == axis):
            return SpelledSoftmax(found["x"], axis)
    return None


def _axis(found: Match, name: str) -> int | None:
    """The one axis of a reduction that keeps it."""
    return axis_of(found.expr(name)) if found.expr(name).attrs.of(Reduce).keepdims else None


_X = Var("x")
_POWER = op("exp", Either((op("subtract", _X, op("max", _X, name="max")), _X)), name="power")
_SOFTMAX = op("divide", _POWER, op("sum", _POWER, name="sum"))
