// Attention in one kernel: softmax(graph(Q x K)) x V, without the matrix of scores in memory.
//
// A threadblock has some rows of Q and goes along the keys. The scores of a step stay in the
// accumulators of the first product, pass the graph and become, as exponentials, A of the second
// one, whose fragments have the same lanes hold the same elements. What was summed relative to a
// smaller maximum of a row is scaled when a greater one is found, and divided by the sum of the
// row's exponentials at the end.
//
// Source: Dao, FlashAttention-2, 2023, algorithm 1; Milakov and Gimelshein, Online normalizer
// calculation for softmax, 2018, algorithm 3.

#pragma once

#include <cutlass/arch/memory_sm75.h>
#include <cutlass/arch/mma.h>

#include <type_traits>

#include "boltgen/attention_rows.h"
#include "boltgen/attention_split.h"
#include "boltgen/b2b_tile.h"
#include "boltgen/launch.h"

namespace boltgen {

/// What tiles are made of: numbers of two bytes, which copies do not look at.
using Word = cutlass::half_t;

/// The B of a product that comes step by step from global memory, kSteps of `kStep` keys at once.
///
/// It is kK x kN, where the keys are columns of the first product's B and rows of the second one's.
template <typename Layout, int kK, int kN, bool kKeysAreColumns, int kAlignment_, int kThreads,
          bool kHasAsyncCopies>
struct StreamedOperand {
  using Element = Word;

  static constexpr bool kRowMajor = std::is_same<Layout, cutlass::layout::RowMajor>::value;
  static constexpr int kAlignment = kAlignment_;
  /// Source: PTX ISA, cp.async: 4, 8 or 16 bytes.
  static constexpr bool kAsync = kHasAsyncCopies && kAlignment > 1;
  static constexpr int kKeys = kKeysAreColumns ? kN : kK;
  /// Whether a key is a row in memory.
  static constexpr bool kKeysAreRows = kRowMajor != kKeysAreColumns;

  using Tile = std::conditional_t<kRowMajor, SwizzledTile<kK, kN>, SwizzledTile<kN, kK>>;
  using Copy = TileCopy<Tile, kThreads, kAlignment, kAsync>;

  CUTLASS_DEVICE
  StreamedOperand(boltgen_attention_layer const& layer, Head head, int keys, int others, int thread)
      : source_(static_cast<Element const*>(layer.b) +
                head.offset(layer.batch_stride_b, layer.head_stride_b, layer.group_b)),
        ld_(layer.ldb),
        keys_(keys),
        others_(others),
        copy_(thread) {}

  /// Begins to copy the keys of step `step`.
  CUTLASS_DEVICE
  void start(Element* tile, int step) {
    int const first = step * kKeys;
    if constexpr (kKeysAreRows) {
      copy_.start(tile, source_ + first * ld_, ld_, keys_ - first, others_);
    } else {
      copy_.start(tile, source_ + first, ld_, others_, keys_ - first);
    }
  }

  CUTLASS_DEVICE
  void finish(Element* tile) { copy_.finish(tile); }

  /// Where a lane reads B's sixteen rows and columns, from the tile's key `first` on.
  CUTLASS_DEVICE
  static LaneVectors<Tile> vectors_of(int lane, int first) {
    int const row = kRowMajor ? lane % 16 : lane % 8 + lane / 16 * 8;
    int const half = kRowMajor ? lane / 16 : lane / 8 % 2;
    return kKeysAreRows ? LaneVectors<Tile>(first + row, half)
                        : LaneVectors<Tile>(row, first / 8 + half);
  }

