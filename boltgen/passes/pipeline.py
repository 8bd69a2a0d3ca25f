"""Arrow: a module's functions as graphs to graphs with regions, and all there is to say of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from boltgen.graph.graph import AUTHORED, INPUT, Graph
from boltgen.ir.dtypes import DType
from boltgen.ir.graph_costs import GraphCosts
from boltgen.ir.region import Placement, Region
from boltgen.ir.workload import Cutter, separate
from boltgen.passes.arithmetic.cse import with_single_reshapes, without_repeated
from boltgen.passes.arithmetic.fold_comparisons import with_known_truths
from boltgen.passes.arithmetic.fold_constant_sums import with_sums_of_constants
from boltgen.passes.arithmetic.hoist_scale import factors_behind_products
from boltgen.passes.joins.fuse_gated_mlp import join_pairs
from boltgen.passes.joins.fuse_head_operators import with_joint_heads
from boltgen.passes.joins.fuse_qkv import JoinedSiblings, join_siblings
from boltgen.passes.legalise.half_columns import without_halves
from boltgen.passes.legalise.norm_of_sums import without_normed
from boltgen.passes.masks.guarded_rows import empty_rows_behind_products
from boltgen.passes.masks.split_mask import with_masks_apart
from boltgen.passes.masks.where_as_minimum import masks_as_bounds
from boltgen.passes.masks.window_mask import masks_of_all_windows
from boltgen.passes.movement.collapse_views import with_fewer_moves
from boltgen.passes.movement.dynamic_shape_constants import corners_where_read, with_corners
from boltgen.passes.movement.index_by_arange import indexed_by_all_places
from boltgen.passes.movement.sink_broadcasts import with_late_broadcasts
from boltgen.passes.movement.sink_gathers import gathered_last
from boltgen.passes.movement.sink_row_permutations import with_rows_in_place
from boltgen.passes.movement.unflatten_matmul import products_of_open_rows
from boltgen.passes.norms.flatten_axes import norms_of_joint_rows
from boltgen.passes.norms.fuse_into_matmuls import norms_in_products
from boltgen.passes.norms.image_norms import image_norms_in_place, without_image_norms
from boltgen.passes.outline import CarvedRegion, Symbols, carve, computes_all
from boltgen.passes.padding.apply import padded
from boltgen.passes.padding.plan import plan_padding
from boltgen.passes.precision.walk import Normalised, normalise
from boltgen.passes.regions.placement import placements
from boltgen.passes.regions.products import Rejects
from boltgen.passes.weights.packed import with_floats, with_packed_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Which passes a module goes through.

    `normalise` makes it `precision`, NHWC and free of batch norms; `allow_nonfinite` takes weights
    that are NaN or infinite. `cut` says which products become one kernel, `padding` by what times
    tensors are padded, and `joining` by what times products of one tensor are joined, and sums of
    their results, if at all, `rejects` why no kernel computes a workload; products are summed in
    `accumulate`. The expressions `observed` of the function `main`, as it is imported, were seen to
    have a least and a greatest element; those of its inputs that are `narrowed`, by their places,
    are of `precision`, and FP32 to their author.
    """

    normalise: bool = True
    precision: DType = DType.F16
    allow_nonfinite: bool = False
    cut: Cutter = separate
    padding: GraphCosts | None = None
    joining: GraphCosts | None = None
    rejects: Rejects = computes_all
    accumulate: DType = DType.F32
    observed: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    narrowed: frozenset[int] = frozenset()


DEFAULT_PASSES = Passes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitioned:
    """A module's functions with their regions carved out, by name.

    `padding` says of each product whose tensors could have more channels what was chosen, `notes`
    what else a reader should know. `write` makes the IR's module of it, where each region in its
    argument has a workspace of so many bytes.
    """

    graphs: Mapping[str, Graph]
    carved: Mapping[str, CarvedRegion]
    placements: tuple[Placement, ...]
    padding: tuple[str, ...]
    notes: tuple[str, ...]
    write: Callable[[Partitioned, Mapping[str, int]], Any]

    @property
    def regions(self) -> tuple[Region, ...]:
        """The regions, in the order in which they were carved out."""
        return tuple(carved.region for carved in self.carved.values())

    def module(self, workspaces: Mapping[str, int] | None = None) -> Any:
        """The IR's module, which calls each region by its symbol.

        `workspaces` has the bytes that TVM plans for a region's call, by the region's symbol.
        """
        return self.write(self, workspaces or {})


