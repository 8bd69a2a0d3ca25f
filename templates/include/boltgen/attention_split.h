// Keys that several threadblocks share, each some steps of them: where there are few rows, as in
// decoding, one threadblock for all keys leaves a device idle. Each leaves its sums in the
// workspace; the last one of a tile scales and adds them, always in the same order.
//
// Source: Dao et al., Flash-Decoding for long-context inference, 2023.

#pragma once

#include <cutlass/cutlass.h>

#include "boltgen/attention_rows.h"

namespace boltgen {

/// The sums of a tile of rows, as threads of `kThreads` hold them, of `kSplits` threadblocks.
///
/// A thread has the same rows and columns in all of them, so none reads what another one wrote.
template <int kM, int kN, int kSplits, int kThreads>
class SharedKeys {
 public:
  /// Floats in the workspace for a tile.
  static constexpr int kPartials = kSplits * kThreads * 2 * kM * (2 + 2 * kN);

  CUTLASS_DEVICE
  SharedKeys(float* partials, int* arrived, int64_t tile)
      : partials_(partials + tile * kPartials + threadIdx.x), arrived_(arrived + tile) {}

  /// Whether this threadblock is the last of its tile: it then has the sums of all.
  ///
  /// There are `rows` from the lane's first one on. `shared` is memory that no thread reads any
  /// more.
  template <typename Scale, typename Sums>
  CUTLASS_DEVICE bool merge(RowStatistics<kM, Scale>& statistics, Sums& sums, int split, int rows,
                            int* shared) {
    CUTLASS_PRAGMA_UNROLL
    for (int row = 0; row < kRows; ++row) {
      if (is_used(row, rows)) {
        *at(split, row, 0) = statistics.maximum(row);
        *at(split, row, 1) = statistics.sum(row);
        int value = 2;
        RowStatistics<kM>::template for_row<kN>(
            sums, row, [&](float& product) { *at(split, row, value++) = product; });
      }
    }
    // What was written is seen by whoever sees the count.
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      *shared = atomicAdd(arrived_, 1);
    }
    __syncthreads();
    if (*shared != kSplits - 1) {
      return false;
    }
    __threadfence();
    CUTLASS_PRAGMA_UNROLL
    for (int row = 0; row < kRows; ++row) {
      if (is_used(row, rows)) {
        add(statistics, sums, row);
      }
    }
    return true;
  }

 private:
  static constexpr int kRows = 2 * kM;

  CUTLASS_DEVICE
  static bool is_used(int row, int rows) { return row / 2 * 16 + row % 2 * 8 < rows; }

  CUTLASS_DEVICE
  float* at(int split, int row, int value) const {
    return partials_ + ((split * kRows + row) * (2 + 2 * kN) + value) * kThreads;
  }

  template <typename Scale, typename Sums>
  CUTLASS_DEVICE void add(RowStatistics<kM, Scale>& statistics, Sums& sums, int row) const {
    float greatest = -CUDART_INF_F;
    for (int split = 0; split < kSplits; ++split) {
      greatest = fmaxf(greatest, __ldcg(at(split, row, 0)));
    }
    float const base = greatest == -CUDART_INF_F ? 0.0f : greatest;
    float sum = 0.0f;
    RowStatistics<kM>::template for_row<kN>(sums, row, [&](float& product) { product = 0.0f; });
    for (int split = 0; split < kSplits; ++split) {
      float const factor = exponential(__ldcg(at(split, row, 0)) - base);
      sum += factor * __ldcg(at(split, row, 1));
      int value = 2;
      RowStatistics<kM>::template for_row<kN>(
          sums, row, [&](float& product) { product += factor * __ldcg(at(split, row, value++)); });
    }
    statistics.sum(row) = sum;
  }

  float* partials_;
  int* arrived_;
};

/// The sums of pairs of warps of a threadblock, which have the same rows and other keys: the first
/// kThreads threads have those of the others added to their own.
template <int kM, int kN, int kThreads>
struct WarpPairs {
  static constexpr int kRows = 2 * kM;
  static constexpr int kValues = 2 + 2 * kN;
  static constexpr int kFloats = kRows * kValues * kThreads;

  /// Whether this thread has the sums of both. All threads call; nothing is copied to `shared`, the
  /// tiles, any more.
  template <typename Scale, typename Sums>
  CUTLASS_DEVICE static bool merge(RowStatistics<kM, Scale>& statistics, Sums& sums,
                                   float* shared) {
    bool const is_first = threadIdx.x < kThreads;
    float* const own = shared + threadIdx.x % kThreads;
    auto const at = [&](int row, int value) -> float& {
      return own[(row * kValues + value) * kThreads];
    };
    __syncthreads();
    if (!is_first) {
      CUTLASS_PRAGMA_UNROLL
      for (int row = 0; row < kRows; ++row) {
        at(row, 0) = statistics.maximum(row);
        at(row, 1) = statistics.sum(row);
        int value = 2;
        RowStatistics<kM>::template for_row<kN>(
            sums, row, [&](float& product) { at(row, value++) = product; });
      }
    }
    __syncthreads();
    if (!is_first) {
      return false;
    }
    CUTLASS_PRAGMA_UNROLL
    for (int row = 0; row < kRows; ++row) {
      float const greatest = fmaxf(statistics.maximum(row), at(row, 0));
      float const base = greatest == -CUDART_INF_F ? 0.0f : greatest;
      float const mine = exponential(statistics.maximum(row) - base);
      float const others = exponential(at(row, 0) - base);
      statistics.sum(row) = mine * statistics.sum(row) + others * at(row, 1);
      int value = 2;
      RowStatistics<kM>::template for_row<kN>(
          sums, row, [&](float& product) { product = mine * product + others * at(row, value++); });
    }
    return true;
  }
};

}  // namespace boltgen
