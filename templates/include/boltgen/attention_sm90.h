// Attention on sm_90a: softmax(graph(Q x K)) x V by wgmma and TMA.
//
// One thread of the first warpgroup brings Q, and K and V step by step through a ring of stages
// each. The other warpgroups have 64 rows of Q each and go along the keys. Their scores stay in the
// accumulators of the first product, pass the graph and become, as exponentials, A of the second
// one in the same registers: 16 columns of an accumulator are a fragment of A (PTX ISA, wgmma
// register fragments). The scores of a step are multiplied while tensor cores still add the values
// of the step before, so that they work while exponentials are computed.
//
// Warpgroups that multiply issue their products in turns: the exponentials of one are computed
// beside the products of another.
//
// Threadblocks are persistent, one to a multiprocessor: the next tile's first keys are loaded while
// the output is stored.
//
// Source: Shah et al., FlashAttention-3, 2024, algorithm 2; the statistics are attention_rows.h's.

#pragma once

#include <cutlass/arch/barrier.h>
#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/cutlass.h>
#include <cute/tensor.hpp>
#include <cutlass/pipeline/sm90_pipeline.hpp>

#include <algorithm>
#include <type_traits>

#include "boltgen/attention_rows.h"
#include "boltgen/b2b_sm90_tiles.h"
#include "boltgen/persistent_sm90.h"

namespace boltgen {
namespace sm90 {

/// Brings tiles of the matrices of heads, `kExtent` rows of A or columns of B, and `kK` along K.
template <typename Multiplied, Major kMajor, int kExtent, int kK>
struct HeadLoad {
  using Shape = cute::Shape<int, int, int, int>;
  using Tile = SharedTile<kMajor, kExtent, kK, Multiplied>;

  static constexpr int kElements = kExtent * kK;
  static constexpr int kBytes = kElements * int(sizeof(Multiplied));

  static auto copy_of(void const* pointer, Shape const& shape, int64_t ld, int64_t head_stride,
                      int64_t batch_stride) {
    auto const one = cute::_1();
    auto const strides = [&] {
      if constexpr (kMajor == Major::K) {
        return cute::make_stride(ld, one, head_stride, batch_stride);
      } else {
        return cute::make_stride(one, ld, head_stride, batch_stride);
      }
    }();
    auto const heads = cute::make_tensor(
        cute::make_gmem_ptr(static_cast<Multiplied const*>(pointer)), shape, strides);
    return cute::make_tma_copy(cute::SM90_TMA_LOAD(), heads, Tile());
  }

  using Copy = decltype(copy_of(nullptr, Shape(), 0, 0, 0));

  Copy copy;
  Shape shape;
  int group;

  /// No document says that TMA takes a stride of 0 along more than one: what heads or sequences
  /// share, the map has once.
  static HeadLoad of(void const* pointer, int extent, int k, int64_t ld, int heads, int sequences,
                     int group, int64_t head_stride, int64_t batch_stride) {
    int const own = (heads + group - 1) / group;
    Shape const shape(extent, k, head_stride == 0 ? 1 : own, batch_stride == 0 ? 1 : sequences);
    int64_t const by_head = cute::get<2>(shape) > 1 ? head_stride : 0;
    int64_t const by_sequence = cute::get<3>(shape) > 1 ? batch_stride : 0;
    return {copy_of(pointer, shape, ld, by_head, by_sequence), shape, group};
  }

