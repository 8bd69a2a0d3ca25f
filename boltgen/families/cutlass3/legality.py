"""Which configurations of sm_90a's kernels are legal, what they take, and which are worth
considering: stated here and nowhere else.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from boltgen.arch import Arch
from boltgen.families.cutlass2.config import Shape
from boltgen.families.cutlass2.legality import graph_rejection
from boltgen.families.cutlass3.config import Cutlass3Config, Schedule
from boltgen.families.family import Footprint
from boltgen.families.space import Knob, Space, Violation
from boltgen.ir.dtypes import VECTOR_BYTES, DType, alignment_elements
from boltgen.ir.elementwise import ElementwiseGraph, LoadKind
from boltgen.ir.problem import Conv2d, Gemm, Problem
from boltgen.ir.workload import Layer, Workload

# 128 bytes of FP16 along K: the widest swizzle of TMA and wgmma.
# Source: PTX ISA, asynchronous warpgroup matrices, shared memory layouts.
TILE_DEPTH = 64
TILE_M, TILE_N = (64, 128, 256), (64, 128, 192, 256)
CLUSTERS = (1, 2)
SWIZZLES = (1, 2, 4, 8)
SCHEDULES = (Schedule.PINGPONG, Schedule.COOPERATIVE)

_WARPGROUP = 128
# One warpgroup loads, two multiply. Source: cutlass/gemm/kernel/sm90_gemm_tma_warpspecialized_*.hpp
THREADS = 3 * _WARPGROUP
# What setmaxnreg leaves a thread that multiplies; the same source.
MATH_REGISTERS = 240
# Addresses, barriers and the fragments of the epilogue. An estimate.
_BOOKKEEPING_REGISTERS = 40
# Elements of a subtile that the epilogue stores by one TMA, and stages of them.
# Source: cutlass/epilogue/collective/builders/sm90_builder.inl.
_SUBTILE_N, _MOST_D_STAGES, _MOST_C_STAGES = 32, 2, 4
# Barriers of the pipelines and of the scheduler, and rounding to what swizzles are aligned to.
_BARRIER_BYTES = 2048
# Of im2col tensor maps of two dimensions, in pixels.
_MOST_STRIDE, _MOST_REACH, _MOST_CORNER = 8, 254, 128
# The driver's documentation has no case of a stride of 0 along an extent beyond 1.
NO_STRIDE = "and no document says that TMA takes a stride of 0"
# A stage is filled while another is multiplied.
_LEAST_STAGES = 2


def rejection(workload: Workload, arch: Arch) -> str | None:
    """Why no kernel of this family computes a workload; None where one can."""
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
        case _:
            return f"it computes products and convolutions, not a {type(problem).__name__}"
    if problem.batch > 1 and _tensors(layer.epilogue):
        return f"a batch may share the epilogue's full tensor, {NO_STRIDE}"
    if not layer.prologue.is_identity:
        return "TMA brings A to shared memory as it is, so nothing can be done to it before"
    return (
        type_rejection(problem)
        or graph_rejection(layer.epilogue)
        or _epilogue_rejection(layer.epilogue)
        or _alignment_rejection(problem, layer.epilogue)
    )


def im2col_rejection(problem: Conv2d) -> str | None:
    """What a tensor map cannot say. Source: CUDA driver API, cuTensorMapEncodeIm2col."""
    if max(problem.stride) > _MOST_STRIDE:
        return f"stride {max(problem.stride)}: TMA steps over {_MOST_STRIDE} pixels at most"
    sides = (problem.r, problem.h, problem.p), (problem.s, problem.w, problem.q)
    for axis, (taps, size, extent) in enumerate(sides):
        reach = (taps - 1) * problem.dilation[axis]
        if reach > _MOST_REACH:
            return f"a filter that reaches over {reach} pixels: TMA's offsets end at {_MOST_REACH}"
        # The corners of the box of pixels that a filter's first tap visits.
        front = problem.padding[axis]
        behind = max(0, (extent - 1) * problem.stride[axis] + reach + 1 - size - front)
        if front > _MOST_CORNER or not -_MOST_CORNER < reach - behind <= _MOST_CORNER:
            return (
                f"padding {problem.padding} and a reach of {reach} pixels: TMA's corners lie at "
                f"most {_MOST_CORNER} pixels off"
            )
    return None


def type_rejection(problem: Problem) -> str | None:
    """Types of operands and sums that no kernel here is made for; None if they are right."""
    if problem.in_dtype is not DType.F16:
        return f"its wgmma multiplies float16, not {problem.in_dtype.value}"
    if problem.acc_dtype is not DType.F32:
        return f"its wgmma sums in float32, not {problem.acc_dtype.value}"
    return None


def _epilogue_rejection(epilogue: ElementwiseGraph) -> str | None:
    tensors = _tensors(epilogue)
    if len(tensors) > 1:
        return f"{len(tensors)} full tensors: the collective loads one, as its C"
    return None


def _tensors(epilogue: ElementwiseGraph) -> list[DType]:
    return [load.dtype for load in epilogue.loads if load.kind is LoadKind.TENSOR]


def _alignment_rejection(problem: Problem, epilogue: ElementwiseGraph) -> str | None:
    """TMA's strides are multiples of 16 bytes. Source: CUDA driver API, cuTensorMapEncodeTiled."""
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