def partition_graphs(
    graphs: Mapping[str, Graph],
    taken: Iterable[str],
    passes: Passes,
    write: Callable[[Partitioned, Mapping[str, int]], Any],
    *,
    grouped_nhwc: bool,
    packs_weights: bool = False,
) -> Partitioned:
    """The functions `graphs`, by name, through all passes.

    No region has a name that is `taken`. `grouped_nhwc` tells whether the IR computes grouped
    convolutions in NHWC, `packs_weights` whether regions may take packed weights.

    Raises:
        ModelImportError: a weight is NaN or infinite, and that is not allowed.
    """
    symbols = Symbols(taken)
    made: dict[str, Graph] = {}
    carved: dict[str, CarvedRegion] = {}
    placed: list[Placement] = []
    padding: list[str] = []
    notes: dict[str, None] = {}
    for name, graph in graphs.items():
        packs = packs_weights and passes.precision is DType.F16
        known = _marked(graph, passes) if name == "main" else graph
        packed = with_packed_weights(known, passes.rejects, passes.accumulate, packs=packs)
        normal = _normalised(packed, passes, grouped_nhwc=grouped_nhwc)
        # Casts and bounds of corners are corners again.
        corners = with_corners(masks_as_bounds(masks_of_all_windows(normal.graph)))
        joined = _joined(products_of_open_rows(corners), passes)
        notes.update(dict.fromkeys((*normal.notes, *joined.notes)))
        costs, summed = passes.padding, passes.accumulate
        plan = plan_padding(joined.graph, costs, summed) if costs else ()
        padding += [choice.describe(joined.graph) for choice in plan]
        paired = _paired(padded(joined.graph, plan), passes)
        notes.update(dict.fromkeys(paired.notes))
        whole, found = carve(
            paired.graph,
            symbols,
            passes.cut,
            passes.rejects,
            summed,
            reductions=passes.joining,
        )
        made[name] = with_single_reshapes(_of_operators(with_floats(whole)))
        for each in found:
            carved[each.region.symbol] = replace(each, body=_of_operators(each.body))
        placed += placements(made[name], {each.region.symbol: each.region for each in found})
    return Partitioned(
        graphs=made,
        carved=carved,
        placements=tuple(placed),
        padding=tuple(padding),
        notes=tuple(notes),
        write=write,
    )


def _marked(graph: Graph, passes: Passes) -> Graph:
    """`graph` with what was observed of its values, and with its `narrowed` inputs marked as FP32
    to their author.
    """
    inputs = [index for index, expr in enumerate(graph.exprs) if expr.op == INPUT]
    exprs = list(graph.exprs)
    for index in (inputs[place] for place in passes.narrowed):
        attrs = {**exprs[index].attrs, AUTHORED: DType.F32.value}
        exprs[index] = replace(exprs[index], attrs=attrs)
    for index, observed in passes.observed.items():
        exprs[index] = replace(exprs[index], observed=observed)
    return replace(graph, exprs=tuple(exprs))


def _joined(graph: Graph, passes: Passes) -> JoinedSiblings:
    if passes.joining is None:
        return JoinedSiblings(graph, ())
    joined = join_siblings(graph, passes.joining, passes.accumulate)
    within = norms_in_products(
        with_joint_heads(joined.graph), passes.joining, passes.rejects, passes.accumulate
    )
    return JoinedSiblings(within.graph, (*joined.notes, *within.notes))


def _paired(graph: Graph, passes: Passes) -> JoinedSiblings:
    if passes.joining is None:
        return JoinedSiblings(graph, ())
    return join_pairs(graph, passes.joining, passes.rejects, passes.accumulate)


def _of_operators(graph: Graph) -> Graph:
    """`graph` with operators that IRs have in the place of those that only kernels compute."""
    return corners_where_read(without_image_norms(without_normed(without_halves(graph))))


def _respelled(graph: Graph) -> Graph:
    """What authors and importers write in many ways, in the one that the other passes know."""
    graph = with_corners(with_sums_of_constants(indexed_by_all_places(graph)))
    graph = with_rows_in_place(with_fewer_moves(graph))
    graph = with_masks_apart(empty_rows_behind_products(graph))
    return norms_of_joint_rows(factors_behind_products(graph))


def _normalised(graph: Graph, passes: Passes, *, grouped_nhwc: bool) -> Normalised:
    if not passes.normalise:
        return Normalised(graph, ())
    normal = normalise(
        _respelled(graph),
        precision=passes.precision,
        allow_nonfinite=passes.allow_nonfinite,
        grouped_nhwc=grouped_nhwc,
    )
    graph = with_late_broadcasts(with_known_truths(normal.graph))
    graph = without_repeated(gathered_last(graph))
    placed = image_norms_in_place(graph, passes.rejects)
    return Normalised(placed.graph, (*normal.notes, *placed.notes))
