// Depthwise convolutions of images in NHWC: D = graph(filter of each channel), summed in FP32.
//
// A thread has one vector of channels of a tile of pixels of the output. Neighbouring threads have
// neighbouring vectors of channels, so that a warp reads whole sectors; the next ones have the next
// tiles.

#pragma once

#include <cutlass/fast_math.h>

#include "boltgen/activations.h"
#include "boltgen/depthwise_operands.h"
#include "boltgen/depthwise_tile.h"

namespace boltgen {

template <typename Tile_, typename ElementD_, typename Graph, int kThreads>
struct Depthwise {
  using Tile = Tile_;
  using ElementIn = typename Tile::Element;
  using ElementD = ElementD_;
  using Loads = LoadsOf<typename Graph::Operands>;

  static constexpr int kVector = Tile::kVector;
  static constexpr int kRows = Tile::kRows;
  static constexpr int kColumns = Tile::kColumns;
  static constexpr int kThreadCount = kThreads;
  static constexpr int kLoads = Loads::Type::kCount;
  static constexpr int kOperands = kLoads + Loads::kResults;
  static_assert(kThreads % 32 == 0, "whole warps");

  struct Params {
    DepthwiseSizes sizes;
    ElementIn const* a;
    ElementIn const* b;
    ElementD* d;
    int vectors;                       ///< of D's channels
    int tiles;                         ///< of all images
    cutlass::FastDivmod slabs;         ///< of channels
    cutlass::FastDivmod slab;          ///< vectors of channels
    cutlass::FastDivmod tile_columns;  ///< of an image
    cutlass::FastDivmod tile_rows;     ///< of an image
    boltgen_operand operands[BOLTGEN_MAX_OPERANDS];
  };

  struct SharedStorage {};

  CUTLASS_DEVICE
  void operator()(Params const& params, SharedStorage&) {
    int block, slab, tile, vector;
    params.slabs(block, slab, int(blockIdx.x));
    params.slab(tile, vector, block * kThreads + int(threadIdx.x));
    vector += slab * params.slab.divisor;
    if (tile >= params.tiles || vector >= params.vectors) {
      return;
    }
    int image, row, column, tile_row;
    params.tile_columns(tile_row, column, tile);
    params.tile_rows(image, row, tile_row);
    int const channel = vector * kVector;
    Tile sums(params.sizes, params.a, params.b, image, row * kRows, column * kColumns, channel);
    sums.compute();
    store(params, sums, image, channel);
  }

 private:
  CUTLASS_DEVICE
  static void store(Params const& params, Tile const& tile, int image, int channel) {
    using VectorD = cutlass::AlignedArray<ElementD, kVector>;
    DepthwiseSizes const& sizes = params.sizes;
    Graph const graph;
    VectorOperands<typename OfPixels<typename Graph::Operands>::Type, kVector> operands(
        params.operands, params.operands + kLoads);
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kRows; ++i) {
      int64_t const begin = (int64_t(image) * sizes.p + tile.row + i) * sizes.q + tile.column;
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        bool const inside = tile.row + i < sizes.p && tile.column + j < sizes.q;
        Place const place{begin + j, channel};
        operands.load(place, inside);
        cutlass::Array<float, kVector> made;
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < kVector; ++e) {
          made[e] = operands.apply(graph, tile.sums[i][j][e], e);
        }
        VectorD vector;
        static_cast<cutlass::Array<ElementD, kVector>&>(vector) =
            cutlass::NumericArrayConverter<ElementD, float, kVector>()(made);
        operands.store(place, inside);
        cutlass::arch::global_store<VectorD, sizeof(VectorD)>(
            vector, params.d + place.row * sizes.k + channel, inside);
      }
    }
    int64_t const first = (int64_t(image) * sizes.p + tile.row) * sizes.q + tile.column;
    operands.finish(Place{first, channel}, sizes.k);
  }
};

template <typename Kernel>
void check_depthwise(ArgumentCheck& check, boltgen_depthwise_args const& args) {
  check_depthwise_tile<typename Kernel::Tile>(check, args);
  check.at_least("slab", args.slab, 1);
  check.pointer("d", args.d, Kernel::kVector, sizeof(typename Kernel::ElementD));
  check_operands(typename Kernel::Loads::Type(), check, args.operands, args.k, Kernel::kVector);
  Kernel::Loads::check_results(check, args.operands, Kernel::kLoads, args.k, Kernel::kVector);
}

template <typename Kernel>
int run_depthwise(void (*kernel)(typename Kernel::Params), boltgen_depthwise_args const* args,
                  boltgen_status* status) {
  ArgumentCheck check(status);
  check_depthwise<Kernel>(check, *args);
  if (check.failed()) {
    return check.code();
  }
  int const vectors = args->k / Kernel::kVector;
  int const slab = args->slab < vectors ? args->slab : vectors;
  int const slabs = (vectors + slab - 1) / slab;
  int const tile_columns = (args->q + Kernel::kColumns - 1) / Kernel::kColumns;
  int const tile_rows = (args->p + Kernel::kRows - 1) / Kernel::kRows;
  int64_t const tiles = int64_t(args->n) * tile_rows * tile_columns;
  int64_t const threads = tiles * slab;
  int64_t const blocks = (threads + Kernel::kThreadCount - 1) / Kernel::kThreadCount;
  check.at_most("threads for a slab", blocks * Kernel::kThreadCount, INT32_MAX);
  check.at_most("number of blocks", blocks * slabs, INT32_MAX);
  if (check.failed()) {
    return check.code();
  }
  typename Kernel::Params params{DepthwiseSizes(*args),
                                 static_cast<typename Kernel::ElementIn const*>(args->a),
                                 static_cast<typename Kernel::ElementIn const*>(args->b),
                                 static_cast<typename Kernel::ElementD*>(args->d),
                                 vectors,
                                 int(tiles),
                                 cutlass::FastDivmod(slabs),
                                 cutlass::FastDivmod(slab),
                                 cutlass::FastDivmod(tile_columns),
                                 cutlass::FastDivmod(tile_rows),
                                 {}};
  for (int i = 0; i < Kernel::kOperands; ++i) {
    params.operands[i] = args->operands[i];
  }
  return launch<Kernel>(kernel, params, dim3(unsigned(blocks * slabs)), SplitWorkspace(0, 1, 0),
                        nullptr, args->stream, status);
}

}  // namespace boltgen
