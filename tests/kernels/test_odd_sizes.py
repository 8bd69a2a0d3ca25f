"""Sizes that no tile divides: kernels of alignment 1 take them all, also under every check."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.cases.chains import all_chain_cases
from benchmarks.cases.kernels import KernelCase, all_cases
from benchmarks.harness.chain_launch import judge_chain, random_chain_inputs
from benchmarks.harness.kernel_launch import Cuda, KernelLibrary, Launch, random_inputs
from boltgen.ir.kernel import KernelSpec
from boltgen.problems import reference
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Workload

CASES = {case.name: case for case in all_cases()}
GEMM = CASES["split-gemm_ragged"]
CONV = CASES["tiny-conv-2"]
BATCHED = CASES["sm80_small-batched-relu-a21-f32_f16"]
CHAIN = next(case for case in all_chain_cases() if case.name == "rf-ragged")

ODD = st.sampled_from((1, 2, 3, 5, 7, 13, 31, 67, 251, 2039))
FEW = st.sampled_from((1, 2, 3, 5, 7, 13))
# What the oracle computes in some milliseconds.
MOST_FLOPS = 8_000_000
SEEDS = st.integers(0, 2**32 - 1)
# Every example leaves the checks on, and fails at the first finding.
some = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

Kernels = dict[KernelSpec, KernelLibrary]


@st.composite
def gemms(draw: st.DrawFn) -> Gemm:
    assert isinstance(GEMM.problem, Gemm)
    problem = replace(GEMM.problem, m=draw(ODD), n=draw(ODD), k=draw(ODD))
    assume(problem.flops <= MOST_FLOPS)
    return problem


@st.composite
def batched_gemms(draw: st.DrawFn) -> Gemm:
    assert isinstance(BATCHED.problem, Gemm)
    # Two elements of A's rows are read at once.
    return replace(BATCHED.problem, batch=draw(FEW), m=draw(ODD), n=draw(FEW), k=2 * draw(FEW))


@st.composite
def convolutions(draw: st.DrawFn) -> Conv2d:
    assert isinstance(CONV.problem, Conv2d)
    r, (n, h, w, c) = draw(st.sampled_from((1, 3, 5))), (draw(FEW) for _ in range(4))
    problem = replace(
        CONV.problem, n=n, h=h, w=w, c=c, k=draw(ODD), r=r, s=1, padding=(r // 2, 0, r // 2, 0)
    )
    assume(problem.flops <= MOST_FLOPS)
    return problem


def _check(
    cuda: Cuda,
    kernels: Kernels,
    like: KernelCase,
    problem: Problem,
    seed: int,
) -> None:
    case = replace(like, problem=problem)
    inputs = random_inputs(case, np.random.default_rng(seed))
    actual = Launch(cuda, kernels[case.spec], case).run(inputs)
    graph = (problem, case.epilogue, inputs.a, inputs.b, inputs.operands)
    agreement = reference.compare(actual, reference.run(*graph), reference.error_bound(*graph))
    assert agreement.within, f"{problem}: {agreement}"
    assert not cuda.vgpu.findings()


@some
@given(gemms(), SEEDS)
def test_products(checking: Cuda, kernels: Kernels, problem: Gemm, seed: int) -> None:
    _check(checking, kernels, GEMM, problem, seed)


@some
@given(batched_gemms(), SEEDS)
def test_batched_products(checking: Cuda, kernels: Kernels, problem: Gemm, seed: int) -> None:
    _check(checking, kernels, BATCHED, problem, seed)


@some
@given(convolutions(), SEEDS)
def test_convolutions(checking: Cuda, kernels: Kernels, problem: Conv2d, seed: int) -> None:
    _check(checking, kernels, CONV, problem, seed)


@some
@given(ODD, SEEDS)
def test_chains(
    checking: Cuda, chain_kernels: dict[KernelSpec, KernelLibrary], m: int, seed: int
) -> None:
    assert isinstance(CHAIN.chain, Workload)
    layers = tuple(
        replace(layer, problem=replace(layer.problem, m=m)) for layer in CHAIN.chain.layers
    )
    case = replace(CHAIN, chain=replace(CHAIN.chain, layers=layers))
    inputs = random_chain_inputs(case, np.random.default_rng(seed))
    agreement = judge_chain(checking, chain_kernels[case.spec], case, inputs)
    assert agreement.within, f"m={m}: {agreement}"
    assert not checking.vgpu.findings()
