"""The tensor-core instruction and the depths of tiles by the type that is multiplied."""

from __future__ import annotations

from boltgen.arch import Arch
from boltgen.families.space import Shape
from boltgen.ir.dtypes import DType

# The crosswise layout of shared memory holds rows of so many bytes. Source:
# cutlass/layout/tensor_op_multiplicand_sm75.h.
ROW_BYTES = (64, 128)


def known_shapes(in_dtype: DType, arch: Arch) -> tuple[tuple[int, int, int], ...]:
    """Return the instructions of CUTLASS 2.x that multiply a type; the preferred one first."""
    return arch.integer_mma_shapes if in_dtype.is_whole else arch.mma_shapes


def has_instruction(in_dtype: DType, arch: Arch) -> bool:
    """Return whether kernels of CUTLASS 2.x multiply a type on an architecture."""
    return bool(known_shapes(in_dtype, arch))


def instruction_of(in_dtype: DType, arch: Arch) -> Shape:
    """Return the preferred instruction that multiplies a type."""
    return Shape(*known_shapes(in_dtype, arch)[0])


def depths_of(in_dtype: DType) -> tuple[int, ...]:
    """Return the extents along K that a threadblock's tile may have."""
    return tuple(size // in_dtype.size_bytes for size in ROW_BYTES)
