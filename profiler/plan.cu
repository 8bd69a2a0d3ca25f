// Times launches: a sample empties the L2 cache and then measures all launches of a plan, each on
// operands of its own, between two events.

#include <cuda_runtime.h>

#include <cstdint>

#include "boltgen/abi.h"
#include "process.h"

namespace boltgen::profiler {
namespace {

/// Reads all of `scratch`, which drives everything else out of the L2 cache. Reading leaves no
/// dirty lines whose writing back would fall into the time of what follows.
__global__ void read_through(uint4 const* scratch, uint64_t count, unsigned* sink) {
  uint64_t const stride = uint64_t(gridDim.x) * blockDim.x;
  unsigned seen = 0;
  for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    uint4 const vector = scratch[i];
    seen |= vector.x ^ vector.y ^ vector.z ^ vector.w;
  }
  if (sink != nullptr) {  // always null, which the compiler does not know
    *sink = seen;
  }
}

}  // namespace
}  // namespace boltgen::profiler

using namespace boltgen::profiler;

struct profiler_plan {
  profiler_launches launches{};
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  cudaGraphExec_t graph = nullptr;

  ~profiler_plan() {
    if (graph != nullptr) {
      cudaGraphExecDestroy(graph);
    }
    if (begin != nullptr) {
      cudaEventDestroy(begin);
    }
    if (end != nullptr) {
      cudaEventDestroy(end);
    }
  }

  /// Enqueues every launch.
  int launch_all(profiler_status* status) const {
    for (int i = 0; i < launches.count; ++i) {
      boltgen_status said;
      said.message[0] = '\0';  // a launch that fails may say nothing
      if (launches.kernel(launches.arguments[i], &said) != BOLTGEN_OK) {
        cudaGetLastError();  // an entry of somebody else's leaves it to be found by the next call
        return refuse(status, "%s", said.message);
      }
    }
    return succeed(status);
  }

  int capture(profiler_status* status) {
    cudaError_t error = cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal);
    if (error != cudaSuccess) {
      return fail(status, error, "cudaStreamBeginCapture");
    }
    int const code = launch_all(status);
    cudaGraph_t captured = nullptr;
    error = cudaStreamEndCapture(stream(), &captured);
    if (code != PROFILER_OK) {
      if (captured != nullptr) {
        cudaGraphDestroy(captured);
      }
      return code;
    }
    if (error != cudaSuccess) {
      return fail(status, error, "cudaStreamEndCapture");
    }
    error = cudaGraphInstantiate(&graph, captured, 0);
    cudaGraphDestroy(captured);
    return error == cudaSuccess ? succeed(status) : fail(status, error, "cudaGraphInstantiate");
  }

  void empty_cache() const {
    if (launches.scratch_bytes > 0) {
      read_through<<<1024, 256, 0, stream()>>>(static_cast<uint4 const*>(launches.scratch),
                                               launches.scratch_bytes / sizeof(uint4), nullptr);
    }
  }

  int sample(double* microseconds, profiler_status* status) const {
    // Nothing here waits before the last launch is enqueued: while the device is busy emptying the
    // cache, the host gets ahead, and the time of its calls does not show between the events.
    empty_cache();
    cudaError_t error = cudaEventRecord(begin, stream());
    if (error != cudaSuccess) {
      return fail(status, error, "cudaEventRecord");
    }
    if (graph != nullptr) {
      error = cudaGraphLaunch(graph, stream());
      if (error != cudaSuccess) {
        return fail(status, error, "cudaGraphLaunch");
      }
    } else if (int const code = launch_all(status)) {
      return code;
    }
    error = cudaEventRecord(end, stream());
    if (error != cudaSuccess) {
      return fail(status, error, "cudaEventRecord");
    }
    if (int const code = finish(status, "kernel")) {
      return code;
    }
    float milliseconds = 0.0f;
    error = cudaEventElapsedTime(&milliseconds, begin, end);
    *microseconds = double(milliseconds) * 1e3 / launches.count;
    return error == cudaSuccess ? succeed(status) : fail(status, error, "cudaEventElapsedTime");
  }
};

int profiler_plan_make(profiler_launches const* launches, profiler_plan** out,
                       profiler_status* status) {
  *out = nullptr;
  auto* const plan = new profiler_plan{*launches};
  cudaError_t error = cudaEventCreate(&plan->begin);
  if (error == cudaSuccess) {
    error = cudaEventCreate(&plan->end);
  }
  int code = error == cudaSuccess ? succeed(status) : fail(status, error, "cudaEventCreate");
  if (code == PROFILER_OK && launches->in_graph) {
    code = plan->capture(status);
  }
  if (code != PROFILER_OK) {
    delete plan;
    return code;
  }
  *out = plan;
  return code;
}

int profiler_plan_sample(profiler_plan* plan, int32_t samples, double* out,
                         profiler_status* status) {
  for (int32_t i = 0; i < samples; ++i) {
    if (int const code = plan->sample(out + i, status)) {
      return code;
    }
  }
  return succeed(status);
}

void profiler_plan_free(profiler_plan* plan) { delete plan; }
