"""The rules of legal attention configurations, stated only here."""

from __future__ import annotations

from collections.abc import Iterator

from boltgen.arch import Arch
from boltgen.families.attention.config import AttentionConfig
from boltgen.families.attention.resources import (
    merged_bytes,
    registers_per_thread,
    shared_memory_bytes,
)
from boltgen.families.resources import INT32_MAX, capacity_violations, overflow_violations
from boltgen.families.space import Violation
from boltgen.problems.workload import Workload

_HEADER = "templates/include/boltgen/attention.h"
# The rows and columns of a fragment of A.
_FRAGMENT = 16
# With more splits the last threadblock sums longer than the others multiply.
_MOST_SPLITS = 64
_KEY_WARPS = (1, 2)


def is_async(workload: Workload, arch: Arch) -> bool:
    """Return whether K and V are loaded by cp.async, which copies 4 bytes or more."""
    return arch.has_async_copies and all(layer.problem.alignment_b > 1 for layer in workload.layers)


def violations(workload: Workload, config: AttentionConfig, arch: Arch) -> tuple[Violation, ...]:
    """Return every rule that `config` breaks for `workload` on `arch`; empty if it is legal.

    Tiles that are no whole fragments are reported alone, because other rules need whole ones.
    """
    structural = tuple(_tile_violations(config))
    if structural:
        return structural
    return (
        *_extent_violations(workload, config),
        *_stage_violations(workload, config, arch),
        *_split_violations(config),
        *_merge_violations(workload, config),
        *capacity_violations(
            arch,
            shared_bytes=shared_memory_bytes(workload, config),
            registers=registers_per_thread(workload, config, is_async=is_async(workload, arch)),
            threads=config.threads,
            spilt="scores and sums",
        ),
    )


def _tile_violations(config: AttentionConfig) -> Iterator[Violation]:
    if config.key_warps not in _KEY_WARPS or (config.key_warps > 1 and config.splits > 1):
        yield Violation(
            name="key_warps",
            message=f"{config.key_warps} warps and {config.splits} threadblocks share the keys; "
            "two warps can, of one threadblock",
            reason="pairs of warps add their sums; templates/include/boltgen/attention_split.h",
        )
        return
    extents = {
        "rows of a warp": config.warp_rows,
        "keys of a warp": config.warp_keys,
        "depth": config.depth,
        "columns": config.columns,
    }
    is_even = not (
        config.warps % config.key_warps
        or config.keys % config.key_warps
        or config.rows * config.key_warps % config.warps
    )
    for name, extent in extents.items():
        if extent < _FRAGMENT or extent % _FRAGMENT or not is_even:
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
    counted = {
        "rows": (scores.m, INT32_MAX - config.rows),
        "keys": (scores.n, INT32_MAX - config.keys),
        "tiles": (-(-scores.m // config.rows) * workload.batch, INT32_MAX),
    }
    yield from overflow_violations(
        counted, "tiles, and the last one's rows, are counted in 32 bits; " + _HEADER
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


def _merge_violations(workload: Workload, config: AttentionConfig) -> Iterator[Violation]:
    needed, held = merged_bytes(config), shared_memory_bytes(workload, config)
    if needed > held:
        yield Violation(
            name="merged_sums",
            message=f"warps that share keys leave {needed} bytes of sums; tiles have {held}",
            reason="they lie where the tiles were; " + _HEADER,
            slack=1.0 - needed / held,
        )
