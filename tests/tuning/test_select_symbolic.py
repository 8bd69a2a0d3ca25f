"""Selection over ranges of sizes: few kernels that are good for small and large ones alike."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.cases.attention import attention
from boltgen.arch import arch_named
from boltgen.errors import BoltgenError
from boltgen.families.registry import kernel_spec, predict, violations
from boltgen.ir.extent import Symbol, symbolic
from boltgen.problems.cells import cells, localised, representative
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.region import LayerRoles, Region
from boltgen.problems.workload import Workload
from boltgen.tuning.choice.select import Task, select
from boltgen.tuning.choice.size_tables import regret, table, tasks_over
from boltgen.tuning.choice.traffic import Sizes, traffic_of

SM80 = arch_named("sm_80")


def _region(problem: Gemm, name: str = "region_0") -> Region:
    workload, made = localised(Workload.of(problem))
    return Region(
        symbol=name,
        label="matmul",
        workload=workload,
        parameter_count=2,
        a=0,
        layers=(LayerRoles(b=1),),
        origins=tuple((own.symbols[0], extent) for extent, own in made.items()),
    )


def _tasks(problem: Gemm, name: str) -> list[Task]:
    return [*tasks_over(_region(problem, name))]


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
    region = _region(Gemm(m=rows, n=768, k=768))
    workload, decisions = region.workload, select(tasks_over(region), SM80)
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
    region = _region(Gemm(m=rows, n=768, k=768))
    workload, decisions = region.workload, select(tasks_over(region), SM80)
    slow = decisions[-1].config
    measured = [
        replace(each, time_us=each.time_us * (3 if each.config == slow else 1))
        for each in decisions
    ]
    assert slow in {row.decision.config for row in table(workload, decisions, SM80)}
    assert slow not in {row.decision.config for row in table(workload, measured, SM80)}


@pytest.mark.parametrize("most", [4096, 64])
def test_a_row_has_the_kernel_of_all_its_sizes(most: int) -> None:
    """Rows of few sizes end at an aligned one, and the sizes before are not."""
    keys = symbolic(Symbol("n", 16, most))
    (workload, _) = localised(attention(1, keys, 64, 64, batch=8))
    tasks = [Task(workload=representative(each), cell=each) for each in cells(workload)]
    rows = table(workload, select(tasks, SM80), SM80)
    assert (rows[0].cell.symbols[0].low, rows[-1].cell.symbols[0].high) == (16, most)
    for row in rows:
        (symbol,) = row.cell.symbols
        if symbol.low < symbol.high:
            scores = row.decision.workload.first.problem
            assert scores.alignment_d == 1
            assert scores.d_shape[-1] <= symbol.high


def test_a_workload_of_known_sizes_has_one_row() -> None:
    region = _region(Gemm(m=64, n=768, k=768))
    workload = region.workload
    (decision,) = select(tasks_over(region), SM80)
    (row,) = table(workload, [decision], SM80)
    assert (row.cell, row.decision) == (workload, decision)


BATCH, LENGTH = Symbol("batch", 1, 64), Symbol("length", 16, 512)
OPEN = Gemm(m=symbolic(BATCH) * symbolic(LENGTH), n=768, k=768)


def _sizes(batch: int, length: int, count: int = 1) -> Sizes:
    return Sizes(values=(("batch", batch), ("length", length)), count=count)


def test_traffic_decides_what_a_cell_counts() -> None:
    traffic = [_sizes(1, 16, 30), _sizes(2, 128, 60), _sizes(1, 256, 10)]
    tasks = tasks_over(_region(OPEN), traffic)
    expected = {task.cell.symbols[0].high: task.share for task in tasks if task.share and task.cell}
    assert list(expected.values()) == [0.3, 0.7]
    (small, large) = expected
    assert small == 16
    assert large >= 256
    assert sum(task.share for task in tasks_over(_region(OPEN))) == pytest.approx(1.0)


def test_the_kernels_are_those_that_the_traffic_wants() -> None:
    region = _region(OPEN)
    tasks = tasks_over(region, [_sizes(1, 16)])
    chosen, best = select(tasks, SM80), select(tasks, SM80, kernel_price_us=0)
    assert chosen[0].config == best[0].config
    assert regret(chosen, tasks) == pytest.approx(1.0)
    kernels = {kernel_spec(each.workload, each.config, SM80.name) for each in chosen}
    all_alike = {
        kernel_spec(each.workload, each.config, SM80.name)
        for each in select(tasks_over(region), SM80)
    }
    assert len(kernels) < len(all_alike)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ((("batch", 2),), "'length'.* 'batch'"),
        ((("batch", 65), ("length", 16)), "batch = 65.* 1 to 64"),
        ((("batch", 1), ("length", 8)), "length = 8.* 16 to 512"),
    ],
)
def test_traffic_that_does_not_fit(values: tuple[tuple[str, int], ...], named: str) -> None:
    with pytest.raises(BoltgenError, match=named):
        tasks_over(_region(OPEN), [Sizes(values=values)])


def test_traffic_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "traffic.json"
    path.write_text(json.dumps([{"batch": 8, "length": 128, "count": 90}, {"batch": 1}]))
    assert traffic_of("traffic", path) == (
        Sizes(values=(("batch", 8), ("length", 128)), count=90),
        Sizes(values=(("batch", 1),)),
    )


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{", "traffic.json"),
        ("{}", "no list"),
        ("[3]", "entry 0"),
        ('[{"batch": 1}, {"batch": 0}]', "entry 1.*batch='0'"),
        ('[{"batch": true}]', "batch='True'"),
        ('[{"batch": 1, "count": 0.5}]', "count='0.5'"),
    ],
)
def test_a_file_that_is_no_traffic(content: str, named: str, tmp_path: Path) -> None:
    path = tmp_path / "traffic.json"
    path.write_text(content)
    with pytest.raises(BoltgenError, match=named):
        traffic_of("traffic", path)
    with pytest.raises(BoltgenError, match="missing"):
        traffic_of("traffic", tmp_path / "missing")


def test_one_launch_for_all_sizes_is_one_row() -> None:
    batch = symbolic(Symbol("batch", 2, 64))
    region = _region(Gemm(batch=batch, m=symbolic(LENGTH), n=64, k=64))
    decisions = select(tasks_over(region), SM80)
    alike = [replace(each, config=decisions[-1].config) for each in decisions]
    (row,) = table(region.workload, alike, SM80)
    assert (row.cell, row.decision) == (region.workload, alike[-1])
