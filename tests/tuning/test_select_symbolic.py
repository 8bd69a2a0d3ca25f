"""Selection over ranges of sizes: few kernels that are good for small and large ones alike."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from boltgen.arch import arch_named
from boltgen.families.registry import kernel_spec, predict, violations
from boltgen.ir.cells import localised
from boltgen.ir.extent import Symbol, symbolic
from boltgen.ir.problem import Gemm
from boltgen.ir.workload import Workload
from boltgen.tuning.ranges import table, tasks_over
from boltgen.tuning.select import Task, select

SM80 = arch_named("sm_80")


def _tasks(problem: Gemm, name: str) -> list[Task]:
    workload, _ = localised(Workload.of(problem))
    return [*tasks_over(workload, name)]


def test_few_kernels_serve_a_whole_range() -> None:
    tasks = _tasks(Gemm(m=symbolic(Symbol("rows", 1, 32768)), n=768, k=768), "region_0")
    chosen = select(tasks, SM80)
    best = select(tasks, SM80, kernel_price_us=0)
    kernels = {kernel_spec(each.workload, each.config, SM80.name) for each in chosen}
    assert 1 < len(kernels) <= 12
    ratios = [c.time_us / b.time_us for c, b in zip(chosen, best, strict=True)]
    assert math.prod(ratios) ** (1 / len(ratios)) <= 1.03
    for task, decision in zip(tasks, chosen, strict=True):
        assert task.cell is not None
        for corner in task.cell.corners:
            assert violations(corner, decision.config, SM80) == ()


def test_large_sizes_do_not_outweigh_small_ones() -> None:
    """By their sum, a millionth of the rows would count for nothing."""
    tasks = _tasks(Gemm(m=symbolic(Symbol("rows", 1, 2**20)), n=1024, k=1024), "region_0")
    chosen, best = select(tasks, SM80), select(tasks, SM80, kernel_price_us=0)
    assert chosen[0].time_us <= 1.15 * best[0].time_us


def test_another_size_of_the_model_counts_as_before() -> None:
    fixed = Task(workload=Workload.of(Gemm(m=4096, n=1024, k=1024)), occurrences=12)
    alone = select([fixed], SM80)
    beside = select([fixed, *_tasks(Gemm(m=symbolic(Symbol("rows", 1, 64)), n=8, k=64), "r")], SM80)
    assert beside[0] == alone[0]


def test_the_table_has_the_best_of_what_was_chosen() -> None:
    rows = symbolic(Symbol("rows", 1, 5000))
    workload, _ = localised(Workload.of(Gemm(m=rows, n=768, k=768)))
    decisions = select([*tasks_over(workload, "r")], SM80)
    found = table(workload, decisions, SM80)
    (first,), (last,) = found[0].cell.symbols, found[-1].cell.symbols
    assert (first.low, last.high) == (1, 5000)
    offers = {each.config for each in decisions}
    for row, following in itertools.pairwise(found):
        ((end,), (begin,)) = row.cell.symbols, following.cell.symbols
        assert end.high + 1 == begin.low
        assert row.decision.config != following.decision.config
        best = min(predict(row.decision.workload, each, SM80).time_us for each in offers)
        assert row.decision.time_us == pytest.approx(best)


def test_a_measured_time_scales_what_the_model_says_between_sizes() -> None:
    rows = symbolic(Symbol("rows", 1, 5000))
    workload, _ = localised(Workload.of(Gemm(m=rows, n=768, k=768)))
    decisions = select([*tasks_over(workload, "r")], SM80)
    slow = decisions[-1].config
    measured = [
        replace(each, time_us=each.time_us * (3 if each.config == slow else 1))
        for each in decisions
    ]
    assert slow in {row.decision.config for row in table(workload, decisions, SM80)}
    assert slow not in {row.decision.config for row in table(workload, measured, SM80)}


def test_a_workload_of_known_sizes_has_one_row() -> None:
    workload = Workload.of(Gemm(m=64, n=768, k=768))
    (decision,) = select([*tasks_over(workload, "r")], SM80)
    (row,) = table(workload, [decision], SM80)
    assert (row.cell, row.decision) == (workload, decision)
