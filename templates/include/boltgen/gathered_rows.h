// Rows of A that a product takes by integers, x[rows], from where they lie: nothing writes them in
// order before.
//
// A launch passes the integers' address as the operand behind all others, and the number of A's
// rows as its ld. An integer below 0 takes the first row, one beyond the last row takes the last:
// nothing is read beside A, whatever the integers are. Source: boltgen/ir/gathered.py.
//
// CUTLASS's iterators take rows by an array of ints (example 36). A tile's rows go there by way of
// shared memory: an integer is read once, made a row of A, and may be of 64 bits.

#pragma once

#include <cutlass/gemm/threadblock/mma_multistage.h>
#include <cutlass/gemm/threadblock/mma_pipelined.h>
#include <cutlass/transform/threadblock/predicated_tile_access_iterator.h>
#include <cutlass/transform/threadblock/predicated_tile_iterator.h>

#include <cstdio>

#include "boltgen/launch.h"

namespace boltgen {

/// The iterator over A that takes rows by an array of ints, and the mainloop that has it.
template <typename Iterator>
struct Gathering;

template <typename Shape, typename Element, typename Layout, int kAdvanceRank, typename ThreadMap,
          typename Access, typename Permute>
struct Gathering<cutlass::transform::threadblock::PredicatedTileAccessIterator<
    Shape, Element, Layout, kAdvanceRank, ThreadMap, Access, false, Permute>> {
  using Type = cutlass::transform::threadblock::PredicatedTileAccessIterator<
      Shape, Element, Layout, kAdvanceRank, ThreadMap, Access, true, Permute>;
};

template <typename Shape, typename Element, typename Layout, int kAdvanceRank, typename ThreadMap,
          int kAccessSize, typename Permute>
struct Gathering<cutlass::transform::threadblock::PredicatedTileIterator<
    Shape, Element, Layout, kAdvanceRank, ThreadMap, kAccessSize, false, Permute>> {
  using Type = cutlass::transform::threadblock::PredicatedTileIterator<
      Shape, Element, Layout, kAdvanceRank, ThreadMap, kAccessSize, true, Permute>;
};

template <typename Shape, typename A, typename SharedA, cutlass::arch::CacheOperation::Kind kCacheA,
          typename B, typename SharedB, cutlass::arch::CacheOperation::Kind kCacheB,
          typename ElementC, typename LayoutC, typename Policy, int kStages,
          cutlass::gemm::SharedMemoryClearOption kClear>
struct Gathering<cutlass::gemm::threadblock::MmaMultistage<
    Shape, A, SharedA, kCacheA, B, SharedB, kCacheB, ElementC, LayoutC, Policy, kStages, kClear>> {
  using Type =
      cutlass::gemm::threadblock::MmaMultistage<Shape, typename Gathering<A>::Type, SharedA,
                                                kCacheA, B, SharedB, kCacheB, ElementC, LayoutC,
                                                Policy, kStages, kClear>;
};

template <typename Shape, typename A, typename SharedA, typename B, typename SharedB,
          typename ElementC, typename LayoutC, typename Policy, typename TransformA,
          typename TransformB>
struct Gathering<cutlass::gemm::threadblock::MmaPipelined<
    Shape, A, SharedA, B, SharedB, ElementC, LayoutC, Policy, TransformA, TransformB>> {
  using Type = cutlass::gemm::threadblock::MmaPipelined<Shape, typename Gathering<A>::Type, SharedA,
                                                        B, SharedB, ElementC, LayoutC, Policy,
                                                        TransformA, TransformB>;
};

/// A's rows by integers of type `RowIndex`.
template <typename Mainloop, typename RowIndex>
struct RowsOfA {
  using Mma = typename Gathering<Mainloop>::Type;
  using Iterator = typename Mma::IteratorA;
  static constexpr int kTileRows = Mma::Shape::kM;

  struct Params {
    RowIndex const* rows;
    int count;  ///< A's rows
  };

  struct alignas(16) SharedStorage {
    int rows[kTileRows];
  };

  static void check(ArgumentCheck& check, boltgen_operand const* operands, int place) {
    char name[48];
    std::snprintf(name, sizeof(name), "operands[%d].pointer (rows of A)", place);
    check.pointer(name, operands[place].pointer, 1, sizeof(RowIndex));
    std::snprintf(name, sizeof(name), "operands[%d].ld (number of A's rows)", place);
    check.at_least(name, operands[place].ld, 1);
    check.at_most(name, operands[place].ld, 0x7fffffff);
  }

  static Params params(boltgen_operand const* operands, int place) {
    return {static_cast<RowIndex const*>(operands[place].pointer), int(operands[place].ld)};
  }

  /// The iterator over the rows that the integers from `row` on take, before `end`. Called by all
  /// threads of a block; they wait for each other.
  template <int kThreads>
  CUTLASS_DEVICE static Iterator iterator(Params const& params, SharedStorage& shared,
                                          typename Iterator::Params const& a,
                                          typename Iterator::Pointer pointer, int k, int thread,
                                          int row, int end) {
    int const left = end - row;
    for (int i = thread; i < kTileRows && i < left; i += kThreads) {
      int64_t const taken = int64_t(params.rows[row + i]);
      shared.rows[i] = taken < 0 ? 0 : taken < params.count ? int(taken) : params.count - 1;
    }
    __syncthreads();
    return Iterator(a, pointer, {left, k}, thread, {0, 0}, shared.rows);
  }
};

/// A's rows in order.
template <typename Mainloop>
struct RowsOfA<Mainloop, void> {
  using Mma = Mainloop;
  using Iterator = typename Mma::IteratorA;

  struct Params {};
  struct SharedStorage {};

  static void check(ArgumentCheck&, boltgen_operand const*, int) {}
  static Params params(boltgen_operand const*, int) { return {}; }

  template <int kThreads>
  CUTLASS_DEVICE static Iterator iterator(Params const&, SharedStorage&,
                                          typename Iterator::Params const& a,
                                          typename Iterator::Pointer pointer, int k, int thread,
                                          int row, int end) {
    return Iterator(a, pointer, {end, k}, thread, {row, 0});
  }
};

}  // namespace boltgen
