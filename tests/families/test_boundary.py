"""Boundary workloads are computed by the very same kernel, and have edges where it goes wrong."""

from __future__ import annotations

import pytest

from benchmarks.cases.chains import all_chain_cases
from benchmarks.cases.kernels import all_cases
from boltgen.arch import ARCHES, Arch
from boltgen.families.cutlass2.candidates import enumerate_configs
from boltgen.families.family import Config
from boltgen.families.registry import boundaries, candidates, kernel_spec, launch, violations
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import Accumulator, ElementwiseGraph, LoadKind, Reduction, Store
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.layout_transform.problem import (
    NHWC_F16,
    Form,
    ImageLayout,
    LayoutTransform,
    Move,
)
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Layer, Workload

# Configurations of a problem differ little from the next: so many are passed over.
_EVERY = 11

PROBLEMS = (
    Gemm(m=512, n=512, k=2048),
    Gemm(m=32, n=1000, k=2048, b_layout=Layout.COLUMN),
    Gemm(m=7, n=33, k=100, out_dtype=DType.F32),
    Gemm(m=1, n=1, k=1),
    Gemm(batch=12, m=128, n=128, k=64, b_layout=Layout.COLUMN),
    Gemm(batch=2, m=77, n=30, k=50, a_batched=False),
    Conv2d(n=32, h=56, w=56, c=64, k=64, r=3, s=3, padding=(1, 1, 1, 1)),
    Conv2d(n=32, h=224, w=224, c=4, k=64, r=7, s=7, stride=(2, 2), padding=(3, 3, 3, 3)),
    Conv2d(n=1, h=7, w=7, c=512, k=512, r=3, s=3, padding=(1, 1, 1, 1)),
    Conv2d(n=1, h=7, w=9, c=46, k=31, r=3, s=3, padding=(1, 2, 0, 1), dilation=(2, 3)),
    Conv2d(n=4, h=56, w=56, c=256, k=512, r=1, s=1, stride=(2, 2)),
    Conv2d(n=1, h=64, w=64, c=16, k=8, r=33, s=33, padding=(16, 16, 16, 16)),
)


def both(workload: Workload, config: Config, arch: Arch) -> tuple[Workload, Workload]:
    """The large and the small workload, which are legal and of the same kernel."""
    large, small = boundaries(workload, config, arch)
    spec = kernel_spec(workload, config, arch.name)
    for each in (large, small):
        assert kernel_spec(each, config, arch.name) == spec
        assert not violations(each, config, arch)
    return large, small


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_every_configuration_has_a_large_and_a_small_problem(problem: Problem, arch: str) -> None:
    row = arch_of(arch)
    for config in enumerate_configs(problem, row)[::_EVERY]:
        large, small = (each.single.problem for each in both(Workload.of(problem), config, row))
        if isinstance(problem, Conv2d):
            kept = ("r", "s", "stride", "padding", "dilation")
            for each in (large, small):
                assert [getattr(each, n) for n in kept] == [getattr(problem, n) for n in kept]
        gemm, tile = large.gemm, config.threadblock
        assert gemm.m > tile.m
        assert gemm.n > tile.n * config.swizzle
        assert gemm.n % tile.n
        # A kernel of fixed channels knows no others.
        fixed = isinstance(problem, Conv2d) and large.a_shape[-1] == problem.c
        assert fixed or gemm.k > config.stages * tile.k
        assert fixed or gemm.k % tile.k or gemm.k // tile.k > config.stages
        assert (large.batch > 1) == (problem.batch > 1)
        if isinstance(large, Conv2d):
            assert large.n > 1
        assert small.gemm.n <= 16 or small.gemm.n == problem.gemm.n
        # The virtual GPU does 2e10 operations a second.
        assert large.flops + small.flops < 2e9


def test_the_kernels_of_other_tests_have_boundaries() -> None:
    compared = 0
    for case in all_cases():
        workload, config = Workload.of(case.problem, case.spec.traits.epilogue), case.spec.config
        if kernel_spec(workload, config, case.spec.arch) != case.spec:
            continue  # a kernel that boltgen does not choose for the problem
        for each in boundaries(workload, config, arch_of(case.spec.arch)):
            assert kernel_spec(each, config, case.spec.arch) == case.spec
            compared += 1
    assert compared > len(all_cases())


