"""Arrow: a graph to one with a call in place of each region, and the regions.

Fixed patterns cannot enumerate every elementwise graph, so neither frontend uses TVM's pattern
passes: the walk decides what a region is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from boltgen.graph.attributes import RegionCall
from boltgen.graph.facts import MOVES
from boltgen.graph.graph import (
    INPUT,
    PART,
    REGION,
    Expr,
    Graph,
    GraphBuilder,
    mapped,
    renamed,
)
from boltgen.ir.dtypes import DType
from boltgen.ir.extent import Dim
from boltgen.passes.attention.recognise import find_attentions
from boltgen.passes.norms.recognise import find_norms
from boltgen.passes.regions.anchor import ANCHORS
from boltgen.passes.regions.boundary import Border
from boltgen.passes.regions.chains import Found, join
from boltgen.passes.regions.epilogue_reductions import reducing
from boltgen.passes.regions.products import (
    Product,
    Rejects,
    alike,
    extended,
    find_others,
    find_products,
)
from boltgen.passes.regions.prologues import with_prologue
from boltgen.problems.cells import localised
from boltgen.problems.graph_costs import GraphCosts
from boltgen.problems.region import LayerRoles, Operand, Region, Stored
from boltgen.problems.workload import Cutter, Workload, separate


def ignored(*_: object) -> None:
    """Forget why an operator is in no region."""


def computes_all(_: Workload) -> str | None:
    """Reject nothing: some architecture may compute the workload."""
    return None


def find_regions(
    graph: Graph,
    cut: Cutter = separate,
    accumulate: DType = DType.F32,
    rejects: Rejects = computes_all,
) -> list[Found]:
    """Find the regions of a graph; `cut` says which anchors become one kernel.

    Products with a softmax between them do so wherever no reason `rejects` them.
    """
    # Without a softmax there is no attention, and one search is enough.
    shares = None if "nn.softmax" in graph.operators else frozenset[int]()
    found = find_attentions(graph, find_products(graph, accumulate, shares), rejects)
    taken = frozenset(product.anchor.index for pair in found.pairs for product in pair)
    # A pair that is no attention has only operands that other kernels can read.
    products = find_products(graph, accumulate, taken)
    within = {member for pair in found.pairs for product in pair for member in product.computed}
    rest = [
        product
        for product in products
        if product.anchor.index not in taken and within.isdisjoint(product.computed)
    ]
    regions = [Found(pair) for pair in found.pairs]
    for joined in join(graph, rest, cut):
        refused = found.refused.get(joined.products[-1].anchor.index, "")
        reason = "; ".join(filter(None, (joined.reason, refused)))
        regions.append(replace(joined, reason=reason))
    return regions


@dataclass(frozen=True, slots=True, kw_only=True)
class CarvedRegion:
    """A region, and its body: a graph whose inputs are the region's parameters, in order.

    Relay wants the body of each external function; nothing else reads it.
    """

    region: Region
    body: Graph


class Symbols:
    """Names for regions' functions: nothing of the model's text reaches C++ or the file system."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._count = 0

    def fresh(self, operator: str) -> str:
        """A name that no function of the module has."""
        plain = re.sub(r"[^a-z0-9]", "_", operator.removeprefix("nn."))
        while True:
            symbol = f"boltgen_{self._count}_{plain}"
            self._count += 1
            if symbol not in self._taken:
                self._taken.add(symbol)
                return symbol


