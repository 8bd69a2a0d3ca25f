// Sums of wgmma over products of 8-bit floats, to the bit.
//
// An instruction adds 32 products and the sum so far at once. Each is cut off 13 bits behind the
// point of the largest exponent, the pieces are added exactly, and the total is cut off to a
// fraction of 13 bits, or rounded to the nearest f16. The exponent of a product is the sum of its
// factors', and that of a subnormal factor is its type's least.
//
// Source: Microsoft's MMA-Sim (github.com/microsoft/MMA-Sim), which an H100 agrees with: F = 13,
// RZ-E8M13. It does not tell what sparse products do, nor what a total beyond f32 becomes.
#pragma once

#include <algorithm>

#include "exec/core_matrix.h"
#include "exec/narrow_elements.h"
#include "exec/warpgroup.h"

namespace vgpu::VGPU_ISA {

inline constexpr int kFractionBits = 13;
inline constexpr int kNarrowDepth = 32;   // products that are added at once
inline constexpr int kOfZero = -1 << 12;  // an exponent below all others, and below their sums
inline constexpr u32 kKeptOfF32 = ~0u << (23 - kFractionBits);

inline int exponent_of(float x) { return static_cast<int>(bit_cast<u32>(x) >> 23 & 0xff) - 127; }
inline float power_of_two(int e) {  // of a normal number
  return bit_cast<float>(static_cast<u32>(e + 127) << 23);
}

// The exponent of a factor, whose least one is `least`.
inline int factor_exponent(float x, int least) {
  return x == 0 ? kOfZero : std::max(exponent_of(x), least);
}

// The factors of one side with their exponents: 8 columns of a panel for each step of k, or a row.
template <int kCount>
struct Factors {
  alignas(64) float value[kCount];
  alignas(64) s32 exponent[kCount];

  void set(int n, float x, int least) {
    value[n] = x;
    exponent[n] = factor_exponent(x, least);
  }
};
using NarrowRow = Factors<kNarrowDepth>;
using NarrowPanel = Factors<8 * kNarrowDepth>;

// A sum of `total` pieces, each of 2 to the power of `unit`.
inline float rounded_total(s32 total, int unit, bool to_half) {
  const float scaled =
      static_cast<float>(total) * power_of_two(unit);  // total has fewer than 24 bits
  return to_half ? scaled : bit_cast<float>(bit_cast<u32>(scaled) & kKeptOfF32);
}

// Adds a row's products with 8 columns to 8 sums, all of them finite.
inline void add_finite(const NarrowRow& row, const NarrowPanel& panel, bool to_half, float* sum) {
  // Where the largest exponent is lower, all products are 0: 8-bit floats have none so small.
  constexpr int kLeast = kFractionBits - 126;
  alignas(32) s32 largest[8];
  alignas(32) float scale[8];
  alignas(32) s32 total[8];
  for (int n = 0; n < 8; ++n) largest[n] = sum[n] == 0 ? kLeast : exponent_of(sum[n]);
  for (int k = 0; k < kNarrowDepth; ++k) {
    for (int n = 0; n < 8; ++n)
      largest[n] = std::max(largest[n], row.exponent[k] + panel.exponent[8 * k + n]);
  }
  for (int n = 0; n < 8; ++n) {
    largest[n] = std::max(largest[n], kLeast);
    scale[n] = power_of_two(kFractionBits - largest[n]);
    total[n] = static_cast<s32>(sum[n] * scale[n]);
  }
  for (int k = 0; k < kNarrowDepth; ++k) {
    for (int n = 0; n < 8; ++n)
      total[n] += static_cast<s32>(row.value[k] * panel.value[8 * k + n] * scale[n]);
  }
  for (int n = 0; n < 8; ++n) {
    if (largest[n] > kLeast) {
      sum[n] = rounded_total(total[n], largest[n] - kFractionBits, to_half);
    } else if (!to_half) {
      sum[n] = bit_cast<float>(bit_cast<u32>(sum[n]) & kKeptOfF32);
    }
  }
}

// Adds a row's products with 8 columns to 8 sums.
inline void add_narrow(const NarrowRow& row, const NarrowPanel& panel, bool to_half, float* sum) {
  alignas(32) float plain[8];
  std::copy_n(sum, 8, plain);
  for (int k = 0; k < kNarrowDepth; ++k) {
    for (int n = 0; n < 8; ++n) plain[n] += row.value[k] * panel.value[8 * k + n];
  }
  const auto is_finite = [](float x) { return exponent_of(x) < 128; };
  if (std::all_of(plain, plain + 8, is_finite)) return add_finite(row, panel, to_half, sum);
  const bool has_finite_row = std::all_of(row.value, row.value + kNarrowDepth, is_finite);
  NarrowPanel finite = panel;
  for (int n = 0; n < 8; ++n) {
    if (is_finite(plain[n])) continue;
    sum[n] = 0;
    for (int k = 0; k < kNarrowDepth; ++k) finite.set(8 * k + n, 0, 0);
  }
  if (has_finite_row) add_finite(row, finite, to_half, sum);
  for (int n = 0; n < 8; ++n) {
    if (is_finite(plain[n])) continue;
    sum[n] = plain[n] == plain[n] ? plain[n] : bit_cast<float>(0x7fffffffu);
  }
}

}  // namespace vgpu::VGPU_ISA
