"""A chain's region as a TVM function: the fields of its kernel's argument struct."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from boltgen.codegen.adapter_memory import CallMemory, a_call, call_memory, d_call
from boltgen.codegen.adapter_tensors import (
    Field,
    data_call,
    operand_fields,
    tensor_shapes,
)
from boltgen.codegen.chain_sizes import chain_layer_sizes, chain_sizes
from boltgen.codegen.cpp_text import comment_field, identifier
from boltgen.errors import InvalidProblemError
from boltgen.ir.chain import Chain, Conv2dChain, describe_chain
from boltgen.ir.problem import describe
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
        yield from _texts(chain_sizes(self.chain))
        yield "a", a_call(region, first.in_dtype, tensor_shapes(first)[0])
        yield "d", d_call(region, last.out_dtype, tensor_shapes(last)[2])
        for index, roles in enumerate(region.layers):
            shown, executed = region.chain.layers[index], self.chain.layers[index]
            where, who = f"layers[{index}].", f"layer {index} "
            b = tensor_shapes(shown.problem)[1]
            yield f"{where}b", data_call(roles.b, f"{who}B", shown.problem.in_dtype, b)
            for name, value in _texts(chain_layer_sizes(executed)):
                yield where + name, value
            operands = operand_fields(shown.problem, shown.epilogue, roles.operands, who)
            for name, value in operands:
                yield where + name, value


def _texts(sizes: dict[str, int]) -> Iterator[Field]:
    return ((name, str(value)) for name, value in sizes.items())