 private:
  Element const* source_;
  int64_t ld_;
  int keys_;
  int others_;
  Copy copy_;
};

/// Products of a warp, of numbers of type `Multiplied`: kM times sixteen rows, kN times eight
/// columns.
template <typename Multiplied, typename Instruction, int kM, int kN>
struct WarpProduct {
  using Element = Word;
  using Mma = cutlass::arch::Mma<Instruction, 32, Multiplied, cutlass::layout::RowMajor, Multiplied,
                                 cutlass::layout::ColumnMajor, float, cutlass::layout::RowMajor,
                                 cutlass::arch::OpMultiplyAdd>;
  /// Of sixteen steps along K, as mma.m16n8k16 takes them; mma.m16n8k8 takes halves.
  using FragmentA = cutlass::Array<unsigned, 4>[kM];
  /// The accumulators of rows m and columns n begin at 4 * (m + n * kM).
  using FragmentC = cutlass::Array<float, 4 * kM * kN>;

  static_assert(kN % 2 == 0, "ldmatrix brings sixteen columns of B");

  /// Adds the product of `a` and of B's sixteen rows that begin with `k`.
  template <typename Operand>
  CUTLASS_DEVICE static void multiply(FragmentC& sums, FragmentA const& a, Element const* tile,
                                      int k, LaneVectors<typename Operand::Tile> const& lane) {
    Mma const mma;
    auto* const c = reinterpret_cast<typename Mma::FragmentC*>(&sums);
    CUTLASS_PRAGMA_UNROLL
    for (int n = 0; n < kN; n += 2) {
      cutlass::Array<unsigned, 4> b;
      if constexpr (Operand::kRowMajor) {
        int const offset = lane.offset(k, n / 2);
        cutlass::arch::ldsm<cutlass::layout::ColumnMajor, 4>(b, tile + offset);
      } else {
        int const offset = lane.offset(8 * n, k / 16);
        cutlass::arch::ldsm<cutlass::layout::RowMajor, 4>(b, tile + offset);
      }
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < 2; ++i) {
        CUTLASS_PRAGMA_UNROLL
        for (int m = 0; m < kM; ++m) {
          auto& sum = c[m + (n + i) * kM];
          CUTLASS_PRAGMA_UNROLL
          for (int half = 0; half < 16 / Instruction::kK; ++half) {
            mma(sum, reinterpret_cast<typename Mma::FragmentA const*>(&a[m])[half],
                reinterpret_cast<typename Mma::FragmentB const*>(&b[2 * i])[half], sum);
          }
        }
      }
    }
  }
};

/// Attention. `Tile` is the threadblock's rows, keys of a step, and the depth of the first product,
/// at least that of Q; kColumns is at least the columns of V.
///
/// Where it is causal, a row ends with the key of its own place, counted from the last of both, and
/// begins so many as kWindow before that, if it is not 0. So many threadblocks as `kSplits` share
/// the keys of a tile of rows, and so many warps as `kKeyWarps` the keys of a step. A warp that
/// `kHoldsQueries` has its rows of Q in registers, and else reads them from shared memory in each
/// step.
template <typename Tile, int kColumns, int kWarps, int kStages, int kSplits, int kKeyWarps,
          bool kHoldsQueries, typename Multiplied, typename Instruction, bool kIsCausal,
          int kWindow, typename ElementD_, int kAlignmentA_, typename Scores_, typename Output_,
          bool kHasAsyncCopies>
struct Attention {
  using Element = Word;
  using ElementD = ElementD_;
  using Scores = Scores_;
  using Output = Output_;

  static constexpr int kRows = Tile::kM;
  static constexpr int kKeys = Tile::kN;
  static constexpr int kDepth = Tile::kK;
  static constexpr int kMostColumns = kColumns;
  static constexpr int kThreadCount = 32 * kWarps;
  static constexpr int kAlignmentA = kAlignmentA_;
  static constexpr int kRowWarps = kWarps / kKeyWarps;
  static constexpr int kWarpRows = kRows / kRowWarps;
  static constexpr int kWarpKeys = kKeys / kKeyWarps;
  static constexpr int kM = kWarpRows / 16;
  static_assert(kWarpRows % 16 == 0 && kWarpKeys % 16 == 0 && kDepth % 16 == 0 &&
                    kColumns % 16 == 0,
                "whole fragments of mma.m16n8k16");

