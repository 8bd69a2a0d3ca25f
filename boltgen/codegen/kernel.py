"""A rendered kernel. Arrow: KernelSpec -> KernelSource, a pure function to text."""

from __future__ import annotations

from dataclasses import dataclass

from boltgen.codegen import cpp_names
from boltgen.codegen.b2b import chain_tiles_name, chain_view, describe_chain_kernel
from boltgen.codegen.cpp_text import comment_field, comment_lines
from boltgen.codegen.epilogue import emit_epilogue
from boltgen.codegen.nvcc import kernel_command
from boltgen.codegen.render import render
from boltgen.codegen.views import Conv2dView, GemmView, UnitView
from boltgen.ir.dtypes import Layout
from boltgen.ir.key import digest
from boltgen.space.b2b_kernel import AnyKernelSpec, ChainKernelSpec
from boltgen.space.kernel import ConvIterator, Family, KernelSpec

# The release whose internals the headers in templates/include were checked against.
CUTLASS_RELEASE = "4.2"

_HEADERS = {
    Family.GEMM: ("boltgen/activations.h", "boltgen/gemm.h"),
    Family.CONV2D: ("boltgen/activations.h", "boltgen/conv2d.h"),
    Family.B2B_GEMM: ("boltgen/activations.h", "boltgen/b2b_gemm.h"),
    Family.B2B_CONV2D: ("boltgen/activations.h", "boltgen/b2b_conv2d.h"),
}
_FIXED_CHANNELS_HEADER = "boltgen/conv2d_fixed_channels.h"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSource:
    """A rendered kernel: the `.cu` text and the C symbols that it defines.

    `symbol` runs it and `workspace_symbol` returns its workspace in bytes; both take a pointer to
    the family's argument struct in `boltgen/abi.h`.
    """

    spec: AnyKernelSpec
    symbol: str
    workspace_symbol: str
    text: str

    @property
    def arch(self) -> str:
        """What it is compiled for ("sm_80")."""
        return self.spec.arch


def kernel_symbol(spec: AnyKernelSpec) -> str:
    """The C symbol: what people want to see in a profile, and a digest of the whole spec.

    Example: `boltgen_gemm_sm80_128x128x32_64x64_s3_rc888_0123456789`.
    """
    head = f"boltgen_{spec.family.value}_{spec.arch.replace('_', '')}"
    if isinstance(spec, ChainKernelSpec):
        return f"{head}_{chain_tiles_name(spec)}_{digest(spec)[:10]}"
    config = spec.config
    layouts = "nhwc" if spec.family is Family.CONV2D else f"r{spec.b_layout.value[0]}"
    return (
        f"{head}_{config.threadblock}_{config.warp.m}x{config.warp.n}_s{config.stages}"
        f"_{layouts}{spec.alignment_a}{spec.alignment_b}{spec.alignment_d}"
        f"_{digest(spec)[:10]}"
    )


def workspace_symbol(symbol: str) -> str:
    """The symbol of the workspace query of kernel `symbol`."""
    return f"{symbol}_workspace"


def headers_of(spec: AnyKernelSpec) -> tuple[str, ...]:
    """What a kernel's text includes."""
    has_fixed = isinstance(spec, KernelSpec) and spec.conv_iterator is ConvIterator.FIXED_CHANNELS
    return (*_HEADERS[spec.family], *([_FIXED_CHANNELS_HEADER] if has_fixed else []))


def headers_of_family(family: Family) -> tuple[str, ...]:
    """All that kernels of a family include."""
    more = (_FIXED_CHANNELS_HEADER,) if family is Family.CONV2D else ()
    return (*_HEADERS[family], *more)


def render_kernel(spec: AnyKernelSpec, note: str = "") -> KernelSource:
    """The `.cu` of one kernel; `note` says in its header comment what it was made for."""
    symbol = kernel_symbol(spec)
    view = UnitView(
        banner=_banner(spec, symbol, note),
        headers=headers_of(spec),
        kernels=(kernel_body(spec),),
    )
    return KernelSource(
        spec=spec,
        symbol=symbol,
        workspace_symbol=workspace_symbol(symbol),
        text=render(view),
    )


def kernel_body(spec: AnyKernelSpec) -> str:
    """The kernel without includes, to stand alone or beside others in a translation unit."""
    if isinstance(spec, ChainKernelSpec):
        symbol = kernel_symbol(spec)
        return render(chain_view(spec, symbol, workspace_symbol(symbol)))
    return render(_conv2d_view(spec) if spec.family is Family.CONV2D else _gemm_view(spec))


