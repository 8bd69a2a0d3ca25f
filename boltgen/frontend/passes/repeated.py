"""Casts, reshapes and transposes of one tensor that occur several times become one. For both IRs.

PyTorch's programs reshape and cast a tensor anew for each layer that reads it. Once there is one
reader, the kernel that makes the tensor can store it as it is read. A reshape of a reshape is one
too: TVM would make a kernel of two.
"""

from __future__ import annotations

from dataclasses import replace

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


def with_single_reshapes(graph: Graph) -> Graph:
    """`graph`, in which no reshape reads another one, and none keeps its operand's shape."""
    builder = GraphBuilder()
    names: dict[int, int] = {}
    for index, expr in enumerate(graph.exprs):
        made = renamed(expr, names)
        if not _is_reshape(made):
            names[index] = builder.add(made)
            continue
        source = builder[made.args[0]]
        at = source.args[0] if _is_reshape(source) else made.args[0]
        if at != made.args[0]:
            made = replace(made, args=(at,), origin=None)
        is_same = builder[at].shape == made.shape
        names[index] = at if is_same else builder.add(made)
    return builder.graph(mapped(graph.results, names))


def _is_reshape(expr: Expr) -> bool:
    return expr.op == "reshape" and expr.is_static and not expr.pinned


def _is_equal(left: Expr, right: Expr) -> bool:
    """Whether both move alike. Its result's shape tells what a reshape does, if it is known."""
    if (left.args, left.shape, left.dtype) != (right.args, right.shape, right.dtype):
        return False
    return left.shape is not None and (left.op != "permute_dims" or left.attrs == right.attrs)
