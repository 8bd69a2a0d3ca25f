"""A kernel with every swizzle: the same bits, and each tile of the output computed once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

from benchmarks.cases.kernels import BLACKWELL, KernelCase, all_cases
from benchmarks.harness.kernel_launch import (
    Array,
    Cuda,
    Inputs,
    KernelLibrary,
    Launch,
    random_inputs,
)
from boltgen.families.mma_sync.candidates import SWIZZLES
from boltgen.families.mma_sync.traits import ConvIterator
from boltgen.ir.dtypes import Layout
from boltgen.ir.kernel import KernelSpec
from boltgen.problems import reference
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem

CASES = {case.name: case for case in all_cases()}

# Seven columns of tiles of 64, or six and seven of 128, the last one ragged: a group of eight has
# one too few, and two groups of four. The rows are ragged too.
GEMM = Gemm(m=150, n=408, k=264, b_layout=Layout.COLUMN)
CONV = Conv2d(n=1, h=9, w=8, c=72, k=408, r=3, s=3, padding=(1, 1, 1, 1))


def _like(name: str, problem: Problem, split_k: int = 1) -> KernelCase:
    """The kernel of a case, with other sizes."""
    return replace(CASES[name], problem=problem, split_k=split_k)


def _wider(name: str, columns: int, split_k: int = 1) -> KernelCase:
    """A case with that many columns of the output."""
    problem = CASES[name].problem
    return _like(name, problem.resized(problem.a_shape[-1], columns), split_k)


TRIED = [
    _like("split-gemm2", GEMM),
    _like("split-gemm2", GEMM, split_k=3),
    _like("split-gemm_sliced", GEMM, split_k=2),
    _like("split-gemm_sm75", GEMM),
    _like("split-gemm_sm75", GEMM, split_k=3),
    _like("split-gemm_ragged", Gemm(m=70, n=771, k=333), split_k=5),
    _wider("batch-ab", 408),
    _like("split-conv2", CONV),
    _like("split-conv2", CONV, split_k=2),
    _like("split-conv_sm75", CONV),
    _like("split-conv_sm75", CONV, split_k=3),
    _wider("sm80_small-conv_analytic-bias_gelu_erf-a42-f32_f32", 410),
    _wider("first-resnet", 408),
    _wider("first-repvgg", 408),
    _wider("first-resnet_sm75", 408),
    *(
        _wider(f"{arch}-{kind}", 776)
        for arch in ("sm_86", "sm_89", "sm_90", "sm_90a", *BLACKWELL)
        for kind in ("gemm", "conv")
    ),
]


@dataclass(frozen=True, slots=True)
class _Done:
    """What a launch wrote, with which grid, and how many bytes it stored."""

    output: Array
    grid: tuple[int, int, int]
    stored_bytes: int


@pytest.fixture
def counting(cuda: Cuda) -> Iterator[Cuda]:
    cuda.vgpu.set_option("counters", "on")
    yield cuda
    cuda.vgpu.set_option("counters", "off")


def _run(
    cuda: Cuda, kernels: dict[KernelSpec, KernelLibrary], case: KernelCase, inputs: Inputs
) -> _Done:
    cuda.vgpu.clear_launches()
    output = Launch(cuda, kernels[case.spec], case).run(inputs)
    (launch,), (counted,) = cuda.vgpu.launches(), cuda.vgpu.counters()
    return _Done(output, launch.grid, counted["global_store"]["bytes"])


def _tiles(case: KernelCase) -> tuple[int, int]:
    """Rows and columns of threadblock tiles."""
    gemm, tile = case.problem.gemm, case.spec.config.threadblock
    return -(-gemm.m // tile.m), -(-gemm.n // tile.n)


@pytest.mark.parametrize(
    "case", TRIED, ids=[f"{case.name}-{case.split_k}-{n}" for n, case in enumerate(TRIED)]
)
def test_no_swizzle_changes_a_result(
    case: KernelCase,
    counting: Cuda,
    kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    rows, columns = _tiles(case)
    assert rows > 1
    assert columns > 5
    inputs = random_inputs(case, rng)
    done = {
        swizzle: _run(counting, kernels, replace(case, swizzle=swizzle), inputs)
        for swizzle in SWIZZLES
    }
    assert len({each.grid for each in done.values()}) == len(SWIZZLES)
    # Outputs are poison before: what is right was written, and no more was stored than is there.
    plain = done[1]
    graph = (case.problem, case.epilogue, inputs.a, inputs.b, inputs.operands)
    agreement = reference.compare(
        plain.output, reference.run(*graph), reference.error_bound(*graph)
    )
    assert agreement.within, agreement
    if case.split_k == 1:
        assert plain.stored_bytes == plain.output.nbytes
    for swizzle, each in done.items():
        assert each.output.tobytes() == plain.output.tobytes(), swizzle
        assert each.stored_bytes == plain.stored_bytes, swizzle


def _log_tile(swizzle: int, columns: int) -> int:
    """log2 of how many columns go together.

    Source: cutlass/gemm/threadblock/threadblock_swizzle.h, get_log_tile.
    """
    most = 3 if columns >= 6 else 2 if columns >= 3 else 1 if columns == 2 else 0
    return min(most, swizzle.bit_length() - 1)


@pytest.mark.parametrize("name", ["split-gemm2", "split-conv2"])
def test_the_grid_is_that_of_cutlass(
    name: str,
    counting: Cuda,
    kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    for columns, split_k in itertools.product(range(1, 10), (1, 2)):
        case = _wider(name, 64 * columns - 8, split_k)
        rows, found = _tiles(case)
        assert found == columns
        inputs = random_inputs(case, rng)
        outputs = set()
        for swizzle in SWIZZLES:
            done = _run(counting, kernels, replace(case, swizzle=swizzle), inputs)
            group = 1 << _log_tile(swizzle, columns)
            assert done.grid == (rows * group, -(-columns // group), split_k)
            outputs.add(done.output.tobytes())
        assert len(outputs) == 1
        assert not np.isnan(done.output).any()


def test_every_kind_and_arch_is_tried() -> None:
    def kinds(cases: Iterable[KernelCase]) -> set[tuple[str, str]]:
        return {(case.problem.kind, case.spec.arch) for case in cases}

    def iterators(cases: Iterable[KernelCase]) -> set[ConvIterator | None]:
        return {case.spec.traits.conv_iterator for case in cases}

    assert kinds(TRIED) == kinds(CASES.values())
    assert iterators(TRIED) == iterators(CASES.values())
