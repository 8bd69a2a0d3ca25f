"""Arrow: a graph as imported to one whose products have their quantised weights packed.

IR-neutral. A product with a constant of whole numbers and scales multiplies `UNPACK` of the packed
constant, before anything folds it to floats; outlining makes both one region. An `UNPACK` outside
of regions becomes a constant of floats again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from boltgen.errors import InvalidProblemError
from boltgen.graph.attributes import Unpack
from boltgen.graph.graph import UNPACK, Array, Expr, Graph, GraphBuilder, with_each, written_anew
from boltgen.ir.dtypes import DType, Layout
from boltgen.passes.regions.anchor import MATMUL
from boltgen.passes.weights.dequantised import dequantised, pack
from boltgen.problems.gemm.packed import PackedWeights
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload

# Products of more rows do not take as long as their weights take to be read: there it is faster to
# multiply floats, and only a model whose author quantised its weights alone keeps them packed.
_FEW_ROWS = 32


def with_packed_weights(
    graph: Graph, rejects: Callable[[Workload], str | None], accumulate: DType
) -> Graph:
    """Return `graph` with packed weights in each matmul that `rejects` accepts.

    Products are summed in `accumulate`.
    """
    packing = _Packing(graph, rejects, accumulate)

    def write(index: int, expr: Expr, builder: GraphBuilder) -> Expr:
        weight = packing.weight(index, builder) if expr.op == MATMUL else None
        return expr if weight is None else replace(expr, args=(expr.args[0], weight), origin=None)

    made = written_anew(graph, write)
    return made if packing.packed else graph


class _Packing:
    """Pack the weights of a graph's products into a builder; `packed` has the packed ones."""

    def __init__(
        self, graph: Graph, rejects: Callable[[Workload], str | None], accumulate: DType
    ) -> None:
        self.packed: dict[int, int] = {}
        self._graph, self._rejects, self._accumulate = graph, rejects, accumulate
        self._forms: dict[int, tuple[PackedWeights, Array] | None] = {}

    def weight(self, index: int, builder: GraphBuilder) -> int | None:
        """Return B of a product, unpacked from packed weights; None if it stays as it is."""
        graph, expr = self._graph, self._graph[index]
        a, b = (graph[each] for each in expr.args)
        if not a.is_static or not b.is_static or {a.dtype, expr.dtype} != {b.dtype}:
            return None
        if len(b.static_shape) != 2 or len(a.static_shape) < 2:
            return None
        at = expr.args[1]
        if at not in self._forms:
            found = dequantised(graph, at)
            self._forms[at] = None if found is None else pack(found.moved(np.transpose))
        made = self._forms[at]
        if made is None or not self._is_worth(a, b, *made):
            return None
        if at not in self.packed:
            self.packed[at] = _unpacked(builder, b, *made)
        return self.packed[at]

    def _is_worth(self, a: Expr, b: Expr, form: PackedWeights, array: Array) -> bool:
        """Whether a kernel computes the product, and floats were no faster."""
        k, n = b.static_shape
        try:
            problem = Gemm(
                m=prod(a.static_shape[:-1]),
                n=n,
                k=k,
                b_layout=Layout.COLUMN,
                acc_dtype=self._accumulate,
                weights=form,
            )
            workload = Workload.of(problem)
        except InvalidProblemError:
            return False
        rows, _ = workload.greatest.single.problem.matrix
        is_few = rows <= _FEW_ROWS or _is_weight_only(form, array, k)
        return is_few and self._rejects(workload) is None


def _unpacked(builder: GraphBuilder, b: Expr, form: PackedWeights, array: Array) -> int:
    """Write B in its author's dtype."""
    k, n = b.static_shape
    bytes_ = builder.constant(array)
    made = builder.operator(UNPACK, (bytes_,), (n, k), DType.F16.value, weights=form, k=k)
    return builder.in_dtype(builder.permute_dims(made, (1, 0)), b.dtype)


def _is_weight_only(form: PackedWeights, array: Array, k: int) -> bool:
    """Whether weights are of four bits, or have scales of their own within a column."""
    at, groups = form.scales_at(k), form.groups(k)
    scales = array[:, at : at + 2 * groups].reshape(len(array), groups, 2)
    return form.bits == 4 or bool((scales != scales[:, :1]).any())


def with_floats(graph: Graph) -> Graph:
    """`graph` with floats in the place of packed weights that it unpacks."""

    def write(expr: Expr, builder: GraphBuilder) -> int:
        attrs, array = expr.attrs.of(Unpack), builder[expr.args[0]].array
        assert array is not None
        return builder.constant(attrs.weights.unpacked(array, attrs.k))

    return with_each(graph, UNPACK, write)
