// The product of mma fragments with vectors, for AVX-512 and AVX2.
//
// The accumulators stay where mma has them: a vector is a piece of one register, that is, the even
// or the odd columns of 4 rows (AVX-512) or 2 (AVX2). So a step of k is, for each vector of the
// accumulator, one fused multiplication and addition of "A[row][k] for each row, four times", which
// one shuffle makes from four columns of A, and "four columns of B[k], once for each row":
//
//   lane of register 2r + c     row g + 8r, column 2t + c     (g = lane / 4, t = lane % 4)
//   left[k / 4][v]              A[row][k..k + 3] for the rows of vector v
//   right[k][c]                 B[k][c], B[k][2 + c], B[k][4 + c], B[k][6 + c]
//
// Unpacking a fragment takes as long as multiplying it, and the tile of a warp needs each one many
// times. So a Multiplier keeps what it has unpacked; it serves one run of mma instructions, none of
// which reads what another one has written (see fuse_runs). Two products with the same A are done
// at once: they share the shuffles.
#pragma once

#include <utility>

#if defined(__AVX512F__)
#include "exec/product_avx512.h"
#else
#include "exec/product_avx2.h"
#endif

#define VGPU_INLINED __attribute__((always_inline))  // of lambdas

namespace vgpu::VGPU_ISA {

inline constexpr int kVectors = 16 / kVectorRows;  // of A's rows
inline constexpr int kLanes = 4 * kVectorRows;     // of a vector

// Vectors of rows that are done at once: as many sums as there are registers for.
inline constexpr int kAtOnce = kVectorRows == 4 ? 4 : 2;

// f(i, j, k) for all of them. No loops: the arrays that they index are to become registers, which
// the compiler decides before it unrolls loops.
template <int kI, int kJ, int kK, class F>
VGPU_INLINE void each(F f) {
  const auto all = [&]<int... kN>(std::integer_sequence<int, kN...>)
                       VGPU_INLINED { (f(kN / (kJ * kK), kN / kK % kJ, kN % kK), ...); };
  all(std::make_integer_sequence<int, kI * kJ * kK>());
}

// Four steps of k of 8 columns, which are the rows of `tile`: even columns before odd ones.
VGPU_INLINE void transpose_right(const float* tile, int stride, float* to) {
  __m256 pair[4];  // columns 2t and 2t + 1
  for (int t = 0; t < 4; ++t) {
    const float* even = tile + 2 * t * stride;
    pair[t] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_load_ps(even)),
                                   _mm_load_ps(even + stride), 1);
  }
  const __m256 low01 = _mm256_unpacklo_ps(pair[0], pair[1]);
  const __m256 low23 = _mm256_unpacklo_ps(pair[2], pair[3]);
  const __m256 high01 = _mm256_unpackhi_ps(pair[0], pair[1]);
  const __m256 high23 = _mm256_unpackhi_ps(pair[2], pair[3]);
  _mm256_store_ps(to, _mm256_shuffle_ps(low01, low23, 0x44));
  _mm256_store_ps(to + 8, _mm256_shuffle_ps(low01, low23, 0xee));
  _mm256_store_ps(to + 16, _mm256_shuffle_ps(high01, high23, 0x44));
  _mm256_store_ps(to + 24, _mm256_shuffle_ps(high01, high23, 0xee));
}

// `put(k, v, x)` gets what product.h calls left, of a tile of 8 rows: columns k to k + 3 of the
// rows of vector v.
template <class E, class Put>
VGPU_INLINE void rows_of_tile(E, const u32* from, Put put) {
  constexpr int kDepth = 4 * E::kPerWord;
  alignas(64) float tile[8 * kDepth];
  widen_all(E(), from, tile);
  for (int k = 0; k < kDepth; k += 4) {
    for (int v = 0; v < kVectors / 2; ++v)
      put(k, v, rows4(tile + v * kVectorRows * kDepth + k, kDepth));
  }
}

// The same tile has B's columns in its rows: a transposition.
template <class E>
VGPU_INLINE void columns_of_tile(E, const u32* from, float* to) {
  constexpr int kDepth = 4 * E::kPerWord;
  alignas(64) float tile[8 * kDepth];
  widen_all(E(), from, tile);
  for (int k = 0; k < kDepth; k += 4) transpose_right(tile + k, kDepth, to + 8 * k);
}

// Fragments that were unpacked, found again by the registers that hold them.
template <class Unpacked, int kRegisters, int kCapacity>
class Unpackings {
 public:
  template <class Unpack>
  VGPU_INLINE const Unpacked& get(const u8* registers, const u32* offsets, Unpack unpack) {
    for (int n = 0; n < used_; ++n) {
      if (offsets_[n][0] != offsets[0]) continue;
      bool same = true;
      for (int r = 1; r < kRegisters; ++r) same &= offsets_[n][r] == offsets[r];
      if (!same) continue;
      if (n == next_) next_ = (n + 1) % kCapacity;  // two are in use at once
      return unpacked_[n];
    }
    const int n = next_;
    next_ = (n + 1) % kCapacity;
    if (n == used_) ++used_;
    for (int r = 0; r < kRegisters; ++r) offsets_[n][r] = offsets[r];
    unpack(registers, offsets, unpacked_[n]);
    return unpacked_[n];
  }

