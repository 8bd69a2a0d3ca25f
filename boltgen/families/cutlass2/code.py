"""2.x kernels as text: the views of their templates, and what people are told of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from boltgen.codegen import cpp_names
from boltgen.codegen.epilogue import EpilogueCode, emit_epilogue
from boltgen.families.cutlass2.config import Cutlass2Config, Shape
from boltgen.families.cutlass2.traits import ConvIterator, Cutlass2Traits
from boltgen.ir.dtypes import Layout
from boltgen.ir.kernel import KernelSpec

_ACTIVATIONS_HEADER = "boltgen/activations.h"
_GEMM_HEADER, _CONV2D_HEADER = "boltgen/gemm.h", "boltgen/conv2d.h"
_FIXED_CHANNELS_HEADER = "boltgen/conv2d_fixed_channels.h"

ITERATOR_ALGORITHM = {
    ConvIterator.ANALYTIC: "cutlass::conv::IteratorAlgorithm::kAnalytic",
    ConvIterator.OPTIMIZED: "cutlass::conv::IteratorAlgorithm::kOptimized",
    ConvIterator.FIXED_CHANNELS: "cutlass::conv::IteratorAlgorithm::kFixedChannels",
}

# Of CUTLASS's own mainloop, `Mainloop`, that of a kernel.
MAINLOOP = {
    ConvIterator.ANALYTIC: "Mainloop",
    ConvIterator.OPTIMIZED: "Mainloop",
    ConvIterator.FIXED_CHANNELS: "boltgen::FixedChannels<Mainloop>",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MainloopView:
    """What every template of a 2.x mainloop takes, and of the epilogue behind it."""

    symbol: str
    workspace_symbol: str
    epilogue: EpilogueCode
    element_in: str
    element_accumulator: str
    element_d: str
    alignment_a: int
    alignment_b: int
    alignment_d: int
    threadblock: str
    warp: str
    instruction: str
    stages: int
    arch_tag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmView(MainloopView):
    """One matrix-product kernel; `graph` is what its epilogue makes of the sums."""

    TEMPLATE: ClassVar[str] = "gemm.cu.j2"

    graph: str
    layout_b: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dView(MainloopView):
    """One convolution kernel; `mainloop` is made of the template's `Mainloop`."""

    TEMPLATE: ClassVar[str] = "conv2d.cu.j2"

    iterator_algorithm: str
    mainloop: str


def includes(spec: KernelSpec) -> tuple[str, ...]:
    """What a kernel's text includes."""
    epilogue = spec.traits.epilogue
    further: tuple[str, ...] = ()
    if epilogue.further:
        further = (f"boltgen/{'reductions' if epilogue.reductions else 'results'}.h",)
    elif epilogue.is_paired:
        further = ("boltgen/pair.h",)
    match spec.traits.conv_iterator:
        case None:
            return _ACTIVATIONS_HEADER, _GEMM_HEADER, *further
        case ConvIterator.FIXED_CHANNELS:
            return _ACTIVATIONS_HEADER, _CONV2D_HEADER, _FIXED_CHANNELS_HEADER, *further
        case _:
            return _ACTIVATIONS_HEADER, _CONV2D_HEADER, *further


def stem(spec: KernelSpec) -> str:
    """What people want to see: `gemm_sm80_128x128x32_64x64_s3_rc888`."""
    config, traits = _parts(spec)
    kind = "conv2d" if traits.conv_iterator else "gemm"
    layouts = "nhwc" if traits.conv_iterator else f"r{traits.b_layout.value[0]}"
    return (
        f"{kind}_{spec.arch.replace('_', '')}_{config.threadblock}_"
        f"{config.warp.m}x{config.warp.n}_s{config.stages}"
        f"_{layouts}{traits.alignment_a}{traits.alignment_b}{traits.alignment_d}"
    )


