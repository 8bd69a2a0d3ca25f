// Results from the registers of a fragment to global memory.
//
// A lane has two columns of eight, of two rows of sixteen, eight apart: so lie the accumulators of
// mma.m16n8k16, and those of each warp of a wgmma. Source: PTX ISA, register fragments of both.

#pragma once

#include <cutlass/array.h>
#include <cutlass/numeric_conversion.h>

#include <cstdint>

namespace boltgen {

/// Stores as many of two neighbouring results as there are columns, at once where kPaired.
template <typename Element, bool kPaired>
CUTLASS_DEVICE void store_pair(Element* target, cutlass::Array<float, 2> const& pair, int columns) {
  auto const results = cutlass::NumericArrayConverter<Element, float, 2>()(pair);
  if constexpr (kPaired) {
    if (columns > 0) {
      *reinterpret_cast<cutlass::AlignedArray<Element, 2>*>(target) =
          reinterpret_cast<cutlass::AlignedArray<Element, 2> const&>(results);
    }
  } else {
    CUTLASS_PRAGMA_UNROLL
    for (int e = 0; e < 2; ++e) {
      if (e < columns) {
        target[e] = results[e];
      }
    }
  }
}

/// Exchanges pairs of columns between the four lanes of a row, which run together.
///
/// Before, lane i of the four has pair i of four groups of eight columns; then all pairs of group
/// i.
CUTLASS_DEVICE void gather_pairs(uint32_t (&pairs)[4]) {
  bool const is_odd = threadIdx.x & 1, is_upper = threadIdx.x & 2;
  auto const exchange = [&](uint32_t& low, uint32_t& high, bool sends_low, int distance) {
    uint32_t const other = __shfl_xor_sync(0xffffffffu, sends_low ? low : high, unsigned(distance));
    low = sends_low ? other : low;
    high = sends_low ? high : other;
  };
  exchange(pairs[0], pairs[1], is_odd, 1);
  exchange(pairs[2], pairs[3], is_odd, 1);
  exchange(pairs[0], pairs[2], is_upper, 2);
  exchange(pairs[1], pairs[3], is_upper, 2);
}

/// Stores results in `d`, of so many rows and columns: the lane's begin with `row` and `column`.
/// There are kM times sixteen rows, and kN times eight columns. `apply` calls its argument with
/// m, n, the half of the sixteen rows, and a pair of results, in the order of n.
///
/// Lanes exchange results of 16 bits where d takes vectors of 16 bytes: they store whole sectors,
/// by a quarter of the instructions. All lanes of a warp call together.
template <typename Element, int kAlignment, int kM, int kN, typename Apply>
CUTLASS_DEVICE void store_fragments(Apply const& apply, Element* d, int64_t ldd, int row, int rows,
                                    int column, int columns) {
  if constexpr (sizeof(Element) == 2 && kAlignment % 8 == 0 && kN % 4 == 0) {
    // Of the last four groups alone: all of a lane's results would take too many registers.
    uint32_t pairs[kM][2][4];
    int const first_column = column / 8 * 8 + int(threadIdx.x) % 4 * 8;
    apply([&](int m, int n, int half, cutlass::Array<float, 2> const& pair) {
      auto const results = cutlass::NumericArrayConverter<Element, float, 2>()(pair);
      auto& four = pairs[m][half];
      four[n % 4] = reinterpret_cast<uint32_t const&>(results);
      if (n % 4 == 3) {
        gather_pairs(four);
        int const r = row + 16 * m + 8 * half, c = first_column + 8 * (n - 3);
        if (r < rows && c < columns) {
          *reinterpret_cast<uint4*>(d + r * ldd + c) =
              make_uint4(four[0], four[1], four[2], four[3]);
        }
      }
    });
  } else {
    apply([&](int m, int n, int half, cutlass::Array<float, 2> const& pair) {
      int const r = row + 16 * m + 8 * half, c = column + 8 * n;
      if (r < rows) {
        store_pair<Element, (kAlignment > 1)>(d + r * ldd + c, pair, columns - c);
      }
    });
  }
}

}  // namespace boltgen
