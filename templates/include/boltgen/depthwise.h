// Depthwise convolutions of images in NHWC: D = graph(filter of each channel), summed in FP32.
//
// A thread has one vector of channels of a tile of pixels of the output. Neighbouring threads have
// neighbouring vectors of channels, so that a warp reads whole sectors; the next ones have the next
// tiles.
//
// D may begin with A's own channels: threads of these copy their pixels, and the graph takes them
// for sums.
//
// A sum of each image's channels may be a result in the type of A: threadblocks add to FP32 numbers
// in the workspace, and the last one of a slab of channels rounds them.

#pragma once

#include <cutlass/fast_math.h>

#include "boltgen/activations.h"
#include "boltgen/depthwise_operands.h"
#include "boltgen/depthwise_tile.h"

namespace boltgen {

template <typename Tile_, typename ElementD_, typename Graph, int kThreads, bool kWithInput_>
struct Depthwise {
  using Tile = Tile_;
  using ElementIn = typename Tile::Element;
  using ElementD = ElementD_;
  using Loads = LoadsOf<typename Graph::Operands>;

  static constexpr int kVector = Tile::kVector;
  static constexpr int kRows = Tile::kRows;
  static constexpr int kColumns = Tile::kColumns;
  static constexpr int kThreadCount = kThreads;
  static constexpr bool kWithInput = kWithInput_;
  static constexpr int kLoads = Loads::Type::kCount;
  static constexpr int kOperands = kLoads + Loads::kResults;
  static constexpr int kRounded = RoundedSum<typename Graph::Operands>::kIndex;
  static_assert(kThreads % 32 == 0, "whole warps");
  static_assert(!kWithInput || Tile::kMultiplier == 1, "vectors of D are vectors of A");

  struct Params {
    DepthwiseSizes sizes;  ///< whose k is of the filters
    int columns;           ///< D's channels
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
    ElementIn* rounded;  ///< sums of each image, whose FP32 numbers are an operand
    int* ended;          ///< threadblocks of each slab
    int images;
    int blocks_of_slab;
  };

  struct SharedStorage {
    bool is_last;
  };

  CUTLASS_DEVICE
  void operator()(Params const& params, [[maybe_unused]] SharedStorage& shared) {
    int block, slab, tile, vector;
    params.slabs(block, slab, int(blockIdx.x));
    params.slab(tile, vector, block * kThreads + int(threadIdx.x));
    vector += slab * params.slab.divisor;
    if (tile < params.tiles && vector < params.vectors) {
      compute(params, tile, vector * kVector);
    }
    if constexpr (kRounded >= 0) {
      round_sums(params, slab, shared);
    }
  }

 private:
  CUTLASS_DEVICE
  static void compute(Params const& params, int tile, int channel) {
    int image, row, column, tile_row;
    params.tile_columns(tile_row, column, tile);
    params.tile_rows(image, row, tile_row);
    bool const copies = kWithInput && channel < params.sizes.c;
    int const filter = kWithInput && !copies ? channel - params.sizes.c : channel;
    Tile sums(params.sizes, params.a, params.b, image, row * kRows, column * kColumns, filter);
    if (copies) {
      copy(sums);
    } else {
      sums.compute();
    }
    store(params, sums, image, channel);
  }

