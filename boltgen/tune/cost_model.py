"""Predicts a kernel's time from its problem, config and arch row alone.

The model of one launch:

    time = launch + max(sum of waves, DRAM) + split-K reduction
    wave = prologue + k steps * step + epilogue
    step = slowest of (tensor cores, shared memory, L2, latency), and a share of the rest

A wave runs `resident` threadblocks on every SM; the last one may run fewer and is then faster. It
ranks configurations; it is not a simulator. Every constant names its source or says that it is an
estimate. Equal inputs give equal predictions in every process.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from boltgen.arch import Arch
from boltgen.ir.dtypes import DType
from boltgen.ir.epilogue import Binary, BinaryOp, Epilogue, LoadKind, Unary, UnaryOp
from boltgen.ir.problem import BatchedGemm, Conv2d, Gemm, Problem
from boltgen.space.config import Cutlass2Config
from boltgen.space.kernel import ConvIterator, conv_iterator
from boltgen.space.resources import registers_per_thread, shared_memory_bytes

_F16_BYTES = DType.F16.size_bytes

# Time from launch to launch of back-to-back kernels on one stream. An estimate.
_LAUNCH_US = 2.5
# 32 banks of 4 bytes each clock. Source: CUDA C++ Programming Guide, shared memory.
_SHARED_BYTES_PER_CLOCK = 128
# L2 to SM, per SM. Source: NVIDIA A100 white paper: 5120 bytes per clock for 108 SMs.
_L2_BYTES_PER_CLOCK = 47
# Issue of a warp's load or store, with its address and predicate: as long for narrow vectors as
# for wide ones, and not overlapped with the transfer. An estimate; Bolt, section 3.2.3, says why.
_CLOCKS_PER_WARP_LOAD = 4
# Round trips. Source: Jia et al., Dissecting the NVIDIA Turing T4 GPU via Microbenchmarking, 2019
# (L2 188 clocks, DRAM about 500); A100 and later are slower to L2. An estimate between them.
_MEMORY_CLOCKS = 500
# Share of the datasheet's DRAM bandwidth that streaming kernels reach. An estimate.
_DRAM_FRACTION = 0.85
# Warps per scheduler at which half of the issue slots are filled. An estimate.
_HALF_ISSUE_WARPS = 0.25
# Barrier, pointer updates and predicates of one step of K, per threadblock. An estimate.
_STEP_CLOCKS = 20
# Share of the work behind the slowest unit that does not overlap with it. An estimate.
_EXPOSED_FRACTION = 0.15
# Address arithmetic of the implicit GEMM, relative to a plain one. Estimates.
_CONV_OVERHEAD = {ConvIterator.OPTIMIZED: 1.05, ConvIterator.ANALYTIC: 1.3}
# FP32 instructions per element, and the exponential's and division's share. Estimates.
_SIMPLE_INSTRUCTIONS = 1
_SPECIAL_INSTRUCTIONS = 20
_SIMPLE_OPS = frozenset(
    {UnaryOp.NEGATE, UnaryOp.ABS, UnaryOp.RELU, UnaryOp.LEAKY_RELU, UnaryOp.CLIP}
    | {UnaryOp.HARDSIGMOID, UnaryOp.HARDSWISH}
)
# Serial split-K: each slice of a tile waits for the one before it. An estimate of one hand-over.
_HANDOVER_US = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What the model says of one launch.

    `waves` counts fractions of the machine filled; `occupancy` is resident warps over the SM's
    limit; `efficiency` is useful FLOP over what the tensor cores could do in `time_us`.
    """

    time_us: float
    bound_by: str
    waves: float
    occupancy: float
    resident_threadblocks: int
    registers: int
    dram_bytes: float
    efficiency: float


