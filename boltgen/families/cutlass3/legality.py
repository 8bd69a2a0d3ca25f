"""The rules of legal configurations of sm_90a's kernels, and their resources, stated only here."""

from __future__ import annotations

import math
from collections.abc import Iterator

from boltgen.arch import Arch
from boltgen.families.cutlass3.config import Cutlass3Config, Raster, Schedule, Scheduler
from boltgen.families.family import Footprint
from boltgen.families.rejections import (
    graph_rejection,
    operand_rejection,
    others_rejection,
)
from boltgen.families.space import Violation
from boltgen.families.wgmma import (
    LEAST_STAGES,
    MATH_REGISTERS,
    NO_STRIDE,
    WGMMA,
    WGMMA_OF_INTEGERS,
    WGMMA_OF_NARROW,
    im2col_rejection,
    steps,
    tile_depth,
)
from boltgen.ir.dtypes import VECTOR_BYTES, DType, Layout, alignment_elements
from boltgen.ir.elementwise import ElementwiseGraph, LoadKind
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Layer, Workload

TILE_M = (64, 128, 256)
# Widths of wgmma are multiples of 8; the epilogue's subtiles have 16 or 32 columns.
TILE_N = (16, 32, 48, 64, 96, 112, 128, 144, 160, 176, 192, 208, 224, 256)
# A kernel must request clusters of more than 8 threadblocks by an attribute. Source: CUDA C++
# Programming Guide, thread block clusters.
CLUSTERS, MOST_IN_CLUSTER = (1, 2, 4, 8), 8
SWIZZLES, SLICES = (1, 2, 4, 8), (1, 2, 4, 8)
SCHEDULES, SCHEDULERS, RASTERS = tuple(Schedule), tuple(Scheduler), tuple(Raster)

_WARPGROUP = 128
# One warpgroup loads, two multiply. Source: cutlass/gemm/kernel/sm90_gemm_tma_warpspecialized_*.hpp
THREADS = 3 * _WARPGROUP
# Addresses, barriers and the fragments of the epilogue. An estimate.
_BOOKKEEPING_REGISTERS = 40
MOST_ACCUMULATORS = MATH_REGISTERS - _BOOKKEEPING_REGISTERS
# From this number of sums of a tile on, a thread has no registers for sums of columns.
_MOST_BESIDE_COLUMNS = 128
# The columns of a subtile that the epilogue stores by one TMA, or a divisor of them that divides
# the tile's width; and the stages of subtiles. Source:
# cutlass/epilogue/collective/builders/sm90_builder.inl.
_SUBTILE_N, _MOST_D_STAGES, _MOST_C_STAGES = 32, 2, 4
# The rows of the pattern in which TMA swizzles 128 bytes: each threadblock of a cluster loads whole
# patterns of a shared tile. Source: CUDA Programming Guide, swizzling modes of TMA.
_ROWS_OF_SWIZZLE, _SWIZZLED_BYTES = 8, 128
# An upper bound of the barriers of pipelines and scheduler, with rounding to the alignment of
# swizzles; and the barriers of a stage. Source:
# cutlass/gemm/collective/builders/sm90_gmma_builder.inl.
_BARRIER_BYTES, _STAGE_BARRIER_BYTES = 2048, 16
# With fewer steps of K, stream-K leaves a part of a tile to the threadblock before or after.
# Source: cutlass/gemm/kernel/tile_scheduler_params.h, min_iters_per_sk_unit_.
STREAM_K_STEPS = 8
# The threadblocks that 132 multiprocessors run at once, by the size of their clusters, because a
# cluster lies within a GPC. Clusters of four: an H200 runs 120 tiles in one wave and 128 in two
# (benchmarks/recorded). Clusters of eight: for 120 tiles in clusters of 2x4, cuBLAS takes the time
# of one wave (1280x768x3072, benchmarks/results).
_AT_ONCE, _OF_SMS = {1: 132, 2: 132, 4: 120, 8: 120}, 132
# The SMs of a whole GH100; GPUs for sale have fewer. Source: boltgen/launch_sm90.h.
_MOST_SMS = 144
_CACHE_LINE_BYTES = 128
_ROWS_OF_SLICES = frozenset({LoadKind.SLICE_ROW, LoadKind.POSITION_ROW})


