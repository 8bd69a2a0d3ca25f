// Limits that a program may set (cudaDeviceSetLimit, cuCtxSetLimit), under CUDA's numbers.
#pragma once

#include "core/error.h"
#include "exec/types.h"

namespace vgpu {

Code set_limit(int limit, u64 value);
Code get_limit(int limit, u64* value);

}  // namespace vgpu
