// The elementwise functions of epilogues, in FP32.
//
// Accuracy: every function is within the bounds of boltgen/ir/functions.py, a few units in the last
// place of FP32, so its error is far below the rounding to FP16 or BF16 that follows. Quotients are
// approximate, which takes a quarter of the instructions: 2 units. NaN propagates through all
// functions, as NumPy has it; CUDA's fmaxf and fminf would drop it.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

namespace boltgen {

__device__ __forceinline__ float maximum(float x, float y) {
  // A NaN in x fails the comparison and is kept by the first test; one in y is the other branch.
  return (x != x || x > y) ? x : y;
}

__device__ __forceinline__ float minimum(float x, float y) { return (x != x || x < y) ? x : y; }

__device__ __forceinline__ float negate(float x) { return -x; }

__device__ __forceinline__ float abs(float x) { return fabsf(x); }

__device__ __forceinline__ float sqrt(float x) { return sqrtf(x); }

__device__ __forceinline__ float rsqrt(float x) { return rsqrtf(x); }

__device__ __forceinline__ float exp(float x) { return expf(x); }

__device__ __forceinline__ float log(float x) { return logf(x); }

__device__ __forceinline__ float erf(float x) { return erff(x); }

__device__ __forceinline__ float tanh(float x) { return tanhf(x); }

__device__ __forceinline__ float round(float x) { return rintf(x); }

__device__ __forceinline__ float relu(float x) { return x < 0.0f ? 0.0f : x; }

__device__ __forceinline__ float leaky_relu(float x, float alpha) {
  return x > 0.0f ? x : alpha * x;
}

__device__ __forceinline__ float clip(float x, float low, float high) {
  float const raised = x < low ? low : x;
  return raised > high ? high : raised;
}

/// 2 to the power of x. Source: PTX ISA, ex2: within 2 ulp; +0 of -inf.
__device__ __forceinline__ float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// 1 / x. Source: PTX ISA, rcp: within 1 ulp; a subnormal result is 0. __fdividef takes three more
/// instructions, for divisors above 2^126.
__device__ __forceinline__ float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ __forceinline__ float sigmoid(float x) {
  // exp of a negative number only: it cannot overflow and take the tail with it.
  float const e = expf(-fabsf(x));
  return (x < 0.0f ? e : 1.0f) * reciprocal(1.0f + e);
}

__device__ __forceinline__ float silu(float x) { return x * sigmoid(x); }

__device__ __forceinline__ float hardsigmoid(float x, float alpha, float beta) {
  return clip(alpha * x + beta, 0.0f, 1.0f);
}

__device__ __forceinline__ float hardswish(float x) {
  return x * hardsigmoid(x, 1.0f / 6.0f, 0.5f);
}

__device__ __forceinline__ float softplus(float x) {
  // log(1 + e^x) with an argument of exp that is never positive: no overflow for large x.
  return maximum(x, 0.0f) + log1pf(expf(-fabsf(x)));
}

__device__ __forceinline__ float mish(float x) {
  // x tanh(log(1 + e^x)) = x n / (n + 2) with n = e^x (e^x + 2). At 20 the quotient is 1 in FP32,
  // and the square does not overflow.
  float const e = expf(x > 20.0f ? 20.0f : x);
  float const n = e * (e + 2.0f);
  return x * __fdividef(n, n + 2.0f);
}

__device__ __forceinline__ float gelu_erf(float x) {
  // x erfc(-x / sqrt(2)) / 2, with erfc(z) = t exp(-z^2 + polynomial of t), t = 1 / (1 + z / 2), of
  // z >= 0: its relative error is 1.2e-7, also where 1 + erf(x / sqrt(2)) would cancel. CUDA's
  // erfcf takes three times the instructions. The polynomial is divided by ln 2, and halves erfc.
  // Source: Press et al., Numerical Recipes, second edition, section 6.2.
  float const t = reciprocal(__fmaf_rn(0.35355339f, fabsf(x), 1.0f));
  float polynomial = 0.246517298f;
  polynomial = __fmaf_rn(polynomial, t, -1.18611495f);
  polynomial = __fmaf_rn(polynomial, t, 2.14747446f);
  polynomial = __fmaf_rn(polynomial, t, -1.63775315f);
  polynomial = __fmaf_rn(polynomial, t, 0.402321582f);
  polynomial = __fmaf_rn(polynomial, t, -0.26875686f);
  polynomial = __fmaf_rn(polynomial, t, 0.139630057f);
  polynomial = __fmaf_rn(polynomial, t, 0.539700616f);
  polynomial = __fmaf_rn(polynomial, t, 1.4427292f);
  polynomial = __fmaf_rn(polynomial, t, -2.82574822f);
  float const half = t * power_of_two(__fmaf_rn(-0.72134752f * x, x, polynomial));
  return x * (x < 0.0f ? half : 1.0f - half);
}

__device__ __forceinline__ float gelu_tanh(float x) {
  // 0.5 (1 + tanh(u)) = 1 / (1 + e^(-2u)), without the cancellation for negative u;
  // u = sqrt(2 / pi) (x + 0.044715 x^3). Source: Hendrycks and Gimpel, arXiv:1606.08415.
  float const twice_u = 1.5957691216f * x * (1.0f + 0.044715f * x * x);
  return __fdividef(x, 1.0f + expf(-twice_u));
}

__device__ __forceinline__ float relu6(float x) { return clip(x, 0.0f, 6.0f); }

__device__ __forceinline__ float quick_gelu(float x) { return x * sigmoid(1.702f * x); }

__device__ __forceinline__ float elu(float x, float alpha) {
  return x > 0.0f ? x : alpha * expm1f(x);
}

__device__ __forceinline__ float selu(float x) {
  return 1.05070098735548049342f * elu(x, 1.67326324235437728482f);
}

/// Rounds to FP16 and back: a cast that the model's author wrote.
__device__ __forceinline__ float round_to_half(float x) { return __half2float(__float2half_rn(x)); }

/// The same to BF16.
__device__ __forceinline__ float round_to_bfloat16(float x) {
  return __bfloat162float(__float2bfloat16_rn(x));
}

}  // namespace boltgen