  /// What lies beyond a matrix arrives as zeros, and counts as bytes too.
  CUTLASS_DEVICE
  void operator()(Multiplied* shared, uint64_t& barrier, int tile, int step, Head head) const {
    int const slice = min(head.head / group, cute::get<2>(shape) - 1);
    int const sequence = min(head.sequence, cute::get<3>(shape) - 1);
    auto const whole = copy.get_tma_tensor(shape)(cute::_, cute::_, slice, sequence);
    auto const source = cute::local_tile(whole, cute::Shape<cute::Int<kExtent>, cute::Int<kK>>(),
                                         cute::make_coord(tile, step));
    auto const target = cute::make_tensor(cute::make_smem_ptr(shared), Tile());
    auto const part = copy.get_slice(0);
    cute::copy(copy.with(barrier), part.partition_S(source), part.partition_D(target));
  }
};

}  // namespace sm90

/// Attention. `Tile` is the threadblock's rows, keys of a step, and the depth of the first product,
/// at least that of Q; kColumns is at least the columns of V.
///
/// Where it is causal, a row ends with the key of its own place, counted from the last of both, and
/// begins so many as kWindow before that, if it is not 0.
template <typename Tile, int kColumns, int kStages, typename Multiplied, bool kIsCausal,
          int kWindow, typename ElementD_, typename Scores_, typename Output_>
struct AttentionSm90 {
  using Element = Multiplied;
  using ElementD = ElementD_;
  using Scores = Scores_;
  using Output = Output_;

  static constexpr int kRows = Tile::kM;
  static constexpr int kKeys = Tile::kN;
  static constexpr int kDepth = Tile::kK;
  static constexpr int kMostColumns = kColumns;
  static constexpr int kWarpgroups = kRows / sm90::kWarpgroupM;
  static constexpr int kMathWarps = kWarpgroups * sm90::kWarpgroup / 32;
  static constexpr int kThreadCount = sm90::kWarpgroup * (1 + kWarpgroups);
  /// TMA takes nothing below 16 bytes.
  static constexpr int kAlignmentA = 16 / int(sizeof(Element));

  template <typename LayoutB>
  static constexpr sm90::Major kMajorOf =
      std::is_same<LayoutB, cutlass::layout::RowMajor>::value ? sm90::Major::MN : sm90::Major::K;
  static constexpr sm90::Major kMajorK = kMajorOf<typename Scores::LayoutB>;
  static constexpr sm90::Major kMajorV = kMajorOf<typename Output::LayoutB>;

  using LoadQ = sm90::HeadLoad<Element, sm90::Major::K, sm90::kWarpgroupM, kDepth>;
  using LoadK = sm90::HeadLoad<Element, kMajorK, kKeys, kDepth>;
  using LoadV = sm90::HeadLoad<Element, kMajorV, kColumns, kKeys>;

