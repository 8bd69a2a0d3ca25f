// Convolutions whose channels and filters are in groups: the grid's z dimension counts the groups.
//
// CUTLASS has iterators that know of groups, for groups of whole vectors of channels. A group's
// images, filters and results are those of a convolution of one group with longer rows, so every
// iterator serves, and any group that the alignments of the kernel divide.

#pragma once

#include <utility>

#include "boltgen/conv2d.h"

namespace boltgen {

/// Whether each group has its own columns of an operand; of one column, all groups read the same.
template <typename Operand>
struct HasColumns {
  static_assert(!Operand::kIsOfSlices, "a group's columns of a slice have no stride of their own");
  static constexpr bool kValue = true;
};

template <typename Element>
struct HasColumns<Column<Element>> {
  static constexpr bool kValue = false;
};

/// Lets the epilogue read a group's columns as those of one of a batch.
template <typename... Operand>
void stride_groups(Operands<Operand...>, boltgen_operand* operands, int filters) {
  int index = 0;
  ((operands[index++].batch_stride = HasColumns<Operand>::kValue ? filters : 0), ...);
}

template <typename Mainloop, typename Graph, typename ElementD, int kAlignmentD_>
struct Conv2dInGroups : Conv2d<Mainloop, Graph, ElementD, kAlignmentD_> {
  using Base = Conv2d<Mainloop, Graph, ElementD, kAlignmentD_>;
  using typename Base::Operands;
  using typename Base::Params;
  using typename Base::SharedStorage;
  using Mma = typename Base::Mma;
  using Epilogue = typename Base::Epilogue;
  using OutputTileIterator = typename Epilogue::OutputTileIterator;
  using OutputOp = typename Base::EpilogueOutputOp;
  using Shape = typename Mma::Shape;
  static constexpr bool kInGroups = true;

  /// Sets the parameters that count groups.
  static void count_groups(Params& params, boltgen_conv2d_args const& args) {
    auto const tiles = params.grid_tiled_shape;
    params.grid_tiled_shape = {tiles.m(), tiles.n(), args.groups};
    params.output_op.batched = true;
    stride_groups(Operands(), params.output_op.operands, filters_of_group(args));
  }

  CUTLASS_DEVICE
  void operator()(Params const& params, SharedStorage& shared_storage) {
    auto const tile = ThreadblockSwizzle::get_tile_offset(params.swizzle_log_tile);
    if (tile.m() >= params.grid_tiled_shape.m() || tile.n() >= params.grid_tiled_shape.n()) {
      return;  // a swizzled grid is rounded up
    }
    auto const& problem = params.problem_size;
    int const group = int(blockIdx.z);
    int const thread = int(threadIdx.x);
    int const warp = cutlass::canonical_warp_idx_sync();
    int const lane = thread % 32;
    int64_t const filter_elements = int64_t(problem.K) * problem.R * problem.S * problem.C;

    typename Mma::IteratorA a(params.iterator_A, problem, params.ptr_A + group * problem.C, thread,
                              {tile.m() * Shape::kM, 0});
    typename Mma::IteratorB b(params.iterator_B, problem, params.ptr_B + group * filter_elements,
                              thread, {0, tile.n() * Shape::kN});
    typename Mma::FragmentC accumulators;
    accumulators.clear();
    Mma mma(shared_storage.main_loop, thread, warp, lane);
    mma(params.gemm_k_iterations, accumulators, a, b, accumulators,
        params.gemm_k_iterations_per_channel);

    OutputTileIterator d(params.iterator_D, params.ptr_D + group * problem.K,
                         params.implicit_gemm_problem_size.mn(), thread,
                         {tile.m() * Shape::kM, tile.n() * Shape::kN});
    OutputOp output_op(params.output_op);
    Epilogue epilogue(shared_storage.epilogue, thread, warp, lane);
    epilogue(output_op, d, accumulators, d);
  }
};

}  // namespace boltgen
