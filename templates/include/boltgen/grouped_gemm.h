// Products of rows in groups, each with the matrix of its group: mixtures of experts.
//
// One launch computes all groups, and the host does not know where they end: the grid has as many
// tiles along M as any ends may make, and each block finds its tile from the ends, by a prefix sum
// over the tiles of the groups in each warp. Blocks beyond the last tile return. Rows behind the
// last end are one group more, whose product is zero without being computed.
//
// The idea of blocks that look up their problem is that of CUTLASS's grouped GEMM (example 24);
// there the host makes a problem of each group.
//
// A's rows may be taken by integers: those of tokens, which several experts read; see
// gathered_rows.h.

#pragma once

#include <cutlass/gemm/gemm.h>
#include <cutlass/gemm/threadblock/default_mma.h>

#include "boltgen/epilogue_graph.h"
#include "boltgen/gathered_mainloop.h"
#include "boltgen/launch.h"
#include "boltgen/swizzle.h"

namespace boltgen {

/// A tile along M: its first row, and the one behind the last row of its group.
struct GroupTile {
  int group;
  int row;
  int end;
};

/// The tile that is the `index`-th of all groups; `row` is -1 where there are not so many.
///
/// Called by whole warps. An end below one before it counts as that one, an end beyond m as m.
template <typename Index>
CUTLASS_DEVICE GroupTile find_tile(Index const* ends, int groups, int m, int tile_rows, int index,
                                   int lane) {
  constexpr unsigned kAll = 0xffffffffu;
  int last_end = 0, tiles_before = 0;
  // Behind the groups there are the rows of none.
  for (int first = 0; first <= groups; first += 32) {
    int const group = first + lane;
    int64_t const given = group < groups ? int64_t(ends[group]) : int64_t(m);
    int end = given < m ? int(given < 0 ? 0 : given) : m;
    end = end < last_end ? last_end : end;
    CUTLASS_PRAGMA_UNROLL
    for (int step = 1; step < 32; step *= 2) {
      int const before = __shfl_up_sync(kAll, end, step);
      end = lane >= step && before > end ? before : end;
    }
    int const above = __shfl_up_sync(kAll, end, 1);
    int const begin = lane == 0 ? last_end : above;
    int const tiles = (end - begin + tile_rows - 1) / tile_rows;
    int tiles_up_to = tiles;
    CUTLASS_PRAGMA_UNROLL
    for (int step = 1; step < 32; step *= 2) {
      int const before = __shfl_up_sync(kAll, tiles_up_to, step);
      tiles_up_to += lane >= step ? before : 0;
    }
    unsigned const beyond = __ballot_sync(kAll, tiles_before + tiles_up_to > index);
    if (beyond != 0) {
      int const owner = __ffs(int(beyond)) - 1;
      int const tile = index - tiles_before - (tiles_up_to - tiles);
      int const row = begin + tile * tile_rows;
      return {first + owner, __shfl_sync(kAll, row, owner), __shfl_sync(kAll, end, owner)};
    }
    last_end = __shfl_sync(kAll, end, 31);
    tiles_before += __shfl_sync(kAll, tiles_up_to, 31);
  }
  return {groups, -1, m};
}

/// A product of rows in groups with `Graph` as its epilogue; alignments are in elements. Where
/// `RowIndex` is a type, integers of it take A's rows.
template <typename Mainloop, typename Graph, typename ElementD_, int kAlignmentD_, typename Index_,
          typename RowIndex = void>
struct GroupedGemm {
  using Rows = TakenRows<RowIndex>;
  using RowsOfA = RowsOfTile<Mainloop, RowIndex>;
  using Mma = typename RowsOfA::Mma;
  using Index = Index_;
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
  static constexpr int kThreadCount = 32 * Mma::WarpCount::kCount;

  struct Params {
    int m;
    int n;
    int k;
    int groups;
    cutlass::gemm::GemmCoord grid_tiled_shape;
    int swizzle_log_tile;
    typename Mma::IteratorA::Params a;
    typename Mma::IteratorB::Params b;
    typename OutputTileIterator::Params d;
    ElementA* pointer_a;
    ElementB* pointer_b;
    Index const* ends;
    ElementD* pointer_d;
    int64_t batch_stride_b;
    typename OutputOp::Params output_op;
    Rows rows;
  };

  union Tiles {
    typename Mma::SharedStorage main_loop;
    typename Epilogue::SharedStorage epilogue;
  };
  struct SharedStorage : RowsOfA::SharedStorage {
    Tiles tiles;
  };