def predict(problem: Problem, epilogue: Epilogue, config: Cutlass2Config, arch: Arch) -> Prediction:
    """The predicted time of `problem` with `epilogue` in a legal `config` on `arch`."""
    gemm, batch = _as_gemm(problem)
    tile = config.threadblock
    rows, columns = math.ceil(gemm.m / tile.m), math.ceil(gemm.n / tile.n)
    blocks = rows * columns * batch * config.split_k
    steps = math.ceil(math.ceil(gemm.k / tile.k) / config.split_k)

    resident = resident_threadblocks(config, problem.acc_dtype, arch)
    clock_per_us = float(arch.boost_mhz)
    tail_clocks, full_clocks = 0.0, 0.0
    per_wave = arch.sm_count * resident
    full, rest = divmod(blocks, per_wave)
    bound_by = "latency"
    if rest:
        tail = -(-rest // arch.sm_count)
        tail_clocks, bound_by = _wave(problem, epilogue, config, arch, resident=tail, steps=steps)
    if full:
        full_clocks, bound_by = _wave(
            problem, epilogue, config, arch, resident=resident, steps=steps
        )
    waves_us = (full * full_clocks + tail_clocks) / clock_per_us

    dram_bytes = _dram_bytes(problem, epilogue, config, arch)
    dram_us = dram_bytes / (arch.dram_gb_per_s * 1e3 * _DRAM_FRACTION)
    if dram_us > waves_us:
        bound_by = "dram"
    split_us = _split_us(config, gemm, arch)
    time_us = _LAUNCH_US + max(waves_us, dram_us) + split_us
    if max(waves_us, dram_us) < _LAUNCH_US:
        bound_by = "launch"
    peak = _tensor_tflops(problem.acc_dtype, arch) * 1e6
    return Prediction(
        time_us=time_us,
        bound_by=bound_by,
        waves=blocks / per_wave,
        occupancy=resident * config.warps / arch.max_warps_per_sm,
        resident_threadblocks=resident,
        registers=registers_per_thread(config, problem.acc_dtype),
        dram_bytes=dram_bytes,
        efficiency=problem.flops / (peak * time_us),
    )


@lru_cache(maxsize=16384)
def resident_threadblocks(config: Cutlass2Config, acc_dtype: DType, arch: Arch) -> int:
    """Threadblocks that one SM holds at once; at least 1 for a legal config.

    Source: CUDA's occupancy calculation; registers are allocated by warp, in units.
    """
    unit = arch.register_allocation_unit
    warp_registers = -(-registers_per_thread(config, acc_dtype) * 32 // unit) * unit
    shared = shared_memory_bytes(config, acc_dtype) + arch.reserved_shared_memory_bytes
    return max(
        1,
        min(
            arch.registers_per_sm // (warp_registers * config.warps),
            arch.shared_memory_per_sm_bytes // shared,
            arch.max_warps_per_sm // config.warps,
            arch.max_ctas_per_sm,
        ),
    )


@lru_cache(maxsize=1024)
def _as_gemm(problem: Problem) -> tuple[Gemm, int]:
    match problem:
        case Conv2d():
            return problem.implicit_gemm, 1
        case BatchedGemm(batch=batch):
            return problem.gemm, batch
        case Gemm():
            return problem, 1


def _tensor_tflops(acc_dtype: DType, arch: Arch) -> float:
    peak = {DType.F32: arch.tensor_f32_acc_tflops, DType.F16: arch.tensor_f16_acc_tflops}
    return peak[acc_dtype] * arch.mma_sync_fraction


def _wave(
    problem: Problem,
    epilogue: Epilogue,
    config: Cutlass2Config,
    arch: Arch,
    *,
    resident: int,
    steps: int,
) -> tuple[float, str]:
    """Clocks of one wave with `resident` threadblocks on each SM, and what bounds its steps."""
    tile, warp, f16 = config.threadblock, config.warp, _F16_BYTES
    clocks_per_s = arch.boost_mhz * 1e6
    flops_per_clock = _tensor_tflops(problem.acc_dtype, arch) * 1e12 / clocks_per_s / arch.sm_count
    schedulers_busy = resident * config.warps / 4
    issue = schedulers_busy / (schedulers_busy + _HALF_ISSUE_WARPS)
    # Fewer warps than schedulers leave tensor cores idle.
    issue *= min(1.0, schedulers_busy)

    tensor = resident * 2.0 * tile.m * tile.n * tile.k / flops_per_clock / issue
    tile_bytes = (tile.m + tile.n) * tile.k * f16
    read_bytes = config.warps * (warp.m + warp.n) * tile.k * f16
    shared = resident * (read_bytes + tile_bytes) / _SHARED_BYTES_PER_CLOCK
    vector = min(problem.alignment_a, problem.alignment_b) * f16
    load_bytes = _bytes_per_clock(vector)
    l2 = resident * tile_bytes / load_bytes
    if isinstance(problem, Conv2d):
        l2 *= _CONV_OVERHEAD[conv_iterator(problem)]
        tensor *= _CONV_OVERHEAD[conv_iterator(problem)]
    latency = _MEMORY_CLOCKS / max(config.stages - 1, 1)
    bounds = {"tensor": tensor, "shared memory": shared, "l2": l2, "latency": latency}
    bound_by = max(bounds, key=lambda name: bounds[name])
    hidden = tensor + shared + l2 - (0.0 if bound_by == "latency" else bounds[bound_by])
    step = bounds[bound_by] + _EXPOSED_FRACTION * hidden + _STEP_CLOCKS

    prologue = _MEMORY_CLOCKS + tile_bytes * (config.stages - 1) * resident / load_bytes
    return prologue + steps * step + _epilogue_clocks(problem, epilogue, config, arch, resident), (
        bound_by
    )


def _bytes_per_clock(vector_bytes: int) -> float:
    """What an SM moves to or from L2 in vectors of that width."""
    return 1.0 / (1.0 / _L2_BYTES_PER_CLOCK + _CLOCKS_PER_WARP_LOAD / (32 * vector_bytes))


def _epilogue_clocks(
    problem: Problem, epilogue: Epilogue, config: Cutlass2Config, arch: Arch, resident: int
) -> float:
    elements = resident * config.threadblock.m * config.threadblock.n
    # Through shared memory once each way, then to L2 in vectors of the output's alignment.
    staged = 2 * elements * problem.acc_dtype.size_bytes / _SHARED_BYTES_PER_CLOCK
    vector = problem.alignment_d * problem.out_dtype.size_bytes
    tensor_bytes, instructions = _per_element(epilogue)
    moved = elements * (problem.out_dtype.size_bytes + tensor_bytes) / _bytes_per_clock(vector)
    lanes = arch.fp32_tflops * 1e6 / 2 / arch.boost_mhz / arch.sm_count
    return _MEMORY_CLOCKS + staged + moved + elements * instructions / lanes


def _instructions(node: object) -> int:
    match node:
        case Unary(op=op):
            return _SIMPLE_INSTRUCTIONS if op in _SIMPLE_OPS else _SPECIAL_INSTRUCTIONS
        case Binary(op=BinaryOp.DIVIDE):
            return _SPECIAL_INSTRUCTIONS
        case _:
            return _SIMPLE_INSTRUCTIONS


@lru_cache(maxsize=1024)
def _per_element(epilogue: Epilogue) -> tuple[int, int]:
    """Bytes of full tensors, and instructions, for each element of the output."""
    tensors = (load for load in epilogue.loads if load.kind is LoadKind.TENSOR)
    return sum(load.dtype.size_bytes for load in tensors), sum(map(_instructions, epilogue.nodes))


def _dram_bytes(problem: Problem, epilogue: Epilogue, config: Cutlass2Config, arch: Arch) -> float:
    """Bytes to and from DRAM: operands once, or again where L2 cannot keep them."""
    gemm, batch = _as_gemm(problem)
    f16 = _F16_BYTES
    a_bytes, b_bytes = gemm.m * gemm.k * f16, gemm.k * gemm.n * f16
    if isinstance(problem, Conv2d):
        a_bytes = problem.n * problem.h * problem.w * problem.c * f16
    # Tiles are visited down M, `swizzle` columns at a time: A is read anew for every such group
    # of columns unless it stays in L2. Half of L2 is kept for what streams through it: an estimate.
    groups = math.ceil(gemm.n / (config.threadblock.n * config.swizzle))
    a_reads = 1 if a_bytes <= arch.l2_bytes / 2 else groups
    # The columns of B in use are read by every row of tiles, at once: they stay.
    in_use = config.swizzle * config.threadblock.n * gemm.k * f16
    b_reads = 1 if in_use <= arch.l2_bytes / 2 else math.ceil(gemm.m / config.threadblock.m)
    d_bytes = gemm.m * gemm.n * problem.out_dtype.size_bytes
    operand_bytes = _per_element(epilogue)[0] * gemm.m * gemm.n
    a_batch = batch if not isinstance(problem, BatchedGemm) or problem.a_batched else 1
    b_batch = batch if not isinstance(problem, BatchedGemm) or problem.b_batched else 1
    return float(
        a_batch * a_bytes * a_reads
        + b_batch * b_bytes * b_reads
        + batch * (d_bytes + operand_bytes)
    )


def _split_us(config: Cutlass2Config, gemm: Gemm, arch: Arch) -> float:
    if config.split_k == 1:
        return 0.0
    # Partial sums are FP32: written and read once for each slice but the last, through L2.
    partial_bytes = 2 * (config.split_k - 1) * gemm.m * gemm.n * DType.F32.size_bytes
    l2_bytes_per_us = _L2_BYTES_PER_CLOCK * arch.sm_count * arch.boost_mhz
    return (config.split_k - 1) * _HANDOVER_US + partial_bytes / l2_bytes_per_us
