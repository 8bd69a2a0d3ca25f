"""The rules of legal back-to-back configurations, stated only here.

Example 13 of CUTLASS silently returns wrong data if its constraints are not met. Here every
constraint of the kernel is a rule. Rules that also hold for single layers come from
`mma_sync.legality`.
"""

from __future__ import annotations

from collections.abc import Iterator

from boltgen.arch import Arch
from boltgen.families.b2b.config import B2bConfig
from boltgen.families.b2b.resources import registers_per_thread, shared_memory_bytes
from boltgen.families.chain.inner import inner_violations
from boltgen.families.chain.traits import Residence, intermediate_rejection
from boltgen.families.mma_sync.config import Tiles
from boltgen.families.mma_sync.legality import (
    accumulator_violations,
    epilogue_violations,
    main_loop_violations,
    pipeline_violations,
    tile_violations,
)
from boltgen.families.mma_sync.traits import groups_of, kernel_traits
from boltgen.families.rejections import one_result_rejection, packed_rejection
from boltgen.families.resources import (
    INT32_MAX,
    MAX_GRID_YZ,
    capacity_violations,
    overflow_violations,
)
from boltgen.families.space import Violation
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer, Workload

# A threadblock's last rows may lie beyond M; their indices have 32 bits.
_MOST_ROWS = INT32_MAX - 256
# Rules that all other rules need.
_STRUCTURAL = {"instruction", "warp_divides_threadblock", "instruction_divides_warp"}


def rejection(workload: Workload, arch: Arch) -> str | None:
    """Return why no back-to-back kernel computes a workload, or None if one can."""
    del arch  # all architectures from sm_75 on have its instructions
    if not workload.is_fused:
        return "it computes layers back to back, not one"
    first = workload.first.problem
    if not isinstance(first, (Gemm, Conv2d)):
        return f"it begins with a matrix product or a convolution, not a {type(first).__name__}"
    if (groups := groups_of(first)) > 1:
        return f"it begins with a convolution of one group, not of {groups}"
    if not all(layer.prologue.is_identity for layer in workload.layers):
        return "data on its way to shared memory cannot be changed before the product"
    if (reason := intermediate_rejection(first)) is not None:
        return reason
    for index, layer in enumerate(workload.layers):
        reason = packed_rejection(layer.problem) or one_result_rejection(layer.epilogue)
        if reason is not None:
            return f"layer {index}: {reason}"
    return None


def violations(workload: Workload, config: B2bConfig, arch: Arch) -> tuple[Violation, ...]:
    """Return every rule that `config` breaks for `workload` on `arch`; empty if it is legal.

    A wrong number of layers, and tiles that do not divide, are reported alone, because other rules
    need them.
    """
    count = len(workload.layers)
    if len(config.layers) != count:
        return (
            Violation(
                name="layer_count",
                message=f"{len(config.layers)} layers in the configuration, {count} to compute",
                reason="every layer has tiles of its own",
            ),
        )
    last = count - 1
    layers = [
        violation
        for i, layer in enumerate(workload.layers)
        for violation in layer_violations(
            layer, config.of_layer(i), arch, is_first=i == 0, is_last=i == last
        )
    ]
    structural = [v for v in layers if v.name in _STRUCTURAL]
    if structural:
        return tuple(structural)
    return (
        *layers,
        *_residence_violations(config),
        *capacity_violations(
            arch,
            shared_bytes=shared_memory_bytes(workload, config),
            registers=registers_per_thread(workload, config),
            threads=config.threads,
            spilt="accumulators, and an intermediate in registers,",
        ),
        *_extent_violations(workload),
    )


def layer_violations(
    layer: Layer, tiles: Tiles, arch: Arch, *, is_first: bool, is_last: bool
) -> Iterator[Violation]:
    """Yield the violations of one layer and its tiles by themselves."""
    traits = kernel_traits(layer.problem)
    yield from accumulator_violations(traits, arch)
    # `threadblock_k` is a rule of CUTLASS's mainloop, which only the first layer uses.
    structural = [
        violation
        for violation in tile_violations(tiles, arch, traits.in_dtype)
        if is_first or violation.name != "threadblock_k"
    ]
    yield from structural
    if any(violation.name in _STRUCTURAL for violation in structural):
        return
    if is_first:
        yield from pipeline_violations(traits, tiles, arch)
        yield from main_loop_violations(traits, tiles)
    else:
        yield from inner_violations(layer, tiles, arch)
    if is_last:
        yield from epilogue_violations(traits, tiles)
    n = layer.problem.gemm.n
    if n > tiles.threadblock.n:
        yield Violation(
            name="threadblock_residence",
            message=f"a threadblock has {tiles.threadblock.n} columns of a layer with N={n}",
            reason="the next layer multiplies whole rows, which no other threadblock can give; "
            "Bolt, section 3.1",
            slack=1.0 - n / tiles.threadblock.n,
        )


def _residence_violations(config: B2bConfig) -> Iterator[Violation]:
    warps = [config.of_layer(i).warps for i in range(len(config.layers))]
    if len(set(warps)) > 1:
        yield Violation(
            name="warp_count",
            message=f"layers of {', '.join(map(str, warps))} warps",
            reason="all layers run in the same threadblock",
        )
    for index, tile in enumerate(config.layers):
        if config.residence is Residence.REGISTERS and tile.warp_n != tile.n:
            yield Violation(
                name="register_residence",
                message=f"layer {index}: a warp has {tile.warp_n} of the threadblock's {tile.n} "
                "columns",
                reason="a warp reads the next layer's A from its own registers, so it must hold "
                "whole rows; Bolt, section 3.1",
            )
        columns = config.layers[index - 1].n
        if index and columns % tile.k:
            yield Violation(
                name="inner_k_divides_n",
                message=f"layer {index}: k={tile.k} does not divide the {columns} columns of the "
                "intermediate",
                reason="a step along K would read beyond the intermediate's tile",
            )


def _extent_violations(workload: Workload) -> Iterator[Violation]:
    first = workload.layers[0].problem
    gemm = first.gemm
    if first.batch > MAX_GRID_YZ:
        yield Violation(
            name="grid",
            message=f"{first.batch} products of a batch; a grid has {MAX_GRID_YZ}",
            reason="its z dimension; CUDA C++ Programming Guide, compute capabilities",
            slack=1.0 - first.batch / MAX_GRID_YZ,
        )
    sizes = {"M": (gemm.m, _MOST_ROWS), "K": (gemm.k, INT32_MAX - 64)}
    if isinstance(first, Conv2d):
        size = first.in_dtype.size_bytes
        sizes["activation"] = (first.n * first.h * first.w * first.c * size, INT32_MAX)
        sizes["filter"] = (first.k * first.r * first.s * first.c * size, INT32_MAX)
    yield from overflow_violations(
        sizes,
        "CUTLASS 2.x counts rows, and the bytes of a convolution's tensors, in 32 bits; "
        "cutlass/conv/device/implicit_gemm_convolution.h, can_implement",
    )
