"""sm_90a's kernels as text: the view of their template, and descriptions for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from boltgen.codegen import cpp_names
from boltgen.codegen.epilogue import EpilogueCode, emit_epilogue
from boltgen.families.cutlass3.config import (
    Cutlass3Config,
    Cutlass3ConvTraits,
    Cutlass3Traits,
    Schedule,
    Scheduler,
)
from boltgen.families.wgmma import COMMON_WIDTHS, WIDTHS_HEADER
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.kernel import KernelSpec

_MAIN_SCHEDULE = {
    Schedule.PINGPONG: "cutlass::gemm::KernelTmaWarpSpecializedPingpong",
    Schedule.COOPERATIVE: "cutlass::gemm::KernelTmaWarpSpecializedCooperative",
}
_EPILOGUE_SCHEDULE = {
    Schedule.PINGPONG: "cutlass::epilogue::TmaWarpSpecialized",
    Schedule.COOPERATIVE: "cutlass::epilogue::TmaWarpSpecializedCooperative",
}
_SCHEDULER = {
    Scheduler.PERSISTENT: "cutlass::gemm::PersistentScheduler",
    Scheduler.STREAM_K: "cutlass::gemm::StreamKScheduler",
}
_SHORT = {
    (Schedule.PINGPONG, Scheduler.PERSISTENT): "pp",
    (Schedule.COOPERATIVE, Scheduler.PERSISTENT): "co",
    (Schedule.COOPERATIVE, Scheduler.STREAM_K): "cosk",
}
_WORK = {
    Scheduler.PERSISTENT: "persistent",
    Scheduler.STREAM_K: "stream-K",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sm90View:
    """One kernel of sm_90a; `op_class` is a class of the headers, which has the C argument struct.

    `operands` are the type of A and B, and the layout of a matmul's B. `graph` is the epilogue's.
    """

    TEMPLATE: ClassVar[str] = "sm90.cu.j2"

    symbol: str
    workspace_symbol: str
    epilogue: EpilogueCode
    graph: str
    op: str
    op_class: str
    args: str
    operands: str
    element_d: str
    tile: str
    cluster: str
    main_schedule: str
    epilogue_schedule: str
    scheduler: str


def includes(spec: KernelSpec) -> tuple[str, ...]:
    """Return the headers that a kernel's text includes."""
    config, traits = _parts(spec)
    is_conv = isinstance(traits, Cutlass3ConvTraits)
    kind = "conv2d" if is_conv else "gemm"
    is_common = config.threadblock.n in COMMON_WIDTHS
    first = () if is_common else (WIDTHS_HEADER,)
    epilogue = traits.epilogue
    results = "reductions" if epilogue.reductions else "results"
    last = (f"boltgen/{results}_sm90.h",) if epilogue.further else ()
    return *first, "boltgen/activations.h", _operation(kind, traits.in_dtype), *last


def _operation(kind: str, operand: DType) -> str:
    """Return the header of a kind of kernels that multiply this type."""
    if operand.is_whole:
        return "boltgen/integers_sm90.h" if kind == "gemm" else "boltgen/integers_conv2d_sm90.h"
    return "boltgen/narrow_sm90.h" if operand.is_narrow else f"boltgen/{kind}_sm90.h"


def stem(spec: KernelSpec) -> str:
    """Return a name for people: `gemm_sm90a_128x128x64_pp_c2x1_rc`."""
    config, traits = _parts(spec)
    kind, layout = "conv2d", "nhwc"
    types = f"_{traits.in_dtype.short}" if traits.in_dtype.size_bytes == 1 else ""
    if isinstance(traits, Cutlass3Traits):
        kind, layout = "gemm", f"r{traits.b_layout.value[0]}"
    short = _SHORT[config.schedule, config.scheduler]
    return (
        f"{kind}_{spec.arch.replace('_', '')}_{config.threadblock}_{short}"
        f"_c{config.cluster_m}x{config.cluster_n}_{layout}{types}"
    )


def describe(spec: KernelSpec) -> dict[str, str]:
    """Return labelled texts on what the kernel computes and how, for `boltgen inspect`."""
    config, traits = _parts(spec)
    return {
        "Problem": f"{_problem(traits)}, accumulated in {_sums(traits.in_dtype).value}",
        "Epilogue": traits.epilogue.formula,
        "Alignment": "16 bytes, which TMA needs",
        "Config": (
            f"threadblock {config.threadblock}, cluster {config.cluster_m}x{config.cluster_n}, "
            f"TMA, warp-specialised {config.schedule.value}, {_WORK[config.scheduler]}"
        ),
        "Arch": spec.arch,
        "CUTLASS": "3.x API",
    }


def _sums(operand: DType) -> DType:
    return DType.I32 if operand.is_whole else DType.F32


def _problem(traits: Cutlass3Traits | Cutlass3ConvTraits) -> str:
    """Return the operation with the types and layouts of its operands and output, as text."""
    operands, output = traits.in_dtype.value, traits.out_dtype.value
    if isinstance(traits, Cutlass3ConvTraits):
        return (
            f"Conv2d, A: (N, H, W, C) {operands}, B: (K, R, S, C) {operands}, D: (N, P, Q, K) "
            f"{output}"
        )
    order = "column" if traits.b_layout is Layout.COLUMN else "row"
    b = f"{traits.in_dtype.weight.value} {order}-major"
    return f"Gemm, A: (M, K) {operands} row-major, B: (K, N) {b}, D: (M, N) {output} row-major"


def view(spec: KernelSpec, symbol: str, workspace_symbol: str) -> Sm90View:
    """Return the variables of the kernel's template."""
    config, traits = _parts(spec)
    tile, operands = config.threadblock, traits.in_dtype.cutlass

    def marked(name: str) -> str:
        return f"boltgen::OfIntegers<{name}>" if traits.in_dtype.is_whole else name

    op, op_class, args = "Conv", "Conv2dSm90", "boltgen_conv2d_args"
    if isinstance(traits, Cutlass3Traits):
        op, op_class, args = "Gemm", "GemmSm90", "boltgen_gemm_args"
        operands += f", /*LayoutB=*/{cpp_names.LAYOUT[traits.b_layout]}"
    return Sm90View(
        symbol=symbol,
        workspace_symbol=workspace_symbol,
        epilogue=emit_epilogue(traits.epilogue),
        graph=marked("Epilogue"),
        op=op,
        op_class=op_class,
        args=args,
        operands=operands,
        element_d=traits.out_dtype.cutlass,
        tile=_shape(tile.m, tile.n, tile.k),
        cluster=_shape(config.cluster_m, config.cluster_n, 1),
        main_schedule=marked(_MAIN_SCHEDULE[config.schedule]),
        epilogue_schedule=marked(_EPILOGUE_SCHEDULE[config.schedule]),
        scheduler=_SCHEDULER[config.scheduler],
    )


def _shape(*extents: int) -> str:
    """Return the C++ type `cute::Shape<cute::Int<128>, cute::Int<128>, cute::Int<64>>`."""
    return f"cute::Shape<{', '.join(f'cute::Int<{extent}>' for extent in extents)}>"


def _parts(spec: KernelSpec) -> tuple[Cutlass3Config, Cutlass3Traits | Cutlass3ConvTraits]:
    config, traits = spec.config, spec.traits
    assert isinstance(config, Cutlass3Config)
    assert isinstance(traits, (Cutlass3Traits, Cutlass3ConvTraits))
    return config, traits
