// The order in which threadblocks take the tiles of the output: an argument of the launch.
//
// CUTLASS has the swizzle in a kernel's type, but only functions of the host look there. A block
// tells its tile from `swizzle_log_tile`, a number among its parameters, so that one kernel serves
// all swizzles. Source: cutlass/gemm/threadblock/threadblock_swizzle.h, get_tile_offset.

#pragma once

#include <cutlass/gemm/threadblock/threadblock_swizzle.h>

#include "boltgen/arguments.h"

namespace boltgen {

/// What kernels are compiled with.
using ThreadblockSwizzle = cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>;

/// The order in which tiles are visited: down M, by groups of them along N.
inline void check_order(ArgumentCheck& check, int swizzle, int raster) {
  check.power_of_two("swizzle", swizzle, 8);
  check.at_least("raster", raster, BOLTGEN_RASTER_ALONG_M);
  check.at_most("raster", raster, BOLTGEN_RASTER_ALONG_M);
}

/// log2 of how many tiles along N are visited together: of `swizzle`, or less where there are not
/// so many.
inline int swizzle_log_tile(int swizzle, cutlass::gemm::GemmCoord const& tiles) {
  using namespace cutlass::gemm::threadblock;
  switch (swizzle) {
    case 8:
      return GemmIdentityThreadblockSwizzle<8>::get_log_tile(tiles);
    case 4:
      return GemmIdentityThreadblockSwizzle<4>::get_log_tile(tiles);
    case 2:
      return GemmIdentityThreadblockSwizzle<2>::get_log_tile(tiles);
    default:
      return 0;
  }
}

/// The grid in which every tile has a block. Where the groups of tiles do not divide those along N
/// there are more blocks, which have none.
/// Source: cutlass/gemm/threadblock/threadblock_swizzle.h, get_grid_shape.
inline dim3 swizzled_grid(cutlass::gemm::GemmCoord const& tiles, int log_tile) {
  int const group = 1 << log_tile;
  return dim3(tiles.m() * group, (tiles.n() + group - 1) / group, tiles.k());
}

}  // namespace boltgen
