"""The rules of legal configurations for a problem, stated only here.

Exhaustive search filters by `violations`; searches that move through the space use their slack.
Rules of the compiled kernel come first, then rules of a problem's extents.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from boltgen.arch import Arch
from boltgen.families.columns import least
from boltgen.families.mma_sync.config import Tiles
from boltgen.families.mma_sync.resources import (
    least_registers_per_thread,
    pixel_registers,
    shared_memory_bytes,
)
from boltgen.families.mma_sync.shapes import depths_of, known_shapes
from boltgen.families.mma_sync.thread_maps import rows_are_shared, threads_cover
from boltgen.families.mma_sync.traits import (
    ConvIterator,
    KernelTraits,
    conv_iterator,
    groups_of,
    kernel_traits,
)
from boltgen.families.resources import INT32_MAX, MAX_GRID_YZ, overflow_violations
from boltgen.families.space import Violation
from boltgen.ir.dtypes import VECTOR_BYTES, DType, Layout
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.problems.convolution import Convolution
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Layer

# Powers of two, because threads copy the operands' tiles in whole rows of vectors.
WARPS = (1, 2, 4, 8, 16)
# cp.async copies 4, 8 or 16 bytes. Source: PTX ISA, cp.async.
_MIN_ASYNC_COPY_BYTES = 4


def layer_violations(layer: Layer, config: Tiles, arch: Arch) -> tuple[Violation, ...]:
    """Return every rule that `config` breaks for a layer on `arch`; empty if it is legal."""
    found = violations(layer.problem, config, arch)
    return found or tuple(result_violations(layer.epilogue, config))


def result_violations(epilogue: ElementwiseGraph, config: Tiles) -> Iterator[Violation]:
    """Yield a violation if a tile splits the columns of a part: one warp must have them all."""
    for store in epilogue.reductions:
        if store.columns and config.threadblock.n % store.columns:
            yield Violation(
                name="columns_of_a_number",
                message=f"a tile of {config.threadblock.n} columns; {store.columns} make a number",
                reason="one warp stores it, and nothing is added in memory; "
                "templates/include/boltgen/reductions.h",
            )


def violations(problem: Problem, config: Tiles, arch: Arch) -> tuple[Violation, ...]:
    """Return every rule that `config` breaks for `problem` on `arch`; empty if it is legal.

    Tile extents that do not divide are reported alone, because other rules need them to.
    """
    return kernel_violations(kernel_traits(problem), config.kernel, arch) + tuple(
        extent_violations(problem, config)
    )


@lru_cache(maxsize=65536)
def kernel_violations(traits: KernelTraits, config: Tiles, arch: Arch) -> tuple[Violation, ...]:
    """Return the violated rules of the compiled kernel, which hold for any extents."""
    structural = tuple(tile_violations(config, arch, traits.in_dtype))
    if structural:
        return structural
    return (
        *accumulator_violations(traits, arch),
        *pipeline_violations(traits, config, arch),
        *_capacity_violations(traits, config, arch),
        *map_violations(traits, config),
    )


def map_violations(traits: KernelTraits, config: Tiles) -> Iterator[Violation]:
    """Yield violations of the mapping from threads to the elements that they copy and store."""
    yield from main_loop_violations(traits, config)
    yield from epilogue_violations(traits, config)


def tile_violations(config: Tiles, arch: Arch, in_dtype: DType) -> Iterator[Violation]:
    """Yield violations of the rule that threadblock, warp and instruction divide each other."""
    tile, warp, instruction = config.threadblock, config.warp, config.instruction
    shapes = known_shapes(in_dtype, arch)
    if (instruction.m, instruction.n, instruction.k) not in shapes:
        known = ", ".join("x".join(map(str, shape)) for shape in shapes) or "none"
        yield Violation(
            name="instruction",
            message=f"instruction {instruction} on {arch.name}, which has {known} for "
            f"{in_dtype.value}",
            reason="tensor-core instructions of CUTLASS 2.x, cutlass/arch/mma_sm*.h",
        )
    extents = (
        ("m", tile.m, warp.m, instruction.m),
        ("n", tile.n, warp.n, instruction.n),
        ("k", tile.k, warp.k, instruction.k),
    )
    for axis, of_tile, of_warp, of_instruction in extents:
        if of_warp < 1 or of_tile < of_warp or of_tile % of_warp:
            yield Violation(
                name="warp_divides_threadblock",
                message=f"warp {axis}={of_warp} does not divide threadblock {axis}={of_tile}",
                reason="warps tile the threadblock; cutlass/gemm/threadblock/default_mma_core_*.h",
            )
        # ldmatrix x4 loads 16 rows or columns at once.
        unit = of_instruction if axis == "k" else max(of_instruction, 16)
        if of_warp % unit:
            yield Violation(
                name="instruction_divides_warp",
                message=f"warp {axis}={of_warp} is no multiple of {unit}",
                reason="the warp tile is whole instructions and whole ldmatrix fetches; "
                "cutlass/gemm/warp/mma_tensor_op_tile_iterator.h",
            )
    if tile.k not in (depths := depths_of(in_dtype)):
        yield Violation(
            name="threadblock_k",
            message=f"threadblock k={tile.k} is neither {depths[0]} nor {depths[1]}",
            reason="the crosswise layout of shared memory holds rows of 64 or 128 bytes; "
            "cutlass/layout/tensor_op_multiplicand_sm75.h",
        )


def accumulator_violations(traits: KernelTraits, arch: Arch) -> Iterator[Violation]:
    """Yield a violation if no instruction of `arch` sums in the accumulator's type."""
    reason = traits.in_dtype.accumulator_rejection(traits.acc_dtype, arch.compute_capability)
    if reason is not None:
        yield Violation(name="accumulator", message=reason, reason="PTX ISA, mma.sync")


