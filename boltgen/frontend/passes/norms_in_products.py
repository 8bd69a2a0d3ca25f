"""Norms of rows within the products around them: their sums behind the one before, the rest after.

    y = layer_norm(x) W + b        x = a V + c
    x, sum(x), sum(x * x)          are what the kernel of x writes,
    y = (x W' - mean w) / deviation + b'    with W' = scale * W, w = sums of its columns

The norm's own kernel, which reads and writes all of x, is gone. A mean of r times the deviation
costs the variance r * r roundings of FP32; x itself, in FP16 or BF16, has lost r of those by then,
which is more for r up to thousands. Times decide. For both IRs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from boltgen.frontend.graph import (
    CONSTANT,
    Array,
    Expr,
    Graph,
    GraphBuilder,
    mapped,
    renamed,
    without,
)
from boltgen.frontend.passes.anchor import MATMUL
from boltgen.frontend.passes.normed import NORMED, add_normed
from boltgen.frontend.passes.norms import find_norms
from boltgen.frontend.passes.products import Product, Rejects, find_products
from boltgen.frontend.passes.reductions import with_reductions
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import Accumulator, Binary, BinaryOp, Cast, Load, LoadKind
from boltgen.ir.graph_costs import GraphCosts
from boltgen.ir.norm import Norm, NormFunction
from boltgen.ir.workload import Workload

_WIDE = DType.F32.value


@dataclass(frozen=True, slots=True)
class NormsInProducts:
    """A graph without those norms; `notes` has a sentence for each of them."""

    graph: Graph
    notes: tuple[str, ...]


def norms_in_products(
    graph: Graph, costs: GraphCosts, rejects: Rejects, summed: DType = DType.F32
) -> NormsInProducts:
    """`graph` with the norms taken apart of which `costs` say that it is faster so.

    Products are summed in `summed`. Rows that are not normed have no bound within which FP16 could
    sum their products, so those norms stay.
    """
    if summed is not DType.F32:
        return NormsInProducts(graph, ())
    products = find_products(graph)
    found = list(_candidates(graph, products))
    if not found:
        return NormsInProducts(graph, ())
    trial = _Rewriting(graph, found)
    chosen, notes = [], []
    for norm, note in _faster(trial, products, costs, rejects):
        chosen.append(norm)
        notes.append(note)
    if not chosen:
        return NormsInProducts(graph, ())
    made = trial if len(chosen) == len(found) else _Rewriting(graph, chosen)
    return NormsInProducts(made.graph, tuple(notes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Norm:
    """A norm whose A is the result of a product, and who reads it.

    `scale` and `shift` are rows of FP32. `products` multiply the normed rows by constants, `sums`
    are the operators that add them to the result of another product.
    """

    norm: Product
    problem: Norm
    before: Product
    scale: Array | None
    shift: Array | None
    products: tuple[Product, ...]
    sums: tuple[int, ...]

    @property
    def x(self) -> int:
        """The rows that are not normed."""
        return self.norm.anchor.a


def _candidates(graph: Graph, products: Sequence[Product]) -> Iterator[_Norm]:
    claimed = {each for product in products for each in product.computed}
    made = {product.tail.output: product for product in products if product.exit is None}
    for norm in find_norms(graph, claimed).found:
        problem, before = cast("Norm", norm.anchor.problem), made.get(norm.anchor.a)
        if before is None or norm.summed is not None:
            continue
        if graph[norm.anchor.a].dtype == _WIDE:
            continue  # no product multiplies it
        if problem.function is NormFunction.SOFTMAX or norm.tail.further:
            continue
        affine, readers = _affine(graph, norm), _readers(graph, products, norm)
        if affine is None or readers is None or not _has_whole_rows(graph, before):
            continue
        scale, shift = affine
        candidate = _Norm(
            norm=norm,
            problem=problem,
            before=before,
            scale=scale,
            shift=shift,
            products=readers[0],
            sums=readers[1],
        )
        if all(_is_kept(graph, candidate, product) for product in candidate.products):
            yield candidate


def _has_whole_rows(graph: Graph, product: Product) -> bool:
    """Whether a row of the product is one of x, and all sizes are known and need no padding."""
    problem, x = product.anchor.problem, graph[product.tail.output]
    if not problem.canonical.is_matrix or problem.canonical.batch > 1 or not x.is_static:
        return False
    if Workload(layers=(product.layer(graph),)).symbols:
        return False
    return x.static_shape[-1] == problem.gemm.n and problem.gemm.n % 8 == 0


def _affine(graph: Graph, norm: Product) -> tuple[Array | None, Array | None] | None:
    """The scale and the shift of normed rows; None where their tail is more, or is not known."""
    scale: Array | None = None
    shift: Array | None = None
    rows = iter(graph[operand.expr].array for operand in norm.tail.operands)
    for node in norm.tail.epilogue.nodes:
        match node:
            case Accumulator() | Cast():
                pass
            case Load(kind=LoadKind.ROW):
                row = next(rows)
                if row is None:
                    return None
                last = row.astype(np.float32).reshape(-1)
            case Binary(op=BinaryOp.MULTIPLY) if scale is None and shift is None:
                scale = last
            case Binary(op=BinaryOp.ADD) if shift is None:
                shift = last
            case _:
                return None
    loads = len(norm.tail.operands)
    return (scale, shift) if loads == (scale is not None) + (shift is not None) else None


def _readers(
    graph: Graph, products: Sequence[Product], norm: Product
) -> tuple[tuple[Product, ...], tuple[int, ...]] | None:
    """The products that multiply the normed rows, and the sums that add them; None if others do."""
    by_anchor = {product.anchor.index: product for product in products}
    tails = {member for product in products for member in product.tail.members}
    multiplied: list[Product] = []
    sums: list[int] = []
    pending = [norm.tail.output]
    while pending:
        at = pending.pop()
        if at in graph.escaping:
            return None
        for reader in graph.consumers[at]:
            expr = graph[reader]
            if reader in by_anchor:
                product = by_anchor[reader]
                if product.anchor.a != at or not _has_known_b(graph, product):
                    return None
                multiplied.append(product)
            elif expr.op == "add" and reader in tails and expr.shape == graph[at].shape:
                sums.append(reader)
            elif _is_same(graph, reader):
                pending.append(reader)
            else:
                return None
    return (tuple(multiplied), tuple(sums)) if multiplied else None


def _is_same(graph: Graph, index: int) -> bool:
    """Whether an operator gives the rows that it reads, widened or reshaped."""
    expr = graph[index]
    if expr.op == "reshape":
        return expr.static_shape[-1:] == graph[expr.args[0]].static_shape[-1:]
    return expr.op == "astype" and expr.dtype == _WIDE


def _has_known_b(graph: Graph, product: Product) -> bool:
    """Whether it multiplies rows by a constant matrix, and nothing is padded or moved for it."""
    problem = product.anchor.problem
    if (
        not problem.is_matrix
        or problem.canonical.batch > 1
        or graph[product.anchor.index].op != MATMUL
    ):
        return False
    b, plain = graph[product.anchor.b], problem.gemm.weights is None
    is_known = b.op == CONSTANT and b.array is not None and b.array.ndim == 2
    return is_known and plain and product.entry is None and problem.gemm.n % 8 == 0


def _is_kept(graph: Graph, norm: _Norm, product: Product) -> bool:
    """Whether a product's scaled weights, in their type, are as exact as they were."""
    exact = _scaled(graph, norm, product)
    dtype = DType(graph[product.anchor.b].dtype)
    with np.errstate(over="ignore"):
        stored = exact.astype(dtype.numpy).astype(np.float64)
    if not np.isfinite(stored).all():
        return False
    error, size = (np.linalg.norm(each, axis=0) for each in (stored - exact, exact))
    return bool((error <= dtype.unit_roundoff * size).all())


