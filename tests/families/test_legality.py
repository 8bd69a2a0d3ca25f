"""Legality: each rule is broken on purpose, and holds for everything that is enumerated."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.cases.kernels import EPILOGUES, PROBLEM_TYPES
from boltgen.arch import ARCHES, arch_named
from boltgen.errors import NoLegalConfigError
from boltgen.families.cutlass2.candidates import enumerate_configs, kernel_configs
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.mma_sync.legality import WARPS, violations
from boltgen.families.mma_sync.resources import registers_per_thread, shared_memory_bytes
from boltgen.families.mma_sync.traits import kernel_traits
from boltgen.families.registry import FAMILIES, candidates, kernel_spec, launch
from boltgen.families.space import Shape
from boltgen.ir.dtypes import DType, Layout
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer, Workload

SM80 = arch_named("sm_80")
GEMM = Gemm(m=1024, n=1024, k=1024)
GOOD = Cutlass2Config(
    threadblock=Shape(128, 128, 32),
    warp=Shape(64, 64, 32),
    instruction=Shape(16, 8, 16),
    stages=3,
)
LARGE = Conv2d(n=4, h=2**14, w=2**14, c=8, k=8, r=1, s=1, stride=(2, 2))


def names(problem, config, arch=SM80):
    return {violation.name for violation in violations(problem, config, arch)}


@pytest.mark.parametrize(
    ("problem", "change", "rule"),
    [
        (GEMM, {"instruction": Shape(16, 8, 32)}, "instruction"),
        (GEMM, {"warp": Shape(48, 64, 32)}, "warp_divides_threadblock"),
        (GEMM, {"warp": Shape(8, 64, 32)}, "instruction_divides_warp"),
        (GEMM, {"threadblock": Shape(128, 128, 16), "warp": Shape(64, 64, 16)}, "threadblock_k"),
        (GEMM, {"warp": Shape(64, 64, 16)}, "warp_steps"),
        (GEMM, {"warp": Shape(16, 16, 32)}, "warps"),
        (GEMM, {"instruction": Shape(16, 8, 8), "threadblock": Shape(96, 128, 32),
                "warp": Shape(48, 64, 32)}, "ldmatrix_extent"),
        (GEMM, {"warp": Shape(64, 16, 32)}, "congruous_extent"),
        (GEMM, {"threadblock": Shape(128, 96, 32), "warp": Shape(64, 32, 32)}, "congruous_extent"),
        (GEMM, {"stages": 6}, "stages"),
        (GEMM, {"threadblock": Shape(256, 128, 64), "warp": Shape(64, 64, 64), "stages": 4},
         "shared_memory"),
        (GEMM, {"warp": Shape(128, 64, 32)}, "registers"),
        (GEMM, {"threadblock": Shape(256, 32, 32), "warp": Shape(32, 32, 32)},
         "operand_thread_map"),
        (GEMM, {"threadblock": Shape(64, 32, 32), "warp": Shape(32, 16, 32)},
         "epilogue_thread_map"),
        (Gemm(m=64, n=64, k=63),
         {"threadblock": Shape(128, 64, 64), "warp": Shape(64, 64, 64), "stages": 2},
         "operand_predicates"),
        (Conv2d(n=1, h=8, w=8, c=8, k=8, r=3, s=3),
         {"threadblock": Shape(64, 128, 64), "warp": Shape(64, 128, 64)},
         "filter_predicates"),
        (GEMM, {"swizzle": 3}, "swizzle"),
        (Gemm(m=64, n=64, k=63), {}, "async_copy"),
        (GEMM, {"split_k": 33}, "split_k_depth"),
        (Gemm(m=64, n=64, k=320), {"split_k": 8}, "split_k_depth"),
        (Gemm(batch=2, m=64, n=64, k=1024), {"split_k": 2}, "split_k_batched"),
        (LARGE, {}, "index_overflow"),
        (Gemm(m=2**31 - 1, n=8, k=8), {}, "index_overflow"),
        (Gemm(m=8, n=2**24, k=8), {"threadblock": Shape(128, 64, 32)}, "grid"),
        (Gemm(batch=2**16, m=64, n=64, k=64), {}, "grid"),
    ],
)  # fmt: skip
def test_each_rule_is_found_and_explained(problem, change, rule):
    config = replace(GOOD, **change)
    found = {violation.name: violation for violation in violations(problem, config, SM80)}
    assert rule in found
    violation = found[rule]
    assert any(character.isdigit() for character in violation.message)
    assert violation.reason
    assert violation.slack is None or violation.slack < 0


def test_a_good_config_breaks_no_rule():
    assert violations(GEMM, GOOD, SM80) == ()


def test_slack_grows_towards_legality():
    def slack(stages):
        config = replace(
            GOOD, threadblock=Shape(256, 128, 64), warp=Shape(64, 64, 64), stages=stages
        )
        (violation,) = (v for v in violations(GEMM, config, SM80) if v.name == "shared_memory")
        return violation.slack

    assert slack(5) < slack(4) < 0


problems = st.one_of(
    st.builds(
        lambda types, **sizes: Gemm(**sizes, **types),
        st.sampled_from(PROBLEM_TYPES),
        m=st.integers(1, 5000),
        n=st.integers(1, 5000),
        k=st.integers(1, 5000),
        b_layout=st.sampled_from(Layout),
    ),
    st.builds(
        Gemm,
        batch=st.integers(1, 64),
        m=st.integers(1, 600),
        n=st.integers(1, 600),
        k=st.integers(1, 600),
    ),
    st.builds(
        Conv2d,
        n=st.integers(1, 32),
        h=st.integers(3, 60),
        w=st.integers(3, 60),
        c=st.integers(1, 512),
        k=st.integers(1, 512),
        r=st.sampled_from([1, 3]),
        s=st.sampled_from([1, 3]),
    ),
)


@settings(deadline=None, max_examples=60)
@given(problems, st.sampled_from(sorted(ARCHES)))
def test_everything_enumerated_is_legal_and_distinct(problem, name):
    arch = arch_named(name)
    configs = enumerate_configs(problem, arch)
    assert len(set(configs)) == len(configs)
    for config in configs:
        assert violations(problem, config, arch) == ()
        assert (
            shared_memory_bytes(config, problem.in_dtype, problem.acc_dtype)
            <= arch.shared_memory_per_cta_bytes
        )
        assert registers_per_thread(config, problem.in_dtype, problem.acc_dtype) <= 255
        assert config.warps in WARPS
    assert configs == enumerate_configs(problem, arch)


@pytest.mark.parametrize(
    "types", PROBLEM_TYPES, ids=lambda types: "-".join(dtype.short for dtype in types.values())
)
@pytest.mark.parametrize("name", ARCHES)
def test_tens_of_kernels_per_arch_whose_tensor_cores_have_an_instruction(name, types):
    arch, problem = arch_named(name), Gemm(m=4096, n=4096, k=4096, **types)
    configs = kernel_configs(kernel_traits(problem), arch)
    reason = FAMILIES.named("cutlass2").rejects(Workload.of(problem), arch)
    if name == "sm_75" and problem.in_dtype is DType.BF16:
        assert configs == ()
        assert "sm_75 sums products of bfloat16" in reason
    else:
        assert 30 <= len(configs) <= 100
        assert reason is None


@pytest.mark.parametrize(
    ("name", "tile", "warp", "stages"),
    [
        ("sm_75", (128, 128, 64), (32, 32, 64), 2),  # 16 warps: fastest on an RTX 2080 Ti
        ("sm_75", (128, 128, 64), (64, 64, 64), 2),  # within 5 % of the fastest there
        ("sm_75", (128, 128, 64), (32, 128, 64), 2),
        ("sm_80", (128, 160, 32), (64, 80, 32), 3),  # the second of an A100's winners
        ("sm_80", (160, 128, 32), (80, 64, 32), 3),
        ("sm_80", (96, 128, 64), (48, 64, 64), 3),
        ("sm_80", (128, 192, 32), (64, 48, 32), 3),
        ("sm_80", (16, 64, 64), (16, 64, 64), 3),
    ],
)
def test_what_wins_elsewhere_is_legal(name, tile, warp, stages):
    arch = arch_named(name)
    config = Cutlass2Config(
        threadblock=Shape(*tile),
        warp=Shape(*warp),
        instruction=Shape(*arch.mma_shapes[0]),
        stages=stages,
    )
    problem = replace(GEMM, b_layout=Layout.COLUMN)
    assert violations(problem, config, arch) == ()
    if stages > 2 or config.warps == 16:
        assert config in enumerate_configs(problem, arch)


@pytest.mark.parametrize(
    ("tile", "warp", "problem"),
    [
        ((16, 64, 64), (16, 64, 16), GEMM),
        ((192, 32, 64), (96, 32, 16), Conv2d(n=1, h=56, w=56, c=64, k=64, r=3, s=3)),
    ],
)
def test_warps_that_share_k_also_share_the_rows_of_the_output(tile, warp, problem):
    # CUTLASS asserts "Iteration Count Row must be > 0" for both.
    config = Cutlass2Config(
        threadblock=Shape(*tile), warp=Shape(*warp), instruction=Shape(16, 8, 8), stages=2
    )
    assert "epilogue_thread_map" in names(problem, config, arch_named("sm_75"))


def test_more_registers_than_ptxas_can_spare_are_refused():
    # nvcc 13.0 spills 44 bytes of the first, and nothing of the second.
    config = Cutlass2Config(
        threadblock=Shape(256, 64, 64),
        warp=Shape(64, 64, 64),
        instruction=Shape(16, 8, 8),
        stages=2,
    )
    problem, sm_75 = replace(GEMM, b_layout=Layout.COLUMN), arch_named("sm_75")
    assert names(problem, config, sm_75) == {"shared_memory", "registers"}
    smaller = replace(config, threadblock=Shape(128, 128, 64))
    assert names(problem, smaller, sm_75) == set()


@pytest.mark.parametrize(
    ("tile", "warp", "stages", "channels", "spilled_bytes"),
    [
        ((256, 64, 32), (64, 64, 32), 2, 3, 20632),
        ((256, 64, 32), (32, 64, 32), 2, 3, 0),
        ((192, 64, 32), (48, 64, 32), 2, 3, 2060),
        ((192, 64, 32), (48, 32, 32), 2, 3, 0),
        ((160, 64, 32), (80, 32, 32), 2, 3, 1352),
        ((128, 64, 32), (32, 64, 32), 2, 3, 0),
        ((96, 64, 32), (48, 32, 32), 2, 3, 0),
        ((256, 64, 32), (64, 64, 32), 3, 6, 1024),
    ],
)
def test_convolutions_of_narrow_pixels_that_spill_are_refused(
    tile, warp, stages, channels, spilled_bytes
):
    # The bytes are nvcc 13.0's, for sm_90a.
    config = Cutlass2Config(
        threadblock=Shape(*tile), warp=Shape(*warp), instruction=Shape(16, 8, 16), stages=stages
    )
    first = Conv2d(n=32, h=224, w=224, c=channels, k=48, r=3, s=3)
    found = names(first, config, arch_named("sm_80"))
    assert found == ({"registers"} if spilled_bytes else set())
    wide = replace(first, c=64)
    assert names(wide, config, arch_named("sm_80")) == set()


def test_small_problems_get_small_threadblocks_and_deep_ones_slices():
    small = enumerate_configs(Gemm(m=16, n=64, k=8192), SM80)
    assert {config.threadblock.m for config in small} == {16, 32}
    assert max(config.threadblock.n for config in small) == 64
    assert max(config.split_k for config in small) > 4
    wide = enumerate_configs(Gemm(m=8192, n=8192, k=8192), SM80)
    assert {config.split_k for config in wide} == {1}
    assert {config.swizzle for config in wide} == {1, 2, 4, 8}


def test_no_legal_config_names_problem_arch_and_rules():
    assert enumerate_configs(LARGE, SM80) == ()
    with pytest.raises(NoLegalConfigError) as error:
        candidates(Workload.of(LARGE), SM80)
    text = str(error.value)
    assert "Conv2d(n=4" in text
    assert "sm_80" in text
    assert "index_overflow" in text
    assert "32-bit byte offsets" in text


def test_what_needs_another_kernel_is_rejected_with_the_reason():
    family = FAMILIES.named("cutlass2")
    assert family.rejects(Workload.of(GEMM), SM80) is None
    before = Workload(layers=(Layer(problem=GEMM, prologue=EPILOGUES["columns"]),))
    assert "nothing can be done to it before the product" in family.rejects(before, SM80)
    two = Workload(layers=(Layer(problem=GEMM), Layer(problem=GEMM)))
    assert "not 2 back to back" in family.rejects(two, SM80)
    with pytest.raises(NoLegalConfigError, match=r"column0.* -> Gemm.*cutlass2: cp.async brings A"):
        candidates(before, SM80)


def test_problem_sizes_swizzle_and_slices_are_no_part_of_a_kernel():
    one = kernel_spec(Workload.of(GEMM), GOOD, "sm_80")
    assert one.config == GOOD
    launched = replace(GOOD, swizzle=2, split_k=4)
    small = Workload.of(Gemm(m=8, n=64, k=4096))
    assert kernel_spec(small, launched, "sm_80") == one
    assert launched.kernel == GOOD
    sizes = launch(small, launched).sizes
    assert {name: sizes[name] for name in ("m", "n", "k", "swizzle", "split_k")} == {
        "m": 8, "n": 64, "k": 4096, "swizzle": 2, "split_k": 4
    }  # fmt: skip


def test_a_configuration_names_what_its_launch_has():
    assert str(GOOD) == "128x128x32_64x64_s3"
    assert str(replace(GOOD, swizzle=2, split_k=4)) == "128x128x32_64x64_s3_z2_split4"