 private:
  int used_ = 0;
  int next_ = 0;
  u32 offsets_[kCapacity][kRegisters];
  Unpacked unpacked_[kCapacity];
};

template <class E, int kSteps>
class Multiplier {
 public:
  using One = Operands<kSteps>;

  VGPU_INLINE void run(const One& one) { multiply<1>(left_of(one), {&one}, {&right_of(one)}); }
  // Both have the same A.
  VGPU_INLINE void run(const One& one, const One& other) {
    const Right& right = right_of(one);
    multiply<2>(left_of(one), {&one, &other}, {&right, &right_of(other)});
  }

 private:
  static constexpr int kStepDepth = 4 * E::kPerWord;
  static constexpr int kDepth = kSteps * kStepDepth;

  struct Left {
    alignas(64) float at[kDepth / 4][kVectors][kLanes];
  };
  struct Right {
    alignas(64) float at[kDepth][2][4];
  };

  VGPU_INLINE const Left& left_of(const One& one) {
    return lefts_.get(one.registers, one.a, unpack_left);
  }
  VGPU_INLINE const Right& right_of(const One& one) {
    return rights_.get(one.registers, one.b, unpack_right);
  }

  // A fragment register, read as elements, is a row-major tile of 8 rows: only the width changes.
  static void unpack_left(const u8* registers, const u32* a, Left& left) {
    for (int n = 0; n < 2 * kSteps; ++n) {  // register 2h + r
      rows_of_tile(E(), words_at(registers, a[n]), [&](int k, int v, Vector x) VGPU_INLINED {
        store(left.at[(n / 2 * kStepDepth + k) / 4][n % 2 * (kVectors / 2) + v], x);
      });
    }
  }

  static void unpack_right(const u8* registers, const u32* b, Right& right) {
    for (int h = 0; h < kSteps; ++h)
      columns_of_tile(E(), words_at(registers, b[h]), right.at[h * kStepDepth][0]);
  }

  // Where the rows are done in rounds, the first rounds must not write what later ones read.
  template <int kCount>
  VGPU_INLINE static void keep_sums(const One* const (&one)[kCount], const u32* (&from)[kCount][4],
                                    u32 (*kept)[2][kWarpSize]) {
    for (int n = 0; n < kCount; ++n) {
      for (int r = 0; r < 4; ++r) from[n][r] = one[n]->c[r];
      for (int r = 2; kVectors > kAtOnce && r < 4; ++r) {
        bool overwritten = false;
        for (const One* o : one) overwritten |= from[n][r] == o->d[0] || from[n][r] == o->d[1];
        if (!overwritten) continue;
        __builtin_memcpy(kept[n][r - 2], from[n][r], sizeof(kept[n][r - 2]));
        from[n][r] = kept[n][r - 2];
      }
    }
  }

  template <int kCount>
  VGPU_INLINE static void multiply(const Left& left, const One* const (&one)[kCount],
                                   const Right* const (&right)[kCount]) {
    alignas(64) u32 kept[kCount][2][kWarpSize];
    const u32* from[kCount][4];
    keep_sums<kCount>(one, from, kept);
    // The total is NaN where one of the sums is; and for infinities of both signs, which does no
    // harm. It is taken in parts, as a chain of additions would have to be waited for.
    Vector part[kAtOnce] = {};
    each<kVectors / kAtOnce, 1, 1>([&](int round, int, int) VGPU_INLINED {
      // Of a vector of the accumulator: its register, and its place in there.
      const int first = round * kAtOnce;
      const auto which = [&](int v, int c)
                             VGPU_INLINED { return (first + v) / (kVectors / 2) * 2 + c; };
      const auto place = [&](int v) VGPU_INLINED { return (first + v) % (kVectors / 2) * kLanes; };
      Vector sum[kCount][2][kAtOnce];
      each<kCount, 2, kAtOnce>([&](int n, int c, int v) VGPU_INLINED {
        sum[n][c][v] = load(from[n][which(v, c)] + place(v));
      });
#pragma GCC unroll 1
      for (int k = 0; k < kDepth; k += 4) {
        Vector rows[kAtOnce];
        each<1, 1, kAtOnce>([&](int, int, int v)
                                VGPU_INLINED { rows[v] = load(left.at[k / 4][first + v]); });
        const auto step = [&](auto t) VGPU_INLINED {
          Vector columns[kCount][2];
          each<kCount, 2, 1>([&](int n, int c, int)
                                 VGPU_INLINED { columns[n][c] = repeat4(right[n]->at[k + t][c]); });
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
        part[v] = sum_of(part[v], sum[n][c][v]);
        store(one[n]->d[which(v, c)] + place(v), sum[n][c][v]);
      });
    });
    Vector total = part[0];
    for (int v = 1; v < kAtOnce; ++v) total = sum_of(total, part[v]);
    if (__builtin_expect(any_nan(total), 0)) {
      for (const One* o : one) make_canonical(o->d);
    }
  }

  static void make_canonical(u32* const (&d)[4]) {
    for (u32* to : d) {
      for (int at = 0; at < static_cast<int>(kWarpSize); at += kLanes)
        store(to + at, canonical(load(to + at)));
    }
  }

  Unpackings<Left, 2 * kSteps, 4> lefts_;
  Unpackings<Right, kSteps, 16> rights_;
};

}  // namespace vgpu::VGPU_ISA