def carve(
    graph: Graph,
    symbols: Symbols,
    cut: Cutter = separate,
    rejects: Rejects = computes_all,
    accumulate: DType = DType.F32,
    *,
    reductions: GraphCosts | None = None,
    refuse: Callable[[int, str], None] = ignored,
) -> tuple[Graph, tuple[CarvedRegion, ...]]:
    """Return `graph` with an expression `REGION` for each region, and the regions in order.

    The expression's arguments are the region's parameters. Products are summed in `accumulate`; one
    that `rejects` has a reason for stays, with the reason. By the times of `reductions` kernels
    write sums of their results too. `refuse` is told why an operator of `graph` is in no region.
    """
    found: dict[int, Found] = {}
    kept: dict[int, str] = {}
    regions = find_regions(graph, cut, accumulate, rejects)
    claimed = {member for region in regions for member in region.members}
    norms = find_norms(graph, claimed)
    kept.update(norms.refused)
    regions += [Found((norm,)) for norm in norms.found]
    claimed.update(member for norm in norms.found for member in norm.members)
    others = find_others(graph, claimed, accumulate)
    regions += [Found((other,)) for other in others]
    claimed.update(member for other in others for member in other.members)
    for region in regions:
        reason = rejects(region.workload(graph)) if len(region.products) == 1 else None
        if reason is None:
            longer = _extended(graph, region, claimed, rejects, reductions)
            claimed.update(longer.members)
            found[longer.output] = longer
        else:
            kept[region.products[0].anchor.index] = reason
    moved = {member for region in found.values() for member in region.moved}
    told: dict[int, str] = {}
    for index, reason in _reasons(graph, regions, kept):
        if index not in claimed or index in kept:
            refuse(index, reason)
            if graph[index].op not in MOVES:  # a view has no work that a kernel could take over
                told.setdefault(index, reason)
    builder = GraphBuilder()
    names: dict[int, int] = {}
    carved: list[CarvedRegion] = []
    for index, expr in enumerate(graph.exprs):
        if index in found:
            made, arguments = _carved(graph, found[index], symbols)
            carved.append(made)
            call = Expr(
                op=REGION,
                args=tuple(names[argument] for argument in arguments),
                shape=expr.shape,
                dtype=expr.dtype,
                attrs=RegionCall(made.region.symbol),
            )
            names |= _results(graph, found[index], call, builder)
        elif index not in moved:
            reason = told.get(index, expr.reason)
            names[index] = builder.add(replace(renamed(expr, names), reason=reason))
    return builder.graph(mapped(graph.results, names)), tuple(carved)


def _reasons(
    graph: Graph, regions: Sequence[Found], kept: Mapping[int, str]
) -> Iterator[tuple[int, str]]:
    """Yield why each operator that a region could have begun with, or gone on to, is in none."""
    yield from kept.items()
    for product in (each for region in regions for each in region.products):
        before = graph[product.anchor.index].op.rpartition(".")[2]
        for index, reason in product.tail.refused.items():
            if graph[index].op in ANCHORS:
                continue  # the operator begins a region of its own, or has a reason of its own
            yield index, f"the kernel of the {before} before it cannot compute it: {reason}"


def _extended(
    graph: Graph,
    found: Found,
    claimed: Collection[int],
    rejects: Rejects,
    reductions: GraphCosts | None,
) -> Found:
    *before, product = found.products
    if before:
        return _extended_chain(graph, found, claimed, rejects)
    product = extended(graph, product, claimed, rejects)
    if reductions is not None:
        product = reducing(graph, product, claimed, rejects, reductions)
        product = with_prologue(graph, product, claimed, rejects, reductions)
    return replace(found, products=(product,))


def _extended_chain(
    graph: Graph, found: Found, claimed: Collection[int], rejects: Rejects
) -> Found:
    """Extend the last epilogue of layers back to back, if a kernel of all layers computes it."""
    *before, product = found.products
    batches = (each.anchor.problem.batch for each in found.products)
    if product.prologue is not None or any(batch > 1 for batch in batches):
        return found
    layers = tuple(each.layer(graph) for each in before)

    def together(workload: Workload) -> str | None:
        return rejects(Workload(layers=(*layers, *workload.layers)))

    longer = extended(graph, product, claimed, together)
    return replace(found, products=(*before, longer))


def _results(graph: Graph, found: Found, call: Expr, builder: GraphBuilder) -> dict[int, int]:
    """Map each result of a region to its expression, once its `call` is in the graph."""
    if not found.further:
        return {found.output: builder.add(call)}
    results = [graph[index] for index in (found.output, *found.further)]
    types = tuple((each.static_shape, each.dtype) for each in results[1:])
    made = builder.add(replace(call, attrs=replace(call.attrs.of(RegionCall), further=types)))
    return {
        index: builder.operator(PART, (made,), each.static_shape, each.dtype, index=place)
        for place, (index, each) in enumerate(
            zip((found.output, *found.further), results, strict=True)
        )
    }


