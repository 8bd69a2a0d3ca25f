"""Legality: each rule is broken on purpose, and holds for everything that is enumerated."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boltgen.arch import ARCHES, arch_named
from boltgen.errors import NoLegalConfigError
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.problem import BatchedGemm, Conv2d, Gemm
from boltgen.space.config import Cutlass2Config, Shape
from boltgen.space.enumerate import enumerate_configs, kernel_configs
from boltgen.space.kernel import execution_problem, kernel_spec
from boltgen.space.legality import kernel_traits, violations
from boltgen.space.resources import registers_per_thread, shared_memory_bytes

SM80 = arch_named("sm_80")
GEMM = Gemm(m=1024, n=1024, k=1024)
GOOD = Cutlass2Config(
    threadblock=Shape(128, 128, 32),
    warp=Shape(64, 64, 32),
    instruction=Shape(16, 8, 16),
    stages=3,
)
LARGE = Conv2d(n=1024, h=512, w=512, c=8, k=8, r=1, s=1, stride=(2, 2))


def names(problem, config, arch=SM80):
    return {violation.name for violation in violations(problem, config, arch)}


@pytest.mark.parametrize(
    ("problem", "change", "rule"),
    [
        (GEMM, {"instruction": Shape(16, 8, 32)}, "instruction"),
        (GEMM, {"warp": Shape(48, 64, 32)}, "warp_divides_threadblock"),
        (GEMM, {"warp": Shape(8, 64, 32)}, "instruction_divides_warp"),
        (GEMM, {"threadblock": Shape(128, 128, 16), "warp": Shape(64, 64, 16)}, "threadblock_k"),
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
        (BatchedGemm(batch=2, m=64, n=64, k=1024), {"split_k": 2}, "split_k_batched"),
        (LARGE, {}, "index_overflow"),
        (Gemm(m=2**31 - 1, n=8, k=8), {}, "index_overflow"),
        (Gemm(m=8, n=2**24, k=8), {"threadblock": Shape(128, 64, 32)}, "grid"),
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
        Gemm,
        m=st.integers(1, 5000),
        n=st.integers(1, 5000),
        k=st.integers(1, 5000),
        b_layout=st.sampled_from(Layout),
        acc_dtype=st.sampled_from(DType),
        out_dtype=st.sampled_from(DType),
    ),
    st.builds(
        BatchedGemm,
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
        assert shared_memory_bytes(config, problem.acc_dtype) <= arch.shared_memory_per_cta_bytes
        assert registers_per_thread(config, problem.acc_dtype) <= 255
        assert config.warps in (1, 2, 4, 8)
    assert configs == enumerate_configs(problem, arch)


@pytest.mark.parametrize("acc", DType)
@pytest.mark.parametrize("name", ARCHES)
def test_tens_of_kernels_per_arch(name, acc):
    traits = kernel_traits(Gemm(m=4096, n=4096, k=4096, acc_dtype=acc))
    assert 30 <= len(kernel_configs(traits, arch_named(name))) <= 100


def test_small_problems_get_small_threadblocks_and_deep_ones_slices():
    small = enumerate_configs(Gemm(m=16, n=64, k=8192), SM80)
    assert max(config.threadblock.m for config in small) == 32
    assert max(config.threadblock.n for config in small) == 64
    assert max(config.split_k for config in small) > 4
    wide = enumerate_configs(Gemm(m=8192, n=8192, k=8192), SM80)
    assert {config.split_k for config in wide} == {1}
    assert {config.swizzle for config in wide} == {1, 2, 4, 8}


def test_no_legal_config_names_problem_arch_and_rules():
    with pytest.raises(NoLegalConfigError) as error:
        enumerate_configs(LARGE, SM80)
    text = str(error.value)
    assert "Conv2d(n=1024" in text
    assert "sm_80" in text
    assert "index_overflow" in text
    assert "32-bit byte offsets" in text


def test_a_pointwise_convolution_runs_as_a_gemm():
    pointwise = Conv2d(n=2, h=4, w=4, c=8, k=16, r=1, s=1)
    assert execution_problem(pointwise) == Gemm(m=32, n=16, k=8, b_layout=Layout.COLUMN)
    strided = replace(pointwise, stride=(2, 2))
    assert execution_problem(strided) is strided


def test_problem_sizes_swizzle_and_slices_are_no_part_of_a_kernel():
    from boltgen.ir.elementwise import ElementwiseGraph

    one = kernel_spec(GEMM, ElementwiseGraph(), GOOD, "sm_80")
    launched = replace(GOOD, swizzle=2, split_k=4)
    assert kernel_spec(Gemm(m=8, n=64, k=4096), ElementwiseGraph(), launched, "sm_80") == one
    assert launched.kernel == GOOD
    for change in ({"swizzle": 2}, {"split_k": 4}):
        with pytest.raises(AssertionError, match=f"is a launch's; its kernel is {GOOD}"):
            replace(one, config=replace(GOOD, **change))


def test_a_configuration_names_what_its_launch_has():
    assert str(GOOD) == "128x128x32_64x64_s3"
    assert str(replace(GOOD, swizzle=2, split_k=4)) == "128x128x32_64x64_s3_z2_split4"
