"""`attention`: what it rejects, its rules, its space and its model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.cases.attention import attention
from benchmarks.cases.chains import gemm_chain
from benchmarks.cases.kernels import EPILOGUES
from boltgen.arch import ARCHES
from boltgen.errors import NoLegalConfigError
from boltgen.families.attention import FAMILY
from boltgen.families.attention.config import AttentionConfig
from boltgen.families.attention.model import predict
from boltgen.families.registry import FAMILIES, candidates
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import ElementwiseGraph, Store
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer, Workload

SM80, SM75 = ARCHES["sm_80"], ARCHES["sm_75"]
WORKLOAD = attention(512, 512, 64, 64, batch=12)
CONFIG = AttentionConfig(rows=64, keys=64, depth=64, columns=64, warps=4, stages=2)
WIDE = replace(CONFIG, depth=256, columns=256)


def _bf16(layer: Layer) -> Gemm:
    out = DType.F32 if layer.problem.out_dtype is DType.F32 else DType.BF16
    return replace(layer.problem.gemm, in_dtype=DType.BF16, out_dtype=out)


def _first(**changes: object) -> Layer:
    return replace(WORKLOAD.first, **changes)


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (Workload(layers=WORKLOAD.layers[:1]), "not 1 layers"),
        (gemm_chain(64, 64, (64, 64), ("relu", "relu")), "not acc"),
        (
            Workload(layers=(_first(prologue=EPILOGUES["relu"]), WORKLOAD.last)),
            "a softmax of rows",
        ),
        (
            Workload(
                layers=(
                    WORKLOAD.first,
                    replace(
                        WORKLOAD.last,
                        epilogue=ElementwiseGraph(stores=(Store(0), Store(0, dtype=DType.F32))),
                    ),
                )
            ),
            "layer 1: it stores",
        ),
    ],
)
def test_what_it_cannot_compute_it_rejects(workload: Workload, reason: str) -> None:
    assert reason in (FAMILY.rejects(workload, SM80) or "")


def test_bf16_is_for_architectures_that_multiply_it() -> None:
    layers = tuple(replace(each, problem=_bf16(each)) for each in WORKLOAD.layers)
    assert FAMILY.rejects(Workload(layers=layers), SM80) is None
    reason = FAMILY.rejects(Workload(layers=layers), SM75) or ""
    assert "bfloat16" in reason
    assert candidates(Workload(layers=layers), SM80)


def test_half_of_the_keys_take_half_of_the_time() -> None:
    whole = attention(4096, 4096, 64, 64, batch=96)
    causal = attention(4096, 4096, 64, 64, batch=96, causal=True)
    ratio = predict(causal, CONFIG, SM80).time_us / predict(whole, CONFIG, SM80).time_us
    assert 0.5 < ratio < 0.53


def test_no_other_family_computes_a_softmax() -> None:
    rejecting = [family.name for family in FAMILIES if family.rejects(WORKLOAD, SM80)]
    assert sorted(rejecting) == sorted(f.name for f in FAMILIES if f.name != FAMILY.name)


@pytest.mark.parametrize(
    ("workload", "config", "arch", "rule", "words"),
    [
        (WORKLOAD, replace(CONFIG, rows=32), SM80, "whole_fragments", ("rows of a warp: 8",)),
        (WORKLOAD, replace(CONFIG, keys=40), SM80, "whole_fragments", ("keys of a warp: 40",)),
        (WORKLOAD, replace(CONFIG, depth=48), SM80, "head_size", ("depth", "48 of 64")),
        (WORKLOAD, replace(CONFIG, columns=32), SM80, "head_size", ("columns", "32 of 64")),
        (WORKLOAD, replace(CONFIG, stages=1), SM80, "stages", ("1 stages", "2 to")),
        (WORKLOAD, replace(CONFIG, stages=3), SM75, "stages", ("3 stages", "2 to 2")),
        (WORKLOAD, replace(CONFIG, splits=0), SM80, "splits", ("0 threadblocks", "1 to 64")),
        (WORKLOAD, replace(CONFIG, key_warps=0), SM80, "key_warps", ("0 warps",)),
        (WORKLOAD, replace(CONFIG, key_warps=2, splits=2), SM80, "key_warps", ("2 threadblocks",)),
        (
            attention(64, 64, 16, 256),
            replace(WIDE, keys=32, depth=16, key_warps=2),
            SM80,
            "merged_sums",
            ("67584", "36864"),
        ),
        (
            attention(64, 64, 256, 256),
            replace(WIDE, keys=128, stages=3),
            SM80,
            "shared_memory",
            ("166912",),
        ),
        (
            WORKLOAD,
            replace(CONFIG, rows=128, keys=128, columns=128),
            SM80,
            "registers",
            ("at most 255",),
        ),
        (
            attention(64, 2**31 - 64, 64, 64),
            CONFIG,
            SM80,
            "index_overflow",
            ("keys: 2147483584",),
        ),
        (
            attention(2**20, 64, 64, 64, batch=2**19),
            CONFIG,
            SM80,
            "index_overflow",
            ("tiles: ",),
        ),
    ],
)
def test_a_broken_rule_is_named(
    workload: Workload, config: AttentionConfig, arch: object, rule: str, words: tuple[str, ...]
) -> None:
    found = {each.name: each for each in FAMILY.violations(workload, config, arch)}
    assert rule in found
    assert all(word in found[rule].message for word in words), found[rule].message


@pytest.mark.parametrize("head", [8, 40, 64, 80, 128, 160, 256])
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_90a", "sm_120"])
def test_every_head_has_configurations(arch: str, head: int) -> None:
    workload = attention(512, 512, head, head, batch=12)
    if arch == "sm_75" and head > 128:  # two stages of them do not fit
        with pytest.raises(NoLegalConfigError, match=f"softmax.*{arch}"):
            candidates(workload, SM75)
        return
    found = FAMILY.space(workload, ARCHES[arch]).candidates
    assert found
    assert all(FAMILY.violations(workload, each, ARCHES[arch]) == () for each in found)


def test_time_grows_with_keys_and_heads() -> None:
    times = [
        FAMILY.predict(attention(2048, keys, 64, 64, batch=batch), CONFIG, SM80).time_us
        for batch, keys in ((12, 512), (12, 2048), (48, 2048))
    ]
    assert times == sorted(times)
    assert times[1] > 2 * times[0]


def _fastest(workload: Workload) -> AttentionConfig:
    found = FAMILY.space(workload, SM80).candidates
    return min(found, key=lambda each: FAMILY.predict(workload, each, SM80).time_us)


def test_few_rows_of_many_keys_are_shared_where_a_device_is_idle_otherwise() -> None:
    assert _fastest(attention(1, 8192, 64, 64, batch=8)).splits > 1
    assert _fastest(attention(1, 128, 64, 64, batch=8)).splits == 1
    full = FAMILY.space(attention(1, 8192, 64, 64, batch=2 * SM80.sm_count), SM80).candidates
    assert {each.splits for each in full} == {1}


def test_a_launch_asks_for_what_threadblocks_leave_of_the_greatest_size() -> None:
    shared = replace(CONFIG, splits=4)
    assert FAMILY.launch(WORKLOAD, CONFIG).workspace_bytes == 0
    of_rows = [
        FAMILY.launch(attention(rows, 512, 64, 64, batch=12), shared).workspace_bytes
        for rows in (1, 64, 65)
    ]
    assert 0 < of_rows[0] == of_rows[1] < of_rows[2]
