"""Which rows that the scores of attention load are masks of keys, so that a kernel may skip keys.

A key may be skipped if its exponential is 0 for every score. The graph alone proves that if a row's
-inf makes the result -inf. The creator of a workload declares more with `Load.hides`: numbers of at
most `HIDDEN` make exponentials of 0 beside a key whose number is at least 0. Scores, values and the
other operands are assumed to be numbers, as in a causal softmax beyond the diagonal.
"""

from __future__ import annotations

from math import inf

import numpy as np

from boltgen.ir.elementwise import (
    Binary,
    BinaryOp,
    Cast,
    ElementwiseGraph,
    Load,
    LoadKind,
    Node,
    Scalar,
    Unary,
)

# A number up to this hides a key in a finite mask: half of FP16's range below visible scores.
HIDDEN = -32768.0


def key_masks(graph: ElementwiseGraph) -> dict[int, float]:
    """The greatest number with which each mask of keys hides one, by its place among the loads.

    It is `HIDDEN`, or -inf.
    """
    nodes = [index for index, node in enumerate(graph.nodes) if isinstance(node, Load)]
    found = {}
    for place, (index, load) in enumerate(zip(nodes, graph.loads, strict=True)):
        if load.kind is not LoadKind.ROW:
            continue
        if load.hides:
            found[place] = HIDDEN
        elif not graph.stores and _is_lost(graph, index):
            found[place] = -inf
    return found


def _is_lost(graph: ElementwiseGraph, load: int) -> bool:
    """Whether the result is -inf where a load is, and all else are numbers."""
    ends: list[float | None] = []
    for index, node in enumerate(graph.nodes):
        ends.append(-inf if index == load else _infinity(node, graph.nodes, ends))
    return ends[-1] == -inf


def _infinity(node: Node, nodes: tuple[Node, ...], ends: list[float | None]) -> float | None:
    """Return which infinity a node is, for operands `ends`; None if it may be anything else."""
    match node:
        case Unary(op=op, x=x, params=params):
            end = ends[x]
            if end is None:
                return None
            with np.errstate(all="ignore"):
                return _infinite(float(op.function.value(np.float64(end), *params)))
        case Scalar(value=value):
            return _infinite(value)
        case Cast(x=x):
            return ends[x]
        case Binary(op=op, lhs=lhs, rhs=rhs):
            return _of_two(op, (ends[lhs], ends[rhs]), (_number(nodes[lhs]), _number(nodes[rhs])))
        case _:
            return None


def _of_two(
    op: BinaryOp, ends: tuple[float | None, float | None], numbers: tuple[float, float]
) -> float | None:
    """As `_infinity`; `numbers` are the constants among the operands, 0 for others."""
    lhs, rhs = ends
    infinite = [end for end in ends if end is not None]
    if not infinite:
        return None
    match op:
        case BinaryOp.ADD:
            return infinite[0] if len(set(infinite)) == 1 else None
        case BinaryOp.SUBTRACT if lhs is None or rhs is None or lhs != rhs:
            return lhs if lhs is not None else -infinite[0]
        case BinaryOp.MULTIPLY if len(infinite) == 1:
            return _infinite(infinite[0] * sum(numbers))
        case BinaryOp.DIVIDE if rhs is None:
            return _infinite(infinite[0] * numbers[1])
        case BinaryOp.MINIMUM if -inf in infinite or len(infinite) == 2:
            return min(infinite)
        case BinaryOp.MAXIMUM if inf in infinite or len(infinite) == 2:
            return max(infinite)
        case _:
            return None


def _number(node: Node) -> float:
    return node.value if isinstance(node, Scalar) else 0.0


def _infinite(value: float) -> float | None:
    return value if abs(value) == inf else None
