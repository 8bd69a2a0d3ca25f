"""The passes that need options of a run, bound to it.

Arrow: `pipeline` lists them; a pass itself takes values, and knows no run.
"""

from __future__ import annotations

from dataclasses import replace

from boltgen.graph.attributes import Input
from boltgen.graph.graph import INPUT, Expr, Graph, Noted
from boltgen.ir.dtypes import DType
from boltgen.passes.joins.fuse_gated_mlp import join_pairs
from boltgen.passes.joins.fuse_qkv import join_siblings
from boltgen.passes.legalise.unroll_recurrent import without_rejected
from boltgen.passes.norms.fuse_into_matmuls import norms_in_products
from boltgen.passes.outline import carve
from boltgen.passes.padding.apply import padded
from boltgen.passes.padding.pairs import with_paired_pixels
from boltgen.passes.padding.plan import plan_padding
from boltgen.passes.precision.walk import normalise
from boltgen.passes.quantisation.integer_products import slower_by, with_integer_products
from boltgen.passes.quantisation.narrow_products import with_narrow_products
from boltgen.passes.run import Run
from boltgen.passes.weights.packed import with_packed_weights


def mark_inputs(graph: Graph, run: Run) -> Graph:
    """Attach observed ranges to the values of `main`, and mark its narrowed inputs."""
    passes = run.passes
    if run.function != "main" or not (passes.observed or passes.narrowed):
        return graph
    inputs = [index for index, expr in enumerate(graph.exprs) if expr.op == INPUT]
    exprs = list(graph.exprs)
    for index in (inputs[place] for place in passes.narrowed):
        exprs[index] = replace(exprs[index], attrs=Input(authored=DType.F32.value))
    for index, observed in passes.observed.items():
        exprs[index] = replace(exprs[index], observed=observed)
    return replace(graph, exprs=tuple(exprs))


def pack_weights(graph: Graph, run: Run) -> Graph:
    """Pack weights for kernels that take them, in the precision of the run."""
    packs = run.packs_weights and run.passes.precision is DType.F16
    return with_packed_weights(graph, run.passes.rejects, run.passes.accumulate, packs=packs)


def multiply_integers(graph: Graph, run: Run) -> Graph:
    """Multiply bytes by the times of the run, and keep the reasons of products of wider floats."""
    passes = run.passes

    def refuse(expr: Expr, reason: str) -> None:
        run.refuse("multiply_integers", expr, reason)

    rules = passes.rejects, refuse
    if passes.joining is None:
        return with_narrow_products(with_integer_products(graph, *rules), *rules)
    slower = slower_by(passes.joining, passes.precision, passes.accumulate)
    whole = with_integer_products(graph, *rules, slower)
    return with_narrow_products(whole, *rules, slower)


def unroll_rejected(graph: Graph, run: Run) -> Noted:
    """Write out the recurrent layers that no kernel of the run computes, or none as fast."""
    passes = run.passes
    precision = passes.precision if passes.normalise else None
    return without_rejected(graph, passes.rejects, precision, passes.joining)


def set_precision(graph: Graph, run: Run) -> Noted:
    """Set the precision of the run, and keep the reasons of anchors that stay with TVM."""
    made = normalise(
        graph,
        precision=run.passes.precision,
        allow_nonfinite=run.passes.allow_nonfinite,
        writes_volumes=run.writes_volumes,
    )
    for expr in made.graph.exprs:
        if expr.reason:
            run.refuse("set_precision", expr, expr.reason)
    return made


def fuse_qkv(graph: Graph, run: Run) -> Noted:
    """Fuse matmuls of one tensor by the times of the run."""
    assert run.passes.joining is not None
    return join_siblings(graph, run.passes.joining, run.passes.accumulate)


def fuse_norms(graph: Graph, run: Run) -> Noted:
    """Fuse norms into matmuls by the times of the run."""
    passes = run.passes
    assert passes.joining is not None
    return norms_in_products(graph, passes.joining, passes.rejects, passes.accumulate)


def pad_channels(graph: Graph, run: Run) -> Graph:
    """Pad channels by the times of the run, and keep what was chosen."""
    assert run.passes.padding is not None
    plan = plan_padding(graph, run.passes.padding, run.passes.accumulate)
    run.padding += [choice.describe(graph) for choice in plan]
    return padded(graph, plan)


def pair_pixels(graph: Graph, run: Run) -> Graph:
    """Pair pixels by the times of the run."""
    assert run.passes.padding is not None
    return with_paired_pixels(graph, run.passes.padding, run.passes.accumulate)


def fuse_gated_mlp(graph: Graph, run: Run) -> Noted:
    """Fuse gated MLPs by the times of the run."""
    passes = run.passes
    assert passes.joining is not None
    return join_pairs(graph, passes.joining, passes.rejects, passes.accumulate)


def outline_regions(graph: Graph, run: Run) -> Graph:
    """Outline regions for the kernels of the run, and keep them with all refusals."""
    passes = run.passes
    made, found = carve(
        graph,
        run.symbols,
        passes.cut,
        passes.rejects,
        passes.accumulate,
        reductions=passes.joining,
        refuse=lambda index, reason: run.refuse("outline_regions", graph[index], reason),
    )
    run.carved.update({each.region.symbol: each for each in found})
    return made
