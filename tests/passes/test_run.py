"""A pass as the pipeline runs it: the reasons of its rules are kept."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from boltgen.graph.graph import INPUT, Expr, GraphBuilder
from boltgen.passes.masks.where_as_minimum import masks_as_bounds
from boltgen.passes.outline import Symbols
from boltgen.passes.partition import partition_graphs
from boltgen.passes.run import DEFAULT_PASSES, Partitioned, Pass, Refusal, Run, Stage


def test_a_rule_that_nearly_matched_says_why_not() -> None:
    b = GraphBuilder()
    scores = b.add(Expr(op=INPUT, shape=(4, 8), dtype="float32"))
    seen = b.add(Expr(op=INPUT, shape=(8,), dtype="bool"))
    low = b.constant(np.array(-1e4, np.float32))
    chosen = b.operator("where", (seen, scores, low), (4, 8), "float32")
    graph = b.graph(b.operator("nn.softmax", (chosen,), (4, 8), "float32", axis=-1))
    run = Run(passes=DEFAULT_PASSES, symbols=Symbols(()), packs_weights=False)
    made = Pass(Stage.MASKS, "bound_masks", masks_as_bounds, "", "")
    assert made.run(graph, run) is graph
    reason = "rule 'mask by a minimum': a score may be below -10000.0"
    assert run.refusals == [Refusal("bound_masks", "where", (4, 8), reason)]


def test_a_module_has_the_workspaces_of_its_regions() -> None:
    def write(made: Partitioned, workspaces: Mapping[str, int]) -> tuple[Partitioned, object]:
        return made, workspaces

    b = GraphBuilder()
    graph = b.graph(b.add(Expr(op=INPUT, shape=(4, 8), dtype="float32")))
    made = partition_graphs({"main": graph}, (), DEFAULT_PASSES, write)
    assert made.module() == (made, {})
    assert made.module({"boltgen_0_matmul": 256}) == (made, {"boltgen_0_matmul": 256})
