// Kernels of our own on sm_90a whose threadblocks go from tile to tile: their body and their
// launch.

#pragma once

#include <cuda_runtime_api.h>
#include <cutlass/cutlass.h>

#include "boltgen/launch.h"

namespace boltgen {

/// The body of every generated `__global__` function. Swizzles repeat after 1024 bytes. The kernel
/// waits for earlier kernels by itself, after it has set up its barriers.
template <typename Kernel>
__device__ __forceinline__ void persistent_main(typename Kernel::Params const& params) {
  extern __shared__ __align__(1024) unsigned char boltgen_swizzled_memory[];
  Kernel kernel;
  kernel(params, *reinterpret_cast<typename Kernel::SharedStorage*>(boltgen_swizzled_memory));
}

/// Asks the current device for one of its properties.
inline cudaError_t device_attribute(int& value, cudaDeviceAttr attribute) {
  int device = 0;
  cudaError_t const error = cudaGetDevice(&device);
  return error == cudaSuccess ? cudaDeviceGetAttribute(&value, attribute, device) : error;
}

/// Enqueues a kernel whose arguments were checked, a threadblock on every multiprocessor that has a
/// tile. It needs no workspace.
template <typename Kernel>
static int launch_persistent(void (*kernel)(typename Kernel::Params),
                             typename Kernel::Params const& params, void* stream,
                             boltgen_status* status) {
  int multiprocessors = 0;
  if (cudaError_t const error = device_attribute(multiprocessors, cudaDevAttrMultiProcessorCount);
      error != cudaSuccess) {
    return fail_cuda(status, error, "cannot ask the device for its multiprocessors");
  }
  dim3 const grid(params.tiles < multiprocessors ? params.tiles : multiprocessors);
  return launch<Kernel>(kernel, params, grid, SplitWorkspace(0, 1, 0), nullptr, stream, status);
}

}  // namespace boltgen