  /// Puts A's own pixels in the place of sums.
  CUTLASS_DEVICE
  static void copy(Tile& tile) {
    DepthwiseSizes const& sizes = tile.sizes;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kRows; ++i) {
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        int const y = tile.row + i, x = tile.column + j;
        typename Tile::VectorA pixel;
        pixel.clear();
        cutlass::arch::global_load<typename Tile::VectorA, sizeof(pixel)>(
            pixel, tile.a + (int64_t(y) * sizes.w + x) * sizes.c, y < sizes.h && x < sizes.w);
        auto const wide = Tile::widen(pixel);
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < kVector; ++e) {
          tile.sums[i][j][e] = wide[e];
        }
      }
    }
  }

  /// Rounds the sums of a slab's channels, if all other threadblocks have added theirs.
  CUTLASS_DEVICE
  static void round_sums(Params const& params, int slab, SharedStorage& shared) {
    __threadfence();  // the sums of this thread are added before it is counted
    __syncthreads();
    if (threadIdx.x == 0) {
      shared.is_last = atomicAdd(params.ended + slab, 1) + 1 == params.blocks_of_slab;
    }
    __syncthreads();
    if (!shared.is_last) {
      return;
    }
    __threadfence();
    int const first = slab * params.slab.divisor * kVector;
    int const left = params.columns - first, most = params.slab.divisor * kVector;
    int const channels = left < most ? left : most;
    auto const* const sums = static_cast<float const*>(params.operands[kRounded].pointer);
    for (int64_t i = threadIdx.x; i < int64_t(params.images) * channels; i += kThreads) {
      int64_t const at = i / channels * params.columns + first + i % channels;
      params.rounded[at] = cutlass::NumericConverter<ElementIn, float>()(__ldcg(sums + at));
    }
  }

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
            vector, params.d + place.row * params.columns + channel, inside);
      }
    }
    int64_t const first = (int64_t(image) * sizes.p + tile.row) * sizes.q + tile.column;
    operands.finish(Place{first, channel}, params.columns);
  }
};

template <typename Kernel>
void check_depthwise(ArgumentCheck& check, boltgen_depthwise_args const& args) {
  boltgen_depthwise_args filters = args;
  if (Kernel::kWithInput) {
    check.equal("k", args.k, 2 * int64_t(args.c));
    check.equal("p", args.p, args.h);
    check.equal("q", args.q, args.w);
    filters.k = args.c;
  }
  check_depthwise_tile<typename Kernel::Tile>(check, filters);
  check.at_least("slab", args.slab, 1);
  check.pointer("d", args.d, Kernel::kVector, sizeof(typename Kernel::ElementD));
  check_operands(typename Kernel::Loads::Type(), check, args.operands, args.k, Kernel::kVector);
  Kernel::Loads::check_results(check, args.operands, Kernel::kLoads, args.k, Kernel::kVector);
}

/// What a kernel that rounds a sum clears: FP32 numbers of each image, and a count for each slab.
template <typename Kernel>
size_t depthwise_workspace_bytes(boltgen_depthwise_args const* args) {
  if (Kernel::kRounded < 0 || args->n < 1 || args->k < 1) {
    return 0;
  }
  return size_t(args->n) * size_t(args->k) * sizeof(float) +
         size_t(args->k / Kernel::kVector) * sizeof(int);
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
  SplitWorkspace cleared(0, 1, 0);
  cleared.bytes = cleared.semaphore_bytes = depthwise_workspace_bytes<Kernel>(args);
  check.workspace(args->workspace, args->workspace_bytes, cleared.bytes);
  if (check.failed()) {
    return check.code();
  }
  DepthwiseSizes sizes(*args);
  sizes.k = Kernel::kWithInput ? args->c : args->k;
  typename Kernel::Params params{sizes,
                                 args->k,
                                 static_cast<typename Kernel::ElementIn const*>(args->a),
                                 static_cast<typename Kernel::ElementIn const*>(args->b),
                                 static_cast<typename Kernel::ElementD*>(args->d),
                                 vectors,
                                 int(tiles),
                                 cutlass::FastDivmod(slabs),
                                 cutlass::FastDivmod(slab),
                                 cutlass::FastDivmod(tile_columns),
                                 cutlass::FastDivmod(tile_rows),
                                 {},
                                 nullptr,
                                 nullptr,
                                 args->n,
                                 int(blocks)};
  for (int i = 0; i < Kernel::kOperands; ++i) {
    params.operands[i] = args->operands[i];
  }
  if constexpr (Kernel::kRounded >= 0) {
    auto* const sums = static_cast<float*>(args->workspace);
    auto& result = params.operands[Kernel::kRounded];
    params.rounded = static_cast<typename Kernel::ElementIn*>(const_cast<void*>(result.pointer));
    params.ended = reinterpret_cast<int*>(sums + int64_t(args->n) * args->k);
    result.pointer = sums;
  }
  return launch<Kernel>(kernel, params, dim3(unsigned(blocks * slabs)), cleared, args->workspace,
                        args->stream, status);
}

}  // namespace boltgen