def pipeline_violations(traits: KernelTraits, config: Tiles, arch: Arch) -> Iterator[Violation]:
    """Yield violations of the rules of warps, stages and the copying of operands."""
    if config.warps not in WARPS:
        yield Violation(
            name="warps",
            message=f"{config.warps} warps are not {', '.join(map(str, WARPS))}",
            reason="an SM has four schedulers; a fifth warp on each hides nothing more, and all "
            "wait for each other at every step",
            slack=1.0 - config.warps / WARPS[-1] if config.warps > WARPS[-1] else None,
        )
    if config.threads > arch.max_threads_per_cta:
        yield Violation(
            name="threads",
            message=f"{config.threads} threads exceed {arch.max_threads_per_cta}",
            reason="threads per block, CUDA C++ Programming Guide",
            slack=1.0 - config.threads / arch.max_threads_per_cta,
        )
    if not arch.min_stages <= config.stages <= arch.max_stages:
        yield Violation(
            name="stages",
            message=f"{config.stages} stages on {arch.name}, which takes "
            f"{arch.min_stages} to {arch.max_stages}",
            reason="more than two stages need cp.async (sm_80); more than five only take memory",
        )
    narrowest = min(traits.alignment_a, traits.alignment_b) * traits.in_dtype.size_bytes
    if config.stages > 2 and narrowest < _MIN_ASYNC_COPY_BYTES:
        yield Violation(
            name="async_copy",
            message=f"{config.stages} stages with copies of {narrowest} bytes",
            reason=f"cp.async copies at least {_MIN_ASYNC_COPY_BYTES} bytes; narrower operands "
            "pass through registers, in two stages",
        )


