"""The resources of a back-to-back kernel: shared memory and registers.

Shared memory follows from the headers in templates/include; registers are estimated, because ptxas
decides.
"""

from __future__ import annotations

from boltgen.families.b2b.config import B2bConfig
from boltgen.families.chain.inner import (
    inner_accumulators,
    inner_fragments,
    inner_tiles_bytes,
)
from boltgen.families.chain.traffic import swizzled_tile_bytes
from boltgen.families.chain.traits import Residence
from boltgen.families.mma_sync.resources import epilogue_bytes, main_loop_bytes
from boltgen.families.mma_sync.resources import registers_per_thread as layer_registers
from boltgen.families.resources import BOOKKEEPING_REGISTERS
from boltgen.ir.dtypes import DType
from boltgen.problems.workload import Layer, Workload

_REGISTER_BYTES = 4
_WARP = 32
# For an intermediate in registers the shared buffer is a placeholder of one vector.
_PLACEHOLDER_BYTES = 16


def staging_bytes(config: B2bConfig, dtype: DType) -> int:
    """Return the shared memory of the widest intermediate, in bytes; all share one buffer."""
    if config.residence is Residence.REGISTERS:
        return _PLACEHOLDER_BYTES
    return max(
        swizzled_tile_bytes(config.threadblock_m, tile.n, dtype) for tile in config.layers[:-1]
    )


def shared_memory_bytes(workload: Workload, config: B2bConfig) -> int:
    """Return the dynamic shared memory of a threadblock, in bytes.

    Source: templates/include/boltgen/b2b_kernel.h, SharedStorage.
    """
    last, in_dtype = len(config.layers) - 1, workload.first.problem.in_dtype
    tiles = max(
        main_loop_bytes(config.of_layer(0), in_dtype),
        *(inner_tiles_bytes(workload.layers[i], config.of_layer(i)) for i in range(1, last + 1)),
    )
    working = tiles + staging_bytes(config, in_dtype)
    return max(
        working, epilogue_bytes(config.of_layer(last), workload.layers[last].problem.acc_dtype)
    )


def registers_per_thread(workload: Workload, config: B2bConfig) -> int:
    """Estimate the registers of a thread in the layer that needs most.

    A layer needs its accumulators, and also its whole A if intermediates are in registers.
    """
    outer = workload.first.problem
    first = layer_registers(config.of_layer(0), outer.in_dtype, outer.acc_dtype)
    return max(
        first,
        *(_inner_registers(workload.layers[i], config, i) for i in range(1, len(config.layers))),
    )


def _inner_registers(layer: Layer, config: B2bConfig, index: int) -> int:
    tiles = config.of_layer(index)
    resident = 0
    if config.residence is Residence.REGISTERS:
        size = layer.problem.in_dtype.size_bytes
        resident = tiles.warp.m * config.layers[index - 1].n * size // (_WARP * _REGISTER_BYTES)
    held = inner_accumulators(layer, tiles) + inner_fragments(layer, tiles)
    return held + resident + BOOKKEEPING_REGISTERS
