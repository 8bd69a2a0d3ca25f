// Vectors of 16 floats for products.h.
#pragma once

#include "exec/elements.h"

namespace vgpu::VGPU_ISA {

using Vector = __m512;
inline constexpr int kVectorRows = 4;

VGPU_INLINE Vector load(const float* from) { return _mm512_load_ps(from); }
VGPU_INLINE Vector load(const u32* from) { return load(reinterpret_cast<const float*>(from)); }
VGPU_INLINE void store(float* to, Vector x) { _mm512_store_ps(to, x); }
VGPU_INLINE void store(u32* to, Vector x) { store(reinterpret_cast<float*>(to), x); }
VGPU_INLINE Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
VGPU_INLINE Vector sum_of(Vector a, Vector b) { return _mm512_add_ps(a, b); }
VGPU_INLINE bool any_nan(Vector x) { return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q) != 0; }
VGPU_INLINE Vector canonical(Vector x) {
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_mask_mov_ps(x, nan, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fffffff)));
}
// Four floats, once for each row of a vector.
VGPU_INLINE Vector repeat4(const float* from) { return _mm512_broadcast_f32x4(_mm_load_ps(from)); }
// Four floats of each row of a vector; the rows lie `stride` apart.
VGPU_INLINE Vector rows4(const float* first, int stride) {
  Vector x = _mm512_castps128_ps512(_mm_load_ps(first));
  x = _mm512_insertf32x4(x, _mm_load_ps(first + stride), 1);
  x = _mm512_insertf32x4(x, _mm_load_ps(first + 2 * stride), 2);
  return _mm512_insertf32x4(x, _mm_load_ps(first + 3 * stride), 3);
}
// Element `kWhich` of each row, four times.
template <int kWhich>
VGPU_INLINE Vector spread(Vector rows) {
  return _mm512_permute_ps(rows, kWhich * 0x55);
}

VGPU_INLINE void widen_all(Half, const u32* from, float* to) {
  for (int q = 0; q < 4; ++q) {
    const __m256i halves = _mm256_load_si256(reinterpret_cast<const __m256i*>(from) + q);
    _mm512_store_ps(to + 16 * q, _mm512_cvtph_ps(halves));
  }
}
VGPU_INLINE void widen_all(Bfloat, const u32* from, float* to) {
  for (int q = 0; q < 4; ++q) {
    const __m256i halves = _mm256_load_si256(reinterpret_cast<const __m256i*>(from) + q);
    _mm512_store_si512(to + 16 * q, _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
}
VGPU_INLINE void widen_all(Tf32, const u32* from, float* to) {
  const __m512i kept = _mm512_set1_epi32(static_cast<int>(kTf32Bits));
  for (int q = 0; q < 2; ++q) {
    _mm512_store_si512(to + 16 * q, _mm512_and_si512(_mm512_load_si512(from + 16 * q), kept));
  }
}

}  // namespace vgpu::VGPU_ISA
