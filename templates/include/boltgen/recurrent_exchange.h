// Threadblocks that share the hidden units of a recurrent layer: how they exchange the states of a
// step, and how a launch makes all of them run at once.
//
// Each threadblock writes its hidden units of the next state to global memory, waits for the others
// and reads the state of all of them. Two buffers take turns, so that a fast threadblock does not
// overwrite a state that a slow one still reads: it writes the buffer again only after a further
// wait. Threadblocks may wait for each other as the launch is cooperative.
//
// Source: CUDA C++ Programming Guide, cooperative groups, grid synchronization; PTX ISA, memory
// consistency model, release and acquire patterns.

#pragma once

#include <cutlass/arch/memory.h>
#include <cutlass/array.h>
#include <cutlass/barrier.h>

#include "boltgen/launch.h"

namespace boltgen {

/// The memory of the threadblocks that have the same sequences: two states, and a count of the
/// arrivals that is zero before the launch.
template <typename Element, int kElements>
struct RecurrentExchange {
  // Counts of different sequences are in cache lines of their own.
  static constexpr int kCountBytes = 128;
  static constexpr int kStateBytes = kElements * int(sizeof(Element));
  static_assert(kStateBytes % 16 == 0, "vectors of 16 bytes");

  Element* states;
  int* arrivals;
  int const parts;
  int published = 0;

  /// The counts of all sequences come first, as the launch zeroes them.
  CUTLASS_DEVICE
  RecurrentExchange(void* workspace, int item, int items, int part_count)
      : states(reinterpret_cast<Element*>(static_cast<char*>(workspace) +
                                          int64_t(items) * kCountBytes) +
               int64_t(item) * 2 * kElements),
        arrivals(static_cast<int*>(workspace) + int64_t(item) * (kCountBytes / sizeof(int))),
        parts(part_count) {}

  /// The buffer of the state that is written next.
  CUTLASS_DEVICE
  Element* buffer() const { return states + published % 2 * kElements; }

  /// Publishes this threadblock's part of `buffer()`, waits for the other parts, and returns the
  /// whole state. All threads call it.
  CUTLASS_DEVICE
  Element const* publish() {
    Element const* const made = buffer();
    ++published;
    cutlass::Barrier::arrive_inc(arrivals, int(threadIdx.x), 0);
    cutlass::Barrier::wait_lt(arrivals, int(threadIdx.x), 0, parts * published);
    return made;
  }

  /// The bytes that a launch zeroes, and all that it has.
  static SplitWorkspace workspace(int64_t items) {
    SplitWorkspace split(0, 1, 0);
    split.semaphore_bytes = size_t(items) * kCountBytes;
    split.bytes = split.semaphore_bytes + size_t(items) * 2 * kStateBytes;
    return split;
  }
};

/// The threadblocks of a kernel that a device runs at once.
struct ResidentThreadblocks {
  int count;

  bool known() const { return count > 0; }
};

/// Enqueues teams of `parts` threadblocks that wait for each other, as many teams as the device
/// runs at once and at most `items`.
template <typename Kernel>
static int launch_teams(void (*kernel)(typename Kernel::Params),
                        typename Kernel::Params const& params, int64_t items, int parts,
                        SplitWorkspace const& split, void* workspace, void* stream,
                        boltgen_status* status) {
  auto const cuda_stream = static_cast<cudaStream_t>(stream);
  auto const function = reinterpret_cast<void const*>(kernel);
  int const shared_bytes = int(sizeof(typename Kernel::SharedStorage));
  static PerDevice<ResidentThreadblocks> devices;
  ResidentThreadblocks resident;
  cudaError_t error = devices.get(resident, [&](int device, ResidentThreadblocks& facts) {
    int multiprocessors = 0, on_each = 0;
    cudaError_t found =
        cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (found == cudaSuccess) {
      found = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    }
    if (found == cudaSuccess) {
      found = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
          &on_each, function, Kernel::kThreadCount, size_t(shared_bytes));
    }
    facts.count = multiprocessors * on_each;
    return found;
  });
  if (error != cudaSuccess) {
    return fail_cuda(status, error, "cannot ask how many threadblocks run at once");
  }
  if (resident.count < parts) {
    return fail(status, BOLTGEN_INVALID_ARGUMENT,
                "%d threadblocks share the hidden units; this device runs %d of them at once",
                parts, resident.count);
  }
  error = cudaMemsetAsync(workspace, 0, split.semaphore_bytes, cuda_stream);
  if (error != cudaSuccess) {
    return fail_cuda(status, error, "cannot zero %zu bytes of counts", split.semaphore_bytes);
  }
  int64_t const teams = items < resident.count / parts ? items : resident.count / parts;
  dim3 const grid{unsigned(teams), unsigned(parts)};
  void* arguments[] = {const_cast<typename Kernel::Params*>(&params)};
  error = cudaLaunchCooperativeKernel(function, grid, dim3(Kernel::kThreadCount), arguments,
                                      size_t(shared_bytes), cuda_stream);
  if (error != cudaSuccess) {
    devices.forget();
    return fail_cuda(status, error,
                     "launch of %u x %u cooperative blocks of %d threads with %d bytes of shared "
                     "memory",
                     grid.x, grid.y, Kernel::kThreadCount, shared_bytes);
  }
  return succeed(status);
}

}  // namespace boltgen
