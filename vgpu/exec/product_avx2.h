// Vectors of 8 floats for products.h.
#pragma once

#include "exec/elements.h"

namespace vgpu::VGPU_ISA {

using Vector = __m256;
inline constexpr int kVectorRows = 2;

VGPU_INLINE Vector load(const float* from) { return _mm256_load_ps(from); }
VGPU_INLINE Vector load(const u32* from) { return load(reinterpret_cast<const float*>(from)); }
VGPU_INLINE void store(float* to, Vector x) { _mm256_store_ps(to, x); }
VGPU_INLINE void store(u32* to, Vector x) { store(reinterpret_cast<float*>(to), x); }
VGPU_INLINE Vector multiply_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
VGPU_INLINE Vector sum_of(Vector a, Vector b) { return _mm256_add_ps(a, b); }
VGPU_INLINE bool any_nan(Vector x) {
  return _mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)) != 0;
}
VGPU_INLINE Vector canonical(Vector x) {
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}
// Four floats, once for each row of a vector.
VGPU_INLINE Vector repeat4(const float* from) {
  return _mm256_broadcast_ps(reinterpret_cast<const __m128*>(from));
}
// Four floats of each row of a vector; the rows lie `stride` apart.
VGPU_INLINE Vector rows4(const float* first, int stride) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_load_ps(first)),
                              _mm_load_ps(first + stride), 1);
}
// Element `kWhich` of each row, four times.
template <int kWhich>
VGPU_INLINE Vector spread(Vector rows) {
  return _mm256_permute_ps(rows, kWhich * 0x55);
}

VGPU_INLINE void widen_all(Half, const u32* from, float* to) {
  for (int q = 0; q < 8; ++q) {
    const __m128i halves = _mm_load_si128(reinterpret_cast<const __m128i*>(from) + q);
    _mm256_store_ps(to + 8 * q, _mm256_cvtph_ps(halves));
  }
}
VGPU_INLINE void widen_all(Bfloat, const u32* from, float* to) {
  for (int q = 0; q < 8; ++q) {
    const __m128i halves = _mm_load_si128(reinterpret_cast<const __m128i*>(from) + q);
    const __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
    _mm256_store_ps(to + 8 * q, _mm256_castsi256_ps(wide));
  }
}
VGPU_INLINE void widen_all(Tf32, const u32* from, float* to) {
  const __m256i kept = _mm256_set1_epi32(static_cast<int>(kTf32Bits));
  for (int q = 0; q < 4; ++q) {
    const __m256i words = _mm256_load_si256(reinterpret_cast<const __m256i*>(from) + q);
    _mm256_store_ps(to + 8 * q, _mm256_castsi256_ps(_mm256_and_si256(words, kept)));
  }
}

}  // namespace vgpu::VGPU_ISA
