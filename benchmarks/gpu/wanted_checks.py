"""Which items section check has, and which kernels and programs they need.

Arrow: as `wanted`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarks.cases import attention_sm90 as attention_sm90_cases
from benchmarks.cases import chains_sm90 as chain_sm90_cases
from benchmarks.cases.chains import ChainCase, all_chain_cases
from benchmarks.cases.kernels import KernelCase, all_cases
from benchmarks.cases.separable import same, separable
from benchmarks.cases.wgmma import launches
from benchmarks.gpu import shapes
from benchmarks.gpu.items import (
    Check,
    Choice,
    Item,
    Product,
    Sanitized,
    Suspicion,
    key_of,
    needs_of,
)
from boltgen.arch import Arch, device_for
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.family import Config
from boltgen.families.registry import candidates, kernel_spec, order, predict
from boltgen.families.space import Shape
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.recurrence import Cell
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.grouped.problem import GroupedGemm
from boltgen.problems.norm.problem import Norm, NormFunction
from boltgen.problems.recurrent.problem import Recurrent
from boltgen.problems.workload import Layer, Workload

if TYPE_CHECKING:
    from benchmarks.gpu.wanted import Wanted

_FIRST_ARCHES = ("sm_75", "sm_80")
# For people: these programs' tiles are in their sources.
_ANY_CONFIG = Cutlass2Config(
    threadblock=Shape(128, 128, 32), warp=Shape(32, 128, 32), instruction=Shape(16, 8, 16), stages=3
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kernel of the test suite, and a launch of it: `config` has that one's arguments."""

    name: str
    spec: KernelSpec
    workload: Workload
    config: Config


def single_case(case: KernelCase) -> Case:
    """A case of one layer."""
    config = replace(case.spec.config, swizzle=case.swizzle, split_k=case.split_k)
    workload = Workload.of(case.problem, case.epilogue)
    return Case(name=case.name, spec=case.spec, workload=workload, config=config)


def fused_case(case: ChainCase) -> Case:
    """A case of several layers."""
    name = f"b2b-{case.name}"
    return Case(name=name, spec=case.spec, workload=case.chain, config=case.spec.config)


def checks(wanted: Wanted, cases: Iterable[Case]) -> Iterator[Item]:
    """Section check: kernels of the test suite, for `wanted.arch`."""
    for case in cases:
        kernel = wanted.want(replace(case.spec, arch=wanted.arch.name))
        choice = Choice(config=case.config, kernel=kernel, predicted_us=0.0)
        product = Product(workload=case.workload, choices=(choice,))
        yield Check(section="check", name=case.name, product=product)


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
            product=Product(workload=Workload.of(problem, epilogue), choices=(choice,)),
        )


def sanitized(found: Sequence[Item]) -> Iterator[Item]:
    """Run checks again under each tool."""
    keys = tuple(map(key_of, found))
    kernels = tuple(symbol for item in found for symbol in needs_of(item))
    for tool in ("memcheck", "racecheck"):
        yield Sanitized(section="check", name=tool, tool=tool, keys=keys, kernels=kernels)


def wgmma_cases(arch: Arch) -> Iterator[Case]:
    """Cases of `cutlass3`, `b2b_sm90` and `attention_sm90`; none where `arch` lacks wgmma."""
    if arch.cutlass_api < 3:
        return
    for name, kernel, workload in launches(arch):
        yield Case(name=name, spec=kernel.spec, workload=workload, config=kernel.config)
    yield from map(fused_case, chain_sm90_cases.launches(arch))
    yield from map(fused_case, attention_sm90_cases.launches(arch))


def family_cases(arch: Arch) -> Iterator[Case]:
    """Cases of the families whose kernels are not among the test suite's lists of cases.

    A workload in its likeliest configuration of each family that computes it. Section padding
    checks moves.
    """
    gemm = Gemm(m=72, n=136, k=104)
    builder = ElementwiseBuilder()
    builder.unary(UnaryOp.RELU, builder.binary(BinaryOp.MULTIPLY, 0, builder.load(LoadKind.ROW)))
    layer = Layer(problem=gemm, epilogue=ElementwiseGraph(), prologue=builder.build())
    workloads = {
        "norm": Workload.of(Norm(rows=9, columns=200, function=NormFunction.LAYER, epsilon=1e-5)),
        "softmax": Workload.of(Norm(rows=9, columns=200, function=NormFunction.SOFTMAX)),
        "grouped": Workload.of(GroupedGemm(groups=5, m=70, n=136, k=104)),
        "skinny": Workload.of(replace(gemm, m=3, b_layout=Layout.COLUMN)),
        "prologue": Workload(layers=(layer,)),
        "groups": Workload.of(Conv2d(n=2, h=9, w=8, c=64, k=96, r=3, s=3, groups=2)),
        "depthwise": Workload.of(Depthwise(n=2, h=9, w=8, c=72, r=3, s=3, padding=(1, 1, 1, 1))),
        "separable": separable(same((2, 9, 8, 72), 3), 40),
        "recurrent": Workload.of(Recurrent(cell=Cell.LSTM, steps=5, batch_rows=20, hidden=72)),
        "shared": Workload.of(Recurrent(cell=Cell.LSTM, steps=5, batch_rows=20, hidden=264)),
        "attention": shapes.AttentionShape(heads=2, rows=72, keys=80, depth=64).workload,
    }
    for name, workload in workloads.items():
        best: dict[str, tuple[float, Config]] = {}
        for config in candidates(workload, arch):
            found = predict(workload, config, arch).time_us, config
            best[config.family] = min(
                best.get(config.family, found), found, key=lambda one: (one[0], order(one[1]))
            )
        for family, (_, config) in best.items():
            spec = kernel_spec(workload, config, arch.name)
            yield Case(name=f"{name}-{family}", spec=spec, workload=workload, config=config)


def cases_for(arch: Arch) -> list[Case]:
    """List the test suite's kernels that run on `arch`, each launch of one once."""
    cases = [*map(single_case, all_cases()), *map(fused_case, all_chain_cases())]
    unique = {
        (replace(case.spec, arch=arch.name), case.workload, case.config): case
        for case in cases
        if _runs_on(case.spec, arch)
    }
    return [*unique.values(), *wgmma_cases(arch)]


def _runs_on(spec: KernelSpec, arch: Arch) -> bool:
    """Whether a case is for `arch`, for its device, or for the first arch of its generation."""
    same_generation = spec.config.instruction == Shape(*arch.mma_shapes[0])
    return same_generation and spec.arch in (arch.name, device_for(arch.name), *_FIRST_ARCHES)
