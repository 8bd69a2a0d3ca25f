"""Element types and memory orders: the words that every later stage uses."""

from __future__ import annotations

from enum import Enum


class DType(Enum):
    """An element type; the value is its NumPy name."""

    F16 = "float16"
    F32 = "float32"

    @property
    def size_bytes(self) -> int:
        """Bytes per element."""
        match self:  # the cost model asks a hundred thousand times: no hashing
            case DType.F16:
                return 2
            case DType.F32:
                return 4


class Layout(Enum):
    """The memory order of a matrix as the problem writes it."""

    ROW = "row"
    COLUMN = "column"


# The widest vector load and store of every NVIDIA GPU in the table is 128 bits.
# Source: Bolt, section 3.2.3 (kernel padding).
VECTOR_BYTES = 16


def alignment_elements(dtype: DType, *extents: int) -> int:
    """Largest vector width, in elements, that divides every extent and fits one 128-bit access."""
    width = VECTOR_BYTES // dtype.size_bytes
    while any(extent % width for extent in extents):
        width //= 2
    return width