def describe(spec: KernelSpec) -> dict[str, str]:
    """Describe what the kernel computes and how: texts by their labels, for `boltgen inspect`."""
    tile, traits = _parts(spec)
    iterator = f", {traits.conv_iterator.value} iterators" if traits.conv_iterator else ""
    return {
        "Problem": problem_text(traits),
        "Epilogue": traits.epilogue.formula,
        "Alignment": (
            f"A {traits.alignment_a}, B {traits.alignment_b}, D {traits.alignment_d} elements"
        ),
        "Config": (
            f"threadblock {tile.threadblock}, warp {tile.warp}, instruction {tile.instruction}, "
            f"{tile.stages} stages{iterator}"
        ),
        "Arch": spec.arch,
    }


def problem_text(traits: Cutlass2Traits) -> str:
    """Describe the product in a line: shapes, types and layouts."""
    types = (traits.in_dtype.value, traits.acc_dtype.value, traits.out_dtype.value)
    if traits.conv_iterator:
        return (
            "Conv2d, A: (N, H, W, C) {0}, B: (K, R, S, C) {0}, D: (N, P, Q, K) {2}, "
            "accumulated in {1}".format(*types)
        )
    b = "column" if traits.b_layout is Layout.COLUMN else "row"
    columns = f"2 N), {traits.alignment_d} of each by turns," if traits.epilogue.is_paired else "N)"
    return (
        f"Gemm, A: (M, K) {types[0]} row-major, B: (K, {columns} {types[0]} {b}-major, "
        f"D: (M, N) {types[2]} row-major, accumulated in {types[1]}"
    )


def view(spec: KernelSpec, symbol: str, workspace_symbol: str) -> GemmView | Conv2dView:
    """The variables of the kernel's template."""
    _, traits = _parts(spec)
    shared = mainloop_fields(spec, symbol, workspace_symbol)
    if traits.conv_iterator is None:
        graph = "boltgen::Paired<Epilogue>" if traits.epilogue.is_paired else "Epilogue"
        return GemmView(graph=graph, layout_b=layout_of_b(spec), **shared)
    return Conv2dView(
        iterator_algorithm=ITERATOR_ALGORITHM[traits.conv_iterator],
        mainloop=MAINLOOP[traits.conv_iterator],
        **shared,
    )


def mainloop_fields(spec: KernelSpec, symbol: str, workspace_symbol: str) -> dict[str, Any]:
    """The fields of `MainloopView` for a kernel of this family, or one that has its mainloop."""
    config, traits = _parts(spec)
    return {
        "symbol": symbol,
        "workspace_symbol": workspace_symbol,
        "epilogue": emit_epilogue(traits.epilogue),
        "element_in": traits.in_dtype.cutlass,
        "element_accumulator": traits.acc_dtype.cutlass,
        "element_d": traits.out_dtype.cutlass,
        "alignment_a": traits.alignment_a,
        "alignment_b": traits.alignment_b,
        "alignment_d": traits.alignment_d,
        "threadblock": gemm_shape(config.threadblock),
        "warp": gemm_shape(config.warp),
        "instruction": gemm_shape(config.instruction),
        "stages": config.stages,
        "arch_tag": cpp_names.arch_tag(spec.arch),
    }


def layout_of_b(spec: KernelSpec) -> str:
    """The C++ type of the layout of a matrix product's B."""
    _, traits = _parts(spec)
    return cpp_names.LAYOUT[traits.b_layout]


def gemm_shape(shape: Shape) -> str:
    """`cutlass::gemm::GemmShape<128, 128, 32>`."""
    return f"cutlass::gemm::GemmShape<{shape.m}, {shape.n}, {shape.k}>"


def _parts(spec: KernelSpec) -> tuple[Cutlass2Config, Cutlass2Traits]:
    config, traits = spec.config, spec.traits
    assert isinstance(config, Cutlass2Config)
    assert isinstance(traits, Cutlass2Traits)
    return config, traits
