// Host side of a kernel of sm_90a, of a product or a convolution: checks of its schedule,
// workspace, and the launch.

#pragma once

#include <cuda_runtime_api.h>
#include <cutlass/arch/grid_dependency_control.h>
#include <cutlass/cutlass.h>
#include <cutlass/gemm/gemm.h>
#include <cute/tensor.hpp>
#include <cutlass/gemm/kernel/tile_scheduler.hpp>

#include <algorithm>
#include <type_traits>

#include "boltgen/arguments.h"
#include "boltgen/dependent_launch.h"
#include "boltgen/launch.h"
#include "boltgen/per_device.h"

namespace boltgen {

/// A device's multiprocessors, and how many clusters of a kernel it runs at once: without that
/// number a grid of clusters leaves multiprocessors idle (NVIDIA/cutlass#1921).
struct DeviceSm90 {
  int multiprocessors;
  int clusters;

  bool known() const { return multiprocessors > 0; }
};

/// Gives a kernel its shared memory on a device, and asks for the rest; `one` launches one cluster.
inline cudaError_t ask_device(int device, void const* function, cudaLaunchConfig_t const& one,
                              DeviceSm90& facts) {
  cudaError_t error = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           int(one.dynamicSmemBytes));
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&facts.multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  facts.clusters = facts.multiprocessors;
  if (error == cudaSuccess && one.gridDim.x * one.gridDim.y > 1) {
    error = cudaOccupancyMaxActiveClusters(&facts.clusters, function, &one);
  }
  return error;
}

template <typename Op>
constexpr bool kIsStreamK =
    std::is_same<typename Op::Scheduler, cutlass::gemm::StreamKScheduler>::value;

/// Bytes for the sums of tiles that several threadblocks compute: a tile each, then a counter for
/// each warpgroup that multiplies. The same on every device, so that it can be planned elsewhere.
/// Source: cutlass/gemm/kernel/tile_scheduler_params.h, PersistentTileSchedulerSm90StreamKParams.
template <typename Op, typename Args>
size_t workspace_bytes_sm90(Args const& args) {
  if (!kIsStreamK<Op>) {
    return 0;
  }
  using Kernel = typename Op::Kernel;
  // Of all that GH100 has, which no product has.
  constexpr int64_t kMostMultiprocessors = 144;
  constexpr int64_t kTileM = cute::size<0>(typename Kernel::TileShape{});
  constexpr int64_t kTileN = cute::size<1>(typename Kernel::TileShape{});
  auto const whole = [](int64_t extent, int64_t tile, int64_t together) {
    return (extent + tile * together - 1) / (tile * together) * together;
  };
  auto const extents = Op::extents(args);
  int64_t const m = cute::get<0>(extents), n = cute::get<1>(extents);
  int64_t const batch = cute::get<3>(extents);
  if (m < 1 || n < 1 || batch < 1 || args.swizzle < 1) {
    return 0;
  }
  int64_t tiles = batch * whole(m, kTileM, args.swizzle * cute::size<0>(typename Op::Cluster{})) *
                  whole(n, kTileN, args.swizzle * cute::size<1>(typename Op::Cluster{}));
  if (args.split_k == 1) {
    // Stream-K splits what is left of whole waves, and one wave with it.
    tiles = std::min(tiles, 2 * kMostMultiprocessors);
  }
  size_t const cache_line = 128;
  size_t const counters = size_t(tiles) * Kernel::NumMmaWarpGroups * sizeof(int);
  return size_t(tiles) * kTileM * kTileN * sizeof(float) +
         (counters + cache_line - 1) / cache_line * cache_line;
}

/// CUTLASS's arguments for a scheduler. One slice of K is stream-K's own division, which gives
/// every threadblock the same number of steps; sums are added in the order of K.
template <typename Op, typename Args>
typename Op::Kernel::TileSchedulerArguments scheduler_arguments(Args const& args) {
  using namespace cutlass::gemm::kernel::detail;
  typename Op::Kernel::TileSchedulerArguments made{};
  made.max_swizzle_size = args.swizzle;
  made.raster_order = args.raster == BOLTGEN_RASTER_ALONG_N ? RasterOrderOptions::AlongN
                                                            : RasterOrderOptions::AlongM;
  if constexpr (kIsStreamK<Op>) {
    made.splits = args.split_k;
    made.decomposition_mode =
        args.split_k > 1 ? DecompositionMode::SplitK : DecompositionMode::StreamK;
    made.reduction_mode = ReductionMode::Deterministic;
  }
  return made;
}

