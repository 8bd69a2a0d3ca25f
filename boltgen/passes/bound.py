"""The passes that leave more in a run than a graph, notes and choices.

Arrow: `pipeline` lists them; all other passes take values, and know no run.
"""

from __future__ import annotations

from dataclasses import replace

from boltgen.graph.attributes import Input
from boltgen.graph.graph import INPUT, Expr, Graph, Noted
from boltgen.ir.dtypes import DType
from boltgen.passes.outline import carve
from boltgen.passes.padding.apply import padded
from boltgen.passes.padding.plan import plan_padding
from boltgen.passes.precision.walk import normalise
from boltgen.passes.quantisation.integer_products import slower_by, with_integer_products
from boltgen.passes.quantisation.leaving import leaving, unmatched
from boltgen.passes.quantisation.narrow_products import with_products_of_float8
from boltgen.passes.quantisation.sink_dequantise import with_late_dequantisations
from boltgen.passes.quantisation.widened_products import with_narrow_products
from boltgen.passes.run import Run


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


def sink_dequantisations(graph: Graph, run: Run) -> Graph:
    """Sink dequantisations, and note quantisations that do not match."""
    run.notes.update(dict.fromkeys(unmatched(graph)))
    return with_late_dequantisations(graph)


def multiply_integers(graph: Graph, run: Run) -> Graph:
    """Multiply bytes by the times of the run, and keep the reasons of products of wider floats."""
    passes, kept = run.passes, list[tuple[Expr, str]]()

    def refuse(expr: Expr, reason: str) -> None:
        run.refuse("multiply_integers", expr, reason)
        kept.append((expr, reason))

    slower = slower_by(passes.joining, passes.precision, passes.accumulate)
    made = with_integer_products(graph, passes.rejects, refuse, slower)
    made = with_products_of_float8(made, passes.rejects, refuse, slower)
    run.notes.update(dict.fromkeys(leaving(made, kept)))
    return made


def narrow_integers(graph: Graph, run: Run) -> Graph:
    """Multiply bytes, and keep the reasons of products of widened bytes that stay."""

    def refuse(expr: Expr, reason: str) -> None:
        run.refuse("narrow_integers", expr, reason)
        run.notes[f"{expr.op} leaves INT8: {reason}."] = None

    return with_narrow_products(graph, run.passes.rejects, refuse)


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


def pad_channels(graph: Graph, run: Run) -> Graph:
    """Pad channels by the times of the run, and keep what was chosen."""
    assert run.passes.padding is not None
    plan = plan_padding(graph, run.passes.padding, run.passes.accumulate)
    run.padding += [choice.describe(graph) for choice in plan]
    return padded(graph, plan)


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