  using First = WarpProduct<Multiplied, Instruction, kM, kWarpKeys / 8>;
  using Second = WarpProduct<Multiplied, Instruction, kM, kColumns / 8>;
  using Keys = StreamedOperand<typename Scores::LayoutB, kDepth, kKeys, /*KeysAreColumns=*/true,
                               Scores::kAlignmentB, kThreadCount, kHasAsyncCopies>;
  using Values =
      StreamedOperand<typename Output::LayoutB, kKeys, kColumns,
                      /*KeysAreColumns=*/false, Output::kAlignmentB, kThreadCount, kHasAsyncCopies>;
  static constexpr bool kAsync = Keys::kAsync && Values::kAsync;
  static_assert(kAsync || kStages == 2, "copies through registers are double-buffered");
  static_assert(kAsync || !kHoldsQueries, "copies through registers take those of Q");

  using QueryTile = SwizzledTile<kRows, kDepth>;
  using QueryCopy =
      TileCopy<QueryTile, kThreadCount, kAlignmentA, kHasAsyncCopies && (kAlignmentA > 1)>;

  using Masks = KeyMasks<typename Scores::Graph::Operands>;
  using Split = SharedKeys<kM, kColumns / 8, kSplits, kThreadCount>;
  static constexpr int kBlocksOfTile = kSplits;
  using Pairs = WarpPairs<kM, kColumns / 8, kThreadCount / 2>;
  static_assert(kKeyWarps == 1 || (kKeyWarps == 2 && kSplits == 1),
                "warps add their sums in pairs");

  struct Params {
    int rows;
    int depth;
    int heads;
    Element const* a;
    int64_t lda;
    int64_t batch_stride_a;
    int64_t head_stride_a;
    boltgen_attention_layer layers[2];
    ElementD* d;
    int64_t ldd;
    int64_t batch_stride_d;
    int64_t head_stride_d;
    int* arrived;  ///< a count for each tile of rows, 0 at first; then sums, if keys are shared
    float* partials;
  };

  struct SharedStorage {
    alignas(16) Element queries[QueryTile::kElements];
    alignas(16) Element keys[kStages][Keys::Tile::kElements];
    alignas(16) Element values[kStages][Values::Tile::kElements];
  };

