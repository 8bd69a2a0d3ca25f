// Matrix products on the device: CUTLASS's mainloop, then the graph epilogue.
//
// CUTLASS's own kernel::GemmUniversal would do, but its header brings the whole 3.x API and doubles
// the time to compile a kernel.

#pragma once

#include <cutlass/gemm/gemm.h>
#include <cutlass/gemm/threadblock/default_mma.h>
#include <cutlass/semaphore.h>

#include "boltgen/epilogue_graph.h"
#include "boltgen/swizzle.h"

namespace boltgen {

/// A GEMM with `Graph` as its epilogue; alignments are in elements. `problem_size` has the columns
/// of B, and so has the iterator of D's tile, which knows where sums lie; see boltgen/pair.h.
///
/// The grid's z dimension counts the products of a batch, or else the slices of K, which add up
/// their partial sums one after the other (serial split-K).
template <typename Mainloop, typename Graph, typename ElementD_, int kAlignmentD_>
struct Gemm {
  using Mma = Mainloop;
  using Epilogue = GraphEpilogue<Mainloop, ElementD_, kAlignmentD_, Graph>;
  using OutputOp = typename Epilogue::OutputOp;
  using OutputTileIterator = typename Epilogue::OutputTileIterator;
  using Operands = typename Graph::Operands;
  using Shape = typename Mma::Shape;
  using ElementA = typename Mma::IteratorA::Element;
  using ElementB = typename Mma::IteratorB::Element;
  using ElementD = ElementD_;
  using LayoutA = typename Mma::IteratorA::Layout;
  using LayoutB = typename Mma::IteratorB::Layout;

  static constexpr int kAlignmentA = Mma::IteratorA::AccessType::kElements;
  static constexpr int kAlignmentB = Mma::IteratorB::AccessType::kElements;
  static constexpr int kAlignmentD = kAlignmentD_;
  static constexpr int kProducts = Products<Graph>::kCount;
  static constexpr int kThreadCount = 32 * Mma::WarpCount::kCount;

  struct Params {
    cutlass::gemm::GemmCoord problem_size;
    cutlass::gemm::GemmCoord grid_tiled_shape;
    int swizzle_log_tile;
    int k_per_slice;
    bool batched;
    typename Mma::IteratorA::Params a;
    typename Mma::IteratorB::Params b;
    typename OutputTileIterator::Params d;
    ElementA* pointer_a;
    ElementB* pointer_b;
    ElementD* pointer_d;
    int64_t batch_stride_a;
    int64_t batch_stride_b;
    int64_t batch_stride_d;
    typename OutputOp::Params output_op;
    int* semaphore;
  };

  union SharedStorage {
    typename Mma::SharedStorage main_loop;
    typename Epilogue::SharedStorage epilogue;
  };

  CUTLASS_DEVICE
  void operator()(Params const& params, SharedStorage& shared_storage) {
    auto const tile = ThreadblockSwizzle::get_tile_offset(params.swizzle_log_tile);
    if (tile.m() >= params.grid_tiled_shape.m() || tile.n() >= params.grid_tiled_shape.n()) {
      return;  // a swizzled grid is rounded up
    }
    // The same in all threads of a warp, and known to be by the compiler.
    int const warp = cutlass::canonical_warp_idx_sync();
    int const thread = int(threadIdx.x);
    int const lane = thread % 32;

    typename Mma::FragmentC accumulators;
    accumulators.clear();
    multiply(params, tile, shared_storage.main_loop, accumulators, thread, warp, lane);

    int64_t const batch = params.batched ? tile.k() : 0;
    OutputTileIterator d(params.d, params.pointer_d + batch * params.batch_stride_d,
                         params.problem_size.mn(), thread,
                         {tile.m() * Shape::kM, tile.n() * Shape::kN});
    OutputOp output_op(params.output_op);
    Epilogue epilogue(shared_storage.epilogue, thread, warp, lane);

    int const slices = params.batched ? 1 : params.grid_tiled_shape.k();
    if (slices == 1) {
      epilogue(output_op, d, accumulators, d);
      return;
    }
    // Slices of a tile take turns: each waits for the count of those before it.
    cutlass::Semaphore semaphore(
        params.semaphore + tile.m() + tile.n() * params.grid_tiled_shape.m(), thread);
    semaphore.fetch();
    output_op.set_k_partition(tile.k(), slices);
    semaphore.wait(tile.k());
    epilogue(output_op, d, accumulators, d);
    semaphore.release(tile.k() + 1 == slices ? 0 : tile.k() + 1);
  }

 private:
  /// This block's part of A x B: all of K, or its slice.
  CUTLASS_DEVICE
  static void multiply(Params const& params, cutlass::gemm::GemmCoord const& tile,
                       typename Mma::SharedStorage& shared_storage,
                       typename Mma::FragmentC& accumulators, int thread, int warp, int lane) {
    int64_t const batch = params.batched ? tile.k() : 0;
    int const k_begin = params.batched ? 0 : tile.k() * params.k_per_slice;
    int const k_left = params.problem_size.k() - k_begin;
    int const k_count = k_left < params.k_per_slice ? k_left : params.k_per_slice;
    int const k_end = k_begin + k_count;

    typename Mma::IteratorA a(params.a, params.pointer_a + batch * params.batch_stride_a,
                              {params.problem_size.m(), k_end}, thread,
                              {tile.m() * Shape::kM, k_begin});
    typename Mma::IteratorB b(params.b, params.pointer_b + batch * params.batch_stride_b,
                              {k_end, params.problem_size.n()}, thread,
                              {k_begin, tile.n() * Shape::kN});
    Mma mma(shared_storage, thread, warp, lane);
    mma((k_count + Shape::kK - 1) / Shape::kK, accumulators, a, b, accumulators);
  }
};

}  // namespace boltgen
