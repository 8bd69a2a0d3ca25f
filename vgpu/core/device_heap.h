// The heap behind malloc and free in kernels.
#pragma once

#include "exec/types.h"

namespace vgpu {

// Its start; 0 where there is no memory for it. Before the first launch that needs it.
u64 device_heap();
// In use only after device_heap(). Null when the heap is full, as on a GPU.
u64 device_malloc(u64 bytes);
// False: nothing that device_malloc gave and that is still there.
bool device_free(u64 address);

}  // namespace vgpu
