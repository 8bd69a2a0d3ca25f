// Mainloops that take rows of A by integers, from where they lie: see gathered_rows.h.
//
// CUTLASS's iterators take rows by an array of ints (example 36). A tile's rows go there by way of
// shared memory: an integer is read once, made a row of A, and may be of 64 bits.

#pragma once

#include <cutlass/gemm/threadblock/mma_multistage.h>
#include <cutlass/gemm/threadblock/mma_pipelined.h>
#include <cutlass/transform/threadblock/predicated_tile_access_iterator.h>
#include <cutlass/transform/threadblock/predicated_tile_iterator.h>

#include "boltgen/gathered_rows.h"

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

/// The rows of A that a tile reads, by integers of type `RowIndex`.
template <typename Mainloop, typename RowIndex>
struct RowsOfTile {
  using Mma = typename Gathering<Mainloop>::Type;
  using Iterator = typename Mma::IteratorA;
  static constexpr int kTileRows = Mma::Shape::kM;

  struct alignas(16) SharedStorage {
    int rows[kTileRows];
  };

  /// The iterator over the rows that the integers from `row` on take, before `end`. Called by all
  /// threads of a block; they wait for each other.
  template <int kThreads>
  CUTLASS_DEVICE static Iterator iterator(TakenRows<RowIndex> const& rows, SharedStorage& shared,
                                          typename Iterator::Params const& a,
                                          typename Iterator::Pointer pointer, int k, int thread,
                                          int row, int end) {
    int const left = end - row;
    for (int i = thread; i < kTileRows && i < left; i += kThreads) {
      shared.rows[i] = rows[row + i];
    }
    __syncthreads();
    return Iterator(a, pointer, {left, k}, thread, {0, 0}, shared.rows);
  }
};

/// Those of a tile whose rows A has in order.
template <typename Mainloop>
struct RowsOfTile<Mainloop, void> {
  using Mma = Mainloop;
  using Iterator = typename Mma::IteratorA;

  struct SharedStorage {};

  template <int kThreads>
  CUTLASS_DEVICE static Iterator iterator(TakenRows<void> const&, SharedStorage&,
                                          typename Iterator::Params const& a,
                                          typename Iterator::Pointer pointer, int k, int thread,
                                          int row, int end) {
    return Iterator(a, pointer, {end, k}, thread, {row, 0});
  }
};

}  // namespace boltgen
