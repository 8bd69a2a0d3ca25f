// Elements of 8 bits and less that are multiplied in f32: their products are exact.
#pragma once

#include "exec/elements.h"

namespace vgpu::VGPU_ISA {

struct ExactProduct {
  static VGPU_INLINE float multiply_add(float a, float b, float c) { return c + a * b; }
};
struct E4m3 : ExactProduct {
  static constexpr int kPerWord = 4;
  static constexpr int kLeastExponent = -6;
  static VGPU_INLINE float at(u32 word, int which) {
    const u32 bits = word >> 8 * which & 0xff;
    // Exponent and fraction at f32's places; what is missing of the bias is multiplied in, and
    // makes subnormals right, too.
    const u32 magnitude = bit_cast<u32>(bit_cast<float>((bits & 0x7f) << 20) * 0x1p120f);
    return bit_cast<float>((bits & 0x7f) == 0x7f ? 0x7fffffffu : magnitude | (bits & 0x80) << 24);
  }
};
struct E5m2 : ExactProduct {
  static constexpr int kPerWord = 4;
  static constexpr int kLeastExponent = -14;
  static VGPU_INLINE float at(u32 word, int which) {
    return half_to_float((word >> 8 * which & 0xff) << 8);
  }
};
template <class T>
struct Byte : ExactProduct {
  static constexpr int kPerWord = 4;
  static VGPU_INLINE float at(u32 word, int which) { return static_cast<T>(word >> 8 * which); }
};
struct Bit : ExactProduct {
  static constexpr int kPerWord = 32;
  static VGPU_INLINE float at(u32 word, int which) { return static_cast<float>(word >> which & 1); }
};

// The elements of a core matrix, row after row. Wider types have functions of their own, where the
// instruction set offers conversions.
template <class E>
VGPU_INLINE void widen_each(const u32* from, float* to) {
  for (int l = 0; l < kWarpSize; ++l) {
    for (int e = 0; e < E::kPerWord; ++e) to[l * E::kPerWord + e] = E::at(from[l], e);
  }
}
inline void widen_all(E4m3, const u32* from, float* to) { widen_each<E4m3>(from, to); }
inline void widen_all(E5m2, const u32* from, float* to) { widen_each<E5m2>(from, to); }
template <class T>
void widen_all(Byte<T>, const u32* from, float* to) {
  widen_each<Byte<T>>(from, to);
}
inline void widen_all(Bit, const u32* from, float* to) { widen_each<Bit>(from, to); }

}  // namespace vgpu::VGPU_ISA