def describe_kernel(spec: AnyKernelSpec) -> dict[str, str]:
    """What the kernel computes and how, as labelled text for people."""
    if isinstance(spec, ChainKernelSpec):
        return describe_chain_kernel(spec)
    tile = spec.config
    iterator = f", {spec.conv_iterator.value} iterators" if spec.conv_iterator else ""
    return {
        "Problem": _problem_text(spec),
        "Epilogue": f"D = {spec.epilogue.describe()}",
        "Alignment": f"A {spec.alignment_a}, B {spec.alignment_b}, D {spec.alignment_d} elements",
        "Config": (
            f"threadblock {tile.threadblock}, warp {tile.warp}, instruction {tile.instruction}, "
            f"{tile.stages} stages{iterator}"
        ),
        "Arch": spec.arch,
    }


def _problem_text(spec: KernelSpec) -> str:
    types = (spec.in_dtype.value, spec.acc_dtype.value, spec.out_dtype.value)
    if spec.family is Family.CONV2D:
        return (
            "Conv2d, A: (N, H, W, C) {0}, B: (K, R, S, C) {0}, D: (N, P, Q, K) {2}, "
            "accumulated in {1}".format(*types)
        )
    b = "column" if spec.b_layout is Layout.COLUMN else "row"
    return (
        f"Gemm, A: (M, K) {types[0]} row-major, B: (K, N) {types[0]} {b}-major, "
        f"D: (M, N) {types[2]} row-major, accumulated in {types[1]}"
    )


def _banner(spec: AnyKernelSpec, symbol: str, note: str) -> tuple[str, ...]:
    described = describe_kernel(spec)
    described["CUTLASS"] = f"2.x API, checked with {CUTLASS_RELEASE}"
    described["Spec"] = digest(spec)
    if note:
        described["For"] = note
    described["Reproduce"] = kernel_command(spec.arch, f"{symbol}.cu")
    lines = [symbol, "", "Generated by boltgen; sizes are launch arguments.", ""]
    for name, text in described.items():
        lines += comment_field(name, text)
    return comment_lines(lines)


def _gemm_view(spec: KernelSpec) -> GemmView:
    symbol = kernel_symbol(spec)
    return GemmView(
        symbol=symbol,
        workspace_symbol=workspace_symbol(symbol),
        epilogue=emit_epilogue(spec.epilogue),
        element_in=spec.in_dtype.cutlass,
        element_accumulator=spec.acc_dtype.cutlass,
        element_d=spec.out_dtype.cutlass,
        layout_b=cpp_names.LAYOUT[spec.b_layout],
        alignment_a=spec.alignment_a,
        alignment_b=spec.alignment_b,
        alignment_d=spec.alignment_d,
        threadblock=cpp_names.gemm_shape(spec.config.threadblock),
        warp=cpp_names.gemm_shape(spec.config.warp),
        instruction=cpp_names.gemm_shape(spec.config.instruction),
        stages=spec.config.stages,
        arch_tag=cpp_names.arch_tag(spec.arch),
    )


def _conv2d_view(spec: KernelSpec) -> Conv2dView:
    symbol = kernel_symbol(spec)
    if spec.conv_iterator is None:
        raise AssertionError("a convolution's KernelSpec names its iterator")
    return Conv2dView(
        symbol=symbol,
        workspace_symbol=workspace_symbol(symbol),
        epilogue=emit_epilogue(spec.epilogue),
        element_in=spec.in_dtype.cutlass,
        element_accumulator=spec.acc_dtype.cutlass,
        element_d=spec.out_dtype.cutlass,
        alignment_a=spec.alignment_a,
        alignment_b=spec.alignment_b,
        alignment_d=spec.alignment_d,
        threadblock=cpp_names.gemm_shape(spec.config.threadblock),
        warp=cpp_names.gemm_shape(spec.config.warp),
        instruction=cpp_names.gemm_shape(spec.config.instruction),
        stages=spec.config.stages,
        arch_tag=cpp_names.arch_tag(spec.arch),
        iterator_algorithm=cpp_names.ITERATOR_ALGORITHM[spec.conv_iterator],
        mainloop=cpp_names.MAINLOOP[spec.conv_iterator],
    )
