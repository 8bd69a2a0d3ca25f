// Programmatic dependent launches: on sm_90 and later a kernel may start before the kernel ahead of
// it in the stream has ended. It sets up its barriers meanwhile, and waits before it touches memory
// that another kernel may have written or may still read.
//
// Why nothing is read too early, nor overwritten:
// - The wait ends when the kernel before has completed and its writes are visible to this grid
//   (PTX ISA, griddepcontrol). Every kernel of boltgen waits, so that the kernel before has
//   completed only after the one before it, and so on: one wait is enough for all of them.
// - A block waits before its first access to global memory. Its other threads may access memory
//   after a barrier behind a thread that has waited, as in CUTLASS's kernels.
// - Operations without the attribute (memsets, copies, TVM's kernels, events) begin when all before
//   them has completed. A kernel of boltgen behind one of them waits for it in the same way. If it
//   is the first one of its stream or graph, the wait ends at once.
// - Kernels of other streams are ordered by events, to which the attribute does not apply.
// - Captured into a graph, the attribute becomes an edge of the same meaning (from CUDA 12.3 on).
//
// Source: CUDA C++ Programming Guide, Programmatic Dependent Launch and Synchronization.

#pragma once

#include <cuda_runtime_api.h>
#include <cutlass/cutlass.h>

namespace boltgen {

/// Whether this file's kernels may start early: all architectures that it is compiled for can.
/// The macro is for comparisons.
#ifdef BOLTGEN_NO_DEPENDENT_LAUNCH
constexpr bool kStartsEarly = false;
#else
constexpr bool kStartsEarly = [] {
  bool all = true;
  for (int const arch : {__CUDA_ARCH_LIST__}) {
    all = all && arch >= 900;
  }
  return all;
}();
#endif

/// Lets the next kernel of the stream start when all blocks of this one run: it takes no room from
/// them, and waits for their end by itself.
CUTLASS_DEVICE
void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// Waits for all kernels before this one, after it has let the next one start. It comes before
/// every access to global memory.
CUTLASS_DEVICE
void wait_for_earlier_kernels() {
  let_next_kernel_start();
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Enqueues a kernel that waits for the ones before it by itself; `config` has at most one
/// attribute.
inline cudaError_t enqueue(void const* kernel, cudaLaunchConfig_t config, void** arguments) {
  cudaLaunchAttribute attributes[2];
  unsigned count = 0;
  for (; count < config.numAttrs; ++count) {
    attributes[count] = config.attrs[count];
  }
  if (kStartsEarly) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count].val.programmaticStreamSerializationAllowed = 1;
    ++count;
  }
  if (count == 0) {
    return cudaLaunchKernel(kernel, config.gridDim, config.blockDim, arguments,
                            config.dynamicSmemBytes, config.stream);
  }
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

/// The same without attributes of its own.
inline cudaError_t enqueue(void const* kernel, dim3 grid, int threads, int shared_bytes,
                           void* stream, void** arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(unsigned(threads));
  config.dynamicSmemBytes = size_t(shared_bytes);
  config.stream = static_cast<cudaStream_t>(stream);
  return enqueue(kernel, config, arguments);
}

}  // namespace boltgen
