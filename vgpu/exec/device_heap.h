// The heap behind malloc and free in kernels: one allocation, of which accesses may touch only the
// blocks that are in use.
#pragma once

#include <string>

#include "exec/types.h"

namespace vgpu {

// Its start; 0 where there is no memory for it. Before the first launch that needs it.
u64 device_heap();
// In use only after device_heap(). Null when the heap is full, as on a GPU.
u64 device_malloc(u64 bytes);
// False: nothing that device_malloc gave and that is still there.
bool device_free(u64 address);

// Whether bytes of the heap lie in one block that is in use.
bool in_device_block(u64 address, u64 bytes);
// Where an address of the heap lies, for messages.
std::string describe_device_block(u64 address, u64 bytes);

struct DeviceBlocks {
  u64 count = 0;
  u64 bytes = 0;
  u64 first = 0;  // address
};
DeviceBlocks live_device_blocks();
// Nothing is in use, and the size is CUDA's default.
void reset_device_heap();
u64 device_heap_bytes();

}  // namespace vgpu
