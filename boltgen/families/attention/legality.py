"""Which attention configurations are legal for a workload: stated here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator

from boltgen.arch import Arch
from boltgen.families.attention.config import AttentionConfig
from boltgen.families.attention.resources import registers_per_thread, shared_memory_bytes
from boltgen.families.b2b.legality import capacity_violations
from boltgen.families.cutlass2.legality import INT32_MAX
from boltgen.families.cutlass2.results import others_rejection
from boltgen.families.cutlass2.traits import operand_rejection, packed_rejection
from boltgen.families.space import Violation
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import SOFTMAX, ElementwiseGraph, local_softmax
from boltgen.ir.problem import Gemm
from boltgen.ir.workload import Workload

_HEADER = "templates/include/boltgen/attention.h"
# The rows and columns of a fragment of A.
_FRAGMENT = 16
# Beyond, the sums of all take the last threadblock longer than keys take the others.
_MOST_SPLITS = 64


def rejection(workload: Workload, arch: Arch) -> str | None:
    """Why no attention kernel computes a workload; None where one can."""
    if len(workload.layers) != 2:
        return f"it is two products with a softmax between them, not {len(workload.layers)} layers"
    before, after = workload.layers
    if not before.prologue.is_identity or after.prologue not in _softmaxes(after.prologue):
        return f"between its products is a softmax of rows, not {after.prologue.describe()}"
    if not isinstance(before.problem, Gemm):
        return f"it begins with a matrix product, not a {type(before.problem).__name__}"
    first = before.problem
    reason = operand_rejection(first) or first.in_dtype.accumulator_rejection(
        first.acc_dtype, arch.compute_capability
    )
    if reason is not None:
        return reason
    if before.problem.out_dtype is not DType.F32:
        return f"scores are float32 before the softmax, not {before.problem.out_dtype.value}"
    for index, layer in enumerate(workload.layers):
        if (reason := packed_rejection(layer.problem)) is not None:
            return f"layer {index}: {reason}"
        if layer.problem.acc_dtype is not DType.F32:
            return f"layer {index}: it sums in float32, not {layer.problem.acc_dtype.value}"
        if layer.epilogue.stores:
            return f"layer {index}: it stores {layer.epilogue.describe()}"
        if (reason := others_rejection(layer.epilogue)) is not None:
            return f"layer {index}: {reason}"
    return None


def _softmaxes(prologue: ElementwiseGraph) -> tuple[ElementwiseGraph, ...]:
    return SOFTMAX, local_softmax(prologue.window)


def is_async(workload: Workload, arch: Arch) -> bool:
    """Whether K and V come with cp.async, which copies 4 bytes or more."""
    return arch.has_async_copies and all(layer.problem.alignment_b > 1 for layer in workload.layers)


def violations(workload: Workload, config: AttentionConfig, arch: Arch) -> tuple[Violation, ...]:
    """Every rule that `config` breaks for `workload` on `arch`; empty if it is legal.

    Tiles of no whole fragments are reported alone: nothing else can be said then.
    """
    structural = tuple(_tile_violations(config))
    if structural:
        return structural
    return (
        *_extent_violations(workload, config),
        *_stage_violations(workload, config, arch),
        *_split_violations(config),
        *capacity_violations(
            arch,
            shared_bytes=shared_memory_bytes(workload, config),
            registers=registers_per_thread(workload, config, is_async=is_async(workload, arch)),
            threads=config.threads,
            spilt="scores and sums",
        ),
    )


def _tile_violations(config: AttentionConfig) -> Iterator[Violation]:
    extents = {
        "rows of a warp": config.warp_rows,
        "keys": config.keys,
        "depth": config.depth,
        "columns": config.columns,
    }
    for name, extent in extents.items():
        if extent < _FRAGMENT or extent % _FRAGMENT or config.rows % config.warps:
            yield Violation(
                name="whole_fragments",
                message=f"{name}: {extent} of {config}",
                reason="mma.m16n8k16 and ldmatrix take sixteen rows and columns; " + _HEADER,
            )


def _extent_violations(workload: Workload, config: AttentionConfig) -> Iterator[Violation]:
    scores, output = (layer.problem.gemm for layer in workload.layers)
    held = {"depth": (scores.k, config.depth), "columns": (output.n, config.columns)}
    for name, (extent, tile) in held.items():
        if extent > tile:
            yield Violation(
                name="head_size",
                message=f"{name}: a threadblock has {tile} of {extent}",
                reason="a row of Q, and one of the output, stay in one threadblock; " + _HEADER,
                slack=1.0 - extent / tile,
            )
    counted = {"rows": (scores.m, config.rows), "keys": (scores.n, config.keys)}
    for name, (extent, tile) in counted.items():
        most = INT32_MAX - tile
        if extent > most:
            yield Violation(
                name="index_overflow",
                message=f"{name}: {extent} exceeds {most}",
                reason="the last tile is counted to its end in 32 bits; " + _HEADER,
                slack=1.0 - extent / most,
            )


def _stage_violations(
    workload: Workload, config: AttentionConfig, arch: Arch
) -> Iterator[Violation]:
    most = arch.max_stages if is_async(workload, arch) else 2
    if not 2 <= config.stages <= most:
        yield Violation(
            name="stages",
            message=f"{config.stages} stages on {arch.name}, which takes 2 to {most} here",
            reason="a stage is filled while another is read; without cp.async, of 4 bytes or more, "
            "copies pass through registers, for one step at a time",
        )


def _split_violations(config: AttentionConfig) -> Iterator[Violation]:
    if not 1 <= config.splits <= _MOST_SPLITS:
        yield Violation(
            name="splits",
            message=f"{config.splits} threadblocks share the keys, which takes 1 to {_MOST_SPLITS}",
            reason="the last of them adds what all of them leave; "
            "templates/include/boltgen/attention_split.h",
        )
