// A core matrix, 8 rows of 16 bytes in shared memory, as the register of a fragment.
#pragma once

#include <immintrin.h>

#include "exec/lanes.h"

namespace vgpu::VGPU_ISA {

// Rows behind each other, in stores as wide as the loads that soon follow: a load that spans some
// stores under way has to wait for all of them.
VGPU_INLINE void store_rows(const __m128i (&r)[8], u32* to) {
#if defined(__AVX512F__)
#pragma GCC unroll 2
  for (int k = 0; k < 8; k += 4) {
    __m512i four = _mm512_castsi128_si512(r[k]);
    four = _mm512_inserti32x4(four, r[k + 1], 1);
    four = _mm512_inserti32x4(four, r[k + 2], 2);
    _mm512_store_si512(to + 4 * k, _mm512_inserti32x4(four, r[k + 3], 3));
  }
#elif defined(__AVX2__)
#pragma GCC unroll 4
  for (int k = 0; k < 8; k += 2) {
    const __m256i two = _mm256_inserti128_si256(_mm256_castsi128_si256(r[k]), r[k + 1], 1);
    _mm256_store_si256(reinterpret_cast<__m256i*>(to + 4 * k), two);
  }
#else
#pragma GCC unroll 8
  for (int k = 0; k < 8; ++k) _mm_store_si128(reinterpret_cast<__m128i*>(to) + k, r[k]);
#endif
}

// `to`[4g + t] gets columns 2t and 2t + 1 of row g; or of the transposed matrix.
template <bool kTranspose>
VGPU_INLINE void gather_matrix(const u8* const row[8], u32* to) {
  // Loops are unrolled so that rows are registers.
  __m128i r[8];
#pragma GCC unroll 8
  for (int k = 0; k < 8; ++k) r[k] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row[k]));
  if constexpr (kTranspose) {
    // Each round interleaves the first half of the list with the second.
#pragma GCC unroll 3
    for (int round = 0; round < 3; ++round) {
      __m128i next[8];
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        next[2 * k] = _mm_unpacklo_epi16(r[k], r[k + 4]);
        next[2 * k + 1] = _mm_unpackhi_epi16(r[k], r[k + 4]);
      }
#pragma GCC unroll 8
      for (int k = 0; k < 8; ++k) r[k] = next[k];
    }
  }
  store_rows(r, to);
}

}  // namespace vgpu::VGPU_ISA
