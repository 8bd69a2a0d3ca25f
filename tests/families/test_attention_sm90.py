"""`attention_sm90`: what it rejects, its rules, its space, its model, and one pool with
`attention`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from benchmarks.cases.attention import attention, scaled
from benchmarks.cases.attention_sm90 import KERNELS
from boltgen.arch import ARCHES
from boltgen.families.attention_sm90 import FAMILY
from boltgen.families.attention_sm90.config import AttentionSm90Config
from boltgen.families.attention_sm90.legality import HEADS, stage_bytes, stages
from boltgen.families.registry import boundaries, candidates, predict
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import LoadKind
from boltgen.problems.workload import Workload

SM90A = ARCHES["sm_90a"]
WORKLOAD = attention(512, 512, 64, 64, batch=12)
CONFIG = AttentionSm90Config(rows=128, keys=128, depth=64, columns=64)


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (Workload(layers=WORKLOAD.layers[:1]), "not 1 layers"),
        (attention(64, 64, 60, 64), "rows of Q are aligned to 8 bytes, and TMA takes 16"),
        (
            attention(64, 60, 64, 64, layouts=(Layout.ROW, Layout.ROW)),
            "rows of K are aligned to 8 bytes",
        ),
        (attention(64, 64, 64, 60), "rows of V are aligned to 8 bytes"),
    ],
    ids=["layers", "q", "k", "v"],
)
def test_what_it_cannot_compute_it_rejects(workload: Workload, reason: str) -> None:
    assert reason in (FAMILY.rejects(workload, SM90A) or "")


@pytest.mark.parametrize("arch", [name for name in ARCHES if name != "sm_90a"])
def test_other_architectures_lack_its_instructions(arch: str) -> None:
    assert f"{arch} has not both" in (FAMILY.rejects(WORKLOAD, ARCHES[arch]) or "")


@pytest.mark.parametrize(
    ("workload", "config", "rules"),
    [
        (WORKLOAD, CONFIG, []),
        (WORKLOAD, replace(CONFIG, rows=256), ["rows"]),
        (WORKLOAD, replace(CONFIG, keys=80), ["wgmma_shape"]),
        (WORKLOAD, replace(CONFIG, columns=80), ["wgmma_shape"]),
        (WORKLOAD, replace(CONFIG, depth=32), ["head_size"]),
        (WORKLOAD, replace(CONFIG, columns=32), ["head_size"]),
        (WORKLOAD, replace(CONFIG, columns=128, keys=192), ["registers"]),
        (WORKLOAD, replace(CONFIG, depth=256, keys=192), ["shared_memory"]),
        (attention(2**31 - 100, 64, 64, 64), CONFIG, ["index_overflow"]),
        (attention(64, 2**31 - 100, 64, 64), CONFIG, ["index_overflow"]),
        (attention(2**30, 64, 64, 64, batch=200), CONFIG, ["index_overflow"]),
    ],
    ids=lambda value: value.short if isinstance(value, Workload) else str(value),
)
def test_the_rules(workload: Workload, config: AttentionSm90Config, rules: list[str]) -> None:
    found = FAMILY.violations(workload, config, SM90A)
    assert [each.name for each in found] == rules
    for violation in found:
        assert violation.reason
        assert violation.slack is None or violation.slack < 0


@pytest.mark.parametrize(("depth", "columns"), list(product((8, 40, *HEADS), repeat=2)))
def test_every_pair_of_heads_has_configurations(depth: int, columns: int) -> None:
    workload = attention(512, 512, depth, columns, batch=12)
    space = FAMILY.space(workload, SM90A)
    # Three warpgroups have registers for narrow heads.
    found = {config.rows for config in space.candidates}
    assert found == ({64, 128, 192} if columns <= 128 else {64, 128})
    assert len(set(map(space.encode, space.candidates))) == len(space.candidates)
    for config in space.candidates:
        assert config in space
        assert not space.broken(config)
        footprint = FAMILY.footprint(workload, config)
        assert footprint.shared_memory_bytes <= SM90A.shared_memory_per_cta_bytes
        spare = SM90A.shared_memory_per_cta_bytes - footprint.shared_memory_bytes
        assert spare < stage_bytes(config, DType.F16) or stages(config, DType.F16, SM90A) == 4


def test_a_head_that_no_tile_holds_has_no_candidate_and_the_reason() -> None:
    space = FAMILY.space(attention(64, 64, 264, 64), SM90A)
    assert space.candidates == ()
    assert space.explain()


@pytest.mark.parametrize("name", KERNELS)
def test_the_boundaries_are_large_small_and_persistent(name: str) -> None:
    config, workload = KERNELS[name]
    large, small, persistent = boundaries(workload, config, SM90A)
    for each in (large, small, persistent):
        assert FAMILY.rejects(each, SM90A) is None
        assert FAMILY.violations(each, config, SM90A) == ()
        assert FAMILY.traits(each) == FAMILY.traits(workload)
    rows, keys = large.first.problem.gemm.m, large.first.problem.gemm.n
    assert config.rows < rows
    assert rows % config.rows
    assert keys > config.keys * stages(config, DType.F16, SM90A)
    assert keys % config.keys
    assert small.first.problem.gemm.m == 1
    assert persistent.first.problem.gemm.m > 16 * config.rows


def test_it_shares_a_pool_with_attention_which_alone_has_what_tma_cannot_load() -> None:
    def families(workload: Workload) -> set[str]:
        return {config.family for config in candidates(workload, SM90A)}

    assert families(WORKLOAD) == {"attention", "attention_sm90"}
    assert families(attention(512, 512, 60, 64)) == {"attention"}


@pytest.mark.parametrize("head", [64, 128, 256])
def test_of_much_work_it_is_predicted_faster_than_mma_sync(head: int) -> None:
    workload = attention(4096, 4096, head, head, batch=32)
    times: dict[str, float] = {}
    for config in candidates(workload, SM90A):
        time_us = predict(workload, config, SM90A).time_us
        times[config.family] = min(time_us, times.get(config.family, time_us))
    assert times["attention_sm90"] < times["attention"]
    # No more than the tensor cores have.
    flops = sum(2 * 32 * 4096 * 4096 * head for _ in range(2))
    assert flops / times["attention_sm90"] * 1e-6 < SM90A.tensor_f32_acc_tflops


def test_half_of_the_keys_take_half_of_the_time() -> None:
    whole, causal = (attention(8192, 8192, 64, 64, batch=96, causal=each) for each in (False, True))
    times = [FAMILY.predict(each, CONFIG, SM90A).time_us for each in (causal, whole)]
    assert 0.5 < times[0] / times[1] < 0.53


def test_a_window_takes_as_long_as_its_keys() -> None:
    local = attention(8192, 8192, 64, 64, batch=96, causal=True, window=1024)
    few = attention(8192, 1024, 64, 64, batch=96)
    times = [FAMILY.predict(each, CONFIG, SM90A).time_us for each in (local, few)]
    # Each tile of rows also sees a part of two more.
    assert 1.0 < times[0] / times[1] < 1.2


def test_masks_of_keys_take_registers() -> None:
    """What threads that load keep, to find the keys, and what is found of those that multiply."""
    config = AttentionSm90Config(rows=128, keys=64, depth=256, columns=256)
    plain, masked = (
        attention(512, 512, 256, 256, scores=scaled(256, kind))
        for kind in (LoadKind.TENSOR, LoadKind.ROW)
    )
    assert FAMILY.violations(plain, config, SM90A) == ()
    (violation,) = FAMILY.violations(masked, config, SM90A)
    assert violation.message == "about 236 registers a thread, at most 232"
    registers = [FAMILY.footprint(each, config).registers for each in (plain, masked)]
    assert registers == [216, 236]
    assert FAMILY.violations(masked, replace(config, rows=64), SM90A) == ()
