// Kernels and variables by the address that host code knows them by.
#pragma once

#include "core/launch.h"
#include "cudart/types.h"

namespace vgpu::cudart {

Code find_kernel(const void* host, Kernel** out);
LaunchShape shape_of(vgpu_dim3 grid, vgpu_dim3 block, size_t shared);
Code find_variable(const void* host, void** address, u64* bytes);

}  // namespace vgpu::cudart
