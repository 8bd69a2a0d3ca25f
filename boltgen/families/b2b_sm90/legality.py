"""The rules of legal configurations for sm_90a's back-to-back kernels, and their resources."""

from __future__ import annotations

from collections.abc import Iterator

from boltgen.arch import Arch
from boltgen.families.b2b_sm90.config import B2bSm90Config
from boltgen.families.chain.traits import Residence, intermediate_rejection
from boltgen.families.rejections import one_result_rejection, operand_rejection
from boltgen.families.resources import INT32_MAX, overflow_violations
from boltgen.families.space import Violation
from boltgen.families.wgmma import (
    LEAST_STAGES,
    MATH_REGISTERS,
    NO_STRIDE,
    TILE_DEPTH,
    WARPGROUP_M,
    WGMMA,
    im2col_rejection,
)
from boltgen.ir.dtypes import VECTOR_BYTES, DType
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer, Workload

ROWS = (64, 128)
# Columns of one wgmma: widths in CuTe without its extended shapes that are multiples of a step
# along the next layer's K. Source: cute/arch/mma_sm90.hpp, ss_op_selector. Registers do not limit
# them further: for two layers of 256 columns, A's fragments take 64 registers, the sums 128, and 48
# are left.
WARPGROUP_COLUMNS = (16, 32, 64, 96, 128, 192, 256)

_HEADER = "templates/include/boltgen/b2b_sm90.h"
# Two barriers of eight bytes per stage, and rounding up to the alignment of swizzles.
_BARRIER_BYTES, _SWIZZLE_BYTES = 2 * 8, 1024


def rejection(workload: Workload, arch: Arch) -> str | None:
    """Return why no kernel of this family computes a workload, or None if one can."""
    if arch.cutlass_api < 3:
        return f"wgmma and TMA are instructions of sm_90a, and {arch.name} has not both"
    if not workload.is_fused:
        return "it computes layers back to back, not one"
    first = workload.first.problem
    match first:
        case Gemm():
            if not first.a_batched:
                return f"its batch shares A, {NO_STRIDE}"
        case Conv2d():
            if (reason := im2col_rejection(first)) is not None:
                return reason
        case _:
            return "it begins with a matrix product or a convolution, not a " + type(first).__name__
    if not all(layer.prologue.is_identity for layer in workload.layers):
        return "what TMA brings to shared memory cannot be changed before the product"
    if (reason := intermediate_rejection(first)) is not None:
        return reason
    for index, layer in enumerate(workload.layers):
        reason = _layer_rejection(layer, arch, is_first=index == 0)
        if reason is not None:
            return f"layer {index}: {reason}"
    return None


def _layer_rejection(layer: Layer, arch: Arch, *, is_first: bool) -> str | None:
    problem = layer.problem
    if isinstance(problem, Gemm) and not problem.b_batched:
        return f"its batch shares B, {NO_STRIDE}"
    # TMA's strides are multiples of 16 bytes. Source: CUDA driver API, cuTensorMapEncodeTiled.
    operands = {"B": problem.alignment_b} | ({"A": problem.alignment_a} if is_first else {})
    for name, elements in operands.items():
        aligned_bytes = elements * problem.in_dtype.size_bytes
        if aligned_bytes < VECTOR_BYTES:
            return f"rows of {name} are aligned to {aligned_bytes} bytes, and TMA takes 16"
    return operand_rejection(problem, arch, WGMMA) or one_result_rejection(layer.epilogue)


def fewest_columns(n: int, residence: Residence) -> int | None:
    """Return the narrowest tile that holds `n` columns, or None if none does."""
    sides = 1 if residence is Residence.REGISTERS else 2
    return next((sides * each for each in WARPGROUP_COLUMNS if sides * each >= n), None)


def stage_bytes(config: B2bSm90Config, dtype: DType) -> int:
    """Return the bytes per step of the first layer's A and any layer's B: the header's `Stage`."""
    return (config.threadblock_m + max(config.columns)) * TILE_DEPTH * dtype.size_bytes


