// Settings, from BOLTGEN_VGPU ("device=sm_80,threads=2,check=memcheck,initcheck") or set_option.
#pragma once

#include <string>

#include "core/device.h"
#include "core/error.h"
#include "exec/op_table.h"

namespace vgpu {

struct Options {
  DeviceModel device;
  int threads;
  const Isa* isa;
  bool zero_fresh;   // fresh memory holds zeros, as in a new process on a GPU, instead of NaNs
  bool late_copies;  // cp.async completes when it is waited for, not when it is issued
  u32 checks;        // bits of Check
  u64 seed;          // of a random order of blocks and warps; 0: in order
  int timeout_s;     // of a launch; 0: none
  bool counting = false;
  bool only_samples = false;  // counting, of a few blocks, the only ones that are run
  bool model_times = true;    // of events; else the host's
  u64 slack_bytes = 0;        // that allocations are longer than was asked for
  int multiprocessors = 0;    // of `device`, instead of its own number of them; 0: its own
};

// The settings in force. The first call reads the environment.
const Options& options();

// Names: device, threads, isa (auto, avx512, avx2, generic), check (memcheck, initcheck, racecheck,
// synccheck, deadlock, all, none), copies (late, eager), counters (on, off, sampled), fresh (nan,
// zero), times (model, host), seed, timeout, slack, sms.
Code set_option(const std::string& name, const std::string& value);
// Whether all settings of a text like BOLTGEN_VGPU's hold. Sets none.
Code check_options(const std::string& text);

}  // namespace vgpu