def most_registers(config: Tiles, arch: Arch) -> int:
    """Return a thread's most registers; the threadblock must also fit an SM's register file."""
    most: int = least(arch.max_registers_per_thread, arch.registers_per_sm // config.threads)
    return most


def registers_without_spill(traits: KernelTraits, config: Tiles) -> int:
    """Return the least registers with which a thread does not spill."""
    registers = least_registers_per_thread(config, traits.in_dtype, traits.acc_dtype)
    return registers + (pixel_registers(config, traits.alignment_a) if traits.is_conv else 0)


def _capacity_violations(traits: KernelTraits, config: Tiles, arch: Arch) -> Iterator[Violation]:
    shared = shared_memory_bytes(config, traits.in_dtype, traits.acc_dtype)
    if shared > arch.shared_memory_per_cta_bytes:
        yield Violation(
            name="shared_memory",
            message=f"{config.stages} stages take {shared} bytes of shared memory; a threadblock "
            f"on {arch.name} has {arch.shared_memory_per_cta_bytes}",
            reason="opt-in shared memory per block, CUDA C++ Programming Guide",
            slack=1.0 - shared / arch.shared_memory_per_cta_bytes,
        )
    registers = registers_without_spill(traits, config)
    most = most_registers(config, arch)
    if registers > most:
        yield Violation(
            name="registers",
            message=f"about {registers} registers per thread at least; at most {most} with "
            f"{config.threads} threads",
            reason="the accumulators of the warp tile would spill to local memory",
            slack=1.0 - registers / most,
        )


def main_loop_violations(traits: KernelTraits, config: Tiles) -> Iterator[Violation]:
    """Yield tiles that CUTLASS's mainloop cannot copy completely, or cannot guard."""
    tile = config.threadblock
    b_by_rows = traits.b_layout is Layout.ROW
    tiles = (
        ("A", tile.k, tile.m, True),
        ("B", tile.n if b_by_rows else tile.k, tile.k if b_by_rows else tile.n, not b_by_rows),
    )
    for operand, contiguous, strided, k_major in tiles:
        if not threads_cover(contiguous, strided, k_major, config.warps, traits.in_dtype):
            yield Violation(
                name="operand_thread_map",
                message=f"{config.warps} warps do not tile the {contiguous}x{strided} tile of "
                f"{operand} in whole vectors",
                reason="every warp copies whole rows of 16-byte vectors; "
                "cutlass/transform/pitch_linear_thread_map.h, PitchLinearWarpRakedThreadMap",
            )
    steps = config.warp.k // config.instruction.k
    if steps % 2:
        yield Violation(
            name="warp_steps",
            message=f"warp k={config.warp.k} is {steps} steps of {config.instruction.k}",
            reason="a warp loads the next step's fragments while it multiplies, in two registers "
            "by turns, so its steps are even in number; cutlass/gemm/threadblock/mma_base.h, "
            "kWarpGemmIterations",
        )
    yield from _ldmatrix_violations(traits, config)
    yield from _predicate_violations(traits, config)


def _ldmatrix_violations(traits: KernelTraits, config: Tiles) -> Iterator[Violation]:
    # It loads four matrices of 8 rows of 16 bytes at once, of which an instruction's K has one or
    # two side by side; fewer if the warp's tile has fewer rows.
    fetch = 4 * 8 * VECTOR_BYTES // (config.instruction.k * traits.in_dtype.size_bytes)
    b_by_rows = traits.b_layout is Layout.ROW
    extents = [("A", config.warp.m)] + ([] if b_by_rows else [("B", config.warp.n)])
    for operand, extent in extents:
        if extent > fetch and extent % fetch:
            yield Violation(
                name="ldmatrix_extent",
                message=f"a warp's {extent} rows or columns of {operand} are no multiple of the "
                f"{fetch} that ldmatrix fetches for {config.instruction}",
                reason="the rest would not be loaded; "
                "cutlass/gemm/warp/mma_tensor_op_tile_iterator.h, LdsmIterations",
            )
    # Rows of B are permuted within 64 columns, or within 32 if the threadblock has no more.
    tile, warp = config.threadblock.n, config.warp.n
    if b_by_rows and ((tile % 64 and tile != 32) or (warp % 64 and warp != 32)):
        yield Violation(
            name="congruous_extent",
            message=f"warps of {warp} columns in a threadblock of {tile}, with a row-major B",
            reason="the permuted rows of B are 32 or a multiple of 64 elements, for the "
            "threadblock and for a warp; cutlass/layout/tensor_op_multiplicand_sm75.h, "
            "TensorOpMultiplicandCongruous",
        )


# Four words with four predicates per byte.
_MOST_GEMM_PREDICATES = 64
# One bit per row of the filter's tile that a thread copies, and one spare bit.
_MOST_FILTER_ROWS = 31


def _predicate_violations(traits: KernelTraits, config: Tiles) -> Iterator[Violation]:
    tile = config.threadblock
    operands = (("A", tile.m, traits.alignment_a), ("B", tile.n, traits.alignment_b))
    for operand, extent, alignment in operands:
        accesses = extent * tile.k // (config.threads * alignment)
        if not traits.is_conv and accesses > _MOST_GEMM_PREDICATES:
            yield Violation(
                name="operand_predicates",
                message=f"{accesses} accesses of {alignment} elements per thread for the tile of "
                f"{operand}; at most {_MOST_GEMM_PREDICATES} can be guarded",
                reason="cutlass/transform/threadblock/predicated_tile_access_iterator.h, "
                "kPredicateWordCount",
                slack=1.0 - accesses / _MOST_GEMM_PREDICATES,
            )
    rows = tile.n * tile.k * traits.in_dtype.size_bytes // (config.threads * VECTOR_BYTES)
    if traits.is_conv and rows > _MOST_FILTER_ROWS:
        yield Violation(
            name="filter_predicates",
            message=f"{rows} rows of the filter's tile per thread; at most {_MOST_FILTER_ROWS} "
            "can be guarded",
            reason="cutlass/conv/threadblock/"
            "conv2d_fprop_filter_tile_access_iterator_optimized.h, predicates_",
            slack=1.0 - rows / _MOST_FILTER_ROWS,
        )


def epilogue_violations(traits: KernelTraits, config: Tiles) -> Iterator[Violation]:
    """Yield tiles that the output's thread map cannot store."""
    tile, warp = config.threadblock, config.warp
    # Warps with other columns of the same rows, or other parts of K.
    sharing = (tile.n // warp.n) * (tile.k // warp.k)
    # A vector has a run of each matmul of a pair, and never only one of them.
    vector, least = traits.alignment_d, 1
    if traits.is_paired:
        vector = least = 2 * traits.alignment_d
    if not rows_are_shared(tile.n, sharing, vector, least, traits.out_dtype):
        yield Violation(
            name="epilogue_thread_map",
            message=f"{sharing} warps along N and K do not share rows of {tile.n} "
            f"{traits.out_dtype.value} in vectors of {vector}",
            reason="each stores whole vectors of whole rows, eight rows at a time; "
            "cutlass/epilogue/threadblock/output_tile_thread_map.h, RowArrangement",
        )


def extent_violations(problem: Problem, config: Tiles) -> Iterator[Violation]:
    """Yield violations of the rules of one problem's extents and its launch arguments."""
    gemm, groups = problem.gemm.unpaired, groups_of(problem)
    products = max(problem.batch, groups)
    tile = config.threadblock
    if config.swizzle not in (1, 2, 4, 8):
        yield Violation(
            name="swizzle",
            message=f"swizzle {config.swizzle} is not 1, 2, 4 or 8",
            reason="cutlass/gemm/threadblock/threadblock_swizzle.h, get_log_tile",
        )
    if config.split_k < 1 or (config.split_k > 1 and products > 1):
        yield Violation(
            name="split_k_batched",
            message=f"{config.split_k} slices of K of {products} products",
            reason="the grid's z dimension counts the slices, or the products of a batch",
        )
    elif config.split_k > 1 and _has_fixed_channels(problem):
        yield Violation(
            name="split_k_fixed_channels",
            message=f"{config.split_k} slices of K of a convolution of {gemm.k} channels and "
            "filter positions",
            reason="each slice would make the steps of all of K; cutlass/conv/"
            "conv2d_problem_size.h, implicit_gemm_k_iterations",
        )
    elif config.split_k > 1:
        steps = math.ceil(gemm.k / tile.k)
        needed = (config.split_k - 1) * math.ceil(steps / config.split_k) + 1
        if needed > steps:
            yield Violation(
                name="split_k_depth",
                message=f"{config.split_k} slices of K={gemm.k}, which has {steps} steps of "
                f"{tile.k}",
                reason="a slice would be empty; cutlass/gemm/kernel/gemm.h, gemm_k_size",
                slack=1.0 - needed / steps,
            )
    columns = math.ceil(gemm.n // groups / tile.n)
    slices = max(config.split_k, products)
    if columns > MAX_GRID_YZ * config.swizzle or slices > MAX_GRID_YZ:
        yield Violation(
            name="grid",
            message=f"{columns} tiles along N in {slices} slices, products or groups",
            reason=f"the grid's y and z dimensions end at {MAX_GRID_YZ}; "
            "CUDA C++ Programming Guide",
            slack=1.0 - max(columns / max(config.swizzle, 1), slices) / MAX_GRID_YZ,
        )
    rows = math.ceil(gemm.m / tile.m) * max(config.swizzle, 1)
    if rows > INT32_MAX:
        yield Violation(
            name="grid",
            message=f"{rows} threadblocks along the grid's x dimension",
            reason=f"it ends at {INT32_MAX}; CUDA C++ Programming Guide",
            slack=1.0 - rows / INT32_MAX,
        )
    yield from _index_violations(problem)


def _has_fixed_channels(problem: Problem) -> bool:
    if not isinstance(problem, Convolution):
        return False
    return conv_iterator(problem) is ConvIterator.FIXED_CHANNELS


def _index_violations(problem: Problem) -> Iterator[Violation]:
    if isinstance(problem, Convolution):
        operand = problem.in_dtype.size_bytes
        sizes = {
            "an image of the activation": math.prod(problem.a_shape[1:]) * operand,
            "filter": problem.b_bytes,
            "an image of the output": math.prod(problem.d_shape[1:]) * problem.out_dtype.size_bytes,
        }
        # Slices of images are launched one after the other: boltgen/image_slices.h.
        reason = "CUTLASS 2.x addresses convolution tensors with 32-bit byte offsets; "
        reason += "cutlass/conv/device/implicit_gemm_convolution.h, can_implement"
    else:
        # Offsets have 64 bits, but a tile's first row and column are 32-bit sums.
        gemm = problem.gemm.unpaired
        sizes = {"M": gemm.m + 256, "N": gemm.n + 256, "K": gemm.k + 64}
        reason = "CUTLASS 2.x counts rows and columns in 32 bits; cutlass/gemm_coord.h"
    yield from overflow_violations(
        {name: (size, INT32_MAX) for name, size in sizes.items()}, reason
    )
