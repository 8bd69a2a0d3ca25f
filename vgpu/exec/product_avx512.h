// The product of mma fragments with AVX-512: a vector holds one column of all 16 rows.
#pragma once

#include "exec/elements.h"

namespace vgpu::VGPU_ISA {

// Lane 4g + t of two registers (rows g, rows g + 8) <-> vector t with all 16 rows.
struct Permutations {
  alignas(64) u32 first[16];   // t = 0 of g = 0..7, then t = 1
  alignas(64) u32 second[16];  // t = 2, then t = 3
  alignas(64) u32 lower[16];   // back: lanes 0..15 from [t0 | t1] and [t2 | t3]
  alignas(64) u32 upper[16];   // lanes 16..31
  constexpr Permutations() : first(), second(), lower(), upper() {
    for (u32 k = 0; k < 16; ++k) {
      const u32 t = k / 8;
      const u32 g = k % 8;
      first[k] = 4 * g + t;
      second[k] = 4 * g + t + 2;
      const u32 lane_t = k % 4;
      const u32 lane_g = k / 4;
      lower[k] = (lane_t / 2) * 16 + (lane_t % 2) * 8 + lane_g;
      upper[k] = lower[k] + 4;
    }
  }
};
constexpr Permutations kPermutations;

VGPU_INLINE __m512i index(const u32* table) { return _mm512_load_si512(table); }

// row[t] = dword t of rows 0..7 (from `low`) and 8..15 (from `high`).
VGPU_INLINE void gather_rows(const u32* low, const u32* high, __m512i row[4]) {
  const __m512i first = index(kPermutations.first);
  const __m512i second = index(kPermutations.second);
  const __m512i a = _mm512_load_si512(low);
  const __m512i b = _mm512_load_si512(low + 16);
  const __m512i c = _mm512_load_si512(high);
  const __m512i d = _mm512_load_si512(high + 16);
  const __m512i low01 = _mm512_permutex2var_epi32(a, first, b);
  const __m512i high01 = _mm512_permutex2var_epi32(c, first, d);
  const __m512i low23 = _mm512_permutex2var_epi32(a, second, b);
  const __m512i high23 = _mm512_permutex2var_epi32(c, second, d);
  row[0] = _mm512_shuffle_i64x2(low01, high01, 0x44);
  row[1] = _mm512_shuffle_i64x2(low01, high01, 0xee);
  row[2] = _mm512_shuffle_i64x2(low23, high23, 0x44);
  row[3] = _mm512_shuffle_i64x2(low23, high23, 0xee);
}

VGPU_INLINE void scatter_rows(const __m512 row[4], u32* low, u32* high) {
  const __m512i lower = index(kPermutations.lower);
  const __m512i upper = index(kPermutations.upper);
  __m512i r[4];
  for (int t = 0; t < 4; ++t) r[t] = _mm512_castps_si512(row[t]);
  const __m512i low01 = _mm512_shuffle_i64x2(r[0], r[1], 0x44);
  const __m512i low23 = _mm512_shuffle_i64x2(r[2], r[3], 0x44);
  const __m512i high01 = _mm512_shuffle_i64x2(r[0], r[1], 0xee);
  const __m512i high23 = _mm512_shuffle_i64x2(r[2], r[3], 0xee);
  _mm512_store_si512(low, _mm512_permutex2var_epi32(low01, lower, low23));
  _mm512_store_si512(low + 16, _mm512_permutex2var_epi32(low01, upper, low23));
  _mm512_store_si512(high, _mm512_permutex2var_epi32(high01, lower, high23));
  _mm512_store_si512(high + 16, _mm512_permutex2var_epi32(high01, upper, high23));
}

VGPU_INLINE __m512 canonical(__m512 x) {
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_mask_mov_ps(x, nan, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fffffff)));
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

// Element `which` of each word.
VGPU_INLINE __m512 widen(Half, __m512i words, int which) {
  const __m512i low = which ? _mm512_srli_epi32(words, 16) : words;
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(low));
}
VGPU_INLINE __m512 widen(Bfloat, __m512i words, int which) {
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  return _mm512_castsi512_ps(which ? _mm512_and_si512(words, high) : _mm512_slli_epi32(words, 16));
}
VGPU_INLINE __m512 widen(Tf32, __m512i words, int) {
  const __m512i kept = _mm512_set1_epi32(static_cast<int>(kTf32Bits));
  return _mm512_castsi512_ps(_mm512_and_si512(words, kept));
}

template <class E, int kSteps>
__attribute__((noinline)) void multiply(u32* const d[4], const u32* const a[2 * kSteps],
                                        const u32* const b[kSteps], const u32* const c[4]) {
  // b[h] read as elements is already [column][k]: only the width changes.
  alignas(64) float bf[kSteps][8][4 * E::kPerWord];
  for (int h = 0; h < kSteps; ++h) widen_all(E(), b[h], &bf[h][0][0]);
  __m512i even[4];
  __m512i odd[4];
  gather_rows(c[0], c[2], even);
  gather_rows(c[1], c[3], odd);
  __m512 sum[8];
  for (int t = 0; t < 4; ++t) {
    sum[2 * t] = _mm512_castsi512_ps(even[t]);
    sum[2 * t + 1] = _mm512_castsi512_ps(odd[t]);
  }
  for (int h = 0; h < kSteps; ++h) {
    __m512i group[4];
    gather_rows(a[2 * h], a[2 * h + 1], group);
#pragma GCC unroll 4
    for (int t = 0; t < 4; ++t) {
#pragma GCC unroll 2
      for (int e = 0; e < E::kPerWord; ++e) {
        const __m512 column = widen(E(), group[t], e);
#pragma GCC unroll 8
        for (int n = 0; n < 8; ++n) {
          const __m512 right = _mm512_set1_ps(bf[h][n][E::kPerWord * t + e]);
          sum[n] = _mm512_fmadd_ps(column, right, sum[n]);
        }
      }
    }
  }
  __m512 columns[2][4];
  for (int t = 0; t < 4; ++t) {
    columns[0][t] = canonical(sum[2 * t]);
    columns[1][t] = canonical(sum[2 * t + 1]);
  }
  scatter_rows(columns[0], d[0], d[2]);
  scatter_rows(columns[1], d[1], d[3]);
}

}  // namespace vgpu::VGPU_ISA
