"""What a compiled back-to-back kernel is: everything that decides its machine code.

As of single layers (`space.kernel`), sizes are no part of it. A layer's columns may be any number
that its tile holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from boltgen.ir.chain import Chain, ChainLayer, Conv2dChain, implicit_gemm
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.problem import Conv2d
from boltgen.space.config import B2bConfig
from boltgen.space.kernel import ConvIterator, Family, KernelSpec, channel_iterator

# In an accumulator's fragment a lane holds two neighbouring columns: operands of an inner layer's
# epilogue are loaded in pairs at most. Source: PTX ISA, matrix fragments for mma.m16n8k16.
_FRAGMENT_PAIR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """A layer of a chain: its epilogue, and how wide its operands are read.

    `b_layout` is of the GEMM's B, column for a filter. `alignment_d` is of the epilogue's operands,
    and of the output in the last layer.
    """

    epilogue: ElementwiseGraph
    acc_dtype: DType
    b_layout: Layout
    alignment_b: int
    alignment_d: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainKernelSpec:
    """One back-to-back kernel to generate; `alignment_a` is of the first layer's A."""

    family: Family
    arch: str
    config: B2bConfig
    layers: tuple[LayerSpec, ...]
    alignment_a: int
    in_dtype: DType
    out_dtype: DType
    conv_iterator: ConvIterator | None = None


AnyKernelSpec: TypeAlias = KernelSpec | ChainKernelSpec


def chain_kernel_spec(chain: Chain, config: B2bConfig, arch: str) -> ChainKernelSpec:
    """The kernel that computes `chain` in `config` on `arch` ("sm_80").

    A `Conv2dChain` is computed as such, even if `ir.chain.execution_chain` has plain products for
    it.
    """
    first, last = chain.layers[0].problem, chain.layers[-1].problem
    final = len(chain.layers) - 1
    return ChainKernelSpec(
        family=Family.B2B_CONV2D if isinstance(chain, Conv2dChain) else Family.B2B_GEMM,
        arch=arch,
        config=config,
        layers=tuple(_layer_spec(layer, i == final) for i, layer in enumerate(chain.layers)),
        alignment_a=first.alignment_a,
        in_dtype=first.in_dtype,
        out_dtype=last.out_dtype,
        conv_iterator=channel_iterator(first) if isinstance(first, Conv2d) else None,
    )


def _layer_spec(layer: ChainLayer, is_last: bool) -> LayerSpec:
    problem = layer.problem
    return LayerSpec(
        epilogue=layer.epilogue,
        acc_dtype=problem.acc_dtype,
        b_layout=implicit_gemm(layer).b_layout,
        alignment_b=problem.alignment_b,
        alignment_d=problem.alignment_d if is_last else min(problem.alignment_d, _FRAGMENT_PAIR),
    )