def rejection(workload: Workload, arch: Arch) -> str | None:
    """Return why no kernel of this family computes a workload, or None if one can."""
    if arch.cutlass_api < 3:
        return f"wgmma and TMA are instructions of sm_90a, and {arch.name} has not both"
    if workload.is_fused:
        return f"it computes one layer, not {len(workload.layers)} back to back"
    layer = workload.single
    problem = layer.problem
    match problem:
        case Gemm():
            if not (problem.a_batched and problem.b_batched):
                return f"its batch shares an operand, {NO_STRIDE}"
        case Conv2d():
            if (reason := im2col_rejection(problem)) is not None:
                return reason
            if any(store.kind is LoadKind.ROW for store in layer.epilogue.reductions):
                return "it reduces the columns of a tile, which has rows of several images"
        case _:
            return f"it computes products and convolutions, not a {type(problem).__name__}"
    if problem.batch > 1 and _tensors(layer.epilogue):
        return f"a batch may share the epilogue's full tensor, {NO_STRIDE}"
    if not layer.prologue.is_identity:
        return "TMA brings A to shared memory as it is, so nothing can be done to it before"
    return (
        operand_rejection(problem, arch, (*WGMMA, *WGMMA_OF_INTEGERS, *WGMMA_OF_NARROW))
        or _narrow_rejection(problem, layer.epilogue)
        or graph_rejection(layer.epilogue)
        or others_rejection(layer.epilogue)
        or _epilogue_rejection(layer.epilogue)
        or _alignment_rejection(problem, layer.epilogue)
    )


def _narrow_rejection(problem: Problem, epilogue: ElementwiseGraph) -> str | None:
    """Return why no kernel multiplies operands of 8 bits in this way, or None if one does.

    Source: PTX ISA, wgmma: only 16-bit operands may be transposed.
    """
    name = problem.in_dtype.value
    if problem.in_dtype.size_bytes > 1:
        return None
    if problem.in_dtype.is_narrow and not problem.is_matrix:
        return f"no kernel convolves images of {name}: multiply them in int8 or float16"
    if problem.gemm.b_layout is Layout.ROW:
        return f"B is row-major: wgmma reads {name} with K side by side, in B column-major"
    if epilogue.further:
        return f"kernels of {name} store D alone, not {epilogue.describe()}"
    for load in epilogue.loads:
        if load.dtype is DType.I32 and load.kind in _ROWS_OF_SLICES:
            return f"a {load.kind.value} of int32, which its node would round to float32"
    return None


def _epilogue_rejection(epilogue: ElementwiseGraph) -> str | None:
    tensors = _tensors(epilogue)
    if len(tensors) > 1:
        return f"{len(tensors)} full tensors: the collective loads one, as its C"
    return None


def _tensors(epilogue: ElementwiseGraph) -> list[DType]:
    return [load.dtype for load in epilogue.loads if load.kind is LoadKind.TENSOR]


def _alignment_rejection(problem: Problem, epilogue: ElementwiseGraph) -> str | None:
    """Return why TMA cannot load an operand: its strides are multiples of 16 bytes, or None.

    Source: CUDA driver API, cuTensorMapEncodeTiled.
    """
    rows = [
        ("A", problem.alignment_a, problem.in_dtype),
        ("B", problem.alignment_b, problem.in_dtype),
        ("D", problem.alignment_d, problem.out_dtype),
    ]
    for dtype in _tensors(epilogue):
        rows.append(("the epilogue's tensor", alignment_elements(dtype, problem.gemm.n), dtype))
    for name, elements, dtype in rows:
        aligned_bytes = elements * dtype.size_bytes
        if aligned_bytes < VECTOR_BYTES:
            return f"rows of {name} are aligned to {aligned_bytes} bytes, and TMA takes 16"
    return None


def least_steps(config: Cutlass3Config) -> int:
    """Return the fewest steps of K for which the launch arguments take effect."""
    if config.scheduler is Scheduler.STREAM_K and config.split_k == 1:
        return STREAM_K_STEPS + 1
    return config.split_k


