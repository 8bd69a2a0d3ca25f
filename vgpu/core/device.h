// The GPU models that can be imitated. Their figures are rows of boltgen/arch.py, which has the
// sources: boltgen.build.vgpu writes them as initialisers of DeviceModel, for VGPU_DEVICES.
#pragma once

#include <string>

#include "exec/types.h"

namespace vgpu {

// What a multiprocessor does each clock, and what lies behind it: for the model of time only.
struct Rates {
  int fp32_results;     // FP32 additions, multiplications or both
  int half_results;     // FP16; a packed instruction has two a lane
  int fp64_results;     //
  int special_results;  // transcendental functions, and most conversions
  int mma_flop;         // FP16 tensor cores, of mma.sync
  int wgmma_flop;       // and of wgmma, where there is one
  int l2_bytes;         // from L2 to all multiprocessors together
  int memory_clocks;    // round trip to DRAM
  int host_mb_per_s;    // PCIe, one way
};

struct DeviceModel {
  int capability;  // 80
  const char* name;
  int multiprocessors;
  int threads_per_sm;
  int blocks_per_sm;
  int registers_per_sm;
  int shared_per_sm;  // bytes
  int shared_per_block_optin;
  int shared_reserved;  // of each block, by the system
  int l2_bytes;
  int clock_khz;
  int memory_clock_khz;
  int memory_bus_bits;
  u64 memory_bytes;
  int fp32_per_fp64;
  Rates rates;

  // Bytes a second: two transfers each clock.
  double dram_bandwidth() const { return memory_clock_khz * 1e3 * 2 * memory_bus_bits / 8; }
};

inline constexpr int kSharedPerBlock = 48 * 1024;  // without opting in

const DeviceModel* find_device(int capability);

// "sm_75, sm_80 and sm_86".
std::string known_devices();

// Whether PTX for such a target ("sm_80", "sm_90a", "sm_100f") runs on the device: plain targets on
// it and all later ones, those with an a on it alone, those with an f on later ones of its family.
bool runs_on(const std::string& target, int capability);

// Parses "sm_80" or "80". 0 when it is neither.
int parse_capability(const std::string& text);

}  // namespace vgpu
