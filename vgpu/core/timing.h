// How long a launch would take: a model, not a measurement.
//
//   time = launch + max(waves, L2, DRAM)
//   wave = max(slowest unit of a multiprocessor * resident blocks, one warp alone)
//
// Every figure comes from the device's row and from what some of the launch's blocks did, so equal
// launches have equal times, however busy the host is.
#pragma once

#include <vector>

#include "core/device.h"
#include "exec/sample.h"

namespace vgpu {

// What the model knows of a launch.
struct LaunchWork {
  u64 blocks = 0;                    // that are not empty
  u32 warps = 0;                     // of a block
  int resident = 1;                  // blocks that a multiprocessor holds at once
  std::vector<BlockSample> samples;  // of such blocks spread over the grid
  std::vector<u64> pointers;         // addresses among the parameters: where tensors start
};

struct ModelledTime {
  u64 ns = 0;                 // of the kernel itself, without its launch
  double share = 1;           // of the device that it fills
  const char* bound_by = "";  // tensor, issue, fp32, ..., latency, l2 or dram
  u64 dram_bytes = 0;         // every byte that is touched, once
  double waves = 0;
};

// A launch in a stream follows the one before it after this; a graph's node sooner.
// Source: A. Gray, Getting Started with CUDA Graphs, NVIDIA technical blog, 2019, on a V100:
// kernels of 2.9 us take 3.8 us each in a stream and 3.4 us in a graph.
inline constexpr u64 kLaunchNs = 900;
inline constexpr u64 kNodeNs = 500;

// Blocks of a launch that are looked at.
inline constexpr u32 kSampledBlocks = 4;

ModelledTime model_time(const DeviceModel& device, LaunchWork& work);

// A copy or fill that the host asks for; `over_pcie`: one end is the host's memory.
u64 copy_ns(const DeviceModel& device, u64 bytes, bool over_pcie);

}  // namespace vgpu
