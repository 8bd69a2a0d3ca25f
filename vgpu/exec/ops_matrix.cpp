// Tensor cores: mma.sync on half-precision fragments.
//
// Sums run over k in order, one rounding to f32 per step. The product of two halves is exact in
// f32, so a fused and a separate multiply-add give the same bits and every variant agrees. A GPU
// adds blocks of k with more bits and another order: results differ from it in the last bits of
// f32.
//
// Fragments (PTX ISA, "Matrix fragments for mma.m16n8k16"), with g = lane / 4 and t = lane % 4:
//   A  register 2h + r: row g + 8r, columns 8h + 2t and 8h + 2t + 1
//   B  register h:      rows 8h + 2t and 8h + 2t + 1, column g
//   C  register 2r + c: row g + 8r, column 2t + c
#include "exec/access.h"

namespace vgpu::VGPU_ISA {
namespace {

#if defined(__AVX512F__)

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

template <int kSteps>  // of 8 in k
__attribute__((noinline)) void multiply_f16(u32* const d[4], const u32* const a[2 * kSteps],
                                            const u32* const b[kSteps], const u32* const c[4]) {
  // b[h] read as halves is already [column g][8 rows]: only the width changes.
  alignas(64) float bf[kSteps][8][8];
  for (int h = 0; h < kSteps; ++h) {
    for (int q = 0; q < 4; ++q) {
      const __m256i halves = _mm256_load_si256(reinterpret_cast<const __m256i*>(b[h]) + q);
      _mm512_store_ps(&bf[h][2 * q][0], _mm512_cvtph_ps(halves));
    }
  }
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
    __m512i pairs[4];
    gather_rows(a[2 * h], a[2 * h + 1], pairs);
#pragma GCC unroll 4
    for (int t = 0; t < 4; ++t) {
      const __m512 k0 = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(pairs[t]));
      const __m512 k1 = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(pairs[t], 16)));
#pragma GCC unroll 8
      for (int n = 0; n < 8; ++n)
        sum[n] = _mm512_fmadd_ps(k0, _mm512_set1_ps(bf[h][n][2 * t]), sum[n]);
#pragma GCC unroll 8
      for (int n = 0; n < 8; ++n)
        sum[n] = _mm512_fmadd_ps(k1, _mm512_set1_ps(bf[h][n][2 * t + 1]), sum[n]);
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

#else

// Eight halves to floats.
VGPU_INLINE void widen(const u16* from, float* to) {
#if defined(__F16C__)
  _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#else
  for (int k = 0; k < 8; ++k) to[k] = half_to_float(from[k]);
#endif
}

// sum[n] += a * b[n] for the eight columns.
VGPU_INLINE void accumulate(float* sum, const float* a, const float (*b)[8], int depth) {
#if defined(__FMA__)
  __m256 row = _mm256_load_ps(sum);
  for (int k = 0; k < depth; ++k) {
    row = _mm256_fmadd_ps(_mm256_set1_ps(a[k]), _mm256_load_ps(b[k]), row);
  }
  _mm256_store_ps(sum, row);
#else
  for (int k = 0; k < depth; ++k) {
    for (int n = 0; n < 8; ++n) sum[n] += a[k] * b[k][n];
  }
#endif
}

// A fragment register, read as halves, is a row-major tile of 8 by 8.
template <int kSteps>
__attribute__((noinline)) void multiply_f16(u32* const d[4], const u32* const a[2 * kSteps],
                                            const u32* const b[kSteps], const u32* const c[4]) {
  constexpr int kDepth = 8 * kSteps;
  alignas(64) float left[16][kDepth];
  alignas(64) float right[kDepth][8];
  alignas(64) float sum[16][8];
  for (int h = 0; h < kSteps; ++h) {
    for (int r = 0; r < 2; ++r) {
      const u16* tile = reinterpret_cast<const u16*>(a[2 * h + r]);
      for (int g = 0; g < 8; ++g) widen(tile + 8 * g, &left[g + 8 * r][8 * h]);
    }
    const u16* tile = reinterpret_cast<const u16*>(b[h]);
    for (int n = 0; n < 8; ++n) {
      float column[8];
      widen(tile + 8 * n, column);
      for (int k = 0; k < 8; ++k) right[8 * h + k][n] = column[k];
    }
  }
  for (int r = 0; r < 2; ++r) {
    for (int l = 0; l < kWarpSize; ++l) {
      sum[l / 4 + 8 * r][2 * (l % 4)] = bit_cast<float>(c[2 * r][l]);
      sum[l / 4 + 8 * r][2 * (l % 4) + 1] = bit_cast<float>(c[2 * r + 1][l]);
    }
  }
  for (int r = 0; r < 16; ++r) accumulate(sum[r], left[r], right, kDepth);
  for (int r = 0; r < 2; ++r) {
    for (int l = 0; l < kWarpSize; ++l) {
      d[2 * r][l] = F32::store(sum[l / 4 + 8 * r][2 * (l % 4)]);
      d[2 * r + 1][l] = F32::store(sum[l / 4 + 8 * r][2 * (l % 4) + 1]);
    }
  }
}

#endif

Status whole_warp_only(Warp& w, u32 mask) {
  w.fault.kind = FaultKind::kBarrier;
  w.fault.detail = "a matrix instruction was reached by a part of the warp's threads";
  w.fault.lane = __builtin_ctz(mask);
  return Status::kFault;
}

// f32 accumulators: d0..d3, A, B, c0..c3.
template <int kSteps>
Status mma_f32(Warp& w, const Ins& i, u32 mask) {
  if (mask != kFullMask) return whole_warp_only(w, mask);
  u32* operand[4 + 2 * kSteps + kSteps + 4];
  for (int n = 0; n < 8 + 3 * kSteps; ++n) operand[n] = words(w, i, n);
  multiply_f16<kSteps>(operand, operand + 4, operand + 4 + 2 * kSteps, operand + 4 + 3 * kSteps);
  return Status::kNext;
}

// f16 accumulators come in pairs of columns; they are summed in f32 and rounded once.
template <int kSteps>
Status mma_f16(Warp& w, const Ins& i, u32 mask) {
  if (mask != kFullMask) return whole_warp_only(w, mask);
  u32* operand[2 + 3 * kSteps + 2];
  for (int n = 0; n < 4 + 3 * kSteps; ++n) operand[n] = words(w, i, n);
  alignas(64) u32 wide[4][kWarpSize];
  for (int r = 0; r < 2; ++r) {
    const u32* c = operand[2 + 3 * kSteps + r];
    for (int l = 0; l < kWarpSize; ++l) {
      wide[2 * r][l] = bit_cast<u32>(half_to_float(c[l] & 0xffff));
      wide[2 * r + 1][l] = bit_cast<u32>(half_to_float(c[l] >> 16));
    }
  }
  u32* const fragment[4] = {wide[0], wide[1], wide[2], wide[3]};
  multiply_f16<kSteps>(fragment, operand + 2, operand + 2 + 2 * kSteps, fragment);
  for (int r = 0; r < 2; ++r) {
    u32* d = operand[r];
    for (int l = 0; l < kWarpSize; ++l) {
      d[l] = float_to_half(bit_cast<float>(wide[2 * r][l])) |
             float_to_half(bit_cast<float>(wide[2 * r + 1][l])) << 16;
    }
  }
  return Status::kNext;
}

}  // namespace

void register_matrix(OpTable& t) {
  add_function(t, "mma.m16n8k16.f32.f16", &mma_f32<2>, "wwww", "wwwwwwwwww");
  add_function(t, "mma.m16n8k8.f32.f16", &mma_f32<1>, "wwww", "wwwwwww");
  add_function(t, "mma.m16n8k16.f16.f16", &mma_f16<2>, "ww", "wwwwwwww");
  add_function(t, "mma.m16n8k8.f16.f16", &mma_f16<1>, "ww", "wwwww");
}

}  // namespace vgpu::VGPU_ISA