def _carved(graph: Graph, found: Found, symbols: Symbols) -> tuple[CarvedRegion, tuple[int, ...]]:
    """Return a region with its body, and the indices of its parameters' values in `graph`."""
    members = set(found.members)
    # A kernel reads its weight, be it of one element: a QLinearConv's may be.
    weights = {product.anchor.operand_b for product in found.products}
    weights.update(each for product in found.products for each in product.anchor.further)
    builder = GraphBuilder()
    names: dict[int, int] = {}
    parameters: list[int] = []
    for member in found.members:
        for arg in graph[member].args:
            if arg in members or arg in names:
                continue
            expr = graph[arg]
            if expr.scalar is not None and arg not in weights:
                names[arg] = builder.add(expr)  # a constant that the kernel is generated with
            elif arg in found.known:
                _add_known(graph, arg, builder, names)
            else:
                names[arg] = builder.add(Expr(op=INPUT, shape=expr.shape, dtype=expr.dtype))
                parameters.append(arg)
        names[member] = builder.add(renamed(graph[member], names))
    d, *further = (names[index] for index in (found.output, *found.further))
    body = builder.graph((d, *further) if further else d)
    symbol = symbols.fresh(graph[found.products[0].anchor.index].op)
    places = {value: place for place, value in enumerate(parameters)}
    region = _region(graph, found, symbol, places)
    return CarvedRegion(region=region, body=body), tuple(parameters)


def _add_known(graph: Graph, index: int, builder: GraphBuilder, names: dict[int, int]) -> None:
    """Add a value with its sources, which the kernel knows without reading it."""
    wanted, pending = {index}, [index]
    while pending:
        fresh = {arg for arg in graph[pending.pop()].args if arg not in names} - wanted
        wanted |= fresh
        pending += fresh
    for each in sorted(wanted):
        names[each] = builder.add(renamed(graph[each], names))


def label(graph: Graph, members: Sequence[int]) -> str:
    """A region's operators for people: "conv2d + add + relu"."""
    return " + ".join(graph[member].op.rpartition(".")[2] for member in members)


def _region(graph: Graph, found: Found, symbol: str, places: Mapping[int, int]) -> Region:
    products = alike(found.products)
    first, last = products[0], products[-1]
    workload, own = localised(found.workload(graph))
    return Region(
        symbol=symbol,
        label=" + ".join(label(graph, product.shown) for product in products),
        workload=workload,
        parameter_count=len(places),
        a=places[first.input],
        layers=tuple(_roles(product, places) for product in products),
        note=found.reason,
        a_stored=_stored(first.entry, own),
        d_stored=_stored(last.exit, own),
        origins=tuple((symbol.symbols[0], extent) for extent, symbol in own.items()),
        a_view=first.a_view,
        d_view=last.d_view,
    )


def _stored(border: Border | None, own: Mapping[Dim, Dim]) -> Stored | None:
    """Return TVM's form of a tensor, in the region's `own` symbols; a matrix has its rows as one
    extent.
    """
    if border is None:
        return None
    shape = border.stored.shape
    if any(isinstance(each, Dim) and each not in own for each in shape):
        shape = (prod(shape[:-1]), shape[-1])
    extents = tuple(own[each] if isinstance(each, Dim) else each for each in shape)
    return replace(border.stored, shape=extents)


def _roles(product: Product, places: Mapping[int, int]) -> LayerRoles:
    b, taken = product.anchor.operand_b, product.anchor.taken
    return LayerRoles(
        b=None if b is None else places[b],
        ends=None if product.anchor.ends is None else places[product.anchor.ends],
        rows=None if taken is None else places[taken.rows],
        further=tuple(places[each] for each in product.anchor.further),
        b_view=product.b_view,
        b_group=product.b_group,
        operands=tuple(
            Operand(
                parameter=places[operand.expr],
                batched=operand.batched,
                shared=operand.shared,
                within=operand.within,
                view=operand.view,
            )
            for operand in product.operands
        ),
    )