def workspace_bytes(problem: Problem, config: Cutlass3Config) -> int:
    """Return the global memory for sums of split tiles, in bytes, as the kernel's own query does.

    Source: templates/include/boltgen/launch_sm90.h, workspace_bytes_sm90.
    """
    if config.scheduler is Scheduler.PERSISTENT:
        return 0
    tile, gemm = config.threadblock, problem.gemm
    rows = whole_tiles(gemm.m, tile.m, config.swizzle * config.cluster_m)
    columns = whole_tiles(gemm.n, tile.n, config.swizzle * config.cluster_n)
    tiles = problem.batch * rows * columns
    if config.split_k == 1:
        tiles = min(tiles, 2 * _MOST_SMS)
    counters = tiles * (THREADS // _WARPGROUP - 1) * 4
    lines = math.ceil(counters / _CACHE_LINE_BYTES)
    return tiles * tile.m * tile.n * DType.F32.size_bytes + lines * _CACHE_LINE_BYTES


def whole_tiles(extent: int, tile: int, together: int) -> int:
    """Return the tiles along an extent, rounded up to whole clusters of `together` tiles."""
    return math.ceil(extent / (tile * together)) * together


def blocks_at_once(config: Cutlass3Config, arch: Arch) -> int:
    """Return the number of threadblocks that a device runs at once."""
    return at_once(config.cluster_m * config.cluster_n, arch)


def at_once(cluster: int, arch: Arch) -> int:
    """Return the threadblocks at once for a size of clusters; large ones may not fill a GPC."""
    return max(1, _AT_ONCE[cluster] * arch.sm_count // _OF_SMS // cluster) * cluster


def accumulator_registers(config: Cutlass3Config, dtype: DType) -> int:
    """Return a thread's registers for sums of a tile of `dtype`, or of half a tile.

    Sums of 8-bit floats are there twice: of the last instructions, and in FP32. Source:
    cutlass/gemm/collective/fp8_accumulation.hpp.
    """
    threads = _WARPGROUP * (2 if config.schedule is Schedule.COOPERATIVE else 1)
    sets = 2 if dtype.is_narrow else 1
    return sets * config.threadblock.m * config.threadblock.n // threads


def epilogue_bytes(config: Cutlass3Config, layer: Layer) -> int:
    """Return the epilogue's shared memory: subtiles of C and D, rows of operands, and barriers.

    Subtiles of D reuse the memory of C's if they have the same size, and not of bytes. In pingpong
    subtiles of bytes are twice as wide. Sources:
    cutlass/epilogue/collective/sm90_epilogue_tma_warpspecialized.hpp, SharedStorage;
    cutlass/epilogue/collective/builders/sm90_builder.inl, sm90_get_tma_dispatch_policy.
    """
    tile, out_dtype = config.threadblock, layer.problem.out_dtype
    rows = min(128, tile.m) if config.schedule is Schedule.COOPERATIVE else 64
    is_narrow = out_dtype.size_bytes == 1
    is_wide = is_narrow and config.schedule is Schedule.PINGPONG and tile.n % (2 * _SUBTILE_N) == 0
    subtile_n = 2 * _SUBTILE_N if is_wide else math.gcd(_SUBTILE_N, tile.n)
    subtiles = math.ceil(tile.m / rows) * (tile.n // subtile_n)
    of_c, of_d = min(subtiles, _MOST_C_STAGES), min(subtiles, _MOST_D_STAGES)
    elements = rows * subtile_n
    taken = elements * out_dtype.size_bytes * of_d
    widest = out_dtype.size_bytes
    for dtype in _tensors(layer.epilogue):
        if dtype.size_bytes == out_dtype.size_bytes and not is_narrow:
            of_c = max(of_c, of_d + 1)
            taken = elements * dtype.size_bytes * of_c
        else:
            taken += elements * dtype.size_bytes * of_c
        widest = max(widest, dtype.size_bytes)
    rows_of = (load.dtype for load in layer.epilogue.loads if load.kind is LoadKind.ROW)
    # Without row operands, CUTLASS's empty struct takes a byte.
    taken += max(1, sum(tile.n * dtype.size_bytes for dtype in rows_of))
    pattern = _ROWS_OF_SWIZZLE * min(_SWIZZLED_BYTES, subtile_n * widest)
    return _whole(_whole(taken, pattern) + of_c * _STAGE_BARRIER_BYTES, pattern)


def _whole(size_bytes: int, alignment: int) -> int:
    return math.ceil(size_bytes / alignment) * alignment


def stage_bytes(config: Cutlass3Config, dtype: DType) -> int:
    """Return the shared memory of one stage, a tile of A and one of B, in bytes."""
    tile = config.threadblock
    return (tile.m + tile.n) * tile.k * dtype.size_bytes


def stages(config: Cutlass3Config, layer: Layer, arch: Arch) -> int:
    """Return the number of stages that fit beside the epilogue; CUTLASS uses all of them."""
    stage = stage_bytes(config, layer.problem.in_dtype) + _STAGE_BARRIER_BYTES
    return max(0, (arch.shared_memory_per_cta_bytes - epilogue_bytes(config, layer)) // stage)


def footprint(config: Cutlass3Config, layer: Layer, arch: Arch) -> Footprint:
    """Return the resources of a threadblock, with the registers of a multiplying thread."""
    shared = stages(config, layer, arch) * stage_bytes(config, layer.problem.in_dtype)
    shared += epilogue_bytes(config, layer) + _BARRIER_BYTES
    return Footprint(
        registers=MATH_REGISTERS,
        shared_memory_bytes=min(shared, arch.shared_memory_per_cta_bytes),
        warps=THREADS // 32,
    )


def violations(layer: Layer, config: Cutlass3Config, arch: Arch) -> tuple[Violation, ...]:
    """Return every rule that a configuration breaks, for a layer that the family accepts."""
    return tuple(_broken(layer, config, arch))


def _broken(layer: Layer, config: Cutlass3Config, arch: Arch) -> Iterator[Violation]:
    tile, in_dtype = config.threadblock, layer.problem.in_dtype
    depth = tile_depth(in_dtype)
    if tile.m not in TILE_M or tile.n not in TILE_N or tile.k != depth:
        yield Violation(
            name="tile",
            message=f"tile {tile}: m is one of {TILE_M}, n of {TILE_N}, k is {depth}",
            reason=f"wgmma multiplies 64 rows, and {depth} of K are a row of TMA's widest swizzle",
        )
        return
    if config.schedule is Schedule.COOPERATIVE and tile.m < 2 * 64:
        yield Violation(
            name="halves",
            message=f"two warpgroups cooperate on {tile.m} rows",
            reason="wgmma multiplies 64 rows, so half a tile has at least so many",
            slack=tile.m / 128 - 1.0,
        )
    sums = accumulator_registers(config, in_dtype)
    wanted = sums + _BOOKKEEPING_REGISTERS
    if sums > MOST_ACCUMULATORS:
        yield Violation(
            name="registers",
            message=f"{wanted} registers a thread exceed {MATH_REGISTERS}",
            reason="what setmaxnreg leaves each of 256 threads that multiply; more would spill",
            slack=1.0 - wanted / MATH_REGISTERS,
        )
    columns = sum(store.kind is LoadKind.ROW for store in layer.epilogue.reductions)
    is_pingpong = config.schedule is Schedule.PINGPONG
    if columns and is_pingpong and sums >= _MOST_BESIDE_COLUMNS:
        yield Violation(
            name="reduced_columns",
            message=f"{columns} numbers for each of {tile.n} columns in a warpgroup that has all "
            f"of tile {tile}",
            reason="nvcc spills them; a cooperative warpgroup has half of a tile",
        )
    cluster = config.cluster_m * config.cluster_n
    if config.cluster_m not in CLUSTERS or config.cluster_n not in CLUSTERS:
        yield Violation(
            name="cluster",
            message=f"a cluster of {config.cluster_m}x{config.cluster_n}",
            reason="CUTLASS's scheduler divides by powers of two",
        )
    elif cluster > MOST_IN_CLUSTER:
        yield Violation(
            name="cluster_size",
            message=f"a cluster of {cluster} threadblocks",
            reason="more than eight are not portable, and a kernel has to ask for them",
            slack=MOST_IN_CLUSTER / cluster - 1.0,
        )
    elif tile.n % (_ROWS_OF_SWIZZLE * config.cluster_m) != 0:
        yield Violation(
            name="multicast",
            message=f"{config.cluster_m} threadblocks that bring {tile.n} columns of B together",
            reason=f"each brings whole patterns of TMA's swizzle, of {_ROWS_OF_SWIZZLE} columns",
        )
    if config.swizzle not in SWIZZLES:
        yield Violation(
            name="swizzle",
            message=f"{config.swizzle} tiles visited together, not one of {SWIZZLES}",
            reason="CUTLASS's scheduler, cutlass/gemm/kernel/tile_scheduler_params.h",
        )
    yield from _broken_by_splits(layer.problem, config)
    fitting, size = stages(config, layer, arch), stage_bytes(config, in_dtype)
    if fitting < LEAST_STAGES:
        yield Violation(
            name="shared_memory",
            message=f"{fitting} stages of {size} bytes fit beside the epilogue's "
            f"{epilogue_bytes(config, layer)}",
            reason=f"a threadblock has {arch.shared_memory_per_cta_bytes} bytes, and one stage is "
            "filled while another is multiplied",
            slack=fitting / LEAST_STAGES - 1.0,
        )


def _broken_by_splits(problem: Problem, config: Cutlass3Config) -> Iterator[Violation]:
    """Yield violations of the rules for tiles that several threadblocks compute."""
    is_stream_k = config.scheduler is Scheduler.STREAM_K
    if is_stream_k and config.schedule is not Schedule.COOPERATIVE:
        yield Violation(
            name="stream_k_schedule",
            message=f"stream-K in a {config.schedule.value} schedule",
            reason="its two warpgroups have tiles of their own, and CUTLASS adds up sums of "
            "threadblocks only (sm90_gemm_tma_warpspecialized_pingpong.hpp)",
        )
    if config.split_k not in (SLICES if is_stream_k else (1,)):
        yield Violation(
            name="split_k",
            message=f"{config.split_k} slices of K by the {config.scheduler.value} scheduler",
            reason=f"stream-K's takes {SLICES}; the other computes whole tiles",
        )
    found, least = steps(problem, config.threadblock.k), least_steps(config)
    if found < least:
        yield Violation(
            name="split_k_depth",
            message=f"{found} steps of K, and a tile that is split has at least {least}",
            reason=f"a slice has one, a part of stream-K {STREAM_K_STEPS} "
            "(cutlass/gemm/kernel/tile_scheduler_params.h)",
            slack=found / least - 1.0,
        )
