"""Casts, reshapes and transposes of one tensor that occur several times become one. For both IRs.

PyTorch's programs reshape and cast a tensor anew for each layer that reads it. Once there is one
reader, the kernel that makes the tensor can store it as it is read.
"""

from __future__ import annotations

from boltgen.frontend.graph import Expr, Graph, GraphBuilder, mapped, renamed

_MOVES = frozenset({"astype", "permute_dims", "reshape"})


def without_repeated(graph: Graph) -> Graph:
    """`graph`, in which equal moves of equal values are one expression."""
    builder = GraphBuilder()
    names: dict[int, int] = {}
    known: dict[tuple[str, int], list[int]] = {}
    for index, expr in enumerate(graph.exprs):
        made = renamed(expr, names)
        if made.op not in _MOVES or made.pinned:
            names[index] = builder.add(made)
            continue
        alike = known.setdefault((made.op, made.args[0]), [])
        found = next((each for each in alike if _is_equal(builder[each], made)), None)
        if found is None:
            found = builder.add(made)
            alike.append(found)
        names[index] = found
    return builder.graph(mapped(graph.results, names))


def _is_equal(left: Expr, right: Expr) -> bool:
    """Whether both move alike. Its result's shape tells what a reshape does, if it is known."""
    if (left.args, left.shape, left.dtype) != (right.args, right.shape, right.dtype):
        return False
    return left.shape is not None and (left.op != "permute_dims" or left.attrs == right.attrs)