def accumulator_registers(config: Cutlass3Config) -> int:
    """Of a thread: FP32 sums of a tile, or of its half."""
    threads = _WARPGROUP * (2 if config.schedule is Schedule.COOPERATIVE else 1)
    return config.threadblock.m * config.threadblock.n // threads


def epilogue_bytes(config: Cutlass3Config, layer: Layer) -> int:
    """Shared memory of the epilogue: subtiles of C and D, and rows of operands.

    Or less: where D's subtiles can, they take the place of C's.
    """
    tile = config.threadblock
    rows = min(128, tile.m) if config.schedule is Schedule.COOPERATIVE else 64
    subtiles = math.ceil(tile.m / rows) * math.ceil(tile.n / _SUBTILE_N)
    elements = rows * _SUBTILE_N
    taken = elements * layer.problem.out_dtype.size_bytes * min(subtiles, _MOST_D_STAGES)
    for dtype in _tensors(layer.epilogue):
        taken += elements * dtype.size_bytes * min(subtiles, _MOST_C_STAGES)
    rows_of = (load.dtype for load in layer.epilogue.loads if load.kind is LoadKind.ROW)
    return taken + sum(tile.n * dtype.size_bytes for dtype in rows_of)


def stage_bytes(config: Cutlass3Config) -> int:
    """Shared memory of one stage: a tile of A and one of B."""
    tile = config.threadblock
    return (tile.m + tile.n) * tile.k * DType.F16.size_bytes


