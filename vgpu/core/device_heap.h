// The heap's size is a limit of the device; `exec/device_heap.h` has the rest.
#pragma once

#include "core/error.h"
#include "exec/device_heap.h"

namespace vgpu {

// cudaLimitMallocHeapSize. Refused once a kernel has taken a block, as CUDA does.
Code resize_device_heap(u64 bytes);

}  // namespace vgpu
