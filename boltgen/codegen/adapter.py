"""The host side of a library: each region as a TVM function that calls its kernel.

The C++ is compiled by the host compiler, without CUTLASS, in a second or two. It bakes in the
problem's sizes, checks every tensor against them at run time, and hands pointers to the kernel's
C entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from boltgen.codegen.adapter_chain import ChainAdapterLaunch
from boltgen.codegen.adapter_memory import CallMemory, a_call, call_memory, d_call
from boltgen.codegen.adapter_tensors import (
    Field,
    convolution_sizes,
    data_call,
    operand_fields,
    tensor_shapes,
)
from boltgen.codegen.cpp_text import comment_field, comment_lines, identifier, string_literal
from boltgen.codegen.kernel import kernel_symbol
from boltgen.codegen.move import move_symbol
from boltgen.codegen.render import render
from boltgen.codegen.views import (
    AdapterRegion,
    AdapterView,
    ArgumentField,
    KernelDeclaration,
)
from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import Layout
from boltgen.ir.problem import BatchedGemm, Conv2d, Gemm, Problem, describe
from boltgen.ir.region import Convention, Region
from boltgen.space.kernel import Family, KernelSpec
from boltgen.space.resources import split_workspace_bytes

_HEADERS = {Convention.RELAX: "relax_adapter.h", Convention.RELAY: "relay_adapter.h"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterLaunch:
    """How a region is executed.

    `problem` is what the kernel computes. It differs from `region.problem`, which the tensors'
    shapes follow, where a pointwise convolution runs as a matrix product.

    Raises:
        InvalidProblemError: the kernel cannot compute the problem, or the region's operands are
            not those of its epilogue.
    """

    region: Region
    problem: Problem
    spec: KernelSpec
    swizzle: int = 1
    split_k: int = 1

    def __post_init__(self) -> None:
        region = self.region
        identifier(region.symbol)
        is_conv = isinstance(self.problem, Conv2d)
        if is_conv is not (self.spec.family is Family.CONV2D):
            raise InvalidProblemError(
                f"{region.symbol}: a {self.spec.family.value} kernel cannot compute "
                f"{describe(self.problem)}"
            )
        if self.spec.epilogue != region.epilogue:
            raise InvalidProblemError(
                f"{region.symbol}: the kernel's epilogue {self.spec.epilogue.describe()} is not "
                f"the region's {region.epilogue.describe()}"
            )
        if len(region.operands) != len(region.epilogue.loads):
            raise InvalidProblemError(
                f"{region.symbol}: {len(region.operands)} operands for the "
                f"{len(region.epilogue.loads)} loads of {region.epilogue.describe()}"
            )
        used = (region.a, region.b, *(operand.parameter for operand in region.operands))
        if not all(0 <= index < region.parameter_count for index in used):
            raise InvalidProblemError(
                f"{region.symbol}: roles {used} are not all among its "
                f"{region.parameter_count} parameters"
            )

    @property
    def args_type(self) -> str:
        """The kernel's argument struct."""
        is_conv = self.spec.family is Family.CONV2D
        return "boltgen_conv2d_args" if is_conv else "boltgen_gemm_args"

    @property
    def memory(self) -> CallMemory:
        """The moves of a call, and its workspace."""
        region, config = self.region, replace(self.spec.config, split_k=self.split_k)
        return call_memory(
            region.problem,
            region.problem,
            region.a_stored,
            region.d_stored,
            split_workspace_bytes(self.problem, config),
        )

    @property
    def comment(self) -> Iterator[str]:
        """Comment lines that say what is computed."""
        region = self.region
        yield from comment_field("Problem", describe(region.problem))
        if self.problem != region.problem:
            yield from comment_field("Runs as", describe(self.problem))
        yield from comment_field("Epilogue", f"D = {region.epilogue.describe()}")

    def fields(self) -> Iterator[Field]:
        """The fields of the kernel's argument struct."""
        yield from _sizes(self.problem)
        yield from _tensors(self)
        yield "split_k", str(self.split_k)
        yield "swizzle", str(self.swizzle)


AnyAdapterLaunch: TypeAlias = AdapterLaunch | ChainAdapterLaunch


