// A core matrix, 8 rows of 16 bytes in shared memory, as the register of a fragment.
#pragma once

#include <emmintrin.h>

#include "exec/lanes.h"

namespace vgpu::VGPU_ISA {

// `to`[4g + t] gets columns 2t and 2t + 1 of row g; or of the transposed matrix.
template <bool kTranspose>
VGPU_INLINE void gather_matrix(const u8* const row[8], u32* to) {
  __m128i r[8];
  for (int k = 0; k < 8; ++k) r[k] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row[k]));
  if constexpr (kTranspose) {
    // Each round interleaves the first half of the list with the second.
    for (int round = 0; round < 3; ++round) {
      __m128i next[8];
      for (int k = 0; k < 4; ++k) {
        next[2 * k] = _mm_unpacklo_epi16(r[k], r[k + 4]);
        next[2 * k + 1] = _mm_unpackhi_epi16(r[k], r[k + 4]);
      }
      for (int k = 0; k < 8; ++k) r[k] = next[k];
    }
  }
  for (int k = 0; k < 8; ++k) _mm_store_si128(reinterpret_cast<__m128i*>(to) + k, r[k]);
}

}  // namespace vgpu::VGPU_ISA
