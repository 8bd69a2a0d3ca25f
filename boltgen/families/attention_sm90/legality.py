"""The rules of legal configurations for sm_90a's attention kernels, and their resources."""

from __future__ import annotations

from collections.abc import Iterator

from boltgen.arch import Arch
from boltgen.families.attention_sm90.config import AttentionSm90Config
from boltgen.families.heads.rejection import rejection as attention_rejection
from boltgen.families.resources import INT32_MAX, overflow_violations
from boltgen.families.space import Violation
from boltgen.families.wgmma import LEAST_STAGES, MATH_REGISTERS, WARPGROUP_M
from boltgen.ir.dtypes import VECTOR_BYTES, DType
from boltgen.ir.key_masks import key_masks
from boltgen.problems.workload import Workload

ROWS = (64, 128, 192)
KEYS = (64, 96, 128, 192)
# Columns of Q and V in a threadblock: widths of wgmma in CuTe without its extended shapes that are
# multiples of a step along K. Source: cute/arch/mma_sm90.hpp, ss_op_selector.
HEADS = (32, 64, 96, 128, 192, 256)

_HEADER = "templates/include/boltgen/attention_sm90.h"
# A few steps cover the latency of memory.
_MOST_STAGES = 4
# The barriers of the rings and of Q, rounded up to the alignment of swizzles.
_BARRIER_BYTES = 1024
# Registers of a thread by the number of multiplying warpgroups. A single warpgroup keeps the
# registers of its launch; two or three get registers from the loading warpgroup. Source: PTX ISA,
# setmaxnreg; `kMathRegisters`. With three, a thread has 160 registers, which suffice for a kernel
# whose estimate is 168, as ptxas shows.
_MOST_REGISTERS = {1: 255, 2: MATH_REGISTERS, 3: 168}
# For each of two rows: the greatest score, the sum, and the factor of the earlier sum.
_STATISTICS = 6
# Addresses, descriptors and barriers. An estimate from ptxas's reports of the tests' kernels.
_BOOKKEEPING_REGISTERS = 34
# Registers for the limits of key masks; and, if registers are moved between warpgroups, the ones
# that loading threads keep to find the keys. From ptxas's reports of the tests' kernels: 216
# registers and a mask spill, 208 do not.
_MASK_REGISTERS, _KEPT_REGISTERS = 20, 8


def rejection(workload: Workload, arch: Arch) -> str | None:
    """Return why no kernel of this family computes a workload, or None if one can."""
    if arch.cutlass_api < 3:
        return f"wgmma and TMA are instructions of sm_90a, and {arch.name} has not both"
    if (reason := attention_rejection(workload, arch)) is not None:
        return reason
    scores, output = (layer.problem for layer in workload.layers)
    # TMA's strides are multiples of 16 bytes. Source: CUDA driver API, cuTensorMapEncodeTiled.
    rows = {"Q": scores.alignment_a, "K": scores.alignment_b, "V": output.alignment_b}
    for name, elements in rows.items():
        aligned_bytes = elements * scores.in_dtype.size_bytes
        if aligned_bytes < VECTOR_BYTES:
            return f"rows of {name} are aligned to {aligned_bytes} bytes, and TMA takes 16"
    return None


def stage_bytes(config: AttentionSm90Config, dtype: DType) -> int:
    """Return the bytes of the tiles of K and V of one step."""
    return config.keys * (config.depth + config.columns) * dtype.size_bytes


def _queries_bytes(config: AttentionSm90Config, dtype: DType) -> int:
    return config.rows * config.depth * dtype.size_bytes


