"""What families say that a kernel issues, beside what the virtual GPU counts of it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.cases.chains import ChainCase, all_chain_cases
from benchmarks.cases.kernels import KernelCase, all_cases
from benchmarks.harness.chain_launch import ChainLaunch, random_chain_inputs
from benchmarks.harness.kernel_launch import Cuda, KernelLibrary, Launch, random_inputs
from boltgen.arch import arch_named
from boltgen.families.registry import FAMILIES
from boltgen.families.roofline import LDMATRIX_BYTES
from boltgen.ir.kernel import KernelSpec
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from tests.kernels.counting import counted_of

CASES = {case.name: case for case in all_cases()}
# Ragged everywhere, in seven columns of tiles of 64 or more: a group of eight has one too few.
GEMM = Gemm(m=150, n=408, k=264)
CONV = CASES["split-conv2"].problem
CHAINS = all_chain_cases()[:4]


def _case(name: str, *, swizzle: int = 1, split_k: int = 1) -> KernelCase:
    problem = replace(GEMM, b_layout=CASES[name].problem.b_layout)
    return replace(CASES[name], problem=problem, swizzle=swizzle, split_k=split_k)


@pytest.mark.parametrize(
    "case",
    [
        _case("split-gemm2"),
        _case("split-gemm2", swizzle=8),
        _case("split-gemm2", swizzle=4, split_k=3),
        _case("split-gemm_sliced"),
        _case("split-gemm_sm75", swizzle=2),
        replace(CASES["split-conv2"], split_k=1),
        *(
            replace(CASES["split-conv2"], split_k=slices, problem=replace(CONV, c=channels))
            for slices, channels in [(2, 96), (3, 96), (2, 40), (4, 160)]
        ),
    ],
    ids=lambda case: f"{case.name}-{case.swizzle}-{case.split_k}",
)
def test_a_product_issues_what_iscounted_of(
    case: KernelCase,
    cuda: Cuda,
    kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    workload = Workload.of(case.problem, case.epilogue)
    config = replace(case.spec.config, swizzle=case.swizzle, split_k=case.split_k)
    found = FAMILIES.of(config).instructions(workload, config, arch_named(case.spec.arch))
    launch, inputs = Launch(cuda, kernels[case.spec], case), random_inputs(case, rng)
    counted = counted_of(cuda, lambda: launch.run(inputs))
    issued = counted["instructions"]
    assert math.prod(counted["grid"]) == found.threadblocks
    warps = round(found.threadblocks * (1.0 - found.idle)) * config.warps
    assert issued["mma"] == warps * found.products
    # The first fragments are loaded before the first step, and the last step loads some in vain.
    warp, depth = config.warp, config.instruction.k
    first = (warp.m + warp.n) * depth * case.spec.traits.in_dtype.size_bytes / LDMATRIX_BYTES
    assert issued["matrix_load"] == warps * (found.shared_loads + first)
    if issued["async_copy"] and case.problem.is_matrix:
        # Stages are filled before the first step, and beyond K they are filled with zeros. Steps
        # are committed and waited for. Source: cutlass/gemm/threadblock/mma_multistage.h.
        ahead = config.stages - 1
        copies = found.copies * (found.steps + ahead) / found.steps
        committed = ahead + 1 + 2 * found.steps + 2
        assert issued["async_copy"] == warps * (copies + committed)


@pytest.mark.parametrize("case", CHAINS, ids=lambda case: case.name)
def test_a_chain_issues_the_products_that_arecounted_of(
    case: ChainCase,
    cuda: Cuda,
    chain_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    config = case.spec.config
    found = FAMILIES.of(config).instructions(case.chain, config, arch_named(case.spec.arch))
    launch, inputs = (
        ChainLaunch(cuda, chain_kernels[case.spec], case),
        random_chain_inputs(case, rng),
    )
    counted = counted_of(cuda, lambda: launch.run(inputs))
    assert math.prod(counted["grid"]) == found.threadblocks
    assert counted["instructions"]["mma"] == found.threadblocks * config.warps * found.products
