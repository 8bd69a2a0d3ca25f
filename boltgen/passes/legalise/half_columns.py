"""An operator of graphs that no IR has: the columns of one matmul of a pair.

The rows of a pair, (..., 2 N), have runs of the first product's columns by turns with as many of
the second one's; `index` says whose the (..., N) are. The kernel of the pair computes it, and what
no kernel computes becomes operators that IRs have.
"""

from __future__ import annotations

from boltgen.graph.attributes import Indexed
from boltgen.graph.graph import HALF, Expr, Graph, GraphBuilder, with_each
from boltgen.problems.gemm.pair import run_of


def add_half(builder: GraphBuilder, pair: int, index: int) -> int:
    """Add the operator to a graph."""
    *rows, columns = builder.shape(pair)
    shape = (*rows, columns // 2)
    return builder.operator(HALF, (pair,), shape, builder.dtype(pair), index=index)


def without_halves(graph: Graph) -> Graph:
    """Return `graph` with operators that IRs have in place of each of these."""
    return with_each(graph, HALF, _written)


def _written(expr: Expr, builder: GraphBuilder) -> int:
    *rows, columns = expr.static_shape
    run, index = run_of(columns), expr.attrs.of(Indexed).index
    runs = builder.reshape(expr.args[0], (*rows, columns // run, 2, run))
    chosen = builder.slice(runs, len(rows) + 1, index, index + 1)
    return builder.reshape(chosen, expr.static_shape)
