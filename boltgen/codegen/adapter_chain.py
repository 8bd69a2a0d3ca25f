"""A chain's region as a TVM function: the fields of its kernel's argument struct."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from boltgen.codegen.adapter_memory import CallMemory, a_call, call_memory, d_call
from boltgen.codegen.adapter_tensors import (
    Field,
    convolution_sizes,
    data_call,
    operand_fields,
    tensor_shapes,
)
from boltgen.codegen.cpp_text import comment_field, identifier
from boltgen.errors import InvalidProblemError
from boltgen.ir.chain import Chain, ChainLayer, Conv2dChain, batch_of, describe_chain, implicit_gemm
from boltgen.ir.dtypes import Layout
from boltgen.ir.problem import BatchedGemm, Conv2d, describe
from boltgen.ir.region import ChainRegion
from boltgen.space.b2b_kernel import ChainKernelSpec
from boltgen.space.kernel import Family


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainAdapterLaunch:
    """How a chain's region is executed.

    `chain` is what the kernel computes. It differs from `region.chain`, which the tensors' shapes
    follow, where a chain of pointwise convolutions runs as matrix products.

    Raises:
        InvalidProblemError: the kernel cannot compute the chain, or the region's operands are not
            those of its epilogues.
    """

    region: ChainRegion
    chain: Chain
    spec: ChainKernelSpec

    def __post_init__(self) -> None:
        region, symbol = self.region, self.region.symbol
        identifier(symbol)
        is_conv = isinstance(self.chain, Conv2dChain)
        if is_conv is not (self.spec.family is Family.B2B_CONV2D):
            raise InvalidProblemError(
                f"{symbol}: a {self.spec.family.value} kernel cannot compute "
                f"{describe_chain(self.chain)}"
            )
        epilogues = tuple(layer.epilogue for layer in region.chain.layers)
        if tuple(layer.epilogue for layer in self.spec.layers) != epilogues:
            raise InvalidProblemError(
                f"{symbol}: the kernel's epilogues are not those of {describe_chain(region.chain)}"
            )
        for index, (roles, epilogue) in enumerate(zip(region.layers, epilogues, strict=True)):
            if len(roles.operands) != len(epilogue.loads):
                raise InvalidProblemError(
                    f"{symbol}: layer {index} has {len(roles.operands)} operands for the "
                    f"{len(epilogue.loads)} loads of {epilogue.describe()}"
                )
        used = (region.a, *(index for roles in region.layers for index in roles.parameters))
        if not all(0 <= index < region.parameter_count for index in used):
            raise InvalidProblemError(
                f"{symbol}: roles {used} are not all among its {region.parameter_count} parameters"
            )

    @property
    def args_type(self) -> str:
        """The kernel's argument struct."""
        is_conv = self.spec.family is Family.B2B_CONV2D
        return "boltgen_conv2d_chain_args" if is_conv else "boltgen_gemm_chain_args"

    @property
    def memory(self) -> CallMemory:
        """The moves of a call, and their workspace; the kernel needs none."""
        region = self.region
        first, last = region.chain.layers[0].problem, region.chain.layers[-1].problem
        return call_memory(first, last, region.a_stored, region.d_stored, kernel_bytes=0)

    @property
    def comment(self) -> Iterator[str]:
        """Comment lines that say what is computed."""
        for index, layer in enumerate(self.region.chain.layers):
            formula = f"D{index} = {layer.epilogue.describe()}"
            yield from comment_field(f"Layer {index}", f"{describe(layer.problem)}, {formula}")

    def fields(self) -> Iterator[Field]:
        """The fields of the kernel's argument struct."""
        region = self.region
        first, last = region.chain.layers[0].problem, region.chain.layers[-1].problem
        yield from self._sizes()
        yield "a", a_call(region, first.in_dtype, tensor_shapes(first)[0])
        yield "d", d_call(region, last.out_dtype, tensor_shapes(last)[2])
        for index, roles in enumerate(region.layers):
            shown, executed = region.chain.layers[index], self.chain.layers[index]
            where, who = f"layers[{index}].", f"layer {index} "
            b = tensor_shapes(shown.problem)[1]
            yield f"{where}b", data_call(roles.b, f"{who}B", shown.problem.in_dtype, b)
            for name, value in _layer_sizes(executed):
                yield where + name, value
            operands = operand_fields(shown.problem, shown.epilogue, roles.operands, who)
            for name, value in operands:
                yield where + name, value

    def _sizes(self) -> Iterator[Field]:
        first = self.chain.layers[0].problem
        if isinstance(first, Conv2d):
            for name in "nhwcrspq":
                yield name, str(getattr(first, name))
            yield from convolution_sizes(first)
            return
        n = implicit_gemm(self.chain.layers[-1]).n
        batched = isinstance(first, BatchedGemm)
        a_strides = isinstance(first, BatchedGemm) and first.a_batched
        values = {
            "m": first.m,
            "k": first.k,
            "batch": batch_of(self.chain),
            "lda": first.k,
            "ldd": n,
            "batch_stride_a": first.m * first.k if a_strides else 0,
            "batch_stride_d": first.m * n if batched else 0,
        }
        yield from ((name, str(value)) for name, value in values.items())


def _layer_sizes(layer: ChainLayer) -> Iterator[Field]:
    gemm = implicit_gemm(layer)
    strided = isinstance(layer.problem, BatchedGemm) and layer.problem.b_batched
    yield "n", str(gemm.n)
    yield "ldb", str(gemm.n if gemm.b_layout is Layout.ROW else gemm.k)
    yield "batch_stride_b", str(gemm.n * gemm.k if strided else 0)