  CUTLASS_DEVICE
  void operator()(Params const& params, SharedStorage& shared) {
    int const thread = int(threadIdx.x), lane = int(threadIdx.x % 32);
    int const warp = cutlass::canonical_warp_idx_sync();
    int const warp_row = warp % kRowWarps * kWarpRows, warp_key = warp / kRowWarps * kWarpKeys;
    // The x dimension counts the tiles of all heads: the others end at 65,535.
    int const tiles = (params.rows + kRows - 1) / kRows;
    int const tile = int(blockIdx.x) % tiles, batch = int(blockIdx.x) / tiles;
    // Causal rows are the longer the later they are: the longest come first, and none last alone.
    int const first_row = (kIsCausal ? tiles - 1 - tile : tile) * kRows;
    Head const head(batch, params.heads);
    auto const& [scores_layer, output_layer] = params.layers;
    int const keys = scores_layer.n;
    // Row r has the keys up to r + last_key; where there are fewer keys than rows, maybe none.
    int const last_key = keys - params.rows;
    SeenSteps<kIsCausal, kWindow, kKeys> seen(first_row, first_row + kRows, keys, last_key);
    if constexpr (Masks::kAny) {
      HeadOperands<typename Scores::Graph::Operands> const masks(scores_layer, head);
      seen.template leave_out_hidden<Masks>(masks.own, first_row,
                                            min(params.rows, first_row + kRows), keys, last_key);
    }
    // Those of this threadblock, maybe none.
    int const share = (seen.end - seen.first + kSplits - 1) / kSplits;
    int const first_step = seen.first + (kSplits > 1 ? int(blockIdx.y) * share : 0);
    int const steps = kSplits > 1 ? min(seen.end, first_step + share) : seen.end;

    QueryCopy queries(thread);
    Element const* const a = params.a + head.offset(params.batch_stride_a, params.head_stride_a);
    queries.start(shared.queries, a + first_row * params.lda, params.lda, params.rows - first_row,
                  params.depth);
    queries.finish(shared.queries);
    if constexpr (kHoldsQueries) {
      cutlass::arch::cp_async_fence();
    }
    Keys k(scores_layer, head, keys, params.depth, thread);
    Values v(output_layer, head, keys, output_layer.n, thread);
    auto const start = [&](int step) {
      if (step < steps) {
        k.start(shared.keys[step % kStages], step);
        v.start(shared.values[step % kStages], step);
      }
      if constexpr (kHasAsyncCopies) {
        cutlass::arch::cp_async_fence();
      }
    };
    auto const finish = [&](int step) {
      if (step < steps) {
        k.finish(shared.keys[step % kStages]);
        v.finish(shared.values[step % kStages]);
      }
    };
    CUTLASS_PRAGMA_UNROLL
    for (int step = 0; step < kStages - 1; ++step) {
      start(first_step + step);
    }
    finish(first_step);
    Queries held;
    if constexpr (kHoldsQueries) {
      // All that was started before K and V is there.
      cutlass::arch::cp_async_wait<kStages - 1>();
      __syncthreads();
      CUTLASS_PRAGMA_UNROLL
      for (int k = 0; k < kDepth; k += 16) {
        load_queries(held[k / 16], shared.queries, k, warp_row, lane);
      }
    }

    RowStatistics<kM, typename Scores::Scale> statistics;
    typename Second::FragmentC sums;
    sums.clear();
    HeadOperands<typename Scores::Graph::Operands> const masks(scores_layer, head);
    LaneVectors<typename Keys::Tile> const of_keys = Keys::vectors_of(lane, warp_key);
    LaneVectors<typename Values::Tile> const of_values = Values::vectors_of(lane, warp_key);
    // The lane's first row, and its first column in eight.
    int const row = first_row + warp_row + lane / 4, column = lane % 4 * 2;
    for (int step = first_step; step < steps; ++step) {
      if constexpr (kHasAsyncCopies) {
        cutlass::arch::cp_async_wait<kStages - 2>();
      }
      // This step's tiles are there, and those that the next copy overwrites are no longer read.
      __syncthreads();
      start(step + kStages - 1);

      typename First::FragmentC scores;
      scores.clear();
      CUTLASS_PRAGMA_UNROLL
      for (int k = 0; k < kDepth; k += 16) {
        auto& a = held[kHoldsQueries ? k / 16 : 0];
        if constexpr (!kHoldsQueries) {
          load_queries(a, shared.queries, k, warp_row, lane);
        }
        First::template multiply<Keys>(scores, a, shared.keys[step % kStages], k, of_keys);
      }
      finish_step<Scores, kIsCausal, kWindow, kM, kWarpKeys>(
          scores, masks.own, row, params.rows, first_row + warp_row, first_row + warp_row + 16 * kM,
          step * kKeys + warp_key, column, keys, last_key);
      auto const factors = statistics.template update<kWarpKeys / 8>(scores);
      statistics.template scale<kColumns / 8>(sums, factors);
      multiply_values(sums, scores, shared.values[step % kStages], of_values);
      if constexpr (!kAsync) {
        finish(step + 1);
      }
    }
    // No thread reads tiles after a barrier, and no copy writes them.
    if constexpr (kHasAsyncCopies) {
      cutlass::arch::cp_async_wait<0>();
    }
    if constexpr (kKeyWarps > 1) {
      static_assert(sizeof(float[Pairs::kFloats]) <= sizeof(SharedStorage),
                    "sums lie in the tiles");
      if (!Pairs::merge(statistics, sums, reinterpret_cast<float*>(&shared))) {
        return;
      }
    }
    if constexpr (kSplits > 1) {
      Split split(params.partials, params.arrived, int64_t(batch) * tiles + tile);
      if (!split.merge(statistics, sums, int(blockIdx.y), params.rows - row,
                       reinterpret_cast<int*>(shared.queries))) {
        return;
      }
    }
    statistics.template normalise<kColumns / 8>(sums);
    store_output<Output, kM, kColumns / 8>(
        sums, output_layer, head, row, params.rows, column,
        params.d + head.offset(params.batch_stride_d, params.head_stride_d), params.ldd);
  }

