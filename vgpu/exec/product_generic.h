// The product of mma fragments in plain C++.
#pragma once

#include "exec/elements.h"

namespace vgpu::VGPU_ISA {

template <class E, int kSteps>
class Multiplier {
 public:
  using One = Operands<kSteps>;

  static void run(const One& one, const One& other) {
    run(one);
    run(other);
  }
  static void run(const One& one) {
    constexpr int kPer = E::kPerWord;
    constexpr int kDepth = 4 * kPer * kSteps;
    float left[16][kDepth];
    float right[kDepth][8];
    float sum[16][8];
    for (int l = 0; l < kWarpSize; ++l) {
      const int g = l / 4;
      const int t = l % 4;
      for (int h = 0; h < kSteps; ++h) {
        for (int e = 0; e < kPer; ++e) {
          const int k = kPer * (4 * h + t) + e;
          left[g][k] = E::at(words_at(one.registers, one.a[2 * h])[l], e);
          left[g + 8][k] = E::at(words_at(one.registers, one.a[2 * h + 1])[l], e);
          right[k][g] = E::at(words_at(one.registers, one.b[h])[l], e);
        }
      }
      for (int r = 0; r < 4; ++r) {
        sum[g + 8 * (r / 2)][2 * t + r % 2] = bit_cast<float>(one.c[r][l]);
      }
    }
    for (int row = 0; row < 16; ++row) {
      for (int k = 0; k < kDepth; ++k) {
        for (int n = 0; n < 8; ++n) {
          sum[row][n] = E::multiply_add(left[row][k], right[k][n], sum[row][n]);
        }
      }
    }
    for (int l = 0; l < kWarpSize; ++l) {
      for (int r = 0; r < 4; ++r) {
        one.d[r][l] = F32::store(sum[l / 4 + 8 * (r / 2)][2 * (l % 4) + r % 2]);
      }
    }
  }
};

}  // namespace vgpu::VGPU_ISA
