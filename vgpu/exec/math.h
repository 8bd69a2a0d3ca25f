// The approximate functions of the GPU, in double precision, so that rounding to float is within
// half an ulp and a bit. Only +, -, * and / in a fixed order: the same bits on every CPU. A GPU's
// own approximations differ in the last bits; nothing may depend on those.
#pragma once

#include "exec/lanes.h"

namespace vgpu::VGPU_ISA {

VGPU_INLINE double scale_by_power(double value, s64 n) {
  return value * bit_cast<double>(static_cast<u64>(n + 1023) << 52);
}

// Nearest integer of |x| < 2^51, by the rounding of an addition.
VGPU_INLINE double nearest_integer(double x) {
  const double magic = 6755399441055744.0;
  return (x + magic) - magic;
}

VGPU_INLINE double exp2_double(double x) {
  double bounded = x > 1000.0 ? 1000.0 : x;
  bounded = bounded < -1000.0 ? -1000.0 : bounded;
  const double magic = 6755399441055744.0;
  const double shifted = bounded + magic;
  const s64 n = static_cast<s64>(bit_cast<u64>(shifted) - bit_cast<u64>(magic));
  const double f = bounded - (shifted - magic);
  // Taylor series of 2^f on [-1/2, 1/2]: the term of degree 12 is below 1e-15.
  double p = 2.5678435993488206e-11;
  p = p * f + 4.4455382718708116e-10;
  p = p * f + 7.0549116208011233e-09;
  p = p * f + 1.0178086009239699e-07;
  p = p * f + 1.3215486790144307e-06;
  p = p * f + 1.5252733804059840e-05;
  p = p * f + 1.5403530393381609e-04;
  p = p * f + 1.3333558146428443e-03;
  p = p * f + 9.6181291076284772e-03;
  p = p * f + 5.5504108664821579e-02;
  p = p * f + 2.4022650695910071e-01;
  p = p * f + 6.9314718055994531e-01;
  p = p * f + 1.0;
  const double result = scale_by_power(p, n);
  return x != x ? x : result;
}

VGPU_INLINE double log2_double(double x) {
  const u64 bits = bit_cast<u64>(x);
  // Mantissa in [sqrt(1/2), sqrt(2)).
  const u64 offset = bits - 0x3fe6a09e667f3bcdull;
  const s64 exponent = static_cast<s64>(offset) >> 52;
  const double m = bit_cast<double>(bits - (static_cast<u64>(exponent) << 52));
  const double s = (m - 1.0) / (m + 1.0);
  const double q = s * s;
  double p = 1.0 / 21.0;
  p = p * q + 1.0 / 19.0;
  p = p * q + 1.0 / 17.0;
  p = p * q + 1.0 / 15.0;
  p = p * q + 1.0 / 13.0;
  p = p * q + 1.0 / 11.0;
  p = p * q + 1.0 / 9.0;
  p = p * q + 1.0 / 7.0;
  p = p * q + 1.0 / 5.0;
  p = p * q + 1.0 / 3.0;
  p = p * q + 1.0;
  double result = static_cast<double>(exponent) + s * p * 2.8853900817779268;
  result = x == 0 ? -__builtin_inf() : result;
  result = x == __builtin_inf() ? x : result;
  return x < 0 || x != x ? __builtin_nan("") : result;
}

VGPU_INLINE double sine_quadrant(double x, s64 shift) {
  const double n = nearest_integer(x * 0.63661977236758134);
  const double r = (x - n * 1.5707963267341256) - n * 6.0771005065061922e-11;
  const s64 quadrant = (static_cast<s64>(n) + shift) & 3;
  const double q = r * r;
  double sine = -1.0 / 39916800.0;
  sine = sine * q + 1.0 / 362880.0;
  sine = sine * q - 1.0 / 5040.0;
  sine = sine * q + 1.0 / 120.0;
  sine = sine * q - 1.0 / 6.0;
  sine = r + r * q * sine;
  double cosine = 1.0 / 479001600.0;
  cosine = cosine * q - 1.0 / 3628800.0;
  cosine = cosine * q + 1.0 / 40320.0;
  cosine = cosine * q - 1.0 / 720.0;
  cosine = cosine * q + 1.0 / 24.0;
  cosine = cosine * q - 0.5;
  cosine = cosine * q + 1.0;
  const double magnitude = (quadrant & 1) ? cosine : sine;
  return (quadrant & 2) ? -magnitude : magnitude;
}
VGPU_INLINE float sine(float x) {
  const double bounded = x < 0x1p40f && x > -0x1p40f ? x : 0.0;
  const float result = static_cast<float>(sine_quadrant(bounded, 0));
  return x - x != 0 ? x - x : (x == 0 ? x : result);
}
VGPU_INLINE float cosine(float x) {
  const double bounded = x < 0x1p40f && x > -0x1p40f ? x : 0.0;
  const float result = static_cast<float>(sine_quadrant(bounded, 1));
  return x - x != 0 ? x - x : result;
}

VGPU_INLINE float tanh_float(float x) {
  const double v = x;
  const double q = v * v;
  // Near zero 1 - 2/(e+1) would cancel: the series is good to 1e-9 below 1/16.
  const double series = v + v * q * (-1.0 / 3.0 + q * (2.0 / 15.0 - q * (17.0 / 315.0)));
  const double large = 1.0 - 2.0 / (exp2_double(v * 2.8853900817779268) + 1.0);
  const bool small = v < 0.0625 && v > -0.0625;
  return static_cast<float>(small ? series : large);
}

VGPU_INLINE float exp2_float(float x) { return static_cast<float>(exp2_double(x)); }
VGPU_INLINE float log2_float(float x) { return static_cast<float>(log2_double(x)); }
VGPU_INLINE float rsqrt_float(float x) {
  return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(x)));
}

// min and max: -0 is below +0, a NaN loses unless both are.
template <class T>
VGPU_INLINE bool negative_zero_first(T a, T b) {
  return a == b && __builtin_signbit(a);
}
template <class T>
VGPU_INLINE T minimum(T a, T b) {
  T result = (a < b || negative_zero_first(a, b)) ? a : b;
  result = a != a ? b : result;
  return b != b ? a : result;
}
template <class T>
VGPU_INLINE T maximum(T a, T b) {
  T result = (a > b || negative_zero_first(b, a)) ? a : b;
  result = a != a ? b : result;
  return b != b ? a : result;
}
template <class T>
VGPU_INLINE T minimum_nan(T a, T b) {
  const T result = (a < b || negative_zero_first(a, b)) ? a : b;
  return (a != a || b != b) ? static_cast<T>(__builtin_nanf("")) : result;
}
template <class T>
VGPU_INLINE T maximum_nan(T a, T b) {
  const T result = (a > b || negative_zero_first(b, a)) ? a : b;
  return (a != a || b != b) ? static_cast<T>(__builtin_nanf("")) : result;
}

}  // namespace vgpu::VGPU_ISA
