// The product of mma fragments with AVX2: a vector holds the eight columns of one row.
#pragma once

#include "exec/elements.h"

namespace vgpu::VGPU_ISA {

// A fragment register read as elements is a row-major tile of 8 rows: only the width changes.
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

// column[k] = element k of eight rows that lie `stride` apart, for four k.
VGPU_INLINE void transpose(const float* rows, int stride, __m256 column[4]) {
  __m256 pair[4];  // rows n and n + 4
  for (int n = 0; n < 4; ++n) {
    pair[n] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_load_ps(rows + n * stride)),
                                   _mm_load_ps(rows + (n + 4) * stride), 1);
  }
  const __m256 low01 = _mm256_unpacklo_ps(pair[0], pair[1]);
  const __m256 low23 = _mm256_unpacklo_ps(pair[2], pair[3]);
  const __m256 high01 = _mm256_unpackhi_ps(pair[0], pair[1]);
  const __m256 high23 = _mm256_unpackhi_ps(pair[2], pair[3]);
  column[0] = _mm256_shuffle_ps(low01, low23, 0x44);
  column[1] = _mm256_shuffle_ps(low01, low23, 0xee);
  column[2] = _mm256_shuffle_ps(high01, high23, 0x44);
  column[3] = _mm256_shuffle_ps(high01, high23, 0xee);
}

// Registers with the even and the odd columns of eight rows <-> the rows.
VGPU_INLINE void load_rows(const u32* even, const u32* odd, __m256 row[8]) {
  for (int q = 0; q < 4; ++q) {  // two rows
    const __m256 e = _mm256_load_ps(reinterpret_cast<const float*>(even) + 8 * q);
    const __m256 o = _mm256_load_ps(reinterpret_cast<const float*>(odd) + 8 * q);
    const __m256 low = _mm256_unpacklo_ps(e, o);
    const __m256 high = _mm256_unpackhi_ps(e, o);
    row[2 * q] = _mm256_permute2f128_ps(low, high, 0x20);
    row[2 * q + 1] = _mm256_permute2f128_ps(low, high, 0x31);
  }
}
VGPU_INLINE __m256 canonical(__m256 x) {
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}
VGPU_INLINE void store_rows(const __m256 row[8], u32* even, u32* odd) {
  for (int q = 0; q < 4; ++q) {
    const __m256 first = canonical(row[2 * q]);
    const __m256 second = canonical(row[2 * q + 1]);
    const __m256 low = _mm256_permute2f128_ps(first, second, 0x20);
    const __m256 high = _mm256_permute2f128_ps(first, second, 0x31);
    _mm256_store_ps(reinterpret_cast<float*>(even) + 8 * q, _mm256_shuffle_ps(low, high, 0x88));
    _mm256_store_ps(reinterpret_cast<float*>(odd) + 8 * q, _mm256_shuffle_ps(low, high, 0xdd));
  }
}

template <class E, int kSteps>
__attribute__((noinline)) void multiply(u32* const d[4], const u32* const a[2 * kSteps],
                                        const u32* const b[kSteps], const u32* const c[4]) {
  constexpr int kDepth = 4 * E::kPerWord;
  alignas(64) float left[2 * kSteps][8 * kDepth];
  alignas(64) float right[kSteps][kDepth][8];
  for (int r = 0; r < 2 * kSteps; ++r) widen_all(E(), a[r], left[r]);
  for (int h = 0; h < kSteps; ++h) {
    alignas(64) float tile[8 * kDepth];
    widen_all(E(), b[h], tile);
    for (int k = 0; k < kDepth; k += 4) {
      __m256 column[4];
      transpose(tile + k, kDepth, column);
      for (int n = 0; n < 4; ++n) _mm256_store_ps(right[h][k + n], column[n]);
    }
  }
  for (int r = 0; r < 2; ++r) {
    __m256 row[8];
    load_rows(c[2 * r], c[2 * r + 1], row);
    for (int h = 0; h < kSteps; ++h) {
      const float* rows = left[2 * h + r];
#pragma GCC unroll 8
      for (int k = 0; k < kDepth; ++k) {
        const __m256 column = _mm256_load_ps(right[h][k]);
#pragma GCC unroll 8
        for (int g = 0; g < 8; ++g) {
          row[g] = _mm256_fmadd_ps(_mm256_broadcast_ss(rows + g * kDepth + k), column, row[g]);
        }
      }
    }
    store_rows(row, d[2 * r], d[2 * r + 1]);
  }
}

}  // namespace vgpu::VGPU_ISA