  using ScoresMma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<
          Element, Element, float,
          cute::Shape<cute::Int<sm90::kWarpgroupM>, cute::Int<kKeys>, cute::Int<kDepth>>,
          sm90::Major::K, kMajorK>()));
  using OutputMma = decltype(cute::make_tiled_mma(
      cute::GMMA::rs_op_selector<
          Element, Element, float,
          cute::Shape<cute::Int<sm90::kWarpgroupM>, cute::Int<kColumns>, cute::Int<kKeys>>,
          sm90::Major::K, kMajorV>()));

  using Ring = cutlass::PipelineState<kStages>;
  using Masks = KeyMasks<typename Scores::Graph::Operands>;

  /// Registers of a thread where they are moved: 65536 for all warpgroups. To find which keys masks
  /// hide takes more of those that load.
  static constexpr int kLoadRegisters = Masks::kAny ? 40 : sm90::kLoadRegisters;
  static constexpr int kMathRegisters =
      kWarpgroups == 3 ? (Masks::kAny ? 152 : 160) : (Masks::kAny ? 232 : sm90::kMathRegisters);

  struct SharedStorage {
    alignas(1024) Element queries[kWarpgroups][LoadQ::kElements];
    alignas(1024) Element keys[kStages][LoadK::kElements];
    alignas(1024) Element values[kStages][LoadV::kElements];
    cutlass::arch::ClusterTransactionBarrier full_queries;
    cutlass::arch::ClusterBarrier empty_queries;
    cutlass::arch::ClusterTransactionBarrier full_keys[kStages];
    cutlass::arch::ClusterBarrier empty_keys[kStages];
    cutlass::arch::ClusterTransactionBarrier full_values[kStages];
    cutlass::arch::ClusterBarrier empty_values[kStages];
  };

  struct Params {
    LoadQ load_q;
    LoadK load_k;
    LoadV load_v;
    int rows;
    int batch;
    int heads;
    int row_tiles;
    int tiles;             ///< of all heads
    int heads_of_section;  ///< products of the batch whose keys and values stay in L2 together
    boltgen_attention_layer layers[2];
    ElementD* d;
    int64_t ldd;
    int64_t batch_stride_d;
    int64_t head_stride_d;
  };

  /// What a threadblock does at a time: some rows of a head, and the steps of keys that they see.
  struct Work {
    int row_tile;
    Head head;
    SeenSteps<kIsCausal, kWindow, kKeys> steps;

    /// Where there are masks of keys, all lanes of a warp find together which keys they show.
    CUTLASS_DEVICE
    Work(Params const& params, int tile) : Work(params, place_of(params, tile)) {}

   private:
    struct Place {
      int row_tile;
      int product;  ///< of the batch
    };

    /// Causal rows are the longer the later they are. In each section of heads the longest come
    /// first, so that few threadblocks are busy alone at the end; and a section's keys and values
    /// stay in L2. Source: FlashAttention-3's scheduler, which calls it
    /// longest-processing-time-first.
    CUTLASS_DEVICE
    static Place place_of(Params const& params, int tile) {
      if constexpr (kIsCausal) {
        int const section = tile / (params.heads_of_section * params.row_tiles);
        int const first = section * params.heads_of_section;
        int const products = min(params.heads_of_section, params.batch - first);
        int const rest = tile - first * params.row_tiles;
        return {params.row_tiles - 1 - rest / products, first + rest % products};
      } else {
        return {tile % params.row_tiles, tile / params.row_tiles};
      }
    }

    CUTLASS_DEVICE
    Work(Params const& params, Place place)
        : row_tile(place.row_tile),
          head(place.product, params.heads),
          steps(row_tile * kRows, (row_tile + 1) * kRows, params.layers[0].n,
                params.layers[0].n - params.rows) {
      if constexpr (Masks::kAny) {
        int const first_row = row_tile * kRows, end_row = min(params.rows, first_row + kRows);
        int const keys = params.layers[0].n;
        HeadOperands<typename Scores::Graph::Operands> const masks(params.layers[0], head);
        steps.template leave_out_hidden<Masks>(masks.own, first_row, end_row, keys,
                                               keys - params.rows);
      }
    }
  };

  CUTLASS_DEVICE
  void operator()(Params const& params, SharedStorage& shared) {
    // The same in all threads of a warp, and known to be by the compiler.
    int const warpgroup = cutlass::canonical_warp_group_idx();
    if (threadIdx.x == 0) {
      shared.full_queries.init(1);
      shared.empty_queries.init(kMathWarps);
      for (int stage = 0; stage < kStages; ++stage) {
        shared.full_keys[stage].init(1);
        shared.empty_keys[stage].init(kMathWarps);
        shared.full_values[stage].init(1);
        shared.empty_values[stage].init(kMathWarps);
      }
      cutlass::arch::fence_barrier_init();
    }
    __syncthreads();
    wait_for_earlier_kernels();
    // Each thread of two warpgroups has as many registers as there can be.
    constexpr bool kMovesRegisters = kWarpgroups > 1;
    if (warpgroup == 0) {
      if constexpr (kMovesRegisters) {
        cutlass::arch::warpgroup_reg_dealloc<kLoadRegisters>();
      }
      // One thread loads; where there are masks, its warp finds with it which keys.
      if (Masks::kAny ? threadIdx.x < 32 : threadIdx.x == 0) {
        load(params, shared);
      }
    } else {
      if constexpr (kMovesRegisters) {
        cutlass::arch::warpgroup_reg_alloc<kMathRegisters>();
      }
      multiply(params, shared, warpgroup - 1);
    }
  }

 private:
  using ScoreSums = decltype(cute::partition_fragment_C(
      ScoresMma(), cute::Shape<cute::Int<sm90::kWarpgroupM>, cute::Int<kKeys>>()));
  using OutputSums = decltype(cute::partition_fragment_C(
      OutputMma(), cute::Shape<cute::Int<sm90::kWarpgroupM>, cute::Int<kColumns>>()));
  using Fragment = cute::Shape<cute::_2, cute::_2, cute::_2>;
  /// A of the second product.
  using Exponentials = decltype(cute::make_tensor<Element>(
      cute::Shape<Fragment, cute::_1, cute::Int<kKeys / sm90::kInstructionK>>()));

  CUTLASS_DEVICE
  static void load(Params const& params, SharedStorage& shared) {
    // A fresh barrier's phase before is over.
    Ring keys(/*index=*/0, /*phase=*/1, /*count=*/0), values = keys;
    uint32_t queries_phase = 1;
    auto const load_keys = [&](Work const& work, int step) {
      uint64_t& full = acquire(shared.empty_keys, shared.full_keys, keys, LoadK::kBytes);
      params.load_k(shared.keys[keys.index()], full, step, 0, work.head);
      ++keys;
    };
    for (int tile = blockIdx.x; tile < params.tiles; tile += gridDim.x) {
      Work const work(params, tile);
      if (Masks::kAny && threadIdx.x != 0) {
        continue;
      }
      load_keys(work, work.steps.first);
      shared.empty_queries.wait(queries_phase);
      queries_phase ^= 1;
      shared.full_queries.arrive_and_expect_tx(kWarpgroups * LoadQ::kBytes);
      auto& full_queries = reinterpret_cast<uint64_t&>(shared.full_queries);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kWarpgroups; ++i) {
        params.load_q(shared.queries[i], full_queries, work.row_tile * kWarpgroups + i, 0,
                      work.head);
      }
      for (int step = work.steps.first; step < work.steps.end; ++step) {
        // In the order in which they are multiplied.
        if (step + 1 < work.steps.end) {
          load_keys(work, step + 1);
        }
        uint64_t& full = acquire(shared.empty_values, shared.full_values, values, LoadV::kBytes);
        params.load_v(shared.values[values.index()], full, 0, step, work.head);
        ++values;
      }
    }
  }

  /// The barrier of the ring's stage, which is free, and then expects so many bytes.
  CUTLASS_DEVICE
  static uint64_t& acquire(cutlass::arch::ClusterBarrier* empty,
                           cutlass::arch::ClusterTransactionBarrier* full, Ring const& ring,
                           uint32_t bytes) {
    empty[ring.index()].wait(ring.phase());
    full[ring.index()].arrive_and_expect_tx(bytes);
    return reinterpret_cast<uint64_t&>(full[ring.index()]);
  }

  /// What a warpgroup waits for before it issues products, and another one arrives at.
  CUTLASS_DEVICE
  static cutlass::arch::NamedBarrier turn_of(int warpgroup) {
    return cutlass::arch::NamedBarrier(2 * sm90::kWarpgroup, warpgroup);
  }

  /// All tiles of one of the warpgroups that multiply.
  CUTLASS_DEVICE
  static void multiply(Params const& params, SharedStorage& shared, int warpgroup) {
    int const thread = int(threadIdx.x) % sm90::kWarpgroup, lane = thread % 32;
    auto const& [scores_layer, output_layer] = params.layers;
    int const all_keys = scores_layer.n;
    // Row r has the keys up to r + last_key; where there are fewer keys than rows, maybe none.
    int const last_key = all_keys - params.rows;
    // The lane's first column in eight.
    int const column = lane % 4 * 2;
    auto const free = [&](cutlass::arch::ClusterBarrier& empty) {
      if (lane == 0) {
        empty.arrive();
      }
    };
    Ring keys, values;
    uint32_t queries_phase = 0;
    for (int tile = blockIdx.x; tile < params.tiles; tile += gridDim.x) {
      Work const work(params, tile);
      int const first_row = work.row_tile * kRows + warpgroup * sm90::kWarpgroupM;
      // The lane's first row.
      int const row = first_row + thread / 32 * 16 + lane / 4;
      HeadOperands<typename Scores::Graph::Operands> const masks(scores_layer, work.head);
      RowStatistics<1, typename Scores::Scale> statistics;
      OutputSums sums;
      OutputMma output_mma;
      output_mma.accumulate_ = cute::GMMA::ScaleOut::Zero;
      Exponentials exponentials;
      auto const start_scores = [&](ScoreSums& scores) {
        shared.full_keys[keys.index()].wait(keys.phase());
        start_scores_of(shared.queries[warpgroup], shared.keys[keys.index()], scores);
      };
      // What the first product has read is free, and its scores become exponentials.
      auto const finish = [&](ScoreSums& scores, int step) {
        cute::warpgroup_fence_operand(scores);
        free(shared.empty_keys[keys.index()]);
        ++keys;
        if (step + 1 == work.steps.end) {
          free(shared.empty_queries);
        }
        finish_step<Scores, kIsCausal, kWindow, 1, kKeys>(scores, masks.own, row, params.rows,
                                                          first_row, first_row + sm90::kWarpgroupM,
                                                          step * kKeys, column, all_keys, last_key);
        return statistics.template update<kKeys / 8>(scores);
      };
      auto const start_output = [&] {
        shared.full_values[values.index()].wait(values.phase());
        start_output_of(output_mma, exponentials, shared.values[values.index()], sums);
        output_mma.accumulate_ = cute::GMMA::ScaleOut::One;
      };
      auto const finish_output = [&] {
        cute::warpgroup_wait<0>();
        cute::warpgroup_fence_operand(sums);
        cute::warpgroup_fence_operand(exponentials);
        free(shared.empty_values[values.index()]);
        ++values;
      };
      auto const wait_for_turn = [&] {
        if constexpr (kWarpgroups > 1) {
          turn_of(warpgroup).sync();
        }
      };
      // The turns of a tile begin with the first warpgroup, and end with the last one.
      auto const end_turn = [&](bool is_last) {
        if constexpr (kWarpgroups > 1) {
          if (warpgroup + 1 < kWarpgroups || !is_last) {
            turn_of((warpgroup + 1) % kWarpgroups).arrive();
          }
        }
      };
      if (warpgroup + 1 == kWarpgroups && work.steps.first + 1 < work.steps.end) {
        end_turn(/*is_last=*/false);
      }
      shared.full_queries.wait(queries_phase);
      queries_phase ^= 1;
      {
        ScoreSums scores;
        start_scores(scores);
        cute::warpgroup_wait<0>();
        finish(scores, work.steps.first);
        round(scores, exponentials);
      }
      for (int step = work.steps.first + 1; step < work.steps.end; ++step) {
        ScoreSums scores;
        wait_for_turn();
        start_scores(scores);
        start_output();
        end_turn(/*is_last=*/step + 1 == work.steps.end);
        cute::warpgroup_wait<1>();
        auto const factors = finish(scores, step);
        finish_output();
        statistics.template scale<kColumns / 8>(sums, factors);
        round(scores, exponentials);
      }
      start_output();
      finish_output();
      statistics.template normalise<kColumns / 8>(sums);
      store_output<Output, 1, kColumns / 8>(
          sums, output_layer, work.head, row, params.rows, column,
          params.d + work.head.offset(params.batch_stride_d, params.head_stride_d), params.ldd);
    }
  }

  /// Enqueues the product of a warpgroup's queries and of a step's keys.
  CUTLASS_DEVICE
  static void start_scores_of(Element* queries, Element* keys, ScoreSums& scores) {
    ScoresMma mma;
    mma.accumulate_ = cute::GMMA::ScaleOut::Zero;
    auto const slice = mma.get_slice(0);
    auto const a = slice.make_fragment_A(
        slice.partition_A(cute::make_tensor(cute::make_smem_ptr(queries), typename LoadQ::Tile())));
    auto const b = slice.make_fragment_B(
        slice.partition_B(cute::make_tensor(cute::make_smem_ptr(keys), typename LoadK::Tile())));
    cute::warpgroup_fence_operand(scores);
    cute::warpgroup_arrive();
    CUTLASS_PRAGMA_UNROLL
    for (int k = 0; k < kDepth / sm90::kInstructionK; ++k) {
      cute::gemm(mma, a(cute::_, cute::_, k), b(cute::_, cute::_, k), scores);
      mma.accumulate_ = cute::GMMA::ScaleOut::One;
    }
    cute::warpgroup_commit_batch();
  }

  /// Enqueues the product of a step's exponentials and values.
  CUTLASS_DEVICE
  static void start_output_of(OutputMma& mma, Exponentials& exponentials, Element* values,
                              OutputSums& sums) {
    auto const slice = mma.get_slice(0);
    auto const b = slice.make_fragment_B(
        slice.partition_B(cute::make_tensor(cute::make_smem_ptr(values), typename LoadV::Tile())));
    cute::warpgroup_fence_operand(exponentials);
    cute::warpgroup_fence_operand(sums);
    cute::warpgroup_arrive();
    CUTLASS_PRAGMA_UNROLL
    for (int k = 0; k < kKeys / sm90::kInstructionK; ++k) {
      cute::gemm(mma, exponentials(cute::_, cute::_, k), b(cute::_, cute::_, k), sums);
      mma.accumulate_ = cute::GMMA::ScaleOut::One;
    }
    cute::warpgroup_commit_batch();
  }

  /// The accumulators of sixteen keys are A of a step along K, in the same order.
  CUTLASS_DEVICE
  static void round(ScoreSums const& scores, Exponentials& exponentials) {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < int(cute::size(ScoreSums())); i += 2) {
      auto const pair =
          cutlass::NumericArrayConverter<Element, float, 2>()({scores(i), scores(i + 1)});
      exponentials(i) = pair[0];
      exponentials(i + 1) = pair[1];
    }
  }
};

