"""Fuse norms of rows into the matmuls around them: sums into the one before, the rest into the ones
after.

    y = layer_norm(x) W + b        x = a V + c
    x, sum(x), sum(x * x)          are what the kernel of x writes,
    y = (x W' - mean w) / deviation + b'    with W' = scale * W, w = sums of its columns

The norm's own kernel, which reads and writes all of x, is gone. If the mean is r times the
deviation, the variance loses r * r roundings of FP32. But x itself, in FP16 or BF16, has lost r of
its own roundings before, which is more for r up to thousands. Times decide. For both IRs.

Unless a row is long, the kernel of x stores the moments of every 64 columns, and the other kernels
add them up. If several threadblocks added to one number, its memory would have to be cleared
before, by a launch each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from boltgen.graph.graph import (
    NORMED,
    Array,
    Choice,
    Expr,
    Graph,
    GraphBuilder,
    Noted,
    mapped,
    renamed,
)
from boltgen.ir.dtypes import DType, Layout
from boltgen.passes.legalise.norm_of_sums import add_normed
from boltgen.passes.norms.between_matmuls import (
    NormBetween,
    b_of,
    bias_behind,
    norms_between,
    scaled_b,
)
from boltgen.passes.regions.epilogue_reductions import with_reductions
from boltgen.passes.regions.products import Product, Rejects, find_products
from boltgen.passes.regions.times import compared
from boltgen.problems.graph_costs import GraphCosts
from boltgen.problems.norm.problem import NormFunction
from boltgen.problems.workload import Workload

_WIDE = DType.F32.value
# Columns of a part: half of a usual tile. Beyond so many parts, reading them costs an epilogue more
# than the clearing of memory does.
_PART, _MOST_PARTS = 64, 16


def norms_in_products(
    graph: Graph, costs: GraphCosts, rejects: Rejects, summed: DType = DType.F32
) -> Noted:
    """Return `graph` with the norms fused that `costs` say are faster so.

    Products are summed in `summed`. FP16 cannot sum products of rows that are not normed, because
    they have no bound, so such norms stay.
    """
    products = find_products(graph) if summed is DType.F32 else ()
    choices: list[Choice] = []
    norms = list(norms_between(graph, products, partial(_refuse, graph, choices)))
    short = [norm for norm in norms if _parts(norm.problem.columns) > 1]
    made = _taken_apart(graph, products, short, costs, rejects, in_parts=True)
    if made.notes:
        products = find_products(made.graph)
        norms = list(norms_between(made.graph, products, lambda *_: None))  # said before
    rest = _taken_apart(made.graph, products, norms, costs, rejects, in_parts=False)
    return Noted.of(rest.graph, (*choices, *made.choices, *rest.choices))


def _refuse(graph: Graph, choices: list[Choice], norm: Product, reason: str) -> None:
    said = f"a norm keeps its kernel: {reason}"
    choices.append(_choice(graph, norm, (), said, is_rewritten=False))


def _choice(
    graph: Graph, norm: Product, readers: Iterable[Product], reason: str, *, is_rewritten: bool
) -> Choice:
    around = (graph[each.anchor.index].op for each in (norm, *readers))
    shape = graph[norm.tail.output].shape
    return Choice(tuple(dict.fromkeys(around)), shape, is_rewritten, reason)


def _taken_apart(
    graph: Graph,
    products: Sequence[Product],
    found: Sequence[NormBetween],
    costs: GraphCosts,
    rejects: Rejects,
    *,
    in_parts: bool,
) -> Noted:
    if not found:
        return Noted(graph, ())
    trial = _Rewriting(graph, found, in_parts=in_parts)
    choices = list(_choices(trial, products, costs, rejects))
    chosen = [norm for norm, choice in zip(found, choices, strict=True) if choice.is_rewritten]
    if not chosen:
        return Noted.of(graph, choices)
    made = trial if len(chosen) == len(found) else _Rewriting(graph, chosen, in_parts=in_parts)
    return Noted.of(made.graph, choices)


def _parts(columns: int) -> int:
    """Return in how many parts the moments of a row are stored; 1 if threadblocks add them up."""
    parts = columns // _PART
    return parts if columns % _PART == 0 and parts <= _MOST_PARTS else 1


class _Rewriting:
    """A graph without some norms, and the places of the earlier graph's expressions in it."""

    def __init__(self, graph: Graph, norms: Sequence[NormBetween], *, in_parts: bool) -> None:
        self.before = graph
        self._builder = GraphBuilder()
        self._moments: dict[int, dict[str, int]] = {}
        self.norms = tuple(norms)
        self.in_parts = in_parts
        self._names: dict[int, int] = {}
        self._normed_at: dict[int, int] = {}
        products = {each.anchor.index: (norm, each) for norm in norms for each in norm.products}
        behind = {found[0]: at for at in products if (found := bias_behind(graph, at)) is not None}
        sums = {index: norm for norm in norms for index in norm.sums}
        rows: dict[int, list[NormBetween]] = {}
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
        self.graph, self._places = self._builder.placed(mapped(graph.results, self._names))

    def anchor(self, product: Product) -> int:
        """Return the place of the matmul of a product of the earlier graph."""
        index = product.anchor.index
        return self._places[self._normed_at.get(index, self._names[index])]

    def written(self, index: int) -> int:
        """Return the place of an operator of the earlier graph that reads normed rows."""
        return self._places[self._names[index]]

    def _add_moments(self, norm: NormBetween) -> None:
        builder, x = self._builder, self._names[norm.x]
        if norm.x in self._moments:
            return
        wide = builder.in_dtype(x, _WIDE)
        square = builder.elementwise("multiply", wide, wide)
        *rows, columns = builder.shape(x)
        parts = _parts(columns) if self.in_parts else 1

        def added(of: int) -> int:
            if parts > 1:
                of = builder.reshape(of, (*rows, parts, columns // parts))
            return builder.reduce("sum", of, (len(builder.shape(of)) - 1,), keepdims=parts == 1)

        self._moments[norm.x] = {"sums": added(wide), "squares": added(square)}

    def _given(self, norm: NormBetween, shape: Sequence[int]) -> dict[str, int]:
        """The moments of a norm's rows, for an operand of so many dimensions."""
        moments = self._moments[norm.x]
        rows = (*shape[:-1], self._builder.shape(moments["squares"])[-1])
        is_centred = norm.problem.function is NormFunction.LAYER
        return {
            name: self._builder.in_shape(at, rows)
            for name, at in moments.items()
            if is_centred or name != "sums"
        }

    def _row(self, values: Array) -> int:
        return self._builder.constant(values.astype(np.float32))

    def _product(self, norm: NormBetween, product: Product) -> int:
        """Write the matmul of rows that are not normed, and the correction of its result."""
        builder, graph = self._builder, self.before
        expr = graph[product.anchor.index]
        shape = graph[expr.args[0]].static_shape
        a = builder.in_shape(self._names[norm.x], shape)
        dtype = DType(graph[product.anchor.b].dtype)
        stored = scaled_b(graph, norm, product).astype(dtype.numpy)
        is_column = product.anchor.problem.gemm.b_layout is Layout.COLUMN
        b = builder.right_operand(stored.T if is_column else stored, is_column=is_column)
        x = builder.matmul(a, b, _WIDE, expr.reason)
        self._normed_at[product.anchor.index] = x
        given = {"x": x, **self._given(norm, shape)}
        if "sums" in given:
            given["weights"] = self._row(stored.astype(np.float64).sum(axis=0))
        biased = bias_behind(graph, product.anchor.index)
        rows = [] if biased is None else [biased[1].astype(np.float64)]
        if norm.shift is not None:
            rows.append(norm.shift.astype(np.float64) @ b_of(graph, product))
        if rows:
            given["shift"] = self._row(np.sum(rows, axis=0))
        return self._normed(norm, given, expr)

    def _sum(self, norm: NormBetween, index: int) -> int:
        """Write the sum of the normed rows and their other addend."""
        builder, graph = self._builder, self.before
        expr = graph[index]
        normed, plus = expr.args if self._is_of(norm, expr.args[0]) else expr.args[::-1]
        shape = graph[normed].static_shape
        x = builder.in_shape(self._names[norm.x], shape)
        given = {"x": x, **self._given(norm, shape), "plus": self._names[plus]}
        if norm.scale is not None:
            given["scale"] = self._row(norm.scale)
        if norm.shift is not None:
            given |= self._shifted(norm.shift, plus)
        return self._normed(norm, given, expr)

    def _shifted(self, shift: Array, plus: int) -> dict[str, int]:
        """Return the shift plus the bias of the other addend: a launch has few addresses."""
        graph = self.before
        at = plus
        if graph[at].op == "astype" and len(graph.consumers[at]) == 1:
            (at,) = graph[at].args
        for value in graph[at].args:
            biased = bias_behind(graph, value)
            if biased is not None and biased[0] == at and len(graph.consumers[at]) == 1:
                row = biased[1].astype(np.float64) + shift
                return {"plus": self._names[value], "shift": self._row(row)}
        return {"shift": self._row(shift)}

    def _is_of(self, norm: NormBetween, index: int) -> bool:
        """Return whether a value is the normed rows, perhaps cast or reshaped."""
        while index != norm.norm.tail.output and self.before[index].op in {"astype", "reshape"}:
            (index,) = self.before[index].args
        return index == norm.norm.tail.output

    def _normed(self, norm: NormBetween, given: dict[str, int], like: Expr) -> int:
        problem = norm.problem
        return add_normed(self._builder, given, problem.columns, problem.epsilon, like.dtype)


def _choices(
    trial: _Rewriting, products: Sequence[Product], costs: GraphCosts, rejects: Rejects
) -> Iterator[Choice]:
    """Choose for each norm of a trial whether the products around it compute it."""
    graph, before = trial.graph, trial.before
    made = {product.anchor.index: product for product in find_products(graph)}
    of_members = {member: product for product in products for member in product.tail.members}
    claimed = {each for product in made.values() for each in product.computed}
    for norm in trial.norms:
        readers = {product.anchor.index: product for product in norm.products}
        readers |= {of_members[each].anchor.index: of_members[each] for each in norm.sums}
        how = f"moments of every {_PART} columns" if trial.in_parts else "moments of whole rows"
        rows = f"a norm of rows of {norm.problem.columns}"
        choose = partial(_choice, before, norm.norm, readers.values())
        source = made.get(trial.anchor(norm.before))
        longer = None if source is None else with_reductions(graph, source, claimed)
        anchors = [trial.anchor(each) for each in readers.values()]
        after = [made[each] for each in anchors if each in made]
        if source is None or longer is None or not _has_all(graph, norm, trial, after):
            reason = f"{rows} keeps its kernel: no kernels around it can compute {how}"
            yield choose(reason, is_rewritten=False)
            continue
        apart = [source.layer(graph), norm.norm.layer(before)]
        apart += [each.layer(before) for each in readers.values()]
        within = [each.layer(graph) for each in (longer, *after)]
        reasons = (rejects(Workload(layers=(each,))) for each in within)
        rejected = next((reason for reason in reasons if reason is not None), None)
        if rejected is not None:
            yield choose(f"{rows} keeps its kernel, without {how}: {rejected}", is_rewritten=False)
            continue
        is_faster, times = compared(costs, within, apart)
        if is_faster:
            reason = f"{rows} is within the products around it: {times}"
        else:
            reason = f"{rows} keeps its kernel; within the products around it, by {how}: {times}"
        yield choose(reason, is_rewritten=is_faster)


def _has_all(graph: Graph, norm: NormBetween, trial: _Rewriting, after: Sequence[Product]) -> bool:
    """Return whether kernels compute everything that was written for a norm."""
    computed = {member for product in after for member in product.tail.members}
    wanted = {trial.written(each.anchor.index) for each in norm.products}
    wanted |= {trial.written(each) for each in norm.sums}
    assert all(graph[each].op == NORMED for each in wanted)
    return wanted <= computed
