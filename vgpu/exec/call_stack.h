// Where calls keep the registers of their callers: at the upper end of the local memory of the
// warp's threads, spread over all of them. At its lower end, behind the kernel's own variables, are
// the frames of what is called.
#pragma once

#include "exec/warp.h"

namespace vgpu {

// Calls that can be nested within the launch's stack; 0 where all are inlined.
u32 most_calls(const LaunchState& launch);
// Local memory of a thread, with room for as many.
u32 local_bytes_of(const LaunchState& launch);

// Whether `calls` nested calls, whose frames end at `frames_end`, fit the thread's stack. Sets how
// many bytes they need.
bool fits_stack(const LaunchState& launch, u64 frames_end, u32 calls, u64* bytes);

// Keeps all registers, and what initcheck knows of them. `level` calls are under way, and their
// frames, with that of this call, end at `frames_end`. False: there is no room.
bool save_registers(Warp& warp, u32 level, u64 frames_end);
void restore_registers(Warp& warp, u32 level);

}  // namespace vgpu
