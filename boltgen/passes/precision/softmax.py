"""Recognise a softmax that is spelled out: exp(x - max(x)) over its sum along an axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from boltgen.graph.graph import Expr, Graph


@dataclass(frozen=True, slots=True)
class SpelledSoftmax:
    """The softmax of `x` along `axis`."""

    x: int
    axis: int


def spelled_softmax(graph: Graph, index: int) -> SpelledSoftmax | None:
    """Return the softmax whose division is at `index`; its maximum may be missing."""
    division = graph[index]
    if division.op != "divide" or not division.is_static:
        return None
    power, total = (graph[arg] for arg in division.args)
    if power.op != "exp" or total.op != "sum" or total.args != division.args[:1]:
        return None
    axis = _axis(total, len(division.static_shape))
    if axis is None or power.shape != division.shape:
        return None
    (x,) = power.args
    shifted = graph[x]
    if shifted.op == "subtract":
        source, most = shifted.args[0], graph[shifted.args[1]]
        if most.op == "max" and most.args == (source,) and graph[source].shape == shifted.shape:
            x = source if _axis(most, len(division.static_shape)) == axis else x
    return SpelledSoftmax(x, axis)


def _axis(reduction: Expr, rank: int) -> int | None:
    """Return the one axis of a reduction that keeps it."""
    axes = cast("tuple[int, ...] | None", reduction.attrs["axis"])
    is_one = axes is not None and len(axes) == 1 and bool(reduction.attrs["keepdims"])
    return axes[0] % rank if axes is not None and is_one else None
