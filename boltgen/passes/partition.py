"""Arrow: a module's functions as graphs, through the pipeline, to graphs with regions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from boltgen.graph.graph import Graph
from boltgen.ir.region import Placement
from boltgen.passes.outline import Symbols
from boltgen.passes.pipeline import PIPELINE
from boltgen.passes.regions.placement import placements
from boltgen.passes.run import Partitioned, Passes, Run


def partition_graphs(
    graphs: Mapping[str, Graph],
    taken: Iterable[str],
    passes: Passes,
    write: Callable[[Partitioned, Mapping[str, int]], Any],
    *,
    grouped_nhwc: bool,
    packs_weights: bool = False,
) -> Partitioned:
    """Run all passes over the functions `graphs`, by name.

    No region has a name that is `taken`. `grouped_nhwc` tells whether the IR computes grouped
    convolutions in NHWC, `packs_weights` whether regions may take packed weights.

    Raises:
        ModelImportError: a weight is NaN or infinite, and that is not allowed.
    """
    run = Run(
        passes=passes,
        symbols=Symbols(taken),
        grouped_nhwc=grouped_nhwc,
        packs_weights=packs_weights,
    )
    chosen = [each for each in PIPELINE if each.when.holds(passes)]
    made: dict[str, Graph] = {}
    placed: list[Placement] = []
    for name, graph in graphs.items():
        run.function, rewritten, before = name, graph, frozenset(run.carved)
        for each in chosen:
            rewritten = each.run(rewritten, run)
        made[name] = rewritten
        own = {symbol: run.carved[symbol] for symbol in run.carved if symbol not in before}
        placed += placements(rewritten, {symbol: each.region for symbol, each in own.items()})
    in_bodies = [each for each in chosen if each.in_bodies]
    for symbol, carved in run.carved.items():
        body = carved.body
        for each in in_bodies:
            body = each.run(body, run)
        run.carved[symbol] = replace(carved, body=body)
    return Partitioned(
        graphs=made,
        carved=run.carved,
        placements=tuple(placed),
        padding=tuple(run.padding),
        notes=tuple(run.notes),
        write=write,
    )
