// Judges an output by the reference's intervals; the rules are those of reference.compare.

#include <cmath>

#include "interval.cuh"
#include "process.h"

namespace boltgen::profiler {
namespace {

struct Tally {
  unsigned long long wrong;
  unsigned long long not_finite;
  unsigned long long first_wrong;
};

template <typename Element>
__device__ bool is_right(float got, float low, float high) {
  if (isnan(low)) {
    return isnan(got);
  }
  if (low != high && (isinf(low) || isinf(high))) {
    return true;  // an intermediate may have overflowed: anything is right
  }
  if (isinf(got)) {
    return got > 0.0f ? high >= Range<Element>::kOverflow : low <= -Range<Element>::kOverflow;
  }
  return low <= got && got <= high;
}

template <typename Element>
__global__ void compare(Element const* output, float const* low, float const* high, uint64_t count,
                        Tally* tally) {
  uint64_t const stride = uint64_t(gridDim.x) * blockDim.x;
  for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    float const got = widened(output[i]);
    if (!is_right<Element>(got, low[i], high[i])) {
      atomicAdd(&tally->wrong, 1ull);
      atomicAdd(&tally->not_finite, isnan(got) ? 1ull : 0ull);
      atomicMin(&tally->first_wrong, static_cast<unsigned long long>(i));
    }
  }
}

template <typename Element>
int compare_all(Element const* output, float const* low, float const* high, uint64_t count,
                profiler_verdict* out, profiler_status* status) {
  Tally tally{0, 0, ~0ull};
  void* on_device = nullptr;
  if (int const code = profiler_allocate(sizeof(tally), &on_device, status)) {
    return code;
  }
  if (int const code = profiler_copy(on_device, &tally, sizeof(tally), status)) {
    return code;
  }
  unsigned const threads = 256;
  uint64_t const wanted = (count + threads - 1) / threads;
  unsigned const blocks = unsigned(wanted < 4096 ? wanted : 4096);
  compare<Element>
      <<<blocks, threads, 0, stream()>>>(output, low, high, count, static_cast<Tally*>(on_device));
  cudaError_t const error = cudaGetLastError();
  if (error != cudaSuccess) {
    return fail(status, error, "launch of compare");
  }
  if (int const code = profiler_copy(&tally, on_device, sizeof(tally), status)) {
    return code;
  }
  *out = {tally.wrong, tally.not_finite, tally.first_wrong, 0.0f, 0.0f, 0.0f};
  if (tally.wrong > 0) {
    uint64_t const i = tally.first_wrong;
    Element got;
    if (int const code = profiler_copy(&got, output + i, sizeof(got), status)) {
      return code;
    }
    if (int const code = profiler_copy(&out->low, low + i, sizeof(float), status)) {
      return code;
    }
    if (int const code = profiler_copy(&out->high, high + i, sizeof(float), status)) {
      return code;
    }
    out->got = float(got);
  }
  return profiler_release(on_device, status);
}

}  // namespace
}  // namespace boltgen::profiler

int profiler_compare(void const* output, int dtype, float const* low, float const* high,
                     uint64_t count, profiler_verdict* out, profiler_status* status) {
  using boltgen::profiler::compare_all;
  switch (dtype) {
    case PROFILER_F16:
      return compare_all(static_cast<half const*>(output), low, high, count, out, status);
    case PROFILER_BF16:
      return compare_all(static_cast<__nv_bfloat16 const*>(output), low, high, count, out, status);
    case PROFILER_F32:
      return compare_all(static_cast<float const*>(output), low, high, count, out, status);
    case PROFILER_I8:
      return compare_all(static_cast<int8_t const*>(output), low, high, count, out, status);
    case PROFILER_U8:
      return compare_all(static_cast<uint8_t const*>(output), low, high, count, out, status);
    case PROFILER_I32:
      return compare_all(static_cast<int32_t const*>(output), low, high, count, out, status);
    default:
      return boltgen::profiler::refuse(status, "an output of the unknown element type %d", dtype);
  }
}
