// The threadblock epilogue of every kernel: accumulators through shared memory, then any
// elementwise graph in FP32, one implementation for products and convolutions of all archs. Sums of
// products of integers stay integers of 32 bits until the graph makes FP32 of them.
//
// CUTLASS's own visitor trees start at sm_80 and know no convolution, and its broadcast epilogue
// takes one tensor and one row. The pieces that move data are CUTLASS's: the fragment and tile
// iterators of DefaultEpilogueTensorOp, the shared-memory layout of EpilogueBase, and
// PredicatedTileIterator for the stores.

#pragma once

#include <cutlass/epilogue/threadblock/default_epilogue_tensor_op.h>
#include <cutlass/epilogue/threadblock/epilogue_base.h>

#include <type_traits>

#include "boltgen/operands.h"

namespace boltgen {

/// Of how many products an epilogue makes D, each with as many columns of B as D has.
template <typename Graph>
struct Products {
  static constexpr int kCount = 1;
};

/// What the epilogue needs at run time. The name and the members that CUTLASS's kernels use are
/// those of its output operators.
template <typename Graph_, typename ElementOutput_, typename ElementAccumulator_>
class GraphOutputOp {
 public:
  using Graph = Graph_;
  using ElementOutput = ElementOutput_;
  using ElementAccumulator = ElementAccumulator_;
  using ElementCompute = float;

  struct Params {
    /// Those of the graph, then D, which the epilogue of a pair of products writes itself.
    boltgen_operand operands[Graph::Operands::kCount + 1];
    /// FP32 or integer partial sums of serial split-K, one tile for each of the threadblocks of a
    /// slice.
    float* partials;
    /// Whether the grid's z dimension counts products of a batch.
    bool batched;
  };

  CUTLASS_DEVICE
  explicit GraphOutputOp(Params const& params) : params_(params) {}

  /// Called by the kernel where K is split: this block is slice `partition` of `count`.
  CUTLASS_DEVICE
  void set_k_partition(int partition, int count) {
    partition_ = partition;
    partition_count_ = count;
  }

  CUTLASS_DEVICE
  bool is_first_slice() const { return partition_ == 0; }

  CUTLASS_DEVICE
  bool is_last_slice() const { return partition_ + 1 == partition_count_; }

  CUTLASS_DEVICE
  int batch() const { return params_.batched ? int(blockIdx.z) : 0; }

  CUTLASS_DEVICE
  Params const& params() const { return params_; }

 private:
  Params const& params_;
  int partition_ = 0;
  int partition_count_ = 1;
};

/// How the lanes of a warp share rows of the output's tile: `vector` elements each, in spans of
/// the width that OutputTileOptimalThreadMap chooses for elements of `bits` bits.
struct RowSharing {
  int vector;
  int bits;
};

/// Whether spans tile the rows exactly; the terms are those of
/// epilogue/threadblock/output_tile_thread_map.h, RowArrangement. `sharing` warps divide 8 rows.
constexpr bool shares_rows(int columns, int sharing, RowSharing by) {
  int const target = 256 * 8 / (by.vector * by.bits);
  if (target == 0 || columns % by.vector != 0 || 8 % sharing != 0) {
    return false;
  }
  int const row_vectors = columns / by.vector;
  int const rows_each = 8 / sharing;
  bool const is_tall = 32 / target > rows_each;
  int const fitting = row_vectors < target ? row_vectors : target;
  int const width = is_tall ? 32 / rows_each : (fitting < 32 ? fitting : 32);
  int const rows = is_tall ? rows_each : (32 / width < 8 ? 32 / width : 8);
  return width * rows == 32 && row_vectors % width == 0 && rows_each % rows == 0;
}

/// CUTLASS's own sharing where it is exact. Rows of 96, 160 or 192 columns are no multiple of the
/// 256 bytes that it prefers, and it would leave columns out; rows of bytes may have fewer vectors
/// than lanes. There it is the first narrower span, or then vector, that divides them.
/// `families/mma_sync/thread_maps.py` has the same rule.
constexpr RowSharing row_sharing(int columns, int sharing, int alignment, int bits) {
  RowSharing const own{alignment, bits};
  bool const is_power = (columns & (columns - 1)) == 0;
  bool const is_own = is_power && (bits > 8 || shares_rows(columns, sharing, own));
  for (int vector = alignment; vector >= 1 && !is_own; vector /= 2) {
    for (int wide = bits; vector * wide <= 256 * 8; wide *= 2) {
      if (shares_rows(columns, sharing, {vector, wide})) {
        return {vector, wide};
      }
    }
  }
  return own;
}

/// The iterators that stage accumulators through shared memory.
///
/// CUTLASS's choice, but for FP32 accumulators with FP16 output and a warp tile wider than 64
/// columns, or of no whole 32: there TileIteratorTensorOpMixed takes one pointer for the whole row
/// although its swizzle changes every 32 columns, and results are wrong (CUTLASS 4.2,
/// epilogue/warp/tile_iterator_tensor_op_mixed.h, `kN32_optimization`). The plain iterators are
/// right for every shape, and serve integers, of which CUTLASS has others for some shapes only.
template <typename Mma, typename ElementOutput, int kAlignment, typename ThreadMap>
struct StagingIterators {
  using WarpMma = typename Mma::Policy::Operator;
  using WarpShape = typename WarpMma::Shape;
  using Instruction = typename WarpMma::Policy::Operator;
  using ElementAccumulator = typename WarpMma::ElementC;