def _scaled(graph: Graph, norm: _Norm, product: Product) -> Array:
    """B, (K, N), with the norm's scale in it, in FP64."""
    b = _b(graph, product)
    return b if norm.scale is None else b * norm.scale.astype(np.float64)[:, None]


def _b(graph: Graph, product: Product) -> Array:
    array = graph[product.anchor.b].array
    assert array is not None  # or it would be no candidate
    is_column = product.anchor.problem.gemm.b_layout is Layout.COLUMN
    return (array.T if is_column else array).astype(np.float64)


def _bias(graph: Graph, index: int) -> tuple[int, Array] | None:
    """The operator that adds a constant row to a value that nothing else reads, and the row."""
    if index in graph.escaping or len(graph.consumers[index]) != 1:
        return None
    (reader,) = graph.consumers[index]
    if graph[reader].op != "add" or graph[reader].shape != graph[index].shape:
        return None
    rows = [graph[arg].array for arg in graph[reader].args if arg != index]
    if len(rows) != 1 or rows[0] is None or rows[0].shape != graph[index].static_shape[-1:]:
        return None
    return reader, rows[0]


class _Rewriting:
    """A graph without some norms, and where expressions of the one before are in it."""

    def __init__(self, graph: Graph, norms: Sequence[_Norm]) -> None:
        self.before = graph
        self._builder = GraphBuilder()
        self._moments: dict[int, dict[str, int]] = {}
        self.norms = tuple(norms)
        self._names: dict[int, int] = {}
        self._normed_at: dict[int, int] = {}
        products = {each.anchor.index: (norm, each) for norm in norms for each in norm.products}
        behind = {found[0]: at for at in products if (found := _bias(graph, at)) is not None}
        sums = {index: norm for norm in norms for index in norm.sums}
        rows: dict[int, list[_Norm]] = {}
        for norm in norms:
            rows.setdefault(norm.x, []).append(norm)
        for index, expr in enumerate(graph.exprs):
            if index in products:
                self._names[index] = self._product(*products[index])
            elif index in behind:
                self._names[index] = self._names[behind[index]]  # its bias is in the shift
            elif index in sums:
                self._names[index] = self._sum(sums[index], index)
            else:
                self._names[index] = self._builder.add(renamed(expr, self._names))
            for norm in rows.get(index, ()):
                self._add_moments(norm)
        escaping = frozenset(self._names[index] for index in graph.escaping)
        results = mapped(graph.results, self._names)
        whole = Graph(tuple(self._builder.exprs), escaping, results)
        self.graph = without(whole, frozenset(range(len(whole))) - whole.live)
        self._places = {index: place for place, index in enumerate(sorted(whole.live))}

    def anchor(self, product: Product) -> int:
        """Where the matrix product of a product of the graph before is."""
        index = product.anchor.index
        return self._places[self._normed_at.get(index, self._names[index])]

    def written(self, index: int) -> int:
        """Where an operator of the graph before that reads normed rows is."""
        return self._places[self._names[index]]

    def _add_moments(self, norm: _Norm) -> None:
        builder, x = self._builder, self._names[norm.x]
        if norm.x in self._moments:
            return
        wide = x if builder.dtype(x) == _WIDE else builder.astype(x, _WIDE)
        square = builder.elementwise("multiply", wide, wide)
        axis = len(builder.shape(x)) - 1
        shape = (*builder.shape(x)[:-1], 1)
        self._moments[norm.x] = {
            name: builder.operator("sum", (of,), shape, _WIDE, axis=(axis,), keepdims=True)
            for name, of in (("sums", wide), ("squares", square))
        }

    def _given(self, norm: _Norm, shape: Sequence[int]) -> dict[str, int]:
        """The moments of a norm's rows, for an operand of so many dimensions."""
        moments, rows = self._moments[norm.x], (*shape[:-1], 1)
        is_centred = norm.problem.function is NormFunction.LAYER
        return {
            name: at if self._builder.shape(at) == rows else self._builder.reshape(at, rows)
            for name, at in moments.items()
            if is_centred or name != "sums"
        }

    def _row(self, values: Array) -> int:
        return self._builder.constant(values.astype(np.float32))

    def _product(self, norm: _Norm, product: Product) -> int:
        """The product of the rows that are not normed, and what makes of it that of normed ones."""
        builder, graph = self._builder, self.before
        expr = graph[product.anchor.index]
        shape = graph[expr.args[0]].static_shape
        a = self._names[norm.x]
        if builder.shape(a) != shape:
            a = builder.reshape(a, shape)
        dtype = DType(graph[product.anchor.b].dtype)
        stored = _scaled(graph, norm, product).astype(dtype.numpy)
        is_column = product.anchor.problem.gemm.b_layout is Layout.COLUMN
        b = builder.constant(np.ascontiguousarray(stored.T if is_column else stored))
        if is_column:
            b = builder.permute_dims(b, (1, 0))
        x = builder.matmul(a, b, _WIDE, **expr.attrs)
        self._normed_at[product.anchor.index] = x
        given = {"x": x, **self._given(norm, shape)}
        if "sums" in given:
            given["weights"] = self._row(stored.astype(np.float64).sum(axis=0))
        biased = _bias(graph, product.anchor.index)
        rows = [] if biased is None else [biased[1].astype(np.float64)]
        if norm.shift is not None:
            rows.append(norm.shift.astype(np.float64) @ _b(graph, product))
        if rows:
            given["shift"] = self._row(np.sum(rows, axis=0))
        return self._normed(norm, given, expr)

    def _sum(self, norm: _Norm, index: int) -> int:
        """The sum of the normed rows and what they are added to."""
        builder, graph = self._builder, self.before
        expr = graph[index]
        normed, plus = expr.args if self._is_of(norm, expr.args[0]) else expr.args[::-1]
        shape = graph[normed].static_shape
        x = self._names[norm.x]
        if builder.shape(x) != shape:
            x = builder.reshape(x, shape)
        given = {"x": x, **self._given(norm, shape), "plus": self._names[plus]}
        if norm.scale is not None:
            given["scale"] = self._row(norm.scale)
        if norm.shift is not None:
            given |= self._shifted(norm.shift, plus)
        return self._normed(norm, given, expr)

    def _shifted(self, shift: Array, plus: int) -> dict[str, int]:
        """The shift, together with the bias of what it is added to: a launch has few addresses."""
        graph = self.before
        at = plus
        if graph[at].op == "astype" and len(graph.consumers[at]) == 1:
            (at,) = graph[at].args
        for value in graph[at].args:
            biased = _bias(graph, value)
            if biased is not None and biased[0] == at and len(graph.consumers[at]) == 1:
                row = biased[1].astype(np.float64) + shift
                return {"plus": self._names[value], "shift": self._row(row)}
        return {"shift": self._row(shift)}

    def _is_of(self, norm: _Norm, index: int) -> bool:
        """Whether a value is the normed rows, cast or reshaped or not."""
        while index != norm.norm.tail.output and self.before[index].op in {"astype", "reshape"}:
            (index,) = self.before[index].args
        return index == norm.norm.tail.output

    def _normed(self, norm: _Norm, given: dict[str, int], like: Expr) -> int:
        problem = norm.problem
        return add_normed(self._builder, given, problem.columns, problem.epsilon, like.dtype)