 private:
  /// A of the first product: of all steps along its depth, or of one.
  using Queries = typename First::FragmentA[kHoldsQueries ? kDepth / 16 : 1];

  CUTLASS_DEVICE
  static void load_queries(typename First::FragmentA& a, Element const* queries, int k,
                           int warp_row, int lane) {
    CUTLASS_PRAGMA_UNROLL
    for (int m = 0; m < kM; ++m) {
      int const offset = QueryTile::offset(warp_row + 16 * m + lane % 16, k / 8 + lane / 16);
      cutlass::arch::ldsm<cutlass::layout::RowMajor, 4>(a[m], queries + offset);
    }
  }

  /// The accumulators of sixteen keys are, rounded, A of as many steps along K.
  CUTLASS_DEVICE
  static void multiply_values(typename Second::FragmentC& sums,
                              typename First::FragmentC const& exponentials, Element const* values,
                              LaneVectors<typename Values::Tile> const& lane) {
    CUTLASS_PRAGMA_UNROLL
    for (int k = 0; k < kWarpKeys; k += 16) {
      typename Second::FragmentA a;
      CUTLASS_PRAGMA_UNROLL
      for (int m = 0; m < kM; ++m) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < 4; ++i) {
          int const first = 4 * (m + (k / 8 + i / 2) * kM) + i % 2 * 2;
          cutlass::Array<Multiplied, 2> const halves =
              cutlass::NumericArrayConverter<Multiplied, float, 2>()(
                  {exponentials[first], exponentials[first + 1]});
          a[m][i] = reinterpret_cast<unsigned const&>(halves);
        }
      }
      Second::template multiply<Values>(sums, a, values, k, lane);
    }
  }
};

template <typename Kernel>
SplitWorkspace attention_workspace(boltgen_attention_args const& args) {
  int64_t const row_tiles = (int64_t(args.m) + Kernel::kRows - 1) / Kernel::kRows;
  return {row_tiles * args.batch, Kernel::kBlocksOfTile, Kernel::Split::kPartials};
}

template <typename Kernel>
size_t attention_workspace_bytes(boltgen_attention_args const* args) {
  bool const sensible = args->m > 0 && args->batch > 0;
  return sensible ? attention_workspace<Kernel>(*args).bytes : 0;
}

template <typename Kernel>
int run_attention(void (*kernel)(typename Kernel::Params), boltgen_attention_args const* args,
                  boltgen_status* status) {
  using Params = typename Kernel::Params;
  ArgumentCheck check(status);
  check_attention<Kernel>(check, *args);
  // The grid's x dimension. Source: CUDA C++ Programming Guide, compute capabilities.
  int64_t const tiles = (int64_t(args->m) + Kernel::kRows - 1) / Kernel::kRows * args->batch;
  check.at_most("tiles of rows of all heads", tiles, INT32_MAX);
  if (check.failed()) {
    return check.code();
  }
  SplitWorkspace const split = attention_workspace<Kernel>(*args);
  check.workspace(args->workspace, args->workspace_bytes, split.bytes);
  if (check.failed()) {
    return check.code();
  }
  Params const params{args->m,
                      args->k,
                      args->heads,
                      static_cast<typename Kernel::Element const*>(args->a),
                      args->lda,
                      args->batch_stride_a,
                      args->head_stride_a,
                      {args->layers[0], args->layers[1]},
                      static_cast<typename Kernel::ElementD*>(args->d),
                      args->ldd,
                      args->batch_stride_d,
                      args->head_stride_d,
                      split.bytes > 0 ? static_cast<int*>(args->workspace) : nullptr,
                      split.partials(args->workspace)};
  dim3 const grid(unsigned(tiles), Kernel::kBlocksOfTile);
  return launch<Kernel>(kernel, params, grid, split, args->workspace, args->stream, status);
}

}  // namespace boltgen
