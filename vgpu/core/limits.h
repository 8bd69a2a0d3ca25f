// Limits that a program may set (cudaDeviceSetLimit, cuCtxSetLimit), under CUDA's numbers.
#pragma once

#include "core/error.h"
#include "exec/types.h"

namespace vgpu {

Code set_limit(int limit, u64 value);
Code get_limit(int limit, size_t* value);
// As they were at first. That of the heap is reset with it.
void reset_limits();
// Of a thread, for the frames of calls.
u32 stack_bytes();

}  // namespace vgpu
