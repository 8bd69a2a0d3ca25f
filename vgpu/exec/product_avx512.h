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

VGPU_INLINE void widen_all(Tf32, const u32* from, float* to) {
  const __m512i kept = _mm512_set1_epi32(static_cast<int>(kTf32Bits));
  for (int q = 0; q < 2; ++q) {
    _mm512_store_si512(to + 16 * q, _mm512_and_si512(_mm512_load_si512(from + 16 * q), kept));
  }
}

// Halves, or the upper halves of floats.
VGPU_INLINE Vector widened(Half, __m256i x) { return _mm512_cvtph_ps(x); }
VGPU_INLINE Vector widened(Bfloat, __m256i x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

// Elements of 16 bits are put in order before they are widened, while a tile is two vectors.
template <class E>
concept OfSixteenBits = E::kPerWord == 2;

template <OfSixteenBits E>
VGPU_INLINE void widen_all(E, const u32* from, float* to) {
  for (int q = 0; q < 4; ++q) {
    const __m256i halves = _mm256_load_si256(reinterpret_cast<const __m256i*>(from) + q);
    store(to + 16 * q, widened(E(), halves));
  }
}

template <OfSixteenBits E, class Put>
VGPU_INLINE void rows_of_tile(E, const u32* from, Put put) {
  const __m512i columns = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);  // 0 to 3, then 4 to 7
  for (int v = 0; v < 2; ++v) {
    const __m512i four = _mm512_permutexvar_epi64(columns, _mm512_load_si512(from + 16 * v));
    put(0, v, widened(E(), _mm512_castsi512_si256(four)));
    put(4, v, widened(E(), _mm512_extracti64x4_epi64(four, 1)));
  }
}

// Element i is of step i / 8 of k, and of the column that `right` in product.h has at i % 8.
struct StepsFirst {
  alignas(64) u16 from[64];
  constexpr StepsFirst() : from() {
    for (int i = 0; i < 64; ++i) from[i] = static_cast<u16>((i % 4 * 2 + i % 8 / 4) * 8 + i / 8);
  }
};
inline constexpr StepsFirst kStepsFirst;

template <OfSixteenBits E>
VGPU_INLINE void columns_of_tile(E, const u32* from, float* to) {
  const __m512i low = _mm512_load_si512(from);
  const __m512i high = _mm512_load_si512(from + 16);
  for (int half = 0; half < 2; ++half) {
    const __m512i order = _mm512_load_si512(kStepsFirst.from + 32 * half);
    const __m512i four = _mm512_permutex2var_epi16(low, order, high);
    store(to + 32 * half, widened(E(), _mm512_castsi512_si256(four)));
    store(to + 32 * half + 16, widened(E(), _mm512_extracti64x4_epi64(four, 1)));
  }
}

}  // namespace vgpu::VGPU_ISA
