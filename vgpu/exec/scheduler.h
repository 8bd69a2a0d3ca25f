// Runs the CTAs of a launch on the host's threads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "exec/op_table.h"
#include "exec/sample.h"
#include "exec/warp.h"

namespace vgpu {

struct FaultReport {
  Fault fault;
  u32 block[3];
  u32 warp;
  s32 pc;
  std::string waits;  // of a deadlock: what every warp waits for
};

struct GridResult {
  std::optional<FaultReport> fault;
  u64 instructions = 0;              // of warps
  double cpu_seconds = 0;            // of all host threads
  Counters counters;                 // where they are on
  u64 live_blocks = 0;               // that are not empty, where samples were asked for
  std::vector<BlockSample> samples;  // as many of those, in the order of the grid
};

GridResult run_grid(const LaunchState& launch, const Isa& isa, int threads, u32 multiprocessors,
                    u32 grid_id);

}  // namespace vgpu