  static constexpr bool kIntegers = std::is_same<ElementAccumulator, int32_t>::value;

  // Of integers any, as none is used: the default is made for some types only.
  using Default = cutlass::epilogue::threadblock::detail::DefaultIteratorsTensorOp<
      cutlass::platform::conditional_t<kIntegers, float, ElementOutput>,
      cutlass::platform::conditional_t<kIntegers, float, ElementAccumulator>, kAlignment,
      typename Mma::Shape, WarpShape, typename Instruction::Shape, ThreadMap>;

  static constexpr bool kPlain = kIntegers || WarpShape::kN > 64 || WarpShape::kN % 32 != 0;

  using WarpTileIterator = cutlass::platform::conditional_t<
      kPlain,
      cutlass::epilogue::warp::TileIteratorTensorOp<WarpShape, typename Instruction::Shape,
                                                    ElementAccumulator, cutlass::layout::RowMajor>,
      typename Default::WarpTileIterator>;

  using SharedLoadIterator = cutlass::platform::conditional_t<
      kPlain, cutlass::epilogue::threadblock::SharedLoadIterator<ThreadMap, ElementAccumulator>,
      typename Default::SharedLoadIterator>;

  using AccumulatorFragmentIterator = cutlass::epilogue::warp::FragmentIteratorTensorOp<
      WarpShape, typename Instruction::Shape, ElementAccumulator, typename Instruction::FragmentC,
      typename WarpMma::LayoutC>;

  /// Against bank conflicts, as DefaultEpilogueTensorOp has it.
  using Padding = cutlass::MatrixShape<0, 64 / cutlass::sizeof_bits<ElementAccumulator>::value * 4>;
};

/// Names the types of the epilogue of mainloop `Mma`.
template <typename Mma, typename ElementOutput_, int kAlignment>
struct EpilogueTypes {
  using ElementOutput = ElementOutput_;
  using WarpMma = typename Mma::Policy::Operator;
  using ElementAccumulator = typename WarpMma::ElementC;
  static_assert(std::is_same<ElementAccumulator, float>::value ||
                    std::is_same<ElementAccumulator, cutlass::half_t>::value ||
                    std::is_same<ElementAccumulator, int32_t>::value,
                "FP16 is widened to FP32, FP32 and integers of 32 bits stay as they are");
  static constexpr int kPartitionsK = Mma::Shape::kK / WarpMma::Shape::kK;

  using WarpShape = typename WarpMma::Shape;
  static constexpr int kSharing = Mma::Shape::kN / WarpShape::kN * kPartitionsK;
  static constexpr RowSharing kRows =
      row_sharing(Mma::Shape::kN, kSharing, kAlignment, cutlass::sizeof_bits<ElementOutput>::value);
  static_assert(shares_rows(Mma::Shape::kN, kSharing, kRows), "threads leave part of D out");

  /// DefaultThreadMapTensorOp's, but for what `row_sharing` says.
  using ThreadMap = cutlass::epilogue::threadblock::OutputTileOptimalThreadMap<
      cutlass::epilogue::threadblock::OutputTileShape<Mma::Shape::kN, 8,
                                                      Mma::Shape::kM / WarpShape::kM, 1, 1>,
      cutlass::epilogue::threadblock::OutputTileShape<1, WarpShape::kM / 8, 1, 1,
                                                      WarpShape::kM / 8>,
      Mma::Shape::kM / WarpShape::kM * kSharing * 32, kRows.vector, kRows.bits>;
  using OutputTileIterator =
      cutlass::epilogue::threadblock::PredicatedTileIterator<ThreadMap, ElementOutput>;
  using Staging =
      StagingIterators<Mma, ElementOutput, kRows.vector, typename ThreadMap::CompactedThreadMap>;

  using Base = cutlass::epilogue::threadblock::EpilogueBase<
      typename Mma::Shape, typename WarpMma::Shape, kPartitionsK,
      typename Staging::AccumulatorFragmentIterator, typename Staging::WarpTileIterator,
      typename Staging::Padding>;
};

/// What a thread makes of its sums, and how it gets to D. `Graph` is the generated functor:
/// `Graph::Operands` and `float operator()(float accumulator, float operand...)`, where what is an
/// integer is an int.
template <typename Graph, typename OutputTileIterator>
class TileResult {
 public:
  CUTLASS_DEVICE
  TileResult(boltgen_operand const* operands, int batch, OutputTileIterator const& d)
      : operands_(operands, batch, d) {}