/// Products of the batch that threadblocks work on together: half of L2 holds their keys and
/// values.
template <typename Kernel>
int heads_of_section(boltgen_attention_args const& args, int l2_bytes) {
  auto const& [scores, output] = args.layers;
  int64_t const bytes =
      int64_t(scores.n) * (args.k + output.n) * int(sizeof(typename Kernel::Element));
  int64_t const matrices = std::max(int64_t(1), l2_bytes / 2 / bytes);
  return int(std::min(matrices * std::min(scores.group_b, output.group_b), int64_t(args.batch)));
}

template <typename Kernel>
int run_attention_sm90(void (*kernel)(typename Kernel::Params), boltgen_attention_args const* args,
                       boltgen_status* status) {
  ArgumentCheck check(status);
  check_attention<Kernel>(check, *args);
  if (check.failed()) {
    return check.code();
  }
  auto const& [scores, output] = args->layers;
  int const heads = args->heads, sequences = (args->batch + heads - 1) / heads;
  typename Kernel::Params params{};
  params.load_q = Kernel::LoadQ::of(args->a, args->m, args->k, args->lda, heads, sequences, 1,
                                    args->head_stride_a, args->batch_stride_a);
  params.load_k = Kernel::LoadK::of(scores.b, scores.n, args->k, scores.ldb, heads, sequences,
                                    scores.group_b, scores.head_stride_b, scores.batch_stride_b);
  params.load_v = Kernel::LoadV::of(output.b, output.n, scores.n, output.ldb, heads, sequences,
                                    output.group_b, output.head_stride_b, output.batch_stride_b);
  params.rows = args->m;
  params.batch = args->batch;
  params.heads = heads;
  params.row_tiles = (args->m + Kernel::kRows - 1) / Kernel::kRows;
  params.tiles = params.row_tiles * args->batch;
  int l2_bytes = 0;
  if (cudaError_t const error = device_attribute(l2_bytes, cudaDevAttrL2CacheSize);
      error != cudaSuccess) {
    return fail_cuda(status, error, "cannot ask the device for the size of its L2 cache");
  }
  params.heads_of_section = heads_of_section<Kernel>(*args, l2_bytes);
  std::copy_n(args->layers, 2, params.layers);
  params.d = static_cast<typename Kernel::ElementD*>(args->d);
  params.ldd = args->ldd;
  params.batch_stride_d = args->batch_stride_d;
  params.head_stride_d = args->head_stride_d;
  return launch_persistent<Kernel>(kernel, params, args->stream, status);
}

}  // namespace boltgen