# Convolutions stay convolutions although they are pointwise, where an epilogue reduces each image.
REDUCED = (
    Conv2d(n=1, h=16, w=16, c=64, k=96, r=1, s=1),
    Conv2d(n=4, h=7, w=7, c=24, k=48, r=1, s=1),
    Conv2d(n=2, h=14, w=14, c=32, k=32, r=3, s=3, padding=(1, 1, 1, 1)),
    Gemm(m=64, n=96, k=128),
    Gemm(batch=3, m=64, n=96, k=128, b_layout=Layout.COLUMN),
)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
@pytest.mark.parametrize("kind", [LoadKind.ROW, LoadKind.COLUMN])
@pytest.mark.parametrize("problem", REDUCED, ids=str)
def test_boundaries_of_a_reducing_epilogue_are_the_kernels_own(
    problem: Problem, kind: LoadKind, arch: str
) -> None:
    graph = ElementwiseGraph(
        nodes=(Accumulator(),),
        stores=(Store(x=0), Store(x=0, kind=kind, dtype=DType.F32, reduction=Reduction.SUM)),
    )
    workload, row = Workload.of(problem, graph), arch_of(arch)
    legal = candidates(workload, row)
    for config in {each.family: each for each in legal}.values():
        spec = kernel_spec(workload, config, arch)
        for each in boundaries(workload, config, row):
            assert kernel_spec(each, config, arch) == spec, (config.family, each.describe())
            assert launch(each, config).struct == launch(workload, config).struct


def arch_of(name: str) -> Arch:
    return next(each for each in ARCHES.values() if each.name == name)


CHAINS = (
    (Gemm(m=4096, n=64, k=256), Gemm(m=4096, n=50, k=64)),
    (Gemm(batch=8, m=64, n=32, k=30), Gemm(batch=8, m=64, n=16, k=32)),
    (
        Conv2d(n=8, h=28, w=28, c=16, k=64, r=3, s=3, padding=(1, 1, 1, 1)),
        Conv2d(n=8, h=28, w=28, c=64, k=24, r=1, s=1),
    ),
)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80"])
@pytest.mark.parametrize("problems", CHAINS, ids=["gemm", "batched", "conv2d"])
def test_every_configuration_of_a_chain_has_both(problems: tuple[Problem, ...], arch: str) -> None:
    row = arch_of(arch)
    chain = Workload(layers=tuple(Layer(problem=problem) for problem in problems))
    for config in candidates(chain, row)[::_EVERY]:
        large, small = both(chain, config, row)
        for each in (large, small):
            assert type(each.first.problem) is type(chain.first.problem)
            assert (each.batch > 1) == (chain.batch > 1)
        first = large.first.problem.gemm
        assert first.m > config.threadblock_m
        assert first.k > config.layers[0].k * config.layers[0].stages
        columns = [layer.problem.gemm.n for layer in small.layers]
        assert all(n < tile.n for n, tile in zip(columns, config.layers, strict=True))


def test_the_chains_of_other_tests_have_boundaries() -> None:
    for case in all_chain_cases():
        for chain in boundaries(case.chain, case.spec.config, arch_of(case.spec.arch)):
            assert kernel_spec(chain, case.spec.config, case.spec.arch) == case.spec


@pytest.mark.parametrize(("source", "target"), [(3, 4), (3, 8), (46, 48), (2048, 2048), (9, 1)])
@pytest.mark.parametrize("pixels", [1, 49, 50176])
def test_a_layout_transform_keeps_its_vectors(source: int, target: int, pixels: int) -> None:
    problem = LayoutTransform(
        move=Move(source=Form(layout=ImageLayout.NCHW, dtype=DType.F32), target=NHWC_F16),
        images=8,
        pixels=pixels,
        source_channels=source,
        target_channels=target,
    )
    (config,) = candidates(Workload.of(problem), arch_of("sm_80"))
    large, small = both(Workload.of(problem), config, arch_of("sm_80"))
    for each in (large.single.problem.sizes, small.single.problem.sizes):
        for name in ("pixels", "source_c", "target_c"):
            assert each[name] % 8 == problem.sizes[name] % 8
        assert each["target_c"] - each["source_c"] == target - source
    assert large.single.problem.sizes["n"] > 1
    assert large.single.problem.sizes["pixels"] > 256
    assert large.single.problem.a_bytes < 2e6
