"""Which items section check has, and which kernels and programs they need.

Arrow: as `wanted`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.gpu import shapes
from benchmarks.gpu.items import Check, Choice, Item, Product, Sanitized, Suspicion, key_of
from boltgen.arch import Arch
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.space.b2b_kernel import AnyKernelSpec
from boltgen.space.config import Cutlass2Config, Shape
from tests.cases import KernelCase, all_cases
from tests.chain_cases import ChainCase, all_chain_cases

if TYPE_CHECKING:
    from benchmarks.gpu.wanted import Wanted

_SANITIZED_EVERY = 12
_FIRST_ARCHES = ("sm_75", "sm_80")
# For people: these programs' tiles are in their sources.
_ANY_CONFIG = Cutlass2Config(
    threadblock=Shape(128, 128, 32), warp=Shape(32, 128, 32), instruction=Shape(16, 8, 16), stages=3
)


def checks(wanted: Wanted, cases: Iterable[KernelCase]) -> Iterator[Item]:
    """Section check: kernels of the test suite, for `wanted.arch`."""
    for case in cases:
        spec = replace(case.spec, arch=wanted.arch.name)
        config = replace(spec.config, swizzle=case.swizzle, split_k=case.split_k)
        choice = Choice(config=config, kernel=wanted.want(spec), predicted_us=0.0)
        product = Product(problem=case.problem, epilogue=spec.epilogue, choices=(choice,))
        yield Check(section="check", name=case.name, product=product)


def chain_checks(wanted: Wanted, cases: Iterable[ChainCase]) -> Iterator[Item]:
    """Section check: back-to-back kernels of the test suite, for `wanted.arch`."""
    for case in cases:
        spec = replace(case.spec, arch=wanted.arch.name)
        choice = Choice(config=spec.config, kernel=wanted.want(spec), predicted_us=0.0)
        product = Product(problem=case.chain, epilogue=ElementwiseGraph(), choices=(choice,))
        yield Check(section="check", name=f"b2b-{case.name}", product=product)


def suspicions(wanted: Wanted) -> Iterator[Item]:
    """Programs of CUTLASS's own that were seen to be wrong where C++ or PTX was executed."""
    relu = shapes.relu()
    wide, deep = shapes.gemm(256, 256, 64), shapes.gemm(256, 128, 256)
    half = replace(shapes.gemm(128, 64, 64), acc_dtype=DType.F16)
    wide_warp = "FP32 accumulators, FP16 output, warp tiles of 128 columns: wrong results"
    split_k = "serial split-K with LinearCombinationRelu: NaN"
    b2b = "example 13 with more columns than its tile: runs, and is wrong"
    table = (
        ("wide_warp", "wide_warp", wide_warp, False, wide, ElementwiseGraph(), 1),
        ("wide_warp", "narrow_warp", "the same with 64 columns", True, wide, ElementwiseGraph(), 1),
        ("split_k_relu", "split_k_relu", split_k, False, deep, relu, 4),
        ("split_k_relu", "split_k_relu", "the same without split-K", True, deep, relu, 1),
        ("b2b", "b2b", b2b, False, replace(half, n=128), relu, 1),
        ("b2b", "b2b_unasked", f"{b2b}, unasked", False, replace(half, n=128), relu, 1),
        ("b2b", "b2b", "the same within its tile", True, half, relu, 1),
    )
    for source, entry, text, is_control, problem, epilogue, slices in table:
        config = replace(_ANY_CONFIG, split_k=slices)
        symbol = wanted.program(f"{source}.cu", f"suspicion_{entry}")
        choice = Choice(config=config, kernel=symbol, predicted_us=0.0)
        yield Suspicion(
            section="check",
            name=f"cutlass-{entry}{'-control' if is_control else ''}",
            suspicion=text,
            is_control=is_control,
            product=Product(problem=problem, epilogue=epilogue, choices=(choice,)),
        )


def sanitized(found: Sequence[Item]) -> Iterator[Item]:
    """A sample of the checks under each tool."""
    keys = tuple(key_of(item) for item in found if isinstance(item, Check))[::_SANITIZED_EVERY]
    for tool in ("memcheck", "racecheck"):
        yield Sanitized(section="check", name=tool, tool=tool, keys=keys)


def cases_for(arch: Arch) -> list[KernelCase]:
    """The test suite's kernels that run on `arch`, each once with each problem."""
    unique = {
        (replace(case.spec, arch=arch.name), case.problem, case.swizzle, case.split_k): case
        for case in all_cases()
        if _runs_on(case.spec, arch)
    }
    return list(unique.values())


def chain_cases_for(arch: Arch) -> list[ChainCase]:
    """The test suite's back-to-back kernels that run on `arch`, each once with each chain."""
    unique = {
        (replace(case.spec, arch=arch.name), case.chain): case
        for case in all_chain_cases()
        if _runs_on(case.spec, arch)
    }
    return list(unique.values())


def _runs_on(spec: AnyKernelSpec, arch: Arch) -> bool:
    """Cases are of the first arch of a generation, but for those that try a later one."""
    same_generation = spec.config.instruction == Shape(*arch.mma_shapes[0])
    return same_generation and spec.arch in (arch.name, *_FIRST_ARCHES)
