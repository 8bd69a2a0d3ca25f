// Which blocks of a grid are empty: a swizzle that rounds the grid up makes such, and a launch that
// does not know how many rows its groups have.
//
// A block is empty that ends without a store, an asynchronous copy or a product, and soon. It takes
// no time, and stands for no other block. Blocks are tried, all of them or kTried spread over the
// grid: each runs until it does something that others could see, which it then does not do.
#pragma once

#include <vector>

#include "exec/counters.h"
#include "exec/op_table.h"
#include "exec/warp.h"

namespace vgpu {

// Blocks that are tried at most. Of the grids of CUTLASS's swizzles that are larger (up to 200 by
// 200 tiles, swizzles of 2 to 8, up to 12 slices), the mean error of the others' number is 0.2 %.
inline constexpr u64 kTried = 1024;

// Clusters, where a launch has such: one is empty if all of its blocks are.
struct LiveBlocks {
  u64 count = 0;             // of those that are not empty
  std::vector<u64> sampled;  // some of them, spread over the grid, in order
  Counters empty;            // what all empty ones do
  u64 instructions = 0;      // those of warps among it
};

// `launch.samples` blocks that stand for the `total` of the grid. Where all are empty, none is
// taken for empty.
LiveBlocks live_blocks(const LaunchState& launch, const Isa& isa, u32 multiprocessors, u32 grid_id,
                       u64 total);

}  // namespace vgpu