def stages(config: AttentionSm90Config, dtype: DType, arch: Arch) -> int:
    """Return the number of stages that fit beside Q; a threadblock has a multiprocessor alone."""
    left = arch.shared_memory_per_cta_bytes - _queries_bytes(config, dtype) - _BARRIER_BYTES
    return min(_MOST_STAGES, max(0, left // stage_bytes(config, dtype)))


def shared_memory_bytes(config: AttentionSm90Config, dtype: DType, arch: Arch) -> int:
    """Return the dynamic shared memory of a threadblock. Source: `SharedStorage` of the header."""
    return (
        _queries_bytes(config, dtype)
        + stages(config, dtype, arch) * stage_bytes(config, dtype)
        + _BARRIER_BYTES
    )


def registers_per_thread(config: AttentionSm90Config, *, has_masks: bool) -> int:
    """Estimate the registers of a multiplying thread.

    It has sums, a step's scores in FP32, the previous step's 16-bit exponentials, a row's
    statistics, and the limits of key masks if there are masks.
    """
    sums = config.columns // 2
    scores = config.keys // 2
    exponentials = config.keys // 4
    masks = _MASK_REGISTERS if has_masks else 0
    return sums + scores + exponentials + _STATISTICS + masks + _BOOKKEEPING_REGISTERS


def has_key_masks(workload: Workload) -> bool:
    """Return whether the kernel skips keys that masks hide."""
    return bool(key_masks(workload.first.epilogue))


def violations(
    workload: Workload, config: AttentionSm90Config, arch: Arch
) -> tuple[Violation, ...]:
    """Return every rule that a configuration breaks, for a workload that the family accepts."""
    return (
        *_tile_violations(config),
        *_extent_violations(workload, config),
        *_capacity_violations(workload, config, arch),
    )


def _tile_violations(config: AttentionSm90Config) -> Iterator[Violation]:
    if config.rows not in ROWS:
        yield Violation(
            name="rows",
            message=f"{config.rows} rows, not one of {ROWS}",
            reason=f"a warpgroup multiplies {WARPGROUP_M}, and with more than three of them a "
            "thread would have fewer than 128 registers",
        )
    widths = {"keys": (config.keys, KEYS)} | {
        name: (extent, HEADS) for name, extent in _head(config).items()
    }
    for name, (extent, known) in widths.items():
        if extent not in known:
            yield Violation(
                name="wgmma_shape",
                message=f"{name}: {extent}, not one of {known}",
                reason="wgmma multiplies such widths, and TMA's swizzles hold whole ones of them",
            )


def _head(config: AttentionSm90Config) -> dict[str, int]:
    return {"depth": config.depth, "columns": config.columns}


def _extent_violations(workload: Workload, config: AttentionSm90Config) -> Iterator[Violation]:
    scores, output = (layer.problem.gemm for layer in workload.layers)
    asked = {"depth": scores.k, "columns": output.n}
    for name, tile in _head(config).items():
        if asked[name] > tile:
            yield Violation(
                name="head_size",
                message=f"{name}: a threadblock has {tile} of {asked[name]}",
                reason="a row of Q, and one of the output, stay in one threadblock; " + _HEADER,
                slack=1.0 - asked[name] / tile,
            )
    counted = {
        "rows": (scores.m, INT32_MAX - config.rows),
        "keys": (scores.n, INT32_MAX - config.keys),
        # A threadblock's next tile is as many tiles further as the device has threadblocks.
        "tiles": (-(-scores.m // config.rows) * workload.batch, INT32_MAX // 2),
    }
    yield from overflow_violations(
        counted, "the last tile is counted to its end in 32 bits; " + _HEADER
    )


def _capacity_violations(
    workload: Workload, config: AttentionSm90Config, arch: Arch
) -> Iterator[Violation]:
    dtype, has_masks = workload.first.problem.in_dtype, has_key_masks(workload)
    fitting = stages(config, dtype, arch)
    if fitting < LEAST_STAGES:
        yield Violation(
            name="shared_memory",
            message=f"{fitting} stages of {stage_bytes(config, dtype)} bytes fit beside the "
            f"{_queries_bytes(config, dtype)} of Q",
            reason=f"a threadblock has {arch.shared_memory_per_cta_bytes} bytes, and one stage is "
            "filled while another is multiplied",
            slack=fitting / LEAST_STAGES - 1.0,
        )
    kept = _KEPT_REGISTERS if has_masks else 0
    if config.rows not in ROWS:
        return
    most = _MOST_REGISTERS[config.warpgroups]
    most -= kept if config.warpgroups > 1 else 0
    registers = registers_per_thread(config, has_masks=has_masks)
    if registers > most:
        yield Violation(
            name="registers",
            message=f"about {registers} registers a thread, at most {most}",
            reason="scores and sums would be spilt to local memory",
            slack=1.0 - registers / most,
        )
