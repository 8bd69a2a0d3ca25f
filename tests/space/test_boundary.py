"""Boundary problems are computed by the very same kernel, and have edges where it goes wrong."""

from __future__ import annotations

import pytest

from boltgen.arch import ARCHES, Arch
from boltgen.ir.chain import ChainLayer, Conv2dChain, GemmChain, implicit_gemm
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.epilogue import Epilogue
from boltgen.ir.problem import BatchedGemm, Conv2d, Gemm, Problem
from boltgen.space.b2b_enumerate import enumerate_chain_configs
from boltgen.space.b2b_kernel import chain_kernel_spec
from boltgen.space.b2b_legality import chain_violations
from boltgen.space.boundary import boundary_problems
from boltgen.space.enumerate import enumerate_configs
from boltgen.space.kernel import execution_problem, kernel_spec
from boltgen.space.legality import violations
from tests.cases import all_cases
from tests.chain_cases import all_chain_cases

# Configurations of a problem differ little from the next: so many are passed over.
_EVERY = 11

PROBLEMS = (
    Gemm(m=512, n=512, k=2048),
    Gemm(m=32, n=1000, k=2048, b_layout=Layout.COLUMN),
    Gemm(m=7, n=33, k=100, out_dtype=DType.F32),
    Gemm(m=1, n=1, k=1),
    BatchedGemm(batch=12, m=128, n=128, k=64, b_layout=Layout.COLUMN),
    BatchedGemm(batch=2, m=77, n=30, k=50, a_batched=False),
    Conv2d(n=32, h=56, w=56, c=64, k=64, r=3, s=3, padding=(1, 1, 1, 1)),
    Conv2d(n=32, h=224, w=224, c=4, k=64, r=7, s=7, stride=(2, 2), padding=(3, 3, 3, 3)),
    Conv2d(n=1, h=7, w=7, c=512, k=512, r=3, s=3, padding=(1, 1, 1, 1)),
    Conv2d(n=1, h=7, w=9, c=46, k=31, r=3, s=3, padding=(1, 2, 0, 1), dilation=(2, 3)),
    Conv2d(n=4, h=56, w=56, c=256, k=512, r=1, s=1, stride=(2, 2)),
    Conv2d(n=1, h=64, w=64, c=16, k=8, r=33, s=33, padding=(16, 16, 16, 16)),
)


def gemm_of(problem: Problem) -> Gemm:
    match problem:
        case Conv2d():
            return problem.implicit_gemm
        case BatchedGemm():
            return problem.gemm
        case Gemm():
            return problem


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_every_configuration_has_a_large_and_a_small_problem(problem: Problem, arch: str) -> None:
    row = next(each for each in ARCHES.values() if each.name == arch)
    for config in enumerate_configs(problem, row)[::_EVERY]:
        large, small = boundary_problems(problem, Epilogue(), config, row)
        spec = kernel_spec(problem, Epilogue(), config, arch)
        for each in (large, small):
            assert kernel_spec(each, Epilogue(), config, arch) == spec
            assert not violations(each, config, row)
            if isinstance(problem, Conv2d):
                kept = ("r", "s", "stride", "padding", "dilation")
                assert [getattr(each, n) for n in kept] == [getattr(problem, n) for n in kept]
        gemm, tile = gemm_of(large), config.threadblock
        assert gemm.m > tile.m
        assert gemm.n > tile.n * config.swizzle
        assert gemm.n % tile.n
        fixed = isinstance(large, Conv2d) and large.c == problem.c  # its kernel knows no other
        assert fixed or gemm.k > config.stages * tile.k
        assert fixed or gemm.k % tile.k or gemm.k // tile.k > config.stages
        if isinstance(large, BatchedGemm):
            assert large.batch > 1
        if isinstance(large, Conv2d):
            assert large.n > 1
        assert gemm_of(small).n <= 16 or gemm_of(small).n == gemm_of(problem).n
        # The virtual GPU does 2e10 operations a second.
        assert large.flops + small.flops < 2e9


def test_the_kernels_of_other_tests_have_boundaries() -> None:
    for case in all_cases():
        executed = execution_problem(case.problem)
        if kernel_spec(executed, case.spec.epilogue, case.spec.config, case.spec.arch) != case.spec:
            continue  # a kernel that boltgen does not choose for the problem
        row = arch_of(case.spec.arch)
        for problem in boundary_problems(executed, case.spec.epilogue, case.spec.config, row):
            found = kernel_spec(problem, case.spec.epilogue, case.spec.config, case.spec.arch)
            assert found == case.spec


def arch_of(name: str) -> Arch:
    return next(each for each in ARCHES.values() if each.name == name)


CHAINS = (
    GemmChain(
        layers=(
            ChainLayer(problem=Gemm(m=4096, n=64, k=256), epilogue=Epilogue()),
            ChainLayer(problem=Gemm(m=4096, n=50, k=64), epilogue=Epilogue()),
        )
    ),
    GemmChain(
        layers=(
            ChainLayer(problem=BatchedGemm(batch=8, m=64, n=32, k=30), epilogue=Epilogue()),
            ChainLayer(problem=BatchedGemm(batch=8, m=64, n=16, k=32), epilogue=Epilogue()),
        )
    ),
    Conv2dChain(
        layers=(
            ChainLayer(
                problem=Conv2d(n=8, h=28, w=28, c=16, k=64, r=3, s=3, padding=(1, 1, 1, 1)),
                epilogue=Epilogue(),
            ),
            ChainLayer(problem=Conv2d(n=8, h=28, w=28, c=64, k=24, r=1, s=1), epilogue=Epilogue()),
        )
    ),
)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80"])
@pytest.mark.parametrize("chain", CHAINS, ids=["gemm", "batched", "conv2d"])
def test_every_configuration_of_a_chain_has_both(chain: GemmChain | Conv2dChain, arch: str) -> None:
    row = arch_of(arch)
    for config in enumerate_chain_configs(chain, row)[::_EVERY]:
        large, small = boundary_problems(chain, Epilogue(), config, row)
        for each in (large, small):
            assert isinstance(each, type(chain))
            assert chain_kernel_spec(each, config, arch) == chain_kernel_spec(chain, config, arch)
            assert not chain_violations(each, config, row)
        first = implicit_gemm(large.layers[0])
        assert first.m > config.threadblock_m
        assert first.k > config.layers[0].k * config.layers[0].stages
        columns = [implicit_gemm(layer).n for layer in small.layers]
        assert all(n < tile.n for n, tile in zip(columns, config.layers, strict=True))


def test_the_chains_of_other_tests_have_boundaries() -> None:
    for case in all_chain_cases():
        row = arch_of(case.spec.arch)
        for chain in boundary_problems(case.chain, Epilogue(), case.spec.config, row):
            assert chain_kernel_spec(chain, case.spec.config, case.spec.arch) == case.spec
