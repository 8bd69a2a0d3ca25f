// mma.m8n8k4: of halves, as Volta has it, and of doubles.
//
// A warp makes four products of halves at once. Product q is of the lanes with lane / 4 % 4 == q;
// `v` = 4 (lane / 16) tells the lower four rows or columns of it from the upper, t = lane % 4:
//   A by rows:     row t + v, columns 0..3           by columns: rows v + 0..3, column t
//   B by columns:  rows 0..3, column t + v           by rows:    row t, columns v + 0..3
//   C of f16:      row t + v, columns 0..7
//   C of f32:      element e: row v + t % 2 + (e & 2), column (e & 4) + (t & 2) + e % 2
#include "exec/fragments.h"

namespace vgpu::VGPU_ISA {
namespace {

struct Position {
  int row, column;
};
VGPU_INLINE Position in_sum(int lane, int element, bool wide) {
  const int v = lane / 16 * 4;
  const int t = lane % 4;
  if (!wide) return {t + v, element};
  return {v + t % 2 + (element & 2), (element & 4) + (t & 2) + element % 2};
}

// kAByRows, kBByRows: how the matrices lie; kWideC, kWideD: f32 instead of f16.
template <bool kAByRows, bool kBByRows, bool kWideC, bool kWideD>
Status multiply_four(Warp& w, const Ins& i, u32 mask) {
  if (mask != kFullMask) return whole_warp_only(w, mask);
  constexpr int kResults = kWideD ? 8 : 4;
  float left[4][8][4];
  float right[4][4][8];
  float sum[4][8][8];
  const auto half = [&](int operand, int l, int e) {
    return half_to_float(words(w, i, operand + e / 2)[l] >> 16 * (e % 2) & 0xffff);
  };
  for (int l = 0; l < kWarpSize; ++l) {
    const int q = l / 4 % 4;
    const int v = l / 16 * 4;
    const int t = l % 4;
    for (int e = 0; e < 4; ++e) {
      left[q][kAByRows ? t + v : v + e][kAByRows ? e : t] = half(kResults, l, e);
      right[q][kBByRows ? t : e][kBByRows ? v + e : t + v] = half(kResults + 2, l, e);
    }
    for (int e = 0; e < 8; ++e) {
      const Position at = in_sum(l, e, kWideC);
      sum[q][at.row][at.column] =
          kWideC ? bit_cast<float>(words(w, i, kResults + 4 + e)[l]) : half(kResults + 4, l, e);
    }
  }
  for (int q = 0; q < 4; ++q) {
    for (int row = 0; row < 8; ++row) {
      for (int k = 0; k < 4; ++k) {
        for (int n = 0; n < 8; ++n) sum[q][row][n] += left[q][row][k] * right[q][k][n];
      }
    }
  }
  for (int l = 0; l < kWarpSize; ++l) {
    for (int e = 0; e < 8; ++e) {
      const Position at = in_sum(l, e, kWideD);
      const float value = sum[l / 4 % 4][at.row][at.column];
      if (kWideD) {
        words(w, i, e)[l] = F32::store(value);
      } else {
        u32& word = words(w, i, e / 2)[l];
        word = e % 2 ? word | float_to_half(value) << 16 : float_to_half(value);
      }
    }
  }
  return Status::kNext;
}

template <bool kAByRows, bool kBByRows>
void add_layout(OpTable& t, const char* layouts) {
  add_function(t, Name("mma.m8n8k4", layouts, "f32.f16.f16").text,
               &multiply_four<kAByRows, kBByRows, true, true>, "wwwwwwww", "wwwwwwwwwwww");
  add_function(t, Name("mma.m8n8k4", layouts, "f32.f16.f16.f16").text,
               &multiply_four<kAByRows, kBByRows, false, true>, "wwwwwwww", "wwwwwwww");
  add_function(t, Name("mma.m8n8k4", layouts, "f16.f16.f16").text,
               &multiply_four<kAByRows, kBByRows, false, false>, "wwww", "wwwwwwww");
}

// Doubles have the fragments of all later instructions. kRows is 1 for m8n8 and 2 for m16n8.
template <int kRows, int kSteps>
Status multiply_doubles(Warp& w, const Ins& i, u32 mask) {
  if (mask != kFullMask) return whole_warp_only(w, mask);
  constexpr int kFirstB = 2 * kRows + kRows * kSteps;
  double result[2 * kRows][kWarpSize];
  for (int n = 0; n < 2 * kRows; ++n) {
    for (int l = 0; l < kWarpSize; ++l) {
      double sum = bit_cast<double>(doubles(w, i, kFirstB + kSteps + n)[l]);
      for (int k = 0; k < 4 * kSteps; ++k) {
        const u64 a = doubles(w, i, 2 * kRows + k / 4 * kRows + n / 2)[l / 4 * 4 + k % 4];
        const u64 b = doubles(w, i, kFirstB + k / 4)[(2 * (l % 4) + n % 2) * 4 + k % 4];
        sum = __builtin_fma(bit_cast<double>(a), bit_cast<double>(b), sum);
      }
      result[n][l] = sum;
    }
  }
  for (int n = 0; n < 2 * kRows; ++n) {
    for (int l = 0; l < kWarpSize; ++l) doubles(w, i, n)[l] = F64::store(result[n][l]);
  }
  return Status::kNext;
}

}  // namespace

void register_matrix_volta(OpTable& t) {
  add_layout<true, false>(t, "row.col");
  add_layout<true, true>(t, "row.row");
  add_layout<false, false>(t, "col.col");
  add_layout<false, true>(t, "col.row");
  add_function(t, "mma.m8n8k4.f64.f64.f64", &multiply_doubles<1, 1>, "dd", "dddd");
  add_function(t, "mma.m16n8k4.f64.f64.f64", &multiply_doubles<2, 1>, "dddd", "ddddddd");
  add_function(t, "mma.m16n8k8.f64.f64.f64", &multiply_doubles<2, 2>, "dddd", "dddddddddd");
  add_function(t, "mma.m16n8k16.f64.f64.f64", &multiply_doubles<2, 4>, "dddd", "dddddddddddddddd");
}

}  // namespace vgpu::VGPU_ISA
