// Where calls keep the registers of their callers: at the upper end of the local memory of the
// warp's threads, spread over all of them.
#pragma once

#include "exec/warp.h"

namespace vgpu {

// Keeps all registers, and what initcheck knows of them. `level` calls are under way, and their
// frames, with that of this call, end at `frames_end`. False: there is no room.
bool save_registers(Warp& warp, u32 level, u64 frames_end);
void restore_registers(Warp& warp, u32 level);

}  // namespace vgpu