def staging_bytes(config: B2bSm90Config, dtype: DType) -> int:
    """Return the shared memory of the widest intermediate, in bytes; all share one buffer."""
    if config.residence is Residence.REGISTERS:
        return _SWIZZLE_BYTES  # an array has at least one element
    return WARPGROUP_M * max(config.columns[:-1]) * dtype.size_bytes


def stages(config: B2bSm90Config, dtype: DType, arch: Arch) -> int:
    """Return the number of stages that fit beside the intermediate.

    A threadblock has a multiprocessor alone.
    """
    left = arch.shared_memory_per_cta_bytes - staging_bytes(config, dtype) - _SWIZZLE_BYTES
    return max(0, left // stage_bytes(config, dtype))


def shared_memory_bytes(config: B2bSm90Config, dtype: DType, arch: Arch) -> int:
    """Return the dynamic shared memory of a threadblock. Source: `SharedStorage` of the header."""
    count = stages(config, dtype, arch)
    barriers = -(-count * _BARRIER_BYTES // _SWIZZLE_BYTES) * _SWIZZLE_BYTES
    return count * stage_bytes(config, dtype) + staging_bytes(config, dtype) + barriers


def violations(workload: Workload, config: B2bSm90Config, arch: Arch) -> tuple[Violation, ...]:
    """Return every rule that a configuration breaks, for a workload that the family accepts."""
    return tuple(_broken(workload, config, arch))


def _broken(workload: Workload, config: B2bSm90Config, arch: Arch) -> Iterator[Violation]:
    count, dtype = len(workload.layers), workload.first.problem.in_dtype
    if len(config.columns) != count:
        yield Violation(
            name="layer_count",
            message=f"{len(config.columns)} layers in the configuration, {count} to compute",
            reason="every layer has columns of its own",
        )
        return
    if config.threadblock_m not in ROWS:
        yield Violation(
            name="rows",
            message=f"{config.threadblock_m} rows, not one of {ROWS}",
            reason="a warpgroup multiplies 64, and of more than two each thread would have fewer "
            f"than {MATH_REGISTERS} registers",
        )
    if config.warpgroups > 2:
        yield Violation(
            name="warpgroups",
            message=f"{config.warpgroups} warpgroups hold {config.threadblock_m} rows in halves",
            reason="the sums of 128 rows and 512 columns take all registers of a multiprocessor",
            slack=2 / config.warpgroups - 1.0,
        )
    for index, (columns, layer) in enumerate(zip(config.columns, workload.layers, strict=True)):
        of_warpgroup, rest = divmod(columns, config.along_n)
        if rest or of_warpgroup not in WARPGROUP_COLUMNS:
            yield Violation(
                name="columns",
                message=f"layer {index}: {columns} columns of {config.along_n} warpgroups, each of "
                f"which has one of {WARPGROUP_COLUMNS}",
                reason="wgmma multiplies 256 columns at most, and sixteen are a step of the next "
                "layer's K",
            )
        n = layer.problem.gemm.n
        if n > columns:
            yield Violation(
                name="threadblock_residence",
                message=f"layer {index}: a threadblock has {columns} columns of N={n}",
                reason="the next layer multiplies whole rows, which no other threadblock can give; "
                "Bolt, section 3.1",
                slack=1.0 - n / columns,
            )
    fitting = stages(config, dtype, arch)
    if fitting < LEAST_STAGES:
        yield Violation(
            name="shared_memory",
            message=f"{fitting} stages of {stage_bytes(config, dtype)} bytes fit beside an "
            f"intermediate's {staging_bytes(config, dtype)}",
            reason=f"a threadblock has {arch.shared_memory_per_cta_bytes} bytes, and one stage is "
            "filled while another is multiplied",
            slack=fitting / LEAST_STAGES - 1.0,
        )
    gemm = workload.first.problem.gemm
    most_tiles = INT32_MAX - 2 * arch.sm_count
    sizes = {
        "M": (gemm.m, INT32_MAX - max(ROWS)),
        "K": (gemm.k, INT32_MAX - TILE_DEPTH),
        "tiles": (-(-gemm.m // config.threadblock_m) * workload.batch, most_tiles),
    }
    yield from overflow_violations(
        sizes, f"rows, steps and tiles are counted beyond the last in 32 bits; {_HEADER}"
    )
