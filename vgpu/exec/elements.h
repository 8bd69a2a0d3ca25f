// The element types of matrix fragments that are multiplied in f32, and the fragments of a product.
#pragma once

#include "exec/lanes.h"

namespace vgpu::VGPU_ISA {

// Tensor cores look at the upper 19 bits of a word that holds a tf32.
inline constexpr u32 kTf32Bits = 0xffffe000u;

struct Half {
  static constexpr int kPerWord = 2;
  static VGPU_INLINE float at(u32 word, int which) {
    return half_to_float(word >> 16 * which & 0xffff);
  }
  // The product of two halves is exact in f32, so the fused form has the same bits.
  static VGPU_INLINE float multiply_add(float a, float b, float c) { return c + a * b; }
};
struct Bfloat {
  static constexpr int kPerWord = 2;
  static VGPU_INLINE float at(u32 word, int which) {
    return bfloat_to_float(word >> 16 * which & 0xffff);
  }
  // Exact but for products out of the range of f32.
  static VGPU_INLINE float multiply_add(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
  }
};
struct Tf32 {
  static constexpr int kPerWord = 1;
  static VGPU_INLINE float at(u32 word, int) { return bit_cast<float>(word & kTf32Bits); }
  static VGPU_INLINE float multiply_add(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
  }
};

// The registers of one mma with sums in f32. Those of the factors are told by their offsets into
// the warp's registers, as the instruction has them: most are only compared.
template <int kSteps>
struct Operands {
  const u8* registers;
  const u32* a;  // 2 * kSteps
  const u32* b;  // kSteps
  const u32* c[4];
  u32* d[4];
};

VGPU_INLINE const u32* words_at(const u8* registers, u32 offset) {
  return reinterpret_cast<const u32*>(registers + offset);
}

}  // namespace vgpu::VGPU_ISA
