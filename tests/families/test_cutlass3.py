"""`cutlass3`: what it rejects, its rules, its space, and one pool with `cutlass2`."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from benchmarks.cases.chains import gemm_chain
from benchmarks.cases.kernels import EPILOGUES
from boltgen.arch import ARCHES, Arch
from boltgen.codegen.render import render
from boltgen.families.cutlass3 import FAMILY
from boltgen.families.cutlass3.config import Cutlass3Config, Raster, Schedule, Scheduler
from boltgen.families.cutlass3.legality import blocks_at_once, stages
from boltgen.families.family import CHECKED_SMS, Config
from boltgen.families.json_form import decode, encode
from boltgen.families.registry import candidates, compiled, kernel_spec, launch, predict
from boltgen.families.source import (
    kernel_symbol,
    render_kernel,
    render_library,
    workspace_symbol,
)
from boltgen.families.space import Shape
from boltgen.families.wgmma import WIDTHS_HEADER
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import BinaryOp, LoadKind, Reduction
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.measure.abi import arguments
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.layout_transform.problem import NHWC_F16, LayoutTransform, Move
from boltgen.problems.workload import Workload

SM90A = ARCHES["sm_90a"]
GEMM = Gemm(m=1024, n=1024, k=1024, b_layout=Layout.COLUMN)
WORKLOAD = Workload.of(GEMM, EPILOGUES["residual_before"])
CONV = Conv2d(n=2, h=8, w=8, c=8, k=8, r=3, s=3)
INTEGERS = replace(GEMM, in_dtype=DType.I8, acc_dtype=DType.I32, out_dtype=DType.I32)
MOVE = LayoutTransform(
    move=Move(source=NHWC_F16, target=NHWC_F16),
    images=2,
    pixels=64,
    source_channels=8,
    target_channels=16,
)
STREAM_K = {"scheduler": Scheduler.STREAM_K}
CONFIG = Cutlass3Config(threadblock=Shape(128, 128, 64), schedule=Schedule.COOPERATIVE)


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (gemm_chain(200, 72, (64, 48), ("relu", "relu")), "2 back to back"),
        (Workload.of(MOVE), "not a LayoutTransform"),
        (Workload.of(replace(CONV, c=4)), "rows of A are aligned to 8 bytes"),
        (Workload.of(replace(CONV, h=40, stride=(9, 1))), "stride 9: TMA steps over 8 pixels"),
        (Workload.of(replace(CONV, w=600, dilation=(1, 128))), "reaches over 256 pixels"),
        (Workload.of(replace(CONV, padding=(0, 129, 0, 0))), "at most 128 pixels off"),
        (Workload.of(replace(CONV, w=400, dilation=(1, 65))), "a reach of 130 pixels"),
        (Workload.of(replace(GEMM, batch=2, a_batched=False)), "its batch shares an operand"),
        (
            Workload.of(replace(GEMM, batch=2), EPILOGUES["residual_before"]),
            "may share the epilogue's full tensor",
        ),
        (Workload.of(replace(GEMM, acc_dtype=DType.F16)), "sums in float32, not float16"),
        (
            Workload.of(replace(GEMM, n=1028, out_dtype=DType.F32), EPILOGUES["residual_before"]),
            "rows of the epilogue's tensor are aligned to 8 bytes",
        ),
        (Workload.of(GEMM, EPILOGUES["two_tensors"]), "2 full tensors"),
        (Workload.of(replace(GEMM, k=1028)), "rows of A are aligned to 8 bytes"),
        (Workload.of(replace(GEMM, n=1028)), "rows of D are aligned to 8 bytes"),
        (Workload.of(replace(GEMM, n=1028, b_layout=Layout.ROW)), "rows of B are aligned to 8"),
        (Workload.of(replace(INTEGERS, k=1032)), "rows of A are aligned to 8 bytes"),
        (
            Workload.of(replace(INTEGERS, b_layout=Layout.ROW)),
            "wgmma reads int8 with K side by side, in B column-major",
        ),
        (
            Workload.of(replace(CONV, c=16, k=16, in_dtype=DType.E4M3, out_dtype=DType.F16)),
            "no kernel convolves images of float8_e4m3fn",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_workload_that_it_cannot_compute_is_rejected_with_the_reason(
    workload: Workload, reason: str
) -> None:
    assert reason in (FAMILY.rejects(workload, SM90A) or "")


def test_bf16_has_the_configurations_of_fp16() -> None:
    in_bf16 = replace(GEMM, in_dtype=DType.BF16, out_dtype=DType.BF16)
    assert FAMILY.rejects(Workload.of(in_bf16), SM90A) is None
    found = [tuple(FAMILY.space(Workload.of(each), SM90A).listed()) for each in (GEMM, in_bf16)]
    assert found[0] == found[1]


def test_integers_have_the_tiles_of_fp16_and_twice_their_depth() -> None:
    assert FAMILY.rejects(Workload.of(INTEGERS), SM90A) is None
    config = replace(CONFIG, threadblock=Shape(128, 128, 128))
    assert not FAMILY.violations(Workload.of(INTEGERS), config, SM90A)
    (rule,) = FAMILY.violations(Workload.of(INTEGERS), CONFIG, SM90A)
    assert "k is 128" in rule.message
    found = FAMILY.space(Workload.of(INTEGERS), SM90A).listed()
    assert {each.threadblock.k for each in found} == {128}
    # A stage has the same bytes, so there are as many.
    assert stages(config, Workload.of(INTEGERS).single, SM90A) == 6


def test_bytes_of_slices_that_a_node_would_round_are_rejected() -> None:
    builder = ElementwiseBuilder(whole=True)
    builder.binary(BinaryOp.ADD, 0, builder.load(LoadKind.SLICE_ROW, DType.I32))
    workload = Workload.of(replace(INTEGERS, slice_rows=64), builder.build())
    assert "a slice_row of int32, which its node" in (FAMILY.rejects(workload, SM90A) or "")


@pytest.mark.parametrize("arch", [name for name in ARCHES if name != "sm_90a"])
def test_other_architectures_lack_its_instructions(arch: str) -> None:
    assert f"{arch} has not both" in (FAMILY.rejects(WORKLOAD, ARCHES[arch]) or "")


@pytest.mark.parametrize(
    ("changes", "rules"),
    [
        ({}, []),
        ({"threadblock": Shape(128, 256, 64)}, []),
        ({"threadblock": Shape(256, 192, 64)}, []),
        ({"threadblock": Shape(256, 256, 64)}, ["registers"]),
        ({"threadblock": Shape(128, 256, 64), "schedule": Schedule.PINGPONG}, ["registers"]),
        ({"threadblock": Shape(128, 192, 64), "schedule": Schedule.PINGPONG}, []),
        ({"threadblock": Shape(64, 128, 64)}, ["halves"]),
        ({"threadblock": Shape(256, 208, 64)}, ["registers"]),
        ({"threadblock": Shape(128, 208, 64)}, []),
        ({"threadblock": Shape(128, 176, 64), "schedule": Schedule.PINGPONG}, []),
        ({"threadblock": Shape(128, 16, 64)}, []),
        ({"threadblock": Shape(128, 104, 64)}, ["tile"]),
        ({"threadblock": Shape(128, 128, 32)}, ["tile"]),
        ({"cluster_m": 3}, ["cluster"]),
        ({"cluster_m": 16}, ["cluster"]),
        ({"cluster_m": 8}, []),
        ({"cluster_m": 2, "cluster_n": 2}, []),
        ({"cluster_n": 4}, []),
        ({"cluster_m": 4, "cluster_n": 2}, []),
        ({"cluster_m": 4, "cluster_n": 4}, ["cluster_size"]),
        ({"threadblock": Shape(128, 176, 64), "cluster_m": 2}, []),
        ({"threadblock": Shape(128, 176, 64), "cluster_m": 4}, ["multicast"]),
        ({"threadblock": Shape(128, 176, 64), "cluster_n": 8}, []),
        ({"swizzle": 3}, ["swizzle"]),
        ({"raster": Raster.ALONG_N}, []),
        ({"split_k": 2}, ["split_k"]),
        (STREAM_K, []),
        (STREAM_K | {"split_k": 8}, []),
        (STREAM_K | {"split_k": 3}, ["split_k"]),
        (STREAM_K | {"schedule": Schedule.PINGPONG}, ["stream_k_schedule"]),
    ],
    ids=str,
)
def test_the_rules(changes: dict[str, object], rules: list[str]) -> None:
    config = replace(CONFIG, **changes)  # type: ignore[arg-type]
    assert [each.name for each in FAMILY.violations(WORKLOAD, config, SM90A)] == rules


@pytest.mark.parametrize(
    ("tile", "schedule", "kind", "rules"),
    [
        (Shape(128, 128, 64), Schedule.PINGPONG, LoadKind.ROW, ["reduced_columns"]),
        (Shape(128, 192, 64), Schedule.PINGPONG, LoadKind.ROW, ["reduced_columns"]),
        (Shape(64, 128, 64), Schedule.PINGPONG, LoadKind.ROW, []),
        (Shape(128, 128, 64), Schedule.COOPERATIVE, LoadKind.ROW, []),
        (Shape(128, 192, 64), Schedule.PINGPONG, LoadKind.COLUMN, []),
    ],
)
def test_a_warpgroup_with_a_whole_tile_has_no_registers_for_sums_of_its_columns(
    tile: Shape, schedule: Schedule, kind: LoadKind, rules: list[str]
) -> None:
    builder = ElementwiseBuilder()
    builder.store(0)
    builder.store(0, kind, DType.F32, Reduction.SUM)
    workload = Workload.of(GEMM, builder.build())
    config = replace(CONFIG, threadblock=tile, schedule=schedule)
    assert [each.name for each in FAMILY.violations(workload, config, SM90A)] == rules


@pytest.mark.parametrize(("split_k", "steps"), [(1, 9), (4, 4)])
def test_a_tile_that_is_split_has_a_step_for_every_part(split_k: int, steps: int) -> None:
    config = replace(CONFIG, scheduler=Scheduler.STREAM_K, split_k=split_k)
    deep = Workload.of(replace(GEMM, k=64 * (steps - 1) + 8))
    shallow = Workload.of(replace(GEMM, k=64 * (steps - 1)))
    assert FAMILY.violations(deep, config, SM90A) == ()
    (violation,) = FAMILY.violations(shallow, config, SM90A)
    assert violation.name == "split_k_depth"
    assert f"{steps - 1} steps of K" in violation.message
    assert violation.slack == pytest.approx(-1 / steps)


def test_too_little_shared_memory_for_two_stages_breaks_a_rule() -> None:
    small = replace(SM90A, shared_memory_per_cta_bytes=99 << 10)
    config = replace(CONFIG, threadblock=Shape(256, 128, 64))
    assert stages(config, WORKLOAD.single, small) == 1
    (violation,) = FAMILY.violations(WORKLOAD, config, small)
    assert violation.name == "shared_memory"
    assert violation.slack == -0.5


def test_the_space_holds_legal_candidates_of_every_tile_and_can_encode_them() -> None:
    space = FAMILY.space(WORKLOAD, SM90A)
    assert len(set(space.candidates)) == len(space.candidates) > 50
    assert len(set(map(space.encode, space.candidates))) == len(space.candidates)
    for config in space.candidates:
        assert config in space
        assert not space.broken(config)
        footprint = FAMILY.footprint(WORKLOAD, config)
        assert footprint.shared_memory_bytes <= SM90A.shared_memory_per_cta_bytes


def test_a_cluster_is_no_larger_than_the_problem() -> None:
    one_row = Workload.of(replace(GEMM, m=64))
    found = FAMILY.space(one_row, SM90A).candidates
    assert {config.cluster_m for config in found} == {1}
    assert {config.cluster_n for config in found} == {1, 2, 4, 8}


def _found(**extents: int) -> tuple[Cutlass3Config, ...]:
    return FAMILY.space(Workload.of(replace(GEMM, **extents)), SM90A).candidates


def test_a_raster_is_chosen_where_clusters_lie_in_two_directions() -> None:
    assert {config.raster for config in _found(m=64)} == {Raster.ALONG_M}
    square = [config for config in _found() if config.threadblock == Shape(128, 256, 64)]
    for raster in Raster:
        assert any(config.raster is raster for config in square)
    # Four tiles side by side are one cluster.
    assert {c.raster for c in square if c.cluster_n == 4} == {Raster.ALONG_M}


def test_a_swizzle_adds_no_wave() -> None:
    """With a swizzle of two there are four rows of tiles for two. An H200 takes 133 us for 71."""
    tile = Shape(256, 192, 64)
    found = [c for c in _found(m=512, n=11008) if c.threadblock == tile]
    assert {c.swizzle for c in found if c.cluster_m == 2} == {1}
    assert {c.swizzle for c in found if c.cluster_m == 1} == {1, 2}


def test_a_width_is_for_problems_whose_waves_it_fills() -> None:
    def widths(**extents: int) -> set[int]:
        return {config.threadblock.n for config in _found(**extents)}

    # 126 tiles of 256x176, and 116 of 256x192.
    assert 176 in widths(m=512, n=11008)
    assert widths(m=8192, n=8192) == {64, 128, 192, 256}
    assert widths(m=200704, n=48) == {48, 64}
    # 128 tiles of 32 columns.
    assert 32 in widths(m=64, n=4096)


def test_stream_k_is_for_a_last_wave_that_is_not_full() -> None:
    tile = Shape(128, 256, 64)

    def schedulers(m: int) -> set[Scheduler]:
        found = _found(m=m, n=256)
        return {c.scheduler for c in found if (c.threadblock, c.cluster_m) == (tile, 1)}

    assert schedulers(128 * SM90A.sm_count) == {Scheduler.PERSISTENT}
    assert schedulers(128 * (SM90A.sm_count + 1)) == set(Scheduler)


def test_slices_are_for_fewer_tiles_than_multiprocessors() -> None:
    tile = Shape(128, 256, 64)

    def slices(m: int) -> set[int]:
        return {c.split_k for c in _found(m=m, n=256) if c.threadblock == tile}

    assert slices(128 * 16) == {1, 2, 4, 8}
    assert slices(128 * 34) == {1, 2}
    assert slices(128 * 67) == {1}


def test_a_cluster_of_four_or_eight_leaves_a_part_of_a_gpc_idle() -> None:
    def at_once(cluster_m: int, cluster_n: int, sm_count: int = SM90A.sm_count) -> int:
        config = replace(CONFIG, cluster_m=cluster_m, cluster_n=cluster_n)
        scale = sm_count / SM90A.sm_count
        arch = replace(
            SM90A,
            sm_count=sm_count,
            tensor_f32_acc_tflops=SM90A.tensor_f32_acc_tflops * scale,
            tensor_f16_acc_tflops=SM90A.tensor_f16_acc_tflops * scale,
            fp32_tflops=SM90A.fp32_tflops * scale,
        )
        return blocks_at_once(config, arch)

    assert at_once(1, 1) == at_once(2, 1) == SM90A.sm_count
    assert at_once(2, 2) == at_once(2, 4) == 120
    assert at_once(2, 2, sm_count=114) == 100
    assert at_once(2, 4, sm_count=8) == 8


def test_clusters_of_eight_are_for_problems_that_still_fit_as_many_waves() -> None:
    def clusters(m: int, n: int, tile: Shape) -> set[int]:
        found = [c for c in _found(m=m, n=n) if c.threadblock == tile]
        return {config.cluster_m * config.cluster_n for config in found}

    # 120 tiles and 128.
    assert clusters(1280, 768, Shape(64, 128, 64)) == {1, 2, 4, 8}
    assert clusters(1024, 1024, Shape(64, 128, 64)) == {1, 2, 4}


def test_a_width_of_wgmma_that_cutlass_has_to_be_asked_for_has_a_header_that_comes_first() -> None:
    common, wide = (
        kernel_spec(WORKLOAD, replace(CONFIG, threadblock=Shape(128, n, 64)), "sm_90a")
        for n in (96, 176)
    )
    assert WIDTHS_HEADER not in render_kernel(common).text
    assert kernel_symbol(wide).startswith("boltgen_gemm_sm90a_128x176x64_co_c1x1_rc_")
    for text in (render_kernel(wide).text, render_library([common, wide])):
        first, *_ = re.findall('#include "(.*)"', text)
        assert first == WIDTHS_HEADER


def test_a_configuration_has_a_json_form() -> None:
    config = replace(
        CONFIG, cluster_n=4, scheduler=Scheduler.STREAM_K, raster=Raster.ALONG_N, split_k=4
    )
    assert decode(Config, encode(Config, config)) == config
    assert decode(Config, encode(Config, CONFIG)) == CONFIG
    assert str(config) == "128x128x64_cooperative_c1x4_stream_k_along_n_split4"


def test_the_boundaries_are_legal_and_one_gives_threadblocks_a_third_tile() -> None:
    for config in FAMILY.space(WORKLOAD, SM90A).candidates:
        found = FAMILY.boundaries(WORKLOAD, config, SM90A)
        tiles = []
        for workload in found:
            assert FAMILY.rejects(workload, SM90A) is None
            assert FAMILY.violations(workload, config, SM90A) == ()
            assert FAMILY.traits(workload) == FAMILY.traits(WORKLOAD)
            gemm = workload.single.problem.gemm
            tiles.append(-(-gemm.m // config.threadblock.m) * -(-gemm.n // config.threadblock.n))
        assert max(tiles) > 3 * CHECKED_SMS


def test_a_small_product_is_predicted_faster_than_a_large_one() -> None:
    small, large = (
        FAMILY.predict(Workload.of(replace(GEMM, m=m)), CONFIG, SM90A).time_us
        for m in (1024, 65536)
    )
    assert 0 < small < large / 10
    assert FAMILY.predict(WORKLOAD, CONFIG, SM90A).bound


def test_it_shares_a_pool_with_cutlass2_and_leads_where_an_h200_says_so() -> None:
    def families(gemm: Gemm) -> set[str]:
        return {config.family for config in candidates(Workload.of(gemm), SM90A)}

    assert families(GEMM) == {"cutlass2", "cutlass3"}
    assert families(replace(GEMM, k=1028)) == {"cutlass2"}
    # The best of each family there: 1655 us against 2475, and 3.9 us against 5.3.
    for extent in (8192, 512):
        workload = Workload.of(Gemm(m=extent, n=extent, k=extent))
        found = candidates(workload, SM90A)
        fastest = min(found, key=lambda c: predict(workload, c, SM90A).time_us)
        assert fastest.family == "cutlass3"


def test_stream_k_is_predicted_to_fill_the_last_wave() -> None:
    tile, waste = CONFIG.threadblock, SM90A.sm_count + 1

    def times_us(tiles: int) -> tuple[float, float]:
        workload = Workload.of(Gemm(m=tiles * tile.m, n=tile.n, k=16384))
        stream_k = replace(CONFIG, scheduler=Scheduler.STREAM_K)
        whole, split = (FAMILY.predict(workload, each, SM90A) for each in (CONFIG, stream_k))
        return whole.time_us, split.time_us

    whole_us, split_us = times_us(waste)
    assert whole_us / 2 < split_us < 0.7 * whole_us
    # Where all waves are full nothing is split.
    whole_us, split_us = times_us(2 * SM90A.sm_count)
    assert split_us == whole_us


def test_slices_are_predicted_to_help_where_most_multiprocessors_would_idle() -> None:
    config = replace(CONFIG, scheduler=Scheduler.STREAM_K)

    def times_us(k: int) -> list[float]:
        workload = Workload.of(Gemm(m=256, n=256, k=k))
        slices = (replace(config, split_k=count) for count in (2, 8))
        return [FAMILY.predict(workload, each, SM90A).time_us for each in slices]

    deep, shallow = times_us(32768), times_us(1024)
    assert deep[1] < deep[0]
    assert shallow[1] > shallow[0]


def test_the_raster_decides_which_operand_is_read_again() -> None:
    """Along M each band has all of A, which is large here."""
    workload = Workload.of(Gemm(m=65536, n=8192, k=8192))
    along_m, along_n = (
        FAMILY.predict(workload, replace(CONFIG, raster=raster), _slow_dram()).time_us
        for raster in Raster
    )
    assert along_n < along_m


def _slow_dram() -> Arch:
    return replace(SM90A, dram_gb_per_s=SM90A.dram_gb_per_s / 20)


def test_a_batch_takes_longer_than_one_product_and_no_longer_than_all_of_them() -> None:
    one, batch = (
        FAMILY.predict(Workload.of(replace(GEMM, batch=batch)), CONFIG, SM90A).time_us
        for batch in (1, 12)
    )
    assert one < batch < 12 * one


def test_a_kernel_has_a_text_and_its_launch_a_struct() -> None:
    config = replace(CONFIG, swizzle=4, raster=Raster.ALONG_N)
    spec = kernel_spec(WORKLOAD, config, "sm_90a")
    assert spec.config == compiled(config) == CONFIG
    symbol = kernel_symbol(spec)
    assert symbol.startswith("boltgen_gemm_sm90a_128x128x64_co_c1x1_rc_")
    text = render_kernel(spec).text
    assert render(FAMILY.view(spec, symbol, workspace_symbol(symbol))) in text
    assert "3.x API, checked with" in text
    asked = launch(WORKLOAD, config)
    made = arguments(asked.struct, asked.sizes)
    assert (made.swizzle, made.raster, made.split_k, made.batch) == (4, 1, 1, 1)
    assert asked.workspace_bytes == 0


def test_stream_k_has_a_kernel_of_its_own_and_a_workspace() -> None:
    config = replace(CONFIG, scheduler=Scheduler.STREAM_K)
    spec = kernel_spec(WORKLOAD, replace(config, split_k=4), "sm_90a")
    assert spec.config == config
    symbol = kernel_symbol(spec)
    assert symbol.startswith("boltgen_gemm_sm90a_128x128x64_cosk_c1x1_rc_")
    assert "stream-K" in FAMILY.describe(spec)["Config"]
    # 64 tiles, each with a counter for either warpgroup.
    assert launch(WORKLOAD, config).workspace_bytes == 64 * (128 * 128 * 4 + 2 * 4)
    large = Workload.of(replace(GEMM, m=1 << 20))
    assert launch(large, config).workspace_bytes < 300 * 128 * 128 * 4
