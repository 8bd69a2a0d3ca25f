"""The family `separable`: what it computes, legality, boundaries, and predicted times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.cases.chains import gemm_chain
from benchmarks.cases.kernels import EPILOGUES, graph_of
from benchmarks.cases.separable import config, same, separable
from boltgen.arch import ARCHES
from boltgen.errors import InvalidProblemError
from boltgen.families.depthwise_tile import Tile
from boltgen.families.registry import (
    FAMILIES,
    boundaries,
    candidates,
    kernel_spec,
    predict,
    violations,
)
from boltgen.families.separable.legality import blocks, footprint
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.workload import Layer, Workload

SM80 = ARCHES["sm_80"]
FIRST = same((8, 56, 56, 144), 3)
WORKLOAD = separable(FIRST, 24)
CONFIG = config((64, 32, 32), (16, 32), 3, 4, "sm_80")
BF16: dict[str, Any] = {"in_dtype": DType.BF16, "out_dtype": DType.BF16}


def _stored(b: ElementwiseBuilder) -> None:
    b.store(0)
    b.store(0, dtype=DType.F32)


def _three() -> Workload:
    return Workload(
        layers=(*WORKLOAD.layers, *gemm_chain(FIRST.gemm.m, 24, (8,), ("relu",)).layers)
    )


def test_a_thread_holds_its_results_beside_its_sums() -> None:
    """8 pixels of 8 channels have 64 sums in FP32, and 64 results of 16 bits, two a register."""
    tile = Tile(FIRST, 1, 8)
    assert (tile.sums, tile.result_registers) == (64, 32)
    of_one, of_eight = (
        footprint(WORKLOAD, replace(CONFIG, columns=columns)).registers for columns in (1, 8)
    )
    assert of_eight - of_one >= (64 + 32) - (8 + 4)


@pytest.mark.parametrize("arch", ARCHES)
def test_every_architecture_has_kernels(arch: str) -> None:
    assert {each.family for each in candidates(WORKLOAD, ARCHES[arch])} == {"separable"}


@pytest.mark.parametrize(
    ("workload", "arch", "message"),
    [
        (Workload(layers=WORKLOAD.layers[:1]), "sm_80", "not one layer"),
        (gemm_chain(64, 64, (32, 32), ("relu", "relu")), "sm_80", "a depthwise convolution, not a"),
        (_three(), "sm_80", "one 1x1 convolution after the depthwise one, not 2"),
        (separable(replace(FIRST, **BF16), 24), "sm_75", "bfloat16"),
        (separable(FIRST, 24, (graph_of(_stored), EPILOGUES["identity"])), "sm_80", "2 stores"),
    ],
)
def test_what_it_does_not_compute_has_a_reason(workload: Workload, arch: str, message: str) -> None:
    assert message in (FAMILIES.named("separable").rejects(workload, ARCHES[arch]) or "")


def test_a_further_filter_of_several_pixels_is_no_layer() -> None:
    then = Conv2d(n=8, h=56, w=56, c=144, k=24, r=3, s=3, padding=(1, 1, 1, 1))
    with pytest.raises(InvalidProblemError, match="1x1 convolution of stride 1 without padding"):
        Workload(layers=(WORKLOAD.first, Layer(problem=then)))


@pytest.mark.parametrize(
    ("change", "problem", "rules"),
    [
        ({}, {}, set()),
        ({"columns": 3}, {}, {"values"}),
        ({"stages": 9}, {}, {"inner_stages"}),
        ({"warp_m": 48}, {}, {"warp_divides_threadblock"}),
        ({}, {"n": 1, "w": 2**24}, {"index_overflow"}),
        ({"columns": 4}, {"r": 7, "s": 7, "padding": (3, 3, 3, 3)}, set()),
        ({"columns": 8}, {"r": 7, "s": 7, "padding": (3, 3, 3, 3)}, {"registers"}),
    ],
)
def test_rules(change: dict[str, Any], problem: dict[str, Any], rules: set[str]) -> None:
    workload = separable(replace(FIRST, **problem), 24)
    found = violations(workload, replace(CONFIG, **change), SM80)
    assert {each.name for each in found} == rules
    assert all(each.reason for each in found)


def test_any_number_of_columns_has_tiles() -> None:
    wide = separable(same((1, 14, 14, 64), 3), 2000)
    found = candidates(wide, SM80)
    assert found
    assert all(each.threadblock.n == 256 for each in found)
    assert blocks(wide, replace(CONFIG, threadblock=found[0].threadblock)) % 8 == 0


@pytest.mark.parametrize("change", [{}, {"c": 12}, {"multiplier": 2}, {"stride": (2, 1)}])
def test_boundaries_are_of_the_same_kernel(change: dict[str, Any]) -> None:
    workload = separable(replace(FIRST, **change), 24)
    found = boundaries(workload, CONFIG, SM80)
    assert len(found) == 2
    assert {kernel_spec(each, CONFIG, "sm_80") for each in found} == {
        kernel_spec(workload, CONFIG, "sm_80")
    }
    large, small = found
    tile = CONFIG.threadblock
    assert large.last.problem.gemm.m > tile.m > large.last.problem.gemm.m % tile.m > 0
    assert large.last.problem.gemm.n > tile.n
    assert large.last.problem.gemm.k > 2 * tile.k
    assert small.last.problem.gemm.m == 1


def test_a_large_layer_is_predicted_faster_than_two_kernels() -> None:
    workload = separable(same((32, 56, 56, 144), 3), 24)
    apart = sum(
        min(predict(each, found, SM80).time_us for found in candidates(each, SM80))
        for each in (Workload(layers=(layer,)) for layer in workload.layers)
    )
    best = min(candidates(workload, SM80), key=lambda c: predict(workload, c, SM80).time_us)
    predicted = predict(workload, best, SM80)
    assert predicted.time_us < apart
    moved = 32 * 56 * 56 * (144 + 24) * 2
    assert moved < predicted.figures["dram_bytes"] < 1.01 * moved
    assert predicted.time_us > moved / (SM80.dram_gb_per_s * 1e3)


def test_pixels_that_end_in_a_row_cost_a_thread_twice() -> None:
    whole, ragged = (separable(same((32, 14, w, 96), 3), 24) for w in (16, 15))
    assert predict(ragged, CONFIG, SM80).time_us > 1.3 * predict(whole, CONFIG, SM80).time_us
