"""Arrow: a graph as imported to one that kernels can take.

One walk over the expressions: a constant expression is folded, any other is given to its rule. An
operator without a rule stays as its author wrote it, with casts and layout transforms at its
boundary; its neighbours are not affected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from boltgen.graph.attributes import Axis, Input
from boltgen.graph.graph import (
    CONSTANT,
    INPUT,
    PART,
    Expr,
    Graph,
    GraphBuilder,
    Noted,
    Structure,
)
from boltgen.ir.dtypes import DType
from boltgen.ir.extent import UndecidedExtentError
from boltgen.passes.precision import convolutions, elementwise, movement, products, quantised_values
from boltgen.passes.precision.call import (
    Context,
    DeclinedError,
    Item,
    OperatorCall,
    Other,
    Rule,
)
from boltgen.passes.precision.fold import evaluate
from boltgen.passes.precision.purpose import (
    angles,
    distances,
    infinities,
    quantised,
    scores,
    sizes_ahead,
)
from boltgen.passes.precision.reach import Reach, any_of
from boltgen.passes.precision.spelled import spelled_softmax, spelled_softplus
from boltgen.passes.precision.values import Store, Value
from boltgen.passes.regions.anchor import ANCHORS

RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **movement.RULES,
    **products.RULES,
    **convolutions.RULES,
    **quantised_values.RULES,
}


def normalise(
    graph: Graph,
    *,
    precision: DType = DType.F16,
    allow_nonfinite: bool = False,
    writes_volumes: bool = True,
) -> Noted:
    """`graph` in `precision` and NHWC inside; inputs and results keep their dtypes and layouts.

    `writes_volumes` tells whether the IR computes convolutions of volumes in NDHWC. A value that
    was observed to leave the range of `precision` stays FP32.

    Raises:
        ModelImportError: a weight is NaN or infinite, and `allow_nonfinite` is not set.
    """
    context = Context(
        store=Store(GraphBuilder(), precision),
        allow_nonfinite=allow_nonfinite,
        is_mixed=_is_mixed(graph),
        writes_volumes=writes_volumes,
    )
    return _Walk(graph, context).run()


def _is_mixed(graph: Graph) -> bool:
    """Whether a product's author gave it FP16 operands."""
    return any(
        graph[arg].dtype == "float16"
        for expr in graph.exprs
        if expr.op in ANCHORS
        for arg in expr.args
    )


class _Walk:
    """One function under normalisation; `_items` has the result for each expression."""

    def __init__(self, graph: Graph, context: Context) -> None:
        self._graph = graph
        self._context = context
        self._builder = context.store.builder
        self._angles = angles(graph)
        self._scores = scores(graph)
        self._distances = distances(graph)
        self._sizes = sizes_ahead(graph)
        self._infinities = infinities(graph)
        self._quantised = quantised(graph)
        self._items: list[Item] = []

    def run(self) -> Noted:
        """Rewrite the whole graph."""
        for index, expr in enumerate(self._graph.exprs):
            item = self._item(index, expr)
            if isinstance(item, Value) and index in self._infinities:
                item.is_infinite = True
            self._items.append(item)
        graph = self._builder.graph(self._structure(self._graph.results))
        return Noted(graph, tuple(self._context.notes))

    def _structure(self, structure: Structure) -> Structure:
        if isinstance(structure, int):
            return self._as_written(structure)
        return tuple(self._structure(part) for part in structure)

    def _as_written(self, index: int) -> int:
        """Return the graph's value at this index, in its author's dtype and layout."""
        item = self._items[index]
        if isinstance(item, Other):
            return item.index
        return self._context.store.get(item, None, self._graph[index].dtype)

    def _item(self, index: int, expr: Expr) -> Item:
        single_use = self._graph.uses[index] == 1
        if expr.op == CONSTANT and expr.array is not None:
            return self._context.store.of_array(expr.array, expr.origin)
        if not self._is_known(expr):
            return self._unchanged(expr)
        call = OperatorCall(
            name=expr.op,
            original=expr,
            attrs=expr.attrs,
            args=tuple(self._items[arg] for arg in expr.args),
            shape=expr.static_shape,
            dtype=expr.dtype,
            single_use=single_use,
            context=self._context,
            is_angle=index in self._angles,
            is_score=index in self._scores,
            is_distance=index in self._distances,
            is_large=self._is_large(index),
            size=self._size(index),
        )
        try:
            made = self._rewritten(index, call)
        except UndecidedExtentError:  # a rule that asks a symbolic extent for its value
            made = None
        except DeclinedError as error:
            return self._unchanged(replace(expr, reason=str(error)))
        return self._unchanged(expr) if made is None else made

    def _is_large(self, index: int) -> bool:
        """Return whether a value was observed to leave FP16's range, or is to be quantised; a mask
        makes the lowest of scores.
        """
        expr = self._graph[index]
        if index in self._quantised:
            return True
        if expr.observed is None:
            return False
        is_masked = index in self._scores and expr.op in {"add", "where"}
        largest = expr.observed[1] if is_masked else expr.largest_seen
        return not largest <= self._context.store.precision.largest  # NaN is beyond too

    def _size(self, index: int) -> float:
        """Return the magnitude of a value as observed, else as its reader implies."""
        largest = self._graph[index].largest_seen
        if 0.0 < largest < self._context.store.precision.smallest_normal:
            return largest
        return self._sizes.get(index, 1.0) if largest == 0.0 else 1.0

    def _is_known(self, expr: Expr) -> bool:
        """Return whether an expression is an operator on tensors whose shapes are all known."""
        if expr.op in {INPUT, CONSTANT, PART} or not expr.args or expr.pinned:
            return False
        return expr.is_static and all(isinstance(self._items[arg], Value) for arg in expr.args)

    def _rewritten(self, index: int, call: OperatorCall) -> Item | None:
        spelled = spelled_softplus(self._graph, index)
        if spelled is not None:
            at, beta = spelled
            return elementwise.softplus(replace(call, args=(self._items[at],)), beta)
        folded = evaluate(call)
        if folded is not None:
            return self._context.store.of_array(folded)
        row = spelled_softmax(self._graph, index)
        if row is not None:
            at, axis = row
            args = (self._items[at],)
            return movement.softmax(replace(call, name="nn.softmax", attrs=Axis(axis), args=args))
        return RULES[call.name](call) if call.name in RULES else None

    def _unchanged(self, expr: Expr) -> Item:
        """The expression on its arguments as their author has them."""
        items = [self._items[arg] for arg in expr.args]
        args = tuple(map(self._as_written, expr.args))
        index = self._builder.add(replace(expr, args=args))
        if not expr.is_static or expr.dtype == "":
            return Other(index)
        # An input that came narrow is as if it had been narrowed here.
        dtype = expr.attrs.authored if isinstance(expr.attrs, Input) else expr.dtype
        value = self._context.store.of_expr(index, expr.static_shape, dtype)
        is_product = expr.op in ANCHORS
        if value.is_float and not is_product:
            reaches = [item.reach for item in items if isinstance(item, Value) and item.is_float]
            value.reach = _unknown(reaches) if reaches else value.reach
        return value


def _unknown(reaches: Sequence[Reach]) -> Reach:
    """Return the reach of an unknown operator's result."""
    reach = any_of(reaches)
    is_wide = reach.over or reach.under
    return replace(reach, over=is_wide, under=is_wide)
