"""Views and texts that are common to kernels of the CUTLASS 2.x API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from boltgen.codegen import cpp_names
from boltgen.codegen.epilogue import EpilogueCode, emit_epilogue
from boltgen.families.mma_sync.config import Tiles
from boltgen.families.mma_sync.traits import ConvIterator, MainloopTraits
from boltgen.ir.dtypes import Layout
from boltgen.ir.kernel import KernelSpec

ITERATOR_ALGORITHM = {
    ConvIterator.ANALYTIC: "cutlass::conv::IteratorAlgorithm::kAnalytic",
    ConvIterator.OPTIMIZED: "cutlass::conv::IteratorAlgorithm::kOptimized",
    ConvIterator.FIXED_CHANNELS: "cutlass::conv::IteratorAlgorithm::kFixedChannels",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MainloopView:
    """The fields that all templates with a 2.x mainloop need, including the epilogue's."""

    symbol: str
    workspace_symbol: str
    epilogue: EpilogueCode
    element_in: str
    element_b: str
    element_accumulator: str
    multiply_add: str
    element_d: str
    alignment_a: int
    alignment_b: int
    alignment_d: int
    threadblock: str
    warp: str
    instruction: str
    stages: int
    arch_tag: str


def stem(spec: KernelSpec) -> str:
    """Return a name for people: `gemm_sm80_128x128x32_64x64_s3_rc888`."""
    config, traits = _parts(spec)
    kind = ("conv3d" if traits.of_volumes else "conv2d") if traits.conv_iterator else "gemm"
    kind += "_in_groups" if traits.in_groups else ""
    channels_last = "ndhwc" if traits.of_volumes else "nhwc"
    layouts = channels_last if traits.conv_iterator else f"r{traits.b_layout.value[0]}"
    return (
        f"{kind}_{spec.arch.replace('_', '')}_{config.threadblock}_"
        f"{config.warp.m}x{config.warp.n}_s{config.stages}"
        f"_{layouts}{traits.alignment_a}{traits.alignment_b}{traits.alignment_d}"
    )


def describe(spec: KernelSpec) -> dict[str, str]:
    """Return labelled texts on what the kernel computes and how, for `boltgen inspect`."""
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


def problem_text(traits: MainloopTraits) -> str:
    """Describe the anchor in a line: shapes, types and layouts."""
    types = (traits.in_dtype.value, traits.acc_dtype.value, traits.out_dtype.value)
    weight = traits.in_dtype.weight.value
    if traits.of_volumes:
        return (
            "Conv3d, A: (N, D, H, W, C) {0}, B: (K, T, R, S, C) {0}, D: (N, Z, P, Q, K) {2}, "
            "accumulated in {1}".format(*types)
        )
    if traits.conv_iterator:
        channels = "C / groups" if traits.in_groups else "C"
        return (
            "Conv2d, A: (N, H, W, C) {0}, B: (K, R, S, {3}) {4}, D: (N, P, Q, K) {2}, "
            "accumulated in {1}".format(*types, channels, weight)
        )
    b = "column" if traits.b_layout is Layout.COLUMN else "row"
    columns = f"2 N), {traits.alignment_d} of each by turns," if traits.epilogue.is_paired else "N)"
    return (
        f"Gemm, A: (M, K) {types[0]} row-major, B: (K, {columns} {weight} {b}-major, "
        f"D: (M, N) {types[2]} row-major, accumulated in {types[1]}"
    )


def mainloop_fields(spec: KernelSpec, symbol: str, workspace_symbol: str) -> dict[str, Any]:
    """Return the fields of `MainloopView` for a kernel with a 2.x mainloop."""
    config, traits = _parts(spec)
    return {
        "symbol": symbol,
        "workspace_symbol": workspace_symbol,
        "epilogue": emit_epilogue(traits.epilogue),
        "element_in": traits.in_dtype.cutlass,
        "element_b": traits.in_dtype.weight.cutlass,
        "element_accumulator": traits.acc_dtype.cutlass,
        # CUTLASS has integers that saturate only. Sums that fit into 32 bits are the same.
        "multiply_add": "OpMultiplyAdd" + ("Saturate" if traits.in_dtype.is_whole else ""),
        "element_d": traits.out_dtype.cutlass,
        "alignment_a": traits.alignment_a,
        "alignment_b": traits.alignment_b,
        "alignment_d": traits.alignment_d,
        "threadblock": config.threadblock.cutlass,
        "warp": config.warp.cutlass,
        "instruction": config.instruction.cutlass,
        "stages": config.stages,
        "arch_tag": cpp_names.arch_tag(spec.arch),
    }


def layout_of_b(spec: KernelSpec) -> str:
    """Return the C++ type of the layout of a matmul's B."""
    _, traits = _parts(spec)
    return cpp_names.LAYOUT[traits.b_layout]


def _parts(spec: KernelSpec) -> tuple[Tiles, MainloopTraits]:
    return spec.config, spec.traits
