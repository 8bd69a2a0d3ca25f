// Products of unpacked matrices: A of a warp, 16 rows, and B in panels of 8 columns.
//
//   left   of four steps of k, for each vector of a sum (product.h): A[row][k..k + 3]
//   right  a panel after the other; of each step of k the even columns before the odd ones
//   sums   pointers to registers: 4 * panel + 2 * half of the rows + odd columns
#pragma once

#include "exec/core_matrix.h"
#include "exec/narrow_elements.h"

#if defined(__AVX2__)
#include "exec/product.h"
#else
#include "exec/product_generic.h"
#endif

namespace vgpu::VGPU_ISA {

#if defined(__AVX2__)

// A core matrix of A becomes the rows 8 * half and on, from step k on.
template <class E>
VGPU_INLINE void pack_left(E, const u32* core, int half, int k, float* left) {
  rows_of_tile(E(), core, [&](int n, int v, Vector x) VGPU_INLINED {
    store(left + ((k + n) / 4 * kVectors + half * (kVectors / 2) + v) * kLanes, x);
  });
}
template <class E>
VGPU_INLINE void pack_right(E, const u32* core, float* panel) {
  columns_of_tile(E(), core, panel);
}

// kCount panels at once share what is made of A.
template <int kCount>
VGPU_INLINE void multiply_some(const float* left, const float* right, int depth, bool zero,
                               u32* const* sums) {
  for (int first = 0; first < kVectors; first += kAtOnce) {
    const auto at = [&](int n, int c, int v) VGPU_INLINED {
      return sums[4 * n + (first + v) / (kVectors / 2) * 2 + c] +
             (first + v) % (kVectors / 2) * kLanes;
    };
    Vector sum[kCount][2][kAtOnce];
    each<kCount, 2, kAtOnce>([&](int n, int c, int v) VGPU_INLINED {
      sum[n][c][v] = zero ? Vector() : load(at(n, c, v));
    });
#pragma GCC unroll 1
    for (int k = 0; k < depth; k += 4) {
      Vector rows[kAtOnce];
      each<1, 1, kAtOnce>([&](int, int, int v) VGPU_INLINED {
        rows[v] = load(left + (k / 4 * kVectors + first + v) * kLanes);
      });
      const auto step = [&](auto t) VGPU_INLINED {
        Vector columns[kCount][2];
        each<kCount, 2, 1>([&](int n, int c, int) VGPU_INLINED {
          columns[n][c] = repeat4(right + (n * depth + k + t) * 8 + 4 * c);
        });
        each<1, 1, kAtOnce>([&](int, int, int v) VGPU_INLINED {
          const Vector four_times = spread<t>(rows[v]);
          each<kCount, 2, 1>([&](int n, int c, int) VGPU_INLINED {
            sum[n][c][v] = multiply_add(four_times, columns[n][c], sum[n][c][v]);
          });
        });
      };
      step(std::integral_constant<int, 0>());
      step(std::integral_constant<int, 1>());
      step(std::integral_constant<int, 2>());
      step(std::integral_constant<int, 3>());
    }
    each<kCount, 2, kAtOnce>([&](int n, int c, int v) VGPU_INLINED {
      Vector& x = sum[n][c][v];
      if (__builtin_expect(any_nan(x), 0)) x = canonical(x);
      store(at(n, c, v), x);
    });
  }
}

template <class>
void multiply_panels(const float* left, const float* right, int depth, int panels, bool zero,
                     u32* const* sums) {
  int n = 0;
  for (; n + 1 < panels; n += 2)
    multiply_some<2>(left, right + n * depth * 8, depth, zero, sums + 4 * n);
  if (n < panels) multiply_some<1>(left, right + n * depth * 8, depth, zero, sums + 4 * n);
}

#else

template <class E>
void widen_all(E, const u32* from, float* to) {
  widen_each<E>(from, to);
}
template <class E>
void pack_left(E, const u32* core, int half, int k, float* left) {
  constexpr int kChunk = 4 * E::kPerWord;
  float tile[8 * kChunk];
  widen_all(E(), core, tile);
  for (int r = 0; r < 8; ++r) {
    for (int n = 0; n < kChunk; ++n)
      left[(k + n) * static_cast<int>(kRowsOfWarp) + 8 * half + r] = tile[r * kChunk + n];
  }
}
template <class E>
void pack_right(E, const u32* core, float* panel) {
  constexpr int kChunk = 4 * E::kPerWord;
  float tile[8 * kChunk];
  widen_all(E(), core, tile);
  for (int n = 0; n < kChunk; ++n) {
    for (int column = 0; column < 8; ++column)
      panel[8 * n + column % 2 * 4 + column / 2] = tile[column * kChunk + n];
  }
}
template <class E>
void multiply_panels(const float* left, const float* right, int depth, int panels, bool zero,
                     u32* const* sums) {
  constexpr int kRows = static_cast<int>(kRowsOfWarp);
  for (int j = 0; j < panels; ++j, right += 8 * depth, sums += 4) {
    for (int row = 0; row < kRows; ++row) {
      float sum[8];
      const auto at = [&](int n) -> u32& { return sums[row / 8 * 2 + n / 4][row % 8 * 4 + n % 4]; };
      for (int n = 0; n < 8; ++n) sum[n] = zero ? 0 : bit_cast<float>(at(n));
      for (int k = 0; k < depth; ++k) {
        for (int n = 0; n < 8; ++n)
          sum[n] = E::multiply_add(left[k * kRows + row], right[8 * k + n], sum[n]);
      }
      for (int n = 0; n < 8; ++n) at(n) = F32::store(sum[n]);
    }
  }
}

#endif

}  // namespace vgpu::VGPU_ISA