def stages(config: Cutlass3Config, layer: Layer, arch: Arch) -> int:
    """How many stages fit beside the epilogue: CUTLASS takes them all."""
    left = arch.shared_memory_per_cta_bytes - epilogue_bytes(config, layer) - _BARRIER_BYTES
    return max(0, left // stage_bytes(config))


def footprint(config: Cutlass3Config, layer: Layer, arch: Arch) -> Footprint:
    """What a threadblock takes; registers are those of a thread that multiplies."""
    shared = stages(config, layer, arch) * stage_bytes(config)
    return Footprint(
        registers=MATH_REGISTERS,
        shared_memory_bytes=shared + epilogue_bytes(config, layer) + _BARRIER_BYTES,
        warps=THREADS // 32,
    )


def violations(layer: Layer, config: Cutlass3Config, arch: Arch) -> tuple[Violation, ...]:
    """Every rule that a configuration breaks, for a layer that the family does not reject."""
    return tuple(_broken(layer, config, arch))


def _broken(layer: Layer, config: Cutlass3Config, arch: Arch) -> Iterator[Violation]:
    tile = config.threadblock
    if tile.m not in TILE_M or tile.n not in TILE_N or tile.k != TILE_DEPTH:
        yield Violation(
            name="tile",
            message=f"tile {tile}: m is one of {TILE_M}, n of {TILE_N}, k is {TILE_DEPTH}",
            reason="wgmma multiplies 64 rows, and 64 of K are a row of TMA's widest swizzle",
        )
        return
    if config.schedule is Schedule.COOPERATIVE and tile.m < 2 * 64:
        yield Violation(
            name="halves",
            message=f"two warpgroups cooperate on {tile.m} rows",
            reason="wgmma multiplies 64 rows, so half a tile has at least so many",
            slack=tile.m / 128 - 1.0,
        )
    wanted = accumulator_registers(config) + _BOOKKEEPING_REGISTERS
    if wanted > MATH_REGISTERS:
        yield Violation(
            name="registers",
            message=f"{wanted} registers a thread exceed {MATH_REGISTERS}",
            reason="what setmaxnreg leaves each of 256 threads that multiply; more would spill",
            slack=1.0 - wanted / MATH_REGISTERS,
        )
    if config.cluster_m not in CLUSTERS or config.cluster_n not in CLUSTERS:
        yield Violation(
            name="cluster",
            message=f"a cluster of {config.cluster_m}x{config.cluster_n}",
            reason="larger clusters leave some of a GPC's multiprocessors idle",
        )
    if config.cluster_m * config.cluster_n > max(CLUSTERS):
        yield Violation(
            name="cluster_size",
            message=f"a cluster of {config.cluster_m * config.cluster_n} threadblocks",
            reason="of 254 clusters that won on an H100 242 are of at most two (benchmarks/data)",
        )
    if config.swizzle not in SWIZZLES:
        yield Violation(
            name="swizzle",
            message=f"{config.swizzle} tiles visited together, not one of {SWIZZLES}",
            reason="CUTLASS's scheduler, cutlass/gemm/kernel/tile_scheduler_params.h",
        )
    fitting = stages(config, layer, arch)
    if fitting < _LEAST_STAGES:
        yield Violation(
            name="shared_memory",
            message=f"{fitting} stages of {stage_bytes(config)} bytes fit beside the epilogue's "
            f"{epilogue_bytes(config, layer)}",
            reason=f"a threadblock has {arch.shared_memory_per_cta_bytes} bytes, and one stage is "
            "filled while another is multiplied",
            slack=fitting / _LEAST_STAGES - 1.0,
        )


def space_of(layer: Layer, arch: Arch) -> Space[Cutlass3Config]:
    """Tiles, clusters and schedules, and the swizzle as an argument of the launch."""

    def config_at(point: Mapping[str, int]) -> Cutlass3Config:
        return Cutlass3Config(
            threadblock=Shape(point["threadblock_m"], point["threadblock_n"], TILE_DEPTH),
            schedule=SCHEDULES[point["schedule"] - 1],
            cluster_m=point["cluster_m"],
            cluster_n=point["cluster_n"],
            swizzle=point["swizzle"],
        )

    def tried() -> Iterator[Cutlass3Config]:
        for m, n, schedule, cluster_m, cluster_n in itertools.product(
            TILE_M, TILE_N, SCHEDULES, CLUSTERS, CLUSTERS
        ):
            yield Cutlass3Config(
                threadblock=Shape(m, n, TILE_DEPTH),
                schedule=schedule,
                cluster_m=cluster_m,
                cluster_n=cluster_n,
                swizzle=1,
            )

    def listed() -> Iterator[Cutlass3Config]:
        for config in tried():
            if violations(layer, config, arch) or not _is_sensible(layer.problem.gemm, config):
                continue
            yield from _launches(layer.problem.gemm, config)

    return Space(
        family=Cutlass3Config.family,
        knobs=(
            Knob("threadblock_m", TILE_M, 128),
            Knob("threadblock_n", TILE_N, 128),
            Knob("schedule", (1, 2), 2),
            Knob("cluster_m", CLUSTERS, 1),
            Knob("cluster_n", CLUSTERS, 1),
            Knob("swizzle", SWIZZLES, 1),
        ),
        config_at=config_at,
        point_of=_point,
        listed=listed,
        tried=tried,
        broken=lambda config: violations(layer, config, arch),
    )


def _point(config: Cutlass3Config) -> dict[str, int]:
    return {
        "threadblock_m": config.threadblock.m,
        "threadblock_n": config.threadblock.n,
        "schedule": SCHEDULES.index(config.schedule) + 1,
        "cluster_m": config.cluster_m,
        "cluster_n": config.cluster_n,
        "swizzle": config.swizzle,
    }


def _tiles(problem: Gemm, config: Cutlass3Config) -> tuple[int, int]:
    """How many tiles lie below each other, and side by side."""
    tile = config.threadblock
    return math.ceil(problem.m / tile.m), math.ceil(problem.n / tile.n)


def _is_sensible(problem: Gemm, config: Cutlass3Config) -> bool:
    """Whether a cluster is no larger than the problem, in tiles: the rest of it would idle."""
    rows, columns = _tiles(problem, config)
    least_m, least_n = TILE_M[0], TILE_N[0]
    fits_m = config.threadblock.m == least_m or config.threadblock.m < 2 * problem.m
    fits_n = config.threadblock.n == least_n or config.threadblock.n < 2 * problem.n
    return config.cluster_m <= rows and config.cluster_n <= columns and fits_m and fits_n


def _launches(problem: Gemm, config: Cutlass3Config) -> Iterator[Cutlass3Config]:
    rows, columns = _tiles(problem, config)
    for swizzle in SWIZZLES:
        # CUTLASS lessens the swizzle where there are fewer tiles than it.
        if swizzle == 1 or swizzle <= min(rows, columns):
            yield replace(config, swizzle=swizzle)
