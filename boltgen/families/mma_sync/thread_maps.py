"""Check that threads cover a tile in whole vectors: CUTLASS's thread maps, and the output's."""

from __future__ import annotations

from functools import lru_cache

from boltgen.ir.dtypes import VECTOR_BYTES, DType


@lru_cache(maxsize=4096)
def threads_cover(
    contiguous: int, strided: int, k_major: bool, warps: int, in_dtype: DType
) -> bool:
    """Return whether the warp-raked thread map copies a tile exactly once."""
    vectors = contiguous // (VECTOR_BYTES // in_dtype.size_bytes)
    lanes = vectors if k_major else min(vectors, 8)
    if lanes < 1 or 32 % lanes or vectors % lanes or strided % (32 // lanes):
        return False
    across, along = vectors // lanes, strided // (32 // lanes)
    warps_along = min(warps, along)
    warps_across = warps // warps_along if warps > along else 1
    return (
        warps_along * warps_across == warps
        and along % warps_along == 0
        and across % warps_across == 0
    )


@lru_cache(maxsize=4096)
def rows_are_shared(columns: int, sharing: int, vector: int, least: int, out_dtype: DType) -> bool:
    """Return whether the output's thread map stores every element, in vectors of at least `least`.

    This is the rule of templates/include/boltgen/epilogue_graph.h, `row_sharing`: CUTLASS's own map
    for a power of two, else any narrower span or vector that divides the row. So it is for bytes,
    of which a row may have fewer whole vectors than there are lanes.
    """
    own = out_dtype.size_bytes * 8
    if columns & (columns - 1) == 0 and out_dtype.size_bytes > 1:
        return _spans_tile_rows(columns, sharing, vector, own)
    return any(
        _spans_tile_rows(columns, sharing, vector >> narrower, own << wider)
        for narrower in range((vector // least).bit_length())
        for wider in range(8)
    )


def _spans_tile_rows(columns: int, sharing: int, vector: int, bits: int) -> bool:
    """Return whether spans of lanes cover rows exactly; the names are as in the header."""
    target_width = 256 * 8 // (vector * bits)  # kMemoryAccessSize, in bytes
    if target_width == 0 or columns % vector or 8 % sharing:
        return False
    shape_row, shape_width = 8 // sharing, columns // vector
    if 32 // target_width > shape_row:
        width, rows = 32 // shape_row, shape_row
    else:
        width = min(shape_width, 32, target_width)
        rows = min(8, 32 // width)
    return width * rows == 32 and shape_width % width == 0 and shape_row % rows == 0