/// The body of every generated `__global__` function. CUTLASS's kernels wait for the kernels before
/// them by themselves, in the warps that load.
template <typename Kernel>
__device__ __forceinline__ void sm90_main(typename Kernel::Params const& params) {
  static_assert(cutlass::arch::IsGdcGloballyEnabled,
                "compile with -DCUTLASS_GDC_ENABLED: the launch lets a kernel start early");
  let_next_kernel_start();
  extern __shared__ char boltgen_shared_memory_sm90[];
  Kernel()(params, boltgen_shared_memory_sm90);
}

/// Launches a kernel for arguments `Args`. Static for the reason that `launch` is.
template <typename Op, typename Args>
static int run_sm90(void (*kernel)(typename Op::Kernel::Params), Args const* args,
                    boltgen_status* status) {
  using Kernel = typename Op::Kernel;
  constexpr int kThreads = int(Kernel::MaxThreadsPerBlock);
  constexpr int kSharedBytes = Kernel::SharedStorageSize;
  // Every slice ends in a turn at the sums of its tile.
  constexpr int kMostSlices = kIsStreamK<Op> ? 64 : 1;
  size_t const workspace_bytes = workspace_bytes_sm90<Op>(*args);
  ArgumentCheck check(status);
  check.at_least("split_k", args->split_k, 1);
  check.at_most("split_k", args->split_k, kMostSlices);
  check.power_of_two("swizzle", args->swizzle, 8);
  check.at_least("raster", args->raster, BOLTGEN_RASTER_ALONG_M);
  check.at_most("raster", args->raster, BOLTGEN_RASTER_ALONG_N);
  Op::check(check, *args);
  check.workspace(args->workspace, args->workspace_bytes, workspace_bytes);
  if (check.failed()) {
    return check.code();
  }
  auto const function = reinterpret_cast<void const*>(kernel);
  constexpr unsigned kClusterM = cute::size<0>(typename Op::Cluster{});
  constexpr unsigned kClusterN = cute::size<1>(typename Op::Cluster{});
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kClusterM, kClusterN, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = {kClusterM, kClusterN, 1};
  config.blockDim = {unsigned(kThreads), 1, 1};
  config.dynamicSmemBytes = size_t(kSharedBytes);
  config.stream = static_cast<cudaStream_t>(args->stream);
  config.attrs = &cluster;
  config.numAttrs = 1;
  typename Kernel::Arguments arguments = Op::arguments(*args);
  arguments.scheduler = scheduler_arguments<Op>(*args);
  static PerDevice<DeviceSm90> devices;
  DeviceSm90 facts;
  cudaError_t error = devices.get(facts, [&](int device, DeviceSm90& found) {
    return ask_device(device, function, config, found);
  });
  if (error != cudaSuccess) {
    return fail_cuda(status, error,
                     "cannot reserve %d bytes of shared memory for clusters of %u x %u blocks",
                     kSharedBytes, kClusterM, kClusterN);
  }
  arguments.hw_info = {/*device_id=*/0, facts.multiprocessors, facts.clusters};
  check.at_least("number of clusters that the device runs at once", facts.clusters, 1);
  check.at_most("bytes of workspace that this device takes", Kernel::get_workspace_size(arguments),
                workspace_bytes);
  if (!check.failed() && !Kernel::can_implement(arguments)) {
    return fail(status, BOLTGEN_INVALID_ARGUMENT, "CUTLASS cannot implement %d x %d x %d",
                cute::get<0>(arguments.problem_shape), cute::get<1>(arguments.problem_shape),
                cute::get<2>(arguments.problem_shape));
  }
  if (check.failed()) {
    return check.code();
  }
  if (workspace_bytes > 0) {
    // Zeroes the counters, on the stream.
    auto const done = Kernel::initialize_workspace(arguments, args->workspace, config.stream);
    if (done != cutlass::Status::kSuccess) {
      return fail(status, BOLTGEN_CUDA_ERROR, "cannot zero the counters of tiles: %s",
                  cutlass::cutlassGetStatusString(done));
    }
  }
  typename Kernel::Params params = Kernel::to_underlying_arguments(arguments, args->workspace);
  config.gridDim = Kernel::get_grid_shape(params);
  void* pointers[] = {&params};
  error = enqueue(function, config, pointers);
  if (error != cudaSuccess) {
    devices.forget();
    return fail_cuda(status, error,
                     "launch of %u x %u x %u blocks of %d threads, in clusters of %u x %u, with "
                     "%d bytes of shared memory",
                     config.gridDim.x, config.gridDim.y, config.gridDim.z, kThreads, kClusterM,
                     kClusterN, kSharedBytes);
  }
  return succeed(status);
}

}  // namespace boltgen
