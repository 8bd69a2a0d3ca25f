"""`b2b_sm90`: what it rejects, its rules, its space, and one pool with `b2b`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.cases.chains import conv_chain, gemm_chain, paper_chains
from benchmarks.cases.chains_sm90 import KERNELS
from benchmarks.cases.kernels import EPILOGUES
from boltgen.arch import ARCHES
from boltgen.families.b2b_sm90 import FAMILY
from boltgen.families.b2b_sm90.config import B2bSm90Config
from boltgen.families.b2b_sm90.legality import WARPGROUP_COLUMNS, stage_bytes, stages
from boltgen.families.chain.traits import Residence
from boltgen.families.family import CHECKED_SMS
from boltgen.families.registry import candidates, kernel_spec, predict
from boltgen.families.source import kernel_symbol, render_kernel
from boltgen.families.wgmma import TILE_DEPTH, steps
from boltgen.ir.dtypes import DType, Layout
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer, Workload
from boltgen.tuning.choice.fusion import cut_layers

SM90A = ARCHES["sm_90a"]
BIAS_RELU = ("bias_relu", "bias_relu")
CHAIN = gemm_chain(1024, 256, (64, 64), BIAS_RELU)
WIDE = gemm_chain(1024, 256, (512, 64), BIAS_RELU)
CONV = Conv2d(n=2, h=14, w=14, c=64, k=64, r=3, s=3, padding=(1, 1, 1, 1))
RF = B2bSm90Config(threadblock_m=128, columns=(64, 64), residence=Residence.REGISTERS)
SMEM = B2bSm90Config(threadblock_m=64, columns=(64, 64), residence=Residence.SHARED_MEMORY)


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (Workload(layers=CHAIN.layers[:1]), "not one"),
        (conv_chain(replace(CONV, c=4), (48,), BIAS_RELU), "layer 0: rows of B are aligned to 8"),
        (conv_chain(replace(CONV, h=40, stride=(9, 1)), (48,), BIAS_RELU), "TMA steps over 8"),
        (
            gemm_chain(64, 64, (64, 64), BIAS_RELU, batch=2, a_batched=False),
            "its batch shares A, and no document says",
        ),
        (
            gemm_chain(64, 64, (64, 64), BIAS_RELU, batch=2, b_batched=(True, False)),
            "layer 1: its batch shares B, and no document says",
        ),
        (gemm_chain(64, 64, (64, 64), BIAS_RELU, dtypes="f16_f16"), "sums in float32, not float16"),
        (gemm_chain(64, 68, (64, 64), BIAS_RELU), "layer 0: rows of B are aligned to 8 bytes"),
        (gemm_chain(64, 64, (60, 64), BIAS_RELU), "layer 1: rows of B are aligned to 8 bytes"),
        (
            gemm_chain(64, 68, (64, 64), BIAS_RELU, b_layout=Layout.ROW),
            "layer 0: rows of A are aligned to 8 bytes",
        ),
        (
            Workload(layers=(replace(CHAIN.first, prologue=EPILOGUES["relu"]), *CHAIN.layers[1:])),
            "cannot be changed before the product",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_workload_that_it_cannot_compute_is_rejected_with_the_reason(
    workload: Workload, reason: str
) -> None:
    assert reason in (FAMILY.rejects(workload, SM90A) or "")


@pytest.mark.parametrize("arch", [name for name in ARCHES if name != "sm_90a"])
def test_other_architectures_lack_its_instructions(arch: str) -> None:
    assert f"{arch} has not both" in (FAMILY.rejects(CHAIN, ARCHES[arch]) or "")


def test_the_last_layer_may_have_any_number_of_columns() -> None:
    for n in (1, 7, 60):
        assert FAMILY.space(gemm_chain(64, 64, (64, n), BIAS_RELU), SM90A).candidates


@pytest.mark.parametrize(
    ("workload", "config", "rules"),
    [
        (CHAIN, RF, []),
        (CHAIN, SMEM, []),
        (CHAIN, replace(RF, columns=(64, 64, 64)), ["layer_count"]),
        (CHAIN, replace(RF, threadblock_m=192), ["rows", "warpgroups"]),
        (CHAIN, replace(SMEM, threadblock_m=128), ["warpgroups"]),
        (CHAIN, replace(RF, columns=(64, 80)), ["columns"]),
        (CHAIN, replace(SMEM, columns=(64, 16)), ["columns", "threadblock_residence"]),
        (WIDE, RF, ["threadblock_residence"]),
        (WIDE, replace(RF, columns=(512, 64)), ["columns"]),
        (WIDE, replace(SMEM, columns=(512, 64)), []),
        (gemm_chain(2**31 - 100, 64, (64, 64), BIAS_RELU), RF, ["index_overflow"]),
        (gemm_chain(64, 2**31 - 8, (64, 64), BIAS_RELU), RF, ["index_overflow"]),
        (gemm_chain(2**30, 64, (64, 64), BIAS_RELU, batch=300), RF, ["index_overflow"]),
    ],
    ids=lambda value: value.short if isinstance(value, Workload) else str(value),
)
def test_the_rules(workload: Workload, config: B2bSm90Config, rules: list[str]) -> None:
    found = FAMILY.violations(workload, config, SM90A)
    assert [each.name for each in found] == rules
    for violation in found:
        assert violation.reason
        assert violation.slack is None or violation.slack < 0


def test_too_little_shared_memory_for_two_stages_breaks_a_rule() -> None:
    small = replace(SM90A, shared_memory_per_cta_bytes=80 << 10)
    config = replace(RF, columns=(256, 256))
    assert stages(config, DType.F16, small) == 1
    (violation,) = FAMILY.violations(CHAIN, config, small)
    assert violation.name == "shared_memory"
    assert violation.slack == -0.5


@pytest.mark.parametrize("residence", Residence)
def test_of_every_width_two_stages_fit_beside_the_intermediate(residence: Residence) -> None:
    sides = 1 if residence is Residence.REGISTERS else 2
    for n in WARPGROUP_COLUMNS:
        chain = gemm_chain(64, 64, (sides * n, sides * n), BIAS_RELU)
        found = FAMILY.space(chain, SM90A).candidates
        assert {config.columns for config in found if config.residence is residence} == {
            (sides * n, sides * n)
        }


def test_the_space_holds_legal_candidates_of_both_residences_and_can_encode_them() -> None:
    space = FAMILY.space(CHAIN, SM90A)
    assert [str(config) for config in space.candidates] == [
        "64_64_64_registers",
        "64_64_64_shared_memory",
        "128_64_64_registers",
    ]
    assert len(set(map(space.encode, space.candidates))) == len(space.candidates)
    for config in space.candidates:
        assert config in space
        assert not space.broken(config)
        footprint = FAMILY.footprint(CHAIN, config)
        assert footprint.shared_memory_bytes <= SM90A.shared_memory_per_cta_bytes
        spare = SM90A.shared_memory_per_cta_bytes - footprint.shared_memory_bytes
        assert spare < stage_bytes(config, DType.F16)


def test_a_chain_that_is_too_wide_has_no_candidate_and_the_reason() -> None:
    space = FAMILY.space(gemm_chain(64, 64, (520, 64), BIAS_RELU), SM90A)
    assert space.candidates == ()
    assert "no tile holds the columns of every layer" in space.explain()


@pytest.mark.parametrize("name", KERNELS)
def test_the_boundaries_are_ragged_small_and_persistent(name: str) -> None:
    config, workload = KERNELS[name].config, KERNELS[name].workload
    ragged, small, persistent = FAMILY.boundaries(workload, config, SM90A)
    for each in (ragged, small, persistent):
        assert FAMILY.rejects(each, SM90A) is None
        assert FAMILY.violations(each, config, SM90A) == ()
        assert FAMILY.traits(each) == FAMILY.traits(workload)
    tiles = [
        -(-each.first.problem.gemm.m // config.threadblock_m) * each.batch
        for each in (ragged, small, persistent)
    ]
    assert tiles[0] >= 2 * workload.batch
    assert tiles[2] > 2 * CHECKED_SMS
    assert small.first.problem.gemm.m <= 2  # of some strides a convolution has no single pixel
    assert steps(ragged.first.problem, TILE_DEPTH) > stages(config, DType.F16, SM90A)


def test_a_small_chain_is_predicted_faster_than_a_large_one() -> None:
    def time_us(workload: Workload, config: B2bSm90Config = RF) -> float:
        return FAMILY.predict(workload, config, SM90A).time_us

    assert 0 < time_us(CHAIN) < time_us(gemm_chain(10**6, 256, (64, 64), BIAS_RELU)) / 10
    # The way through shared memory costs time, where both residences have the same tile.
    rf, smem = (
        B2bSm90Config(threadblock_m=64, columns=(256, 256), residence=residence)
        for residence in Residence
    )
    big = gemm_chain(10**6, 256, (256, 256), BIAS_RELU)
    assert time_us(big, rf) < time_us(big, smem)
    assert FAMILY.predict(CHAIN, RF, SM90A).bound


def test_it_shares_a_pool_with_b2b_and_alone_holds_wide_layers() -> None:
    def families(chain: Workload) -> set[str]:
        return {config.family for config in candidates(chain, SM90A)}

    assert families(CHAIN) == {"b2b", "b2b_sm90"}
    assert families(gemm_chain(64, 68, (64, 64), BIAS_RELU)) == {"b2b"}
    assert families(WIDE) == {"b2b_sm90"}


def test_layers_are_one_kernel_only_where_that_is_predicted_to_beat_their_own() -> None:
    for chain in (CHAIN, WIDE, *paper_chains().values()):
        apart = sum(
            min(predict(one, c, SM90A).time_us for c in candidates(one, SM90A))
            for one in (Workload(layers=(layer,)) for layer in chain.layers)
        )
        fused = min(predict(chain, config, SM90A).time_us for config in candidates(chain, SM90A))
        assert (len(cut_layers(chain.layers, SM90A).counts) == 1) == (fused * 1.05 < apart)


def test_of_many_rows_it_is_predicted_fastest_and_of_few_wide_ones_layers_stay_apart() -> None:
    tall = gemm_chain(16384, 256, (64, 16), BIAS_RELU)  # 1.7 times as fast on an H200
    assert cut_layers(tall.layers, SM90A).counts == (2,)
    fastest = min(candidates(tall, SM90A), key=lambda c: predict(tall, c, SM90A).time_us)
    assert str(fastest) == "128_64_16_registers"
    assert cut_layers(WIDE.layers, SM90A).counts == (1, 1)


def test_a_kernel_depends_on_no_size_and_its_text_says_what_it_is() -> None:
    spec = kernel_spec(CHAIN, RF, "sm_90a")
    assert spec == kernel_spec(gemm_chain(77, 8, (8, 56), BIAS_RELU), RF, "sm_90a")
    others: list[tuple[Workload, Any]] = [
        (CHAIN, SMEM),
        (gemm_chain(77, 8, (8, 57), BIAS_RELU), RF),
        (gemm_chain(77, 8, (8, 58), BIAS_RELU), RF),
        (gemm_chain(77, 8, (8, 56), BIAS_RELU, dtypes="f32_f32"), RF),
        (gemm_chain(77, 8, (8, 56), BIAS_RELU, b_layout=Layout.ROW), RF),
        (conv_chain(CONV, (48,), BIAS_RELU), RF),
    ]
    specs = {kernel_spec(workload, config, "sm_90a") for workload, config in others}
    assert len({spec, *specs}) == 7
    assert kernel_symbol(spec).startswith("boltgen_b2b_gemm_sm90a_128x64x64_rf_")
    text = render_kernel(spec).text
    assert "CuTe, checked with" in text
    assert f"/*Stages=*/{stages(RF, DType.F16, SM90A)}," in text


def test_a_convolution_is_followed_by_products_of_its_pixels() -> None:
    chain = conv_chain(CONV, (48,), BIAS_RELU)
    assert isinstance(chain.layers[1].problem, Gemm)
    assert {config.family for config in candidates(chain, SM90A)} == {"b2b", "b2b_sm90"}
    asked = FAMILY.launch(chain, RF)
    assert asked.struct == "boltgen_conv2d_chain_args"
    assert asked.sizes["layers[1].n"] == 48


def test_layers_are_those_of_the_workload() -> None:
    layers: tuple[Layer, ...] = CHAIN.layers
    traits = FAMILY.traits(CHAIN)
    assert [each.epilogue for each in traits.layers] == [layer.epilogue for layer in layers]
    assert [each.alignment_b for each in traits.layers] == [8, 8]
    assert [each.alignment_d for each in traits.layers] == [2, 8]
