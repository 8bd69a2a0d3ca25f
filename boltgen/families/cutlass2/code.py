"""2.x kernels as text: the views of their templates, and descriptions for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from boltgen.families.mma_sync.code import (
    ITERATOR_ALGORITHM,
    MainloopView,
    layout_of_b,
    mainloop_fields,
)
from boltgen.families.mma_sync.traits import ConvIterator, MainloopTraits
from boltgen.ir.kernel import KernelSpec

_ACTIVATIONS_HEADER = "boltgen/activations.h"
_GEMM_HEADER, _CONV2D_HEADER = "boltgen/gemm.h", "boltgen/conv2d.h"
_CONV3D_HEADER = "boltgen/conv3d.h"
_FIXED_CHANNELS_HEADER = "boltgen/conv2d_fixed_channels.h"
_IN_GROUPS_HEADER = "boltgen/conv2d_in_groups.h"


# Wraps CUTLASS's own mainloop, `Mainloop`, to the mainloop of a kernel.
MAINLOOP = {
    ConvIterator.ANALYTIC: "Mainloop",
    ConvIterator.OPTIMIZED: "Mainloop",
    ConvIterator.FIXED_CHANNELS: "boltgen::FixedChannels<Mainloop>",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmView(MainloopView):
    """One matmul kernel; `graph` is the epilogue's graph."""

    TEMPLATE: ClassVar[str] = "gemm.cu.j2"

    graph: str
    layout_b: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dView(MainloopView):
    """One convolution kernel of the C++ type `kernel`; `mainloop` is derived from the template's
    `Mainloop`.
    """

    TEMPLATE: ClassVar[str] = "conv2d.cu.j2"

    kernel: str
    iterator_algorithm: str
    mainloop: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv3dView(MainloopView):
    """One kernel of a convolution of volumes."""

    TEMPLATE: ClassVar[str] = "conv3d.cu.j2"


def includes(spec: KernelSpec) -> tuple[str, ...]:
    """Return the headers that a kernel's text includes."""
    epilogue = spec.traits.epilogue
    further: tuple[str, ...] = ()
    if epilogue.further:
        further = (f"boltgen/{'reductions' if epilogue.reductions else 'results'}.h",)
    elif epilogue.is_paired:
        further = ("boltgen/pair.h",)
    if spec.traits.in_groups:
        return _ACTIVATIONS_HEADER, _IN_GROUPS_HEADER, *further
    if spec.traits.of_volumes:
        return _ACTIVATIONS_HEADER, _CONV3D_HEADER, *further
    match spec.traits.conv_iterator:
        case None:
            return _ACTIVATIONS_HEADER, _GEMM_HEADER, *further
        case ConvIterator.FIXED_CHANNELS:
            return _ACTIVATIONS_HEADER, _CONV2D_HEADER, _FIXED_CHANNELS_HEADER, *further
        case _:
            return _ACTIVATIONS_HEADER, _CONV2D_HEADER, *further


def view(
    spec: KernelSpec, symbol: str, workspace_symbol: str
) -> GemmView | Conv2dView | Conv3dView:
    """Return the variables of the kernel's template."""
    traits: MainloopTraits = spec.traits
    shared = mainloop_fields(spec, symbol, workspace_symbol)
    if traits.conv_iterator is None:
        graph = "boltgen::Paired<Epilogue>" if traits.epilogue.is_paired else "Epilogue"
        return GemmView(graph=graph, layout_b=layout_of_b(spec), **shared)
    if traits.of_volumes:
        return Conv3dView(**shared)
    return Conv2dView(
        kernel="Conv2dInGroups" if traits.in_groups else "Conv2d",
        iterator_algorithm=ITERATOR_ALGORITHM[traits.conv_iterator],
        mainloop=MAINLOOP[traits.conv_iterator],
        **shared,
    )