  CUTLASS_DEVICE
  void operator()(Params const& params, SharedStorage& shared_storage) {
    auto const place = ThreadblockSwizzle::get_tile_offset(params.swizzle_log_tile);
    if (place.n() >= params.grid_tiled_shape.n()) {
      return;  // a swizzled grid is rounded up
    }
    // The same in all threads of a warp, and known to be by the compiler.
    int const warp = cutlass::canonical_warp_idx_sync();
    int const thread = int(threadIdx.x);
    int const lane = thread % 32;
    GroupTile const tile =
        find_tile(params.ends, params.groups, params.m, int(Shape::kM), place.m(), lane);
    if (tile.row < 0) {
      return;
    }
    int const column = place.n() * Shape::kN;

    typename Mma::FragmentC accumulators;
    accumulators.clear();
    if (tile.group < params.groups) {
      // Rows behind the group's last one are beyond the edge, as those behind M are.
      auto a = RowsOfA::template iterator<kThreadCount>(params.rows, shared_storage, params.a,
                                                        params.pointer_a, params.k, thread,
                                                        tile.row, tile.end);
      typename Mma::IteratorB b(params.b, params.pointer_b + tile.group * params.batch_stride_b,
                                {params.k, params.n}, thread, {0, column});
      Mma mma(shared_storage.tiles.main_loop, thread, warp, lane);
      mma((params.k + Shape::kK - 1) / Shape::kK, accumulators, a, b, accumulators);
    }

    OutputTileIterator d(params.d, params.pointer_d, {tile.end, params.n}, thread,
                         {tile.row, column});
    OutputOp output_op(params.output_op);
    Epilogue epilogue(shared_storage.tiles.epilogue, thread, warp, lane);
    epilogue(output_op, d, accumulators, d);
  }
};

template <typename Kernel>
void check_grouped_gemm(ArgumentCheck& check, boltgen_grouped_gemm_args const& args) {
  constexpr bool kRowMajorB =
      std::is_same<typename Kernel::LayoutB, cutlass::layout::RowMajor>::value;
  check.at_least("m", args.m, 1);
  check.at_least("n", args.n, 1);
  check.at_least("k", args.k, 1);
  check.at_least("groups", args.groups, 1);
  check.at_most("groups", args.groups, 65535);
  check_order(check, args.swizzle, args.raster);
  check.at_least("lda", args.lda, args.k);
  check.at_least("ldb", args.ldb, kRowMajorB ? args.n : args.k);
  check.at_least("ldd", args.ldd, args.n);
  check.multiple("k (rows of A)", args.k, Kernel::kAlignmentA);
  check.multiple("lda", args.lda, Kernel::kAlignmentA);
  check.multiple(kRowMajorB ? "n (rows of B)" : "k (columns of B)", kRowMajorB ? args.n : args.k,
                 Kernel::kAlignmentB);
  check.multiple("ldb", args.ldb, Kernel::kAlignmentB);
  check.multiple("batch_stride_b", args.batch_stride_b, Kernel::kAlignmentB);
  check.multiple("n (rows of D)", args.n, Kernel::kAlignmentD);
  check.multiple("ldd", args.ldd, Kernel::kAlignmentD);
  check.pointer("a", args.a, Kernel::kAlignmentA, sizeof(typename Kernel::ElementA));
  check.pointer("b", args.b, Kernel::kAlignmentB, sizeof(typename Kernel::ElementB));
  check.pointer("ends", args.ends, 1, sizeof(typename Kernel::Index));
  check.pointer("d", args.d, Kernel::kAlignmentD, sizeof(typename Kernel::ElementD));
  check_operands(typename Kernel::Operands(), check, args.operands, args.n, Kernel::kAlignmentD);
  Kernel::Rows::check(check, args);
}

/// The most tiles along M that any ends make of m rows: each group, and the rows of none, may have
/// one that is not full.
inline int most_tiles(int m, int groups, int tile_rows) {
  int64_t const parts = groups < m ? int64_t(groups) + 1 : int64_t(m);
  return int((m + parts * (tile_rows - 1)) / tile_rows);
}

template <typename Kernel>
int run_grouped_gemm(void (*kernel)(typename Kernel::Params), boltgen_grouped_gemm_args const* args,
                     boltgen_status* status) {
  using Shape = typename Kernel::Shape;
  ArgumentCheck check(status);
  check_grouped_gemm<Kernel>(check, *args);
  if (check.failed()) {
    return check.code();
  }
  // Of sixteen rows at least: with a swizzle of eight they do not exceed a grid's x dimension.
  int const below = most_tiles(args->m, args->groups, Shape::kM);
  typename Kernel::Params params{};
  params.m = args->m;
  params.n = args->n;
  params.k = args->k;
  params.groups = args->groups;
  params.grid_tiled_shape = {below, (args->n + Shape::kN - 1) / Shape::kN, 1};
  params.swizzle_log_tile = swizzle_log_tile(args->swizzle, params.grid_tiled_shape);
  params.a = typename Kernel::LayoutA(args->lda);
  params.b = typename Kernel::LayoutB(args->ldb);
  params.d = cutlass::layout::RowMajor(args->ldd);
  params.pointer_a = static_cast<typename Kernel::ElementA*>(const_cast<void*>(args->a));
  params.pointer_b = static_cast<typename Kernel::ElementB*>(const_cast<void*>(args->b));
  params.ends = static_cast<typename Kernel::Index const*>(args->ends);
  params.pointer_d = static_cast<typename Kernel::ElementD*>(args->d);
  params.batch_stride_b = args->batch_stride_b;
  for (int i = 0; i < Kernel::Operands::kCount; ++i) {
    params.output_op.operands[i] = args->operands[i];
  }
  params.rows = Kernel::Rows::of(*args);
  dim3 const grid = swizzled_grid(params.grid_tiled_shape, params.swizzle_log_tile);
  check.at_most("number of blocks along N", grid.y, 65535);
  if (check.failed()) {
    return check.code();
  }
  return launch<Kernel>(kernel, params, grid, SplitWorkspace(0, 1, 0), nullptr, args->stream,
                        status);
}

}  // namespace boltgen
