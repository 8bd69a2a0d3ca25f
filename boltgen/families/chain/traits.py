"""The compiled part of a kernel for several layers, and the arguments of its launch.

As for single layers, sizes are launch arguments. A layer may have any number of columns that its
tile holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar

from boltgen.families.mma_sync.traits import ConvIterator, channel_iterator
from boltgen.ir.dtypes import DType, Layout, alignment_elements
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.kernel import Launch
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Layer, Workload

# In an accumulator's fragment a lane holds two neighbouring columns, so the operands of an inner
# layer's epilogue are loaded in pairs at most. Source: PTX ISA, matrix fragments for mma.m16n8k16.
FRAGMENT_PAIR = 2
# The columns that four lanes of a fragment exchange to store vectors of 16 bytes.
_EXCHANGED = 8
GEMM_STRUCT, CONV2D_STRUCT = "boltgen_gemm_chain_args", "boltgen_conv2d_chain_args"
# The sizes of later layers that are arguments; the first layer's are the launch's.
_LAYER_SIZES = ("n", "ldb", "batch_stride_b")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTraits:
    """A layer: its epilogue, and the vector widths of its operands.

    `b_layout` is the layout of the matmul's B, column for a filter. `alignment_d` applies to the
    epilogue's operands, and in the last layer also to the output.
    """

    epilogue: ElementwiseGraph
    acc_dtype: DType
    b_layout: Layout
    alignment_b: int
    alignment_d: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainTraits:
    """The compiled part of a workload; `alignment_a` is the alignment of the first layer's A.

    `conv_iterator` is None if the first layer is a matmul. If it `is_causal`, the softmax between
    its layers ends at the diagonal; a `window` other than 0 limits its columns.
    """

    # Keys of kernels contain the first name of this class.
    key_name: ClassVar[str] = "B2bTraits"

    layers: tuple[LayerTraits, ...]
    alignment_a: int
    in_dtype: DType
    out_dtype: DType
    conv_iterator: ConvIterator | None = None
    is_causal: bool = field(default=False, metadata={"absent_at_default": True})
    window: int = field(default=0, metadata={"absent_at_default": True})

    @property
    def struct(self) -> str:
        """The kernel's argument struct."""
        return CONV2D_STRUCT if self.conv_iterator else GEMM_STRUCT


def compiled_traits(workload: Workload) -> ChainTraits:
    """Return the traits for which a kernel of `workload` is compiled."""
    first, last = workload.first.problem, workload.last.problem
    end = len(workload.layers) - 1
    return ChainTraits(
        layers=tuple(_layer(layer, i == end) for i, layer in enumerate(workload.layers)),
        alignment_a=first.alignment_a,
        in_dtype=first.in_dtype,
        out_dtype=last.out_dtype,
        conv_iterator=channel_iterator(first) if isinstance(first, Conv2d) else None,
        is_causal=workload.layers[-1].prologue.is_causal,
        window=workload.layers[-1].prologue.window,
    )


def layers_of_sm90(chain: ChainTraits) -> tuple[LayerTraits, ...]:
    """Return the layers as sm_90a's kernels have them.

    TMA loads B, which is aligned to 16 bytes. Lanes store pairs of columns of D, or exchange pairs
    and store eight columns.
    """
    aligned = alignment_elements(chain.in_dtype)
    return tuple(
        replace(
            layer,
            alignment_b=aligned,
            alignment_d=layer.alignment_d
            if layer.alignment_d >= _EXCHANGED
            else min(layer.alignment_d, FRAGMENT_PAIR),
        )
        for layer in chain.layers
    )


def _layer(layer: Layer, is_last: bool) -> LayerTraits:
    problem = layer.problem
    return LayerTraits(
        epilogue=layer.epilogue,
        acc_dtype=problem.acc_dtype,
        b_layout=problem.gemm.b_layout,
        alignment_b=problem.alignment_b,
        alignment_d=problem.alignment_d if is_last else min(problem.alignment_d, FRAGMENT_PAIR),
    )


def launch_of(workload: Workload) -> Launch:
    """Return the first layer's rows and depth, then each layer's columns."""
    first, last = workload.first.problem, workload.last.problem
    sizes = first.sizes
    # The columns and B of the first layer are in its own part of the struct.
    if first.is_matrix:
        sizes |= {"ldd": last.sizes["ldd"], "batch_stride_d": last.sizes["batch_stride_d"]}
        outer = {k: v for k, v in sizes.items() if k not in _LAYER_SIZES}
    else:
        outer = {k: v for k, v in sizes.items() if k != "k"}
    layers = {
        f"layers[{index}].{name}": _sizes(layer.problem)[name]
        for index, layer in enumerate(workload.layers)
        for name in _LAYER_SIZES
    }
    struct = GEMM_STRUCT if first.is_matrix else CONV2D_STRUCT
    return Launch(struct=struct, sizes=outer | layers, has_layers=True)


def _sizes(problem: Problem) -> dict[str, int]:
    """Return a layer's sizes by the names of a matmul's sizes."""
    return (problem if problem.is_matrix else problem.gemm).sizes


class Residence(Enum):
    """The place of the intermediate between two layers of a back-to-back kernel."""

    REGISTERS = "registers"
    SHARED_MEMORY = "shared_memory"

    def __lt__(self, other: Residence) -> bool:
        """Compare by name, so that configurations have an order."""
        return self.value < other.value


def intermediate_rejection(first: Problem) -> str | None:
    """Return why kernels cannot keep intermediates in the multiplied type, or None."""
    if first.in_dtype is DType.F16:
        return None
    return f"its kernels keep what lies between layers in float16, not {first.in_dtype.value}"
