// The GPU models that can be imitated. Figures from the CUDA C++ Programming Guide, table
// "Technical specifications per compute capability", and NVIDIA's data sheets of the named
// products.
#pragma once

#include <string>

#include "exec/types.h"

namespace vgpu {

struct DeviceModel {
  int capability;  // 80
  const char* name;
  int multiprocessors;
  int threads_per_sm;
  int blocks_per_sm;
  int registers_per_sm;
  int shared_per_sm;  // bytes
  int shared_per_block_optin;
  int l2_bytes;
  int clock_khz;
  int memory_clock_khz;
  int memory_bus_bits;
  u64 memory_bytes;
  int fp32_per_fp64;
};

inline constexpr int kSharedPerBlock = 48 * 1024;  // without opting in
inline constexpr int kSharedReserved = 1024;       // per block, from sm_80

const DeviceModel* find_device(int capability);

// Parses "sm_80" or "80". 0 when it is neither.
int parse_capability(const std::string& text);

}  // namespace vgpu
