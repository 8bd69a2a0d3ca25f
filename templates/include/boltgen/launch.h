// Host side of a product's C entry: checks of its operands, workspace, and the launch.

#pragma once

#include <cuda_runtime_api.h>
#include <cutlass/cutlass.h>
#include <cutlass/device_kernel.h>
#include <cutlass/semaphore.h>

#include <cstdint>
#include <cstdio>
#include <utility>

#include "boltgen/arguments.h"
#include "boltgen/dependent_launch.h"
#include "boltgen/operands.h"
#include "boltgen/per_device.h"

namespace boltgen {

/// One operand of the epilogue against the vectors in which the kernel loads it.
template <typename Operand>
void check_operand(ArgumentCheck& check, int index, boltgen_operand const& operand, int n,
                   int alignment) {
  int const vector = Operand::vector(alignment), columns = Operand::columns(n);
  char name[48];
  std::snprintf(name, sizeof(name), "operands[%d].pointer", index);
  check.pointer(name, operand.pointer, vector, sizeof(typename Operand::Element));
  std::snprintf(name, sizeof(name), "operands[%d].batch_stride", index);
  check.multiple(name, operand.batch_stride, vector);
  std::snprintf(name, sizeof(name), "operands[%d].ld", index);
  if (Operand::kIsOfSlices) {
    check.at_least(name, operand.ld, 1);
    check.at_most(name, operand.ld, 0x7fffffff);
  }
  if (columns > 0) {
    check.at_least(name, operand.ld, columns);
    check.multiple(name, operand.ld, vector);
  }
}

template <typename... Operand>
void check_operands(Operands<Operand...>, ArgumentCheck& check,
                    [[maybe_unused]] boltgen_operand const* operands, [[maybe_unused]] int n,
                    [[maybe_unused]] int alignment) {
  [[maybe_unused]] int index = 0;
  ((check_operand<Operand>(check, index, operands[index], n, alignment), ++index), ...);
}

/// Split-K's workspace: a semaphore for each tile of the output, then the partial sums.
struct SplitWorkspace {
  size_t semaphore_bytes = 0;
  size_t bytes = 0;

  SplitWorkspace(int64_t tiles, int slices, int partials_per_tile) {
    if (slices > 1) {
      size_t const cache_line = 128;
      semaphore_bytes = (size_t(tiles) * sizeof(int) + cache_line - 1) / cache_line * cache_line;
      bytes = semaphore_bytes + size_t(tiles) * size_t(partials_per_tile) * sizeof(float);
    }
  }

  float* partials(void* workspace) const {
    return bytes == 0 ? nullptr
                      : reinterpret_cast<float*>(static_cast<char*>(workspace) + semaphore_bytes);
  }
};

/// Dynamic shared memory that a kernel may have on a device.
struct ReservedMemory {
  int bytes;

  bool known() const { return bytes > 0; }
};

/// The body of every generated `__global__` function.
template <typename Kernel>
__device__ __forceinline__ void device_main(typename Kernel::Params const& params) {
  extern __shared__ __align__(16) unsigned char boltgen_shared_memory[];
  wait_for_earlier_kernels();
  Kernel kernel;
  kernel(params, *reinterpret_cast<typename Kernel::SharedStorage*>(boltgen_shared_memory));
}

/// Zeroes the semaphores and enqueues the kernel.
///
/// Static, as what it remembers is of this library's function: a symbol of the same name in another
/// library would be the same object.
template <typename Kernel>
static int launch(void (*kernel)(typename Kernel::Params), typename Kernel::Params const& params,
                  dim3 const& grid, SplitWorkspace const& split, void* workspace, void* stream,
                  boltgen_status* status) {
  auto const cuda_stream = static_cast<cudaStream_t>(stream);
  auto const function = reinterpret_cast<void const*>(kernel);
  int const shared_bytes = int(sizeof(typename Kernel::SharedStorage));
  // Without this call a kernel may have 48 KiB of dynamic shared memory.
  // Source: CUDA C++ Programming Guide, compute capabilities, shared memory.
  static PerDevice<ReservedMemory> devices;
  if (shared_bytes > (48 << 10)) {
    ReservedMemory reserved;
    cudaError_t const error = devices.get(reserved, [&](int, ReservedMemory& facts) {
      facts.bytes = shared_bytes;
      return cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  shared_bytes);
    });
    if (error != cudaSuccess) {
      return fail_cuda(status, error, "cannot reserve %d bytes of shared memory", shared_bytes);
    }
  }
  if (split.semaphore_bytes > 0) {
    cudaError_t const error = cudaMemsetAsync(workspace, 0, split.semaphore_bytes, cuda_stream);
    if (error != cudaSuccess) {
      return fail_cuda(status, error, "cannot zero %zu bytes of semaphores", split.semaphore_bytes);
    }
  }
  // Not `<<<>>>` and cudaGetLastError, which would report what an earlier call of somebody else
  // left behind.
  void* arguments[] = {const_cast<typename Kernel::Params*>(&params)};
  cudaError_t const error =
      enqueue(function, grid, Kernel::kThreadCount, shared_bytes, stream, arguments);
  if (error != cudaSuccess) {
    devices.forget();
    return fail_cuda(status, error,
                     "launch of %u x %u x %u blocks of %d threads with %d bytes of shared memory",
                     grid.x, grid.y, grid.z, Kernel::kThreadCount, shared_bytes);
  }
  return succeed(status);
}

}  // namespace boltgen
