"""The family `recurrent`: what it computes, legality, boundaries, times."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from boltgen.arch import ARCHES
from boltgen.families.recurrent.config import RecurrentConfig
from boltgen.families.registry import (
    FAMILIES,
    boundaries,
    candidates,
    kernel_spec,
    launch,
    predict,
    violations,
)
from boltgen.ir.dtypes import DType
from boltgen.ir.extent import Symbol, symbolic
from boltgen.ir.recurrence import Cell
from boltgen.problems.recurrent.problem import Recurrent
from boltgen.problems.workload import Workload

SM80 = ARCHES["sm_80"]
LAYER = Recurrent(cell=Cell.LSTM, steps=50, batch_rows=1, hidden=128)
CONFIG = RecurrentConfig(groups=2, resident=True)
BF16 = {"in_dtype": DType.BF16, "out_dtype": DType.BF16}


def _best(problem: Recurrent) -> float:
    workload = Workload.of(problem)
    return min(predict(workload, each, SM80).time_us for each in candidates(workload, SM80))


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("cell", Cell)
@pytest.mark.parametrize("hidden", [1, 27, 128, 512, 768])
def test_every_architecture_has_kernels(arch: str, cell: Cell, hidden: int) -> None:
    problem = replace(LAYER, cell=cell, hidden=hidden)
    found = candidates(Workload.of(problem), ARCHES[arch])
    assert {config.family for config in found} == {"recurrent"}


@pytest.mark.parametrize(
    ("change", "arch", "message"),
    [
        (BF16, "sm_75", "bfloat16"),
        ({"hidden": 8192}, "sm_80", "it has 8192 hidden units: sm_80 has too few registers, or"),
        ({"hidden": 2001}, "sm_86", "it has 2001 hidden units, no multiple of 8: sm_86 has too"),
    ],
)
def test_what_no_kernel_computes(change: dict[str, Any], arch: str, message: str) -> None:
    reason = FAMILIES.named("recurrent").rejects(
        Workload.of(replace(LAYER, **change)), ARCHES[arch]
    )
    assert reason is not None
    assert re.search(message, reason)


@pytest.mark.parametrize(
    ("hidden", "config", "broken"),
    [
        (128, RecurrentConfig(groups=3, resident=True), {"values"}),
        (512, RecurrentConfig(groups=1, resident=False), {"threads"}),
        (520, RecurrentConfig(groups=4, resident=False), {"alone"}),
        (128, RecurrentConfig(groups=1, resident=True, slices=2), {"alone"}),
        (128, RecurrentConfig(groups=1, resident=True, units=24), {"values"}),
        (128, RecurrentConfig(groups=2, resident=True, units=16), {"shared_units"}),
        (64, RecurrentConfig(groups=1, resident=True, units=64), {"shared_units"}),
        (
            2048,
            RecurrentConfig(groups=1, resident=False, units=8, slices=4),
            {"resident_threadblocks"},
        ),
        (128, RecurrentConfig(groups=1, resident=True), {"registers"}),
        (100, RecurrentConfig(groups=2, resident=False), {"weight_vectors"}),
    ],
)
def test_rules_have_names(hidden: int, config: RecurrentConfig, broken: set[str]) -> None:
    found = violations(Workload.of(replace(LAYER, hidden=hidden)), config, SM80)
    assert {each.name for each in found} == broken
    assert all(each.message and each.reason for each in found)


def test_one_kernel_is_for_all_steps_batches_and_directions() -> None:
    others = (
        replace(LAYER, steps=7, batch_rows=40, directions=2),
        replace(LAYER, has_states=True, has_lengths=True, keeps_last=True),
        replace(LAYER, backwards=True, hidden=104),
    )
    specs = {kernel_spec(Workload.of(each), CONFIG, "sm_80") for each in (LAYER, *others)}
    assert len(specs) == 1


def test_boundaries_are_of_the_same_kernel() -> None:
    workload = Workload.of(LAYER)
    for each in boundaries(workload, CONFIG, SM80):
        assert kernel_spec(each, CONFIG, "sm_80") == kernel_spec(workload, CONFIG, "sm_80")
        assert not violations(each, CONFIG, SM80)


def test_time_grows_with_steps_and_not_with_a_small_batch() -> None:
    assert _best(replace(LAYER, steps=500)) > 8 * _best(LAYER)
    assert _best(replace(LAYER, batch_rows=16)) < 1.1 * _best(LAYER)
    assert _best(replace(LAYER, directions=2)) < 1.1 * _best(LAYER)


@pytest.mark.parametrize("cell", [Cell.LSTM, Cell.GRU])
def test_threadblocks_that_share_many_hidden_units_are_faster(cell: Cell) -> None:
    problem = replace(LAYER, cell=cell, hidden=512)
    workload = Workload.of(problem)
    times = {
        is_shared: min(
            predict(workload, each, SM80).time_us
            for each in candidates(workload, SM80)
            if isinstance(each, RecurrentConfig) and each.is_shared == is_shared
        )
        for is_shared in (True, False)
    }
    assert times[True] < times[False] / 5


def test_shared_states_need_memory_for_each_directions_rows() -> None:
    config = RecurrentConfig(groups=1, resident=True, units=16, slices=4)
    both = replace(LAYER, batch_rows=17, directions=2, hidden=1000)
    assert launch(Workload.of(both), config).workspace_bytes == 4 * (128 + 2 * 16 * 1024 * 2)
    rows = symbolic(Symbol("rows", 1, 64))
    unknown = replace(LAYER, batch_rows=rows, hidden=1000)
    assert launch(Workload.of(unknown), config).workspace_bytes == 4 * (128 + 2 * 16 * 1024 * 2)
    assert launch(Workload.of(LAYER), CONFIG).workspace_bytes == 0


def test_weights_in_registers_are_faster_than_weights_in_memory() -> None:
    workload = Workload.of(LAYER)
    streamed = predict(workload, replace(CONFIG, resident=False), SM80)
    assert predict(workload, CONFIG, SM80).time_us < streamed.time_us


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_120"])
@pytest.mark.parametrize("hidden", [512, 768])
def test_threadblocks_that_wait_for_each_other_fit_on_the_smallest_gpu(
    arch: str, hidden: int
) -> None:
    """As on A30, A2, RTX 4050, H20 and RTX 5050: a library has one kernel for a layer."""
    workload, row = Workload.of(replace(LAYER, hidden=hidden)), ARCHES[arch]
    assert row.least_sm_count < row.sm_count
    for config in candidates(workload, row):
        threads = FAMILIES.named("recurrent").footprint(workload, config).warps * 32
        at_once = launch(workload, config).threadblocks_at_once
        assert at_once <= row.least_sm_count * (row.max_threads_per_sm // threads)
