"""The family `depthwise`: what it computes, vectors, windows, legality, boundaries, times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.cases.kernels import EPILOGUES, graph_of
from boltgen.arch import ARCHES
from boltgen.families.depthwise.config import DepthwiseConfig
from boltgen.families.depthwise_tile import Window, vector_of, vector_of_a, window_of
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
from boltgen.ir.elementwise import ElementwiseGraph, LoadKind, Reduction
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.workload import Workload

SM80 = ARCHES["sm_80"]
LAYER = Depthwise(n=8, h=56, w=56, c=144, r=3, s=3, padding=(1, 1, 1, 1))
CONFIG = DepthwiseConfig(threads=128, rows=1, columns=4, slab=16)
BF16 = {"in_dtype": DType.BF16, "out_dtype": DType.BF16}


def _rejects(workload: Workload, arch: str = "sm_80") -> str | None:
    return FAMILIES.named("depthwise").rejects(workload, ARCHES[arch])


@pytest.mark.parametrize("arch", ARCHES)
def test_every_architecture_has_kernels(arch: str) -> None:
    workload = Workload.of(LAYER, EPILOGUES["bias_relu"])
    found = candidates(workload, ARCHES[arch])
    assert {config.family for config in found} == {"depthwise"}
    assert all(predict(workload, config, ARCHES[arch]).time_us > 0 for config in found)


@pytest.mark.parametrize(
    ("channels", "multiplier", "vectors"),
    [
        (144, 1, (8, 8)),
        (12, 1, (4, 4)),
        (27, 1, (1, 1)),
        (20, 2, (8, 4)),
        (6, 3, (1, 1)),
        (4, 6, (2, 1)),
        (3, 16, (8, 1)),
        (16, 12, (4, 1)),
    ],
)
def test_a_vector_of_d_is_of_one_vector_of_a(
    channels: int, multiplier: int, vectors: tuple[int, int]
) -> None:
    problem = replace(LAYER, c=channels, multiplier=multiplier)
    assert (vector_of(problem), vector_of_a(problem)) == vectors
    assert channels % vectors[1] == problem.k % vectors[0] == 0


def test_columns_of_small_filters_are_compiled() -> None:
    assert window_of(LAYER) == Window(taps=3, stride=1, dilation=1)
    assert window_of(replace(LAYER, r=31)) == window_of(LAYER)
    assert window_of(replace(LAYER, s=9)) is None
    assert window_of(replace(LAYER, dilation=(1, 2))) is None
    assert window_of(replace(LAYER, stride=(4, 4))) is None
    assert Window(taps=3, stride=1, dilation=1).met(4) == 6
    assert Window(taps=1, stride=2, dilation=1).met(4) == 4


def test_one_kernel_is_for_all_sizes_and_slabs() -> None:
    other = replace(LAYER, n=1, h=7, w=5, c=960, r=5, stride=(2, 1))
    specs = {
        kernel_spec(Workload.of(problem), FAMILIES.named("depthwise").compiled(config), "sm_80")
        for problem in (LAYER, other)
        for config in (CONFIG, replace(CONFIG, slab=64))
    }
    assert len(specs) == 1


@pytest.mark.parametrize(
    ("channels", "slab", "passed"), [(144, 16, 9), (144, 256, 18), (8, 16, 1), (136, 16, 9)]
)
def test_slabs_are_alike(channels: int, slab: int, passed: int) -> None:
    found = launch(Workload.of(replace(LAYER, c=channels)), replace(CONFIG, slab=slab))
    assert found.sizes["slab"] == passed


def _reduced(b: ElementwiseBuilder) -> None:
    b.store(0)
    b.store(0, LoadKind.COLUMN, DType.F32, Reduction.SUM)


def _rounds(*stores: tuple[DType, Reduction]) -> ElementwiseGraph:
    b = ElementwiseBuilder()
    b.store(0)
    for dtype, reduction in stores:
        b.store(0, LoadKind.ROW, dtype, reduction)
    return b.build()


_SUM = (DType.F16, Reduction.SUM)


@pytest.mark.parametrize(
    ("workload", "arch", "message"),
    [
        (Workload.of(replace(LAYER, **BF16)), "sm_75", "bfloat16"),
        (Workload.of(LAYER, graph_of(_reduced)), "sm_80", "a thread has few of a pixel's channels"),
        (Workload.of(LAYER, _rounds((DType.BF16, Reduction.SUM))), "sm_80", "reduces to bfloat16"),
        (
            Workload.of(LAYER, _rounds((DType.F16, Reduction.MAXIMUM))),
            "sm_80",
            "reduces to float16",
        ),
        (Workload.of(LAYER, _rounds(_SUM, _SUM)), "sm_80", "several rounded sums"),
    ],
)
def test_what_it_does_not_compute_has_a_reason(workload: Workload, arch: str, message: str) -> None:
    assert message in (_rejects(workload, arch) or "")


def test_a_rounded_sum_has_a_workspace_and_takes_longer() -> None:
    rounded, plain = (
        Workload.of(LAYER, _rounds((dtype, Reduction.SUM))) for dtype in (DType.F16, DType.F32)
    )
    assert _rejects(rounded) is None
    assert launch(rounded, CONFIG).workspace_bytes == 4 * (8 * 144 + 144 // 8)
    assert launch(plain, CONFIG).workspace_bytes == 0
    times = [predict(each, CONFIG, SM80).time_us for each in (rounded, plain)]
    assert 0 < times[0] - times[1] < 5


@pytest.mark.parametrize(
    ("change", "problem", "rules"),
    [
        ({}, {}, set()),
        ({"rows": 4}, {}, {"values"}),
        ({"slab": 5}, {}, {"values"}),
        ({"rows": 2, "columns": 8}, {"r": 7, "s": 7}, {"registers"}),
        ({"slab": 256}, {"n": 2**15, "c": 2048}, {"index_overflow"}),
    ],
)
def test_rules(change: dict[str, int], problem: dict[str, Any], rules: set[str]) -> None:
    found = violations(Workload.of(replace(LAYER, **problem)), replace(CONFIG, **change), SM80)
    assert {each.name for each in found} == rules
    assert all(each.reason for each in found)


@pytest.mark.parametrize("change", [{}, {"c": 12}, {"multiplier": 2}, {"c": 3, "multiplier": 16}])
def test_boundaries_are_of_the_same_kernel(change: dict[str, int]) -> None:
    workload = Workload.of(replace(LAYER, **change), EPILOGUES["bias_relu"])
    found = boundaries(workload, CONFIG, SM80)
    assert len(found) == 2
    assert {kernel_spec(each, CONFIG, "sm_80") for each in found} == {
        kernel_spec(workload, CONFIG, "sm_80")
    }
    large = found[0].single.problem
    assert isinstance(large, Depthwise)
    assert large.k // vector_of(large) > CONFIG.slab
    assert (large.p, large.q, found[1].single.problem.matrix[0]) == (2, 9, 1)


def test_a_large_layer_takes_the_time_of_its_bytes() -> None:
    workload = Workload.of(replace(LAYER, n=64))
    config = min(candidates(workload, SM80), key=lambda c: predict(workload, c, SM80).time_us)
    predicted = predict(workload, config, SM80)
    assert predicted.bound_by == "DRAM"
    moved = 2 * 64 * 56 * 56 * 144 * 2
    assert predicted.time_us > moved / (SM80.dram_gb_per_s * 1e3)
    larger = predict(Workload.of(replace(LAYER, n=64, r=7, s=7, padding=(3,) * 4)), config, SM80)
    assert larger.time_us > predicted.time_us
