"""The race of kernels: the arithmetic of its table, and the names of what fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from benchmarks.race.contestant import CannotRunError, Compiled
from benchmarks.race.counting import figures, occupancy
from benchmarks.race.machine import LaunchError
from benchmarks.race.problems import (
    Arrays,
    Attention,
    Convolution,
    DepthwiseConvolution,
    Matmul,
    Problem,
    RowNorm,
)
from benchmarks.race.rows import ROWS
from benchmarks.race.run import race
from benchmarks.race.table import markdown, ratio, summary
from boltgen.arch import arch_named
from boltgen.build.nvcc.usage import KernelUsage
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.norm.problem import NormFunction
from boltgen.problems.oracle import enclose

PROBLEM = Matmul(8, 16, 32)


def _launch(us: float, **changed: Any) -> dict[str, Any]:
    """Return the counters of a launch of one threadblock of a warp."""
    names = "integer half float float_pair double convert compare move load store atomic"
    names += " async_copy matrix_load mma warp barrier mbarrier control other"
    return {
        "kernel": "kernel_device",
        "grid": [1, 1, 1],
        "block": [32, 1, 1],
        "instructions": dict.fromkeys(names.split(), 1) | {"mma": 4},
        "global_load": {"sectors": 10},
        "global_store": {"sectors": 6},
        "shared": {"wavefronts": 20, "bank_conflicts": 5},
        "tma": {"bytes": 0},
        "barriers": 1,
        "static_shared_bytes": 1024,
        "dynamic_shared_bytes": 0,
        "modelled": {"us": us, "bound_by": "dram", "dram_bytes": 512},
    } | changed


class _Vgpu:
    """Answers as the virtual GPU, without one."""

    def __init__(self) -> None:
        self.us = 1.0

    def set_option(self, name: str, value: str) -> None: ...

    def clear_launches(self) -> None: ...

    def counters(self) -> list[dict[str, Any]]:
        return [_launch(self.us)]


class _Machine:
    """Memory by number."""

    def __init__(self) -> None:
        self.vgpu = _Vgpu()
        self.memory: list[Any] = []

    def become(self, arch: str) -> None:
        assert arch == "sm_80"

    def upload(self, arrays: Arrays) -> dict[str, int]:
        self.memory = list(arrays.values())
        return {name: index for index, name in enumerate(arrays)}

    def allocate(self, size_bytes: int) -> int:
        self.memory.append(np.full(size_bytes // 2, np.nan, np.float16))
        return len(self.memory) - 1

    def download(self, address: int, shape: Sequence[int]) -> Any:
        return self.memory[address].reshape(shape)

    def free_all(self) -> None:
        self.memory = []


@dataclass
class _Entry:
    label: str
    us: float = 1.0
    factor: float = 1.0
    error: Exception | None = None

    def launch(self, machine: Any, addresses: dict[str, int], output: int) -> None:
        machine.vgpu.us = self.us
        if self.error:
            raise self.error
        a, b = (machine.memory[each].astype(np.float32) for each in addresses.values())
        machine.memory[output] = (self.factor * a @ b.T).astype(np.float16)

    def compiled(self) -> list[Compiled]:
        return []


@dataclass
class _Contestant:
    name: str
    found: list[_Entry]
    version: str = "1"

    def entries(self, problem: Problem, arch: str) -> list[_Entry]:
        if not self.found:
            raise CannotRunError(f"no kernel for {problem.name}\nand more lines")
        return self.found


def _raced(*entries: _Entry) -> dict[str, Any]:
    row = race(_Machine(), PROBLEM, "sm_80", [_Contestant("one", list(entries))])  # type: ignore[arg-type]
    found: dict[str, Any] = row["contestants"]["one"]
    return found


def test_the_entry_with_the_least_modelled_time_races() -> None:
    broken = _Entry("broken", 0.1, error=CannotRunError("no"))
    found = _raced(_Entry("slow", 3.0), broken, _Entry("fast", 2.0))
    assert (found["entry"], found["tried"], found["modelled_us"]) == ("fast", 2, 2.0)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([], "no kernel for matmul 8x16x32"),
        ([_Entry("wrong", factor=1.01)], "wrong: wrong result: its largest error is"),
        ([_Entry("nothing", factor=np.nan)], "nothing: wrong result: its largest error is nan"),
        ([_Entry("ends", error=LaunchError("a fault"))], "a fault"),
        (
            [_Entry("a", error=CannotRunError("x")), _Entry("b", error=LaunchError("y"))],
            "a: x",
        ),
    ],
)
def test_a_contestant_that_fails_is_named_with_a_reason(entries: list[_Entry], reason: str) -> None:
    found = _raced(*entries)
    assert found["fault"].startswith(reason)
    assert "\n" not in found["fault"]
    row = {"contestants": {"one": found, "boltgen": _row(1.0)}}
    assert f"| one | did not run: {' '.join(reason.split()[:3])}" in markdown({"row": row})


def test_an_error_of_the_race_itself_is_no_fault_of_a_contestant() -> None:
    with pytest.raises(KeyError):
        _raced(_Entry("bad", error=KeyError("ours")))


def test_launches_are_added_up() -> None:
    usage = {"kernel": KernelUsage(registers=64, spilled_bytes=8)}
    found = figures(
        [_launch(2.0), _launch(1.0)],
        usage,
        work=1024,
        least_bytes=1024,
        arch=arch_named("sm_80"),
    )
    assert found["modelled_us"] == 3.9  # two launches and the gap between them
    assert found["instructions"] == 2 * 22
    assert found["per_1024"]["mma"] == 8
    assert sum(found["per_1024"].values()) == found["instructions"]
    assert found["sectors_over_least"] == 2 * 16 * 32 / 1024
    assert found["dram_over_least"] == 1.0
    assert found["conflict_share"] == 0.25
    assert (found["registers"], found["spilled_bytes"]) == (64, 8)


@pytest.mark.parametrize(
    ("registers", "shared_bytes", "threads", "wanted"),
    [(255, 0, 128, 8 / 64), (32, 0, 1024, 1.0), (32, 80 * 1024, 128, 8 / 64), (16, 0, 32, 0.5)],
    ids=["registers", "threads", "shared memory", "blocks"],
)
def test_occupancy(registers: int, shared_bytes: int, threads: int, wanted: float) -> None:
    assert occupancy(arch_named("sm_80"), registers, shared_bytes, threads) == wanted


def _row(us: float, dram: float = 1.0) -> dict[str, Any]:
    found = figures([_launch(us)], {}, work=1024, least_bytes=512, arch=arch_named("sm_80"))
    return {**found, "dram_over_least": dram}


def test_ours_is_compared_with_the_best_of_the_others() -> None:
    fault = {"fault": "it does not compile"}
    rows = {
        "first": {"contestants": {"boltgen": _row(1.0), "x": _row(2.0), "y": _row(4.0)}},
        "level": {"contestants": {"boltgen": _row(1.03), "x": _row(1.0), "y": fault}},
        "behind": {"contestants": {"boltgen": _row(1.2, dram=1.5), "x": _row(1.0)}},
        "alone": {"contestants": {"boltgen": _row(1.0), "x": fault}},
        "absent": {"contestants": {"boltgen": fault, "x": _row(1.0)}},
    }
    assert [ratio(row, "modelled_us") for row in rows.values()] == [0.5, 1.03, 1.2, None, None]
    found = summary(rows)
    assert (found.rows, found.level, found.worst, found.where) == (3, 2, 1.2, "behind")
    assert (found.absent, found.dram_level, found.dram_median) == (("absent",), 2, 1.0)
    assert len(markdown(rows).splitlines()) == 2 + 12


def test_rows_have_names_of_their_own() -> None:
    names = [f"{problem.name}, {arch}" for arch, problem in ROWS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "problem",
    [
        PROBLEM,
        Attention(2, 32, 16),
        Attention(2, 32, 16, causal=True),
        Convolution(1, 6, 8, 16, 3, 2),
        DepthwiseConvolution(1, 6, 8, 3, 2),
        *(RowNorm(function, 4, 32) for function in NormFunction),
    ],
    ids=lambda problem: problem.name,
)
def test_expected_results_are_those_of_the_oracle(problem: Any) -> None:
    arrays = problem.draw(np.random.default_rng(0))
    assert len(arrays) == problem.inputs
    a, *left = arrays.values()
    layers = []
    for layer in problem.workload.layers:
        b = left.pop(0) if layer.problem.has_b else np.zeros(0)
        layers.append(LayerInputs(b, tuple(left.pop(0) for _ in layer.epilogue.loads)))
    assert not left
    found = enclose(problem.workload, a, layers)
    expected = problem.expected(arrays)
    # Between two layers the oracle rounds weights, whose sum is 1, to FP16.
    rounded = 2.0**-11 * np.abs(b).max() if problem.workload.is_fused else 0.0
    assert np.abs(found.exact.reshape(expected.shape) - expected).max() < 1e-5 + rounded