  /// Called once in every iteration, before `store`.
  CUTLASS_DEVICE
  void load(OutputTileIterator const& d) { operands_.load(d); }

  template <typename Sums>
  CUTLASS_DEVICE void store(OutputTileIterator& d, Sums const& sums) const {
    using Fragment = typename OutputTileIterator::Fragment;
    using ElementOutput = typename OutputTileIterator::Element;
    Graph const graph;
    using Value = decltype(operands_.apply(graph, sums[0], 0, 0));
    cutlass::Array<Value, Sums::kElements> results;
    CUTLASS_PRAGMA_UNROLL
    for (int v = 0; v < Tile::kVectors; ++v) {
      CUTLASS_PRAGMA_UNROLL
      for (int e = 0; e < Tile::kElements; ++e) {
        int const i = v * Tile::kElements + e;
        results[i] = operands_.apply(graph, sums[i], v, e);
      }
    }
    d.store(cutlass::NumericArrayConverter<ElementOutput, Value, Fragment::kElements>()(results));
  }

 private:
  using Tile = ThreadTile<OutputTileIterator>;

  OperandLoaders<typename Graph::Operands, OutputTileIterator> operands_;
};

/// The epilogue. `kAlignment` is that of D, `Graph` what `TileResult` takes.
template <typename Mma, typename ElementOutput_, int kAlignment, typename Graph>
class GraphEpilogue
    : public EpilogueTypes<Mma, ElementOutput_, kAlignment * Products<Graph>::kCount>::Base {
 public:
  using Types = EpilogueTypes<Mma, ElementOutput_, kAlignment * Products<Graph>::kCount>;
  using Base = typename Types::Base;
  using Shape = typename Mma::Shape;
  using ElementOutput = ElementOutput_;
  using ElementAccumulator = typename Types::ElementAccumulator;
  using OutputTileIterator = typename Types::OutputTileIterator;
  using AccumulatorTile = typename Base::AccumulatorTile;
  using AccumulatorFragmentIterator = typename Types::Staging::AccumulatorFragmentIterator;
  using SharedLoadIterator = typename Types::Staging::SharedLoadIterator;
  using OutputOp = GraphOutputOp<Graph, ElementOutput, ElementAccumulator>;
  using SharedStorage = typename Base::SharedStorage;

  CUTLASS_DEVICE
  GraphEpilogue(SharedStorage& shared_storage, int thread_idx, int warp_idx, int lane_idx)
      : Base(shared_storage, thread_idx, warp_idx, lane_idx),
        shared_load_iterator_(shared_storage.reference(), thread_idx),
        thread_idx_(thread_idx) {}

  /// Applies the graph to the accumulators and stores the result. The last argument is the source
  /// operand of CUTLASS's own epilogues; operands come with `output_op` instead.
  CUTLASS_DEVICE
  void operator()(OutputOp const& output_op, OutputTileIterator d,
                  AccumulatorTile const& accumulators, OutputTileIterator const&) {
    TileResult<Graph, OutputTileIterator> result(output_op.params().operands, output_op.batch(), d);
    Sum* const partials = reinterpret_cast<Sum*>(output_op.params().partials) + partials_offset(d);

    // Unrolling a long graph multiplies its instructions; the loop then costs less than they do.
#pragma unroll(Graph::kIsLong ? 1 : OutputTileIterator::kIterations)
    for (int iteration = 0; iteration < OutputTileIterator::kIterations; ++iteration) {
      if (output_op.is_last_slice()) {
        result.load(d);  // before the barriers, which hide part of the latency
      }
      Sums sums = stage(accumulators, iteration);
      Sum* const partials_here = partials + iteration * kPartialsPerIteration;
      if (!output_op.is_first_slice()) {
        add_partials(sums, partials_here);
      }
      if (output_op.is_last_slice()) {
        result.store(d, sums);
      } else {
        store_partials(sums, partials_here);
      }
      ++d;
    }
  }

 private:
  using Tile = ThreadTile<OutputTileIterator>;
  using Fragment = typename OutputTileIterator::Fragment;

  /// The thread's sums over K, of one iteration; of integers they are exact.
  using Sum = typename Computed<ElementAccumulator>::Type;
  using Sums = cutlass::Array<Sum, Fragment::kElements>;

  static constexpr int kPartialWidth =
      Sums::kElements % 4 == 0 ? 4 : (Sums::kElements % 2 == 0 ? 2 : 1);
  using PartialVector = cutlass::AlignedArray<Sum, kPartialWidth>;
  static constexpr int kPartialVectors = Sums::kElements / kPartialWidth;
  static constexpr int kThreads = OutputTileIterator::kThreads;
  static constexpr int kPartialsPerIteration = kThreads * Sums::kElements;

 public:
  /// Floats of split-K workspace for each threadblock tile.
  static constexpr int kPartialsPerTile = OutputTileIterator::kIterations * kPartialsPerIteration;

 private:
  /// Where this tile's partial sums begin. They are never read by another thread, so they lie in
  /// the order of threads, which is coalesced and needs no predicates at ragged edges.
  CUTLASS_DEVICE
  static int64_t partials_offset(OutputTileIterator const& d) {
    int const tiles_m = (d.extent_row() + Shape::kM - 1) / Shape::kM;
    int const tile_m = d.thread_start_row() / Shape::kM;
    int const tile_n = d.thread_start_column() / Shape::kN;
    return (int64_t(tile_n) * tiles_m + tile_m) * kPartialsPerTile;
  }

  CUTLASS_DEVICE
  PartialVector* partial_vector(Sum* partials, int index) const {
    return reinterpret_cast<PartialVector*>(partials) + index * kThreads + thread_idx_;
  }

  /// Adds the sums of the slices before this one. The kernel's semaphore has ordered them.
  CUTLASS_DEVICE
  void add_partials(Sums& sums, Sum* partials) const {
    CUTLASS_PRAGMA_UNROLL
    for (int v = 0; v < kPartialVectors; ++v) {
      PartialVector const before = *partial_vector(partials, v);
      CUTLASS_PRAGMA_UNROLL
      for (int e = 0; e < kPartialWidth; ++e) {
        sums[v * kPartialWidth + e] += before[e];
      }
    }
  }

  CUTLASS_DEVICE
  void store_partials(Sums const& sums, Sum* partials) const {
    CUTLASS_PRAGMA_UNROLL
    for (int v = 0; v < kPartialVectors; ++v) {
      PartialVector vector;
      CUTLASS_PRAGMA_UNROLL
      for (int e = 0; e < kPartialWidth; ++e) {
        vector[e] = sums[v * kPartialWidth + e];
      }
      *partial_vector(partials, v) = vector;
    }
  }

  /// Rearranges one iteration's accumulators into the order of the output, through shared memory,
  /// and adds up the warps that share a tile (sliced K).
  CUTLASS_DEVICE
  Sums stage(AccumulatorTile const& accumulators, int iteration) {
    __syncthreads();
    store_fragment(accumulators, iteration,
                   std::make_index_sequence<OutputTileIterator::kIterations>());
    __syncthreads();

    constexpr int kOffset = SharedStorage::StorageShape::kCount / Base::kPartitionsK;
    Sums sums;
    sums.clear();
    CUTLASS_PRAGMA_UNROLL
    for (int partition = 0; partition < Base::kPartitionsK; ++partition) {
      typename SharedLoadIterator::Fragment staged;
      shared_load_iterator_.load(staged);
      shared_load_iterator_.add_pointer_offset(kOffset);
      CUTLASS_PRAGMA_UNROLL
      for (int e = 0; e < Sums::kElements; ++e) {
        sums[e] = partition == 0 ? Sum(staged[e]) : sums[e] + Sum(staged[e]);
      }
    }
    shared_load_iterator_.add_pointer_offset(-Base::kPartitionsK * kOffset);
    return sums;
  }

  /// Accumulators live in registers, which cannot be indexed by a variable: one case for each
  /// iteration, of which an unrolled loop keeps one.
  template <size_t... kIteration>
  CUTLASS_DEVICE void store_fragment(AccumulatorTile const& accumulators, int iteration,
                                     std::index_sequence<kIteration...>) {
    ((iteration == int(kIteration) ? store_fragment<kIteration>(accumulators) : void()), ...);
  }

  template <size_t kIteration>
  CUTLASS_DEVICE void store_fragment(AccumulatorTile const& accumulators) {
    AccumulatorFragmentIterator iterator(accumulators);
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < int(kIteration); ++i) {
      ++iterator;
    }
    typename AccumulatorFragmentIterator::Fragment fragment;
    iterator.load(fragment);
    this->warp_tile_iterator_.store(fragment);
  }

  static_assert(SharedLoadIterator::Fragment::kElements == Fragment::kElements,
                "shared memory and the output are read in the same vectors");
  static_assert(Tile::kVectors * Tile::kElements == Fragment::kElements,
                "vectors and elements of a fragment");
  static_assert(Products<Graph>::kCount == 1 || Types::kRows.vector == 2 * kAlignment,
                "a vector has a run of each product");

  SharedLoadIterator shared_load_iterator_;
  int thread_idx_;
};

}  // namespace boltgen