def render_adapter(
    launches: Sequence[AnyAdapterLaunch],
    convention: Convention = Convention.RELAX,
    *,
    planned: bool = True,
) -> str:
    """The `.cc` that exports every region's symbol as a function that TVM calls.

    Its arguments are the region's parameters in order, then the output, then the workspace where
    it needs one and it is `planned`: TVM passes it.

    Raises:
        InvalidProblemError: two regions have one symbol.
    """
    symbols = [launch.region.symbol for launch in launches]
    repeated = sorted({symbol for symbol in symbols if symbols.count(symbol) > 1})
    if repeated:
        raise InvalidProblemError(f"regions with one symbol: {', '.join(repeated)}")
    declarations = dict.fromkeys(_declaration(launch) for launch in launches)
    declarations |= dict.fromkeys(
        KernelDeclaration(symbol=move_symbol(planned_move.move), args_type="boltgen_move_args")
        for launch in launches
        for planned_move in launch.memory.moves
    )
    banner = [
        f"The TVM functions of {len(launches)} regions. Generated by boltgen.",
        "Sizes are those of the model; kernels take any that their alignments allow.",
    ]
    return render(
        AdapterView(
            banner=comment_lines(banner),
            header=_HEADERS[convention],
            kernels=tuple(declarations),
            regions=tuple(_region(launch, planned=planned) for launch in launches),
        )
    )


def _laid_out(value: str) -> str:
    """A right-hand side on the line of its `=`, or below where it is long."""
    return f" {value}" if len(value) < 70 else f"\n      {value}"


def _declaration(launch: AnyAdapterLaunch) -> KernelDeclaration:
    return KernelDeclaration(symbol=kernel_symbol(launch.spec), args_type=launch.args_type)


def _region(launch: AnyAdapterLaunch, *, planned: bool) -> AdapterRegion:
    region, memory = launch.region, launch.memory
    comment = [*comment_field("Operators", region.label), *launch.comment]
    for text in memory.describe():
        comment += comment_field("Move", text)
    parameters = [f"TensorView const& p{i}" for i in range(region.parameter_count)]
    parameters.append("TensorView const& output")
    if planned and memory.workspace_bytes:
        parameters.append("TensorView const& workspace")
    return AdapterRegion(
        symbol=region.symbol,
        label=string_literal(" ".join(region.label.split())),  # one line of a message
        comment=comment_lines(comment),
        parameters=",\n    ".join(parameters),
        kernel=_declaration(launch),
        fields=tuple(
            ArgumentField(name=name, value=_laid_out(value)) for name, value in launch.fields()
        ),
        workspace=tuple(memory.statements(planned=planned)),
    )


def _sizes(problem: Problem) -> list[Field]:
    """The sizes and strides in the kernel's argument struct."""
    match problem:
        case Conv2d():
            extents = [(name, str(getattr(problem, name))) for name in "nhwckrspq"]
            return extents + convolution_sizes(problem)
        case Gemm(m=m, n=n, k=k) | BatchedGemm(m=m, n=n, k=k):
            batched = problem if isinstance(problem, BatchedGemm) else None
            values = {
                "m": m,
                "n": n,
                "k": k,
                "batch": batched.batch if batched else 1,
                "lda": k,
                "ldb": n if problem.b_layout is Layout.ROW else k,
                "ldd": n,
                "batch_stride_a": m * k if batched and batched.a_batched else 0,
                "batch_stride_b": n * k if batched and batched.b_batched else 0,
                "batch_stride_d": m * n if batched else 0,
            }
            return [(name, str(value)) for name, value in values.items()]


def _tensors(launch: AdapterLaunch) -> Iterator[Field]:
    """The pointers in the kernel's argument struct, each with the check of its tensor."""
    region, problem = launch.region, launch.region.problem
    a, b, d = tensor_shapes(problem)
    yield "a", a_call(region, problem.in_dtype, a)
    yield "b", data_call(region.b, "B", problem.in_dtype, b)
    yield "d", d_call(region, problem.out_dtype, d)
    yield from operand_fields(problem, region.epilogue, region.operands)
