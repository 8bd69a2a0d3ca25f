// The element types of profiler.h: their conversions and their ranges.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cfloat>

namespace boltgen::profiler {

/// `kMax` is the largest number, `kOverflow` the smallest magnitude that rounds to infinity, and
/// `kDigits` those of the significand.
template <typename Element>
struct Range;

template <>
struct Range<half> {
  static constexpr float kMax = 65504.0f;
  static constexpr float kOverflow = 65520.0f;
  static constexpr int kDigits = 11;
};

template <>
struct Range<__nv_bfloat16> {
  static constexpr float kMax = 0x1.fep127f;
  static constexpr float kOverflow = 0x1.ffp127f;
  static constexpr int kDigits = 8;
};

template <>
struct Range<float> {
  static constexpr float kMax = FLT_MAX;
  static constexpr float kOverflow = FLT_MAX;
  static constexpr int kDigits = FLT_MANT_DIG;
};

__device__ inline float widened(half x) { return __half2float(x); }
__device__ inline float widened(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float widened(float x) { return x; }

/// Rounds to nearest even: to BF16 by way of FP32, as NumPy does and kernels must.
template <typename Element>
__device__ Element narrowed(double x);
template <>
__device__ inline half narrowed<half>(double x) {
  return __double2half(x);
}
template <>
__device__ inline __nv_bfloat16 narrowed<__nv_bfloat16>(double x) {
  return __float2bfloat16_rn(float(x));
}
template <>
__device__ inline float narrowed<float>(double x) {
  return float(x);
}

}  // namespace boltgen::profiler
