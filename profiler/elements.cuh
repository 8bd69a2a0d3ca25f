// The element types of profiler.h: their conversions and their ranges.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cfloat>
#include <cmath>
#include <cstdint>

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

/// Of integers, to which nothing is rounded: they have no infinity.
template <>
struct Range<int8_t> {
  static constexpr float kOverflow = INFINITY;
};

template <>
struct Range<uint8_t> {
  static constexpr float kOverflow = INFINITY;
};

template <>
struct Range<int32_t> {
  static constexpr float kOverflow = INFINITY;
};

__device__ inline float widened(half x) { return __half2float(x); }
__device__ inline float widened(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float widened(float x) { return x; }
__device__ inline float widened(int8_t x) { return float(x); }
__device__ inline float widened(uint8_t x) { return float(x); }
__device__ inline float widened(int32_t x) { return float(x); }

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

template <>
__device__ inline int8_t narrowed<int8_t>(double x) {
  return int8_t(__double2int_rn(fmin(fmax(x, -128.0), 127.0)));
}
template <>
__device__ inline uint8_t narrowed<uint8_t>(double x) {
  return uint8_t(__double2int_rn(fmin(fmax(x, 0.0), 255.0)));
}
template <>
__device__ inline int32_t narrowed<int32_t>(double x) {
  return __double2int_rn(x);
}

}  // namespace boltgen::profiler
