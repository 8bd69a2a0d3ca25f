"""Arrow: a module's functions as graphs, through the pipeline, to graphs with regions."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from boltgen.graph.graph import Graph
from boltgen.passes.outline import Symbols
from boltgen.passes.pipeline import PIPELINE
from boltgen.passes.regions.placement import placements
from boltgen.passes.run import Partitioned, Passes, Run
from boltgen.passes.trace import Watch
from boltgen.problems.region import Placement
from boltgen.settings import verifies_graphs


@contextmanager
def _without_collections() -> Iterator[None]:
    """Pause the garbage collector: graphs have no cycles, and each search for some walks them all.

    It took a quarter of the time of the passes for 10,000 operators.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_without_collections()
def partition_graphs(
    graphs: Mapping[str, Graph],
    taken: Iterable[str],
    passes: Passes,
    write: Callable[[Partitioned, Mapping[str, int]], Any],
    *,
    packs_weights: bool = False,
    writes_volumes: bool = True,
) -> Partitioned:
    """Run all passes over the functions `graphs`, by name.

    No region has a name that is `taken`. `packs_weights` tells whether regions may take packed
    weights, `writes_volumes` whether the IR computes convolutions of volumes in NDHWC.

    Raises:
        ModelImportError: a weight is NaN or infinite, and that is not allowed.
        GraphError: a graph that is watched breaks a rule of the IR.
    """
    run = Run(
        passes=passes,
        symbols=Symbols(taken),
        packs_weights=packs_weights,
        writes_volumes=writes_volumes,
    )
    is_watched = passes.trace is not None or verifies_graphs()
    watch = Watch(passes.trace) if is_watched else None
    made: dict[str, Graph] = {}
    placed: list[Placement] = []
    for name, graph in graphs.items():
        before = len(run.carved)
        made[name] = _rewritten(name, graph, run, watch)
        own = {symbol: run.carved[symbol].region for symbol in list(run.carved)[before:]}
        placed += placements(made[name], own)
    for symbol, carved in run.carved.items():
        run.carved[symbol] = replace(carved, body=_body(symbol, carved.body, run, watch))
    return Partitioned(
        graphs=made,
        carved=run.carved,
        placements=tuple(placed),
        padding=tuple(run.padding),
        notes=tuple(run.notes),
        refusals=tuple(run.refusals),
        choices=tuple(run.choices),
        fired=run.fired,
        write=write,
    )


def _rewritten(name: str, graph: Graph, run: Run, watch: Watch | None) -> Graph:
    """The graph of the function `name` after all passes."""
    run.function = name
    if watch is not None:
        watch.begin(name, graph)
    for number, each in enumerate(PIPELINE, 1):
        if each.when.holds(run):
            before, graph = graph, each.run(graph, run)
            if watch is not None:
                watch.passed(name, before, graph, number, each)
    return graph


def _body(symbol: str, graph: Graph, run: Run, watch: Watch | None) -> Graph:
    """The body of a region after the passes that bodies go through."""
    for each in PIPELINE:
        if each.in_bodies and each.when.holds(run):
            graph = each.run(graph, run)
            if watch is not None:
                watch.body(symbol, graph, each)
    return graph