def _faster(
    trial: _Rewriting, products: Sequence[Product], costs: GraphCosts, rejects: Rejects
) -> Iterator[tuple[_Norm, str]]:
    """The norms of a trial that are faster within products, each with a sentence that says so."""
    graph, before = trial.graph, trial.before
    made = {product.anchor.index: product for product in find_products(graph)}
    of_members = {member: product for product in products for member in product.tail.members}
    claimed = {each for product in made.values() for each in product.computed}
    for norm in trial.norms:
        readers = {product.anchor.index: product for product in norm.products}
        readers |= {of_members[each].anchor.index: of_members[each] for each in norm.sums}
        source = made.get(trial.anchor(norm.before))
        longer = None if source is None else with_reductions(graph, source, claimed)
        anchors = [trial.anchor(each) for each in readers.values()]
        after = [made[each] for each in anchors if each in made]
        if source is None or longer is None or not _has_all(graph, norm, trial, after):
            continue
        apart = [source.layer(graph), norm.norm.layer(before)]
        apart += [each.layer(before) for each in readers.values()]
        within = [each.layer(graph) for each in (longer, *after)]
        many, few = ([Workload(layers=(each,)) for each in layers] for layers in (apart, within))
        if any(rejects(each) is not None for each in few):
            continue
        found = costs.kernels_us((*few, *many))
        once, earlier = sum(found.times_us[: len(few)]), sum(found.times_us[len(few) :])
        if once < earlier:
            yield (
                norm,
                f"a norm of rows of {norm.problem.columns} is within the products around it: "
                f"{once:.1f} us instead of {earlier:.1f}, {found.origin}",
            )


def _has_all(graph: Graph, norm: _Norm, trial: _Rewriting, after: Sequence[Product]) -> bool:
    """Whether kernels compute all that was written for a norm."""
    computed = {member for product in after for member in product.tail.members}
    wanted = {trial.written(each.anchor.index) for each in norm.products}
    wanted |= {trial.written(each) for each in norm.sums}
    assert all(graph[each].op == NORMED for each in wanted)
    return wanted <= computed
