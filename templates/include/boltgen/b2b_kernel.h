// Chains of products in one kernel, on the device: a threadblock computes all columns of every
// layer for its rows, so what lies between two layers never leaves it.
//
// The first layer runs in CUTLASS's mainloop, of a GEMM or of a convolution. Its accumulators pass
// the layer's epilogue in registers and become, in FP16, the next layer's A: in shared memory, from
// where every warp may read all columns, or in the registers of the warp, which then has to hold
// all columns itself. One buffer in shared memory is enough for any number of layers, since a
// layer's accumulators are all in registers when it is overwritten.
//
// Source: Xing et al., Bolt, MLSys 2022, section 3.1 (threadblock, RF and shared-memory residence).

#pragma once

#include <tuple>

#include "boltgen/b2b_check.h"
#include "boltgen/b2b_layer.h"
#include "boltgen/epilogue_graph.h"
#include "boltgen/launch.h"

namespace boltgen {

/// Where what lies between two layers is kept.
enum class Residence { kRegisters, kSharedMemory };

/// What the first layer of a chain tells of itself, as `InnerLayer` does of the others.
template <typename Mma_, typename Graph_, int kAlignmentD_>
struct FirstLayer {
  using Mma = Mma_;
  using Graph = Graph_;
  using Shape = typename Mma::Shape;
  using WarpMma = typename Mma::Policy::Operator;
  using FragmentC = typename Mma::FragmentC;
  using SharedStorage = typename Mma::SharedStorage;

  static constexpr int kAlignmentD = kAlignmentD_;
  static constexpr int kWarpsM = Mma::WarpCount::kM;
  static constexpr int kWarps = Mma::WarpCount::kCount;
  static_assert(Mma::WarpCount::kK == 1, "a warp has all of K of its accumulators");
};

/// A chain. `First` is a `GemmFirst` or a `Conv2dFirst`, `Inner` are the `InnerLayer`s after it.
template <Residence kResidence, typename ElementD_, typename First_, typename... Inner>
struct Chain {
  using First = First_;
  using ElementD = ElementD_;
  using Element = cutlass::half_t;
  using Layers = std::tuple<First, Inner...>;

  template <int kLayer>
  using Layer = std::tuple_element_t<kLayer, Layers>;

  static constexpr int kLayers = 1 + int(sizeof...(Inner));
  using Last = Layer<kLayers - 1>;
  static constexpr int kM = First::Shape::kM;
  static constexpr int kThreadCount = 32 * First::kWarps;
  static constexpr int kAlignmentD = Last::kAlignmentD;
  static constexpr bool kInRegisters = kResidence == Residence::kRegisters;

  static_assert(kLayers >= 2 && kLayers <= BOLTGEN_MAX_LAYERS);
  static_assert(((Inner::kWarps == First::kWarps && Inner::Shape::kM == kM) && ...),
                "all layers share the threadblock and its rows");
  static_assert(!kInRegisters || (First::kWarpsM == First::kWarps &&
                                  ((Inner::kWarpsM == First::kWarpsM) && ...)),
                "in registers, a warp holds all columns of its rows");

  /// What the last epilogue derives its types from.
  struct LastMma {
    using Shape = cutlass::gemm::GemmShape<kM, Last::Shape::kN, Last::WarpMma::Shape::kK>;
    struct Policy {
      using Operator = typename Last::WarpMma;
    };
  };
  using Epilogue = GraphEpilogue<LastMma, ElementD, kAlignmentD, typename Last::Graph>;
  using OutputOp = typename Epilogue::OutputOp;
  using OutputTileIterator = typename Epilogue::OutputTileIterator;

  struct Params {
    typename First::Params first;
    cutlass::gemm::GemmCoord grid_tiled_shape;  ///< along M; one; the products of a batch
    int rows;
    boltgen_chain_layer layers[kLayers];
    typename OutputTileIterator::Params d;
    ElementD* pointer_d;
    int64_t batch_stride_d;
    typename OutputOp::Params output_op;
  };

  /// The output of a layer that is not the last.
  template <int kLayer>
  using Intermediate = SwizzledTile<kM, Layer<kLayer>::Shape::kN>;

  template <int... kLayer>
  static constexpr int widest_intermediate(std::integer_sequence<int, kLayer...>) {
    int widest = 0;
    ((widest = Intermediate<kLayer>::kElements > widest ? Intermediate<kLayer>::kElements : widest),
     ...);
    return widest;
  }

  static constexpr int kIntermediateElements =
      kInRegisters ? 8 : widest_intermediate(std::make_integer_sequence<int, kLayers - 1>());

  static constexpr int most_tile_elements() {
    int most = 0;
    ((most = Inner::kTileElements * Inner::kStages > most ? Inner::kTileElements * Inner::kStages
                                                          : most),
     ...);
    return most;
  }

  union Tiles {
    typename First::SharedStorage first;
    alignas(16) Element inner[most_tile_elements()];
  };

  struct Working {
    Tiles tiles;
    alignas(16) Element intermediate[kIntermediateElements];
  };

  union SharedStorage {
    Working working;
    typename Epilogue::SharedStorage epilogue;
  };

  CUTLASS_DEVICE
  void operator()(Params const& params, SharedStorage& shared) {
    // The same in all threads of a warp, and known to be by the compiler.
    int const warp = cutlass::canonical_warp_idx_sync();
    Block const block{
        params,         shared, int(threadIdx.x), warp, int(threadIdx.x) % 32, int(blockIdx.x) * kM,
        int(blockIdx.z)};
    typename First::FragmentC accumulators;
    accumulators.clear();
    First::multiply(params.first, params.layers[0], shared.working.tiles.first, accumulators,
                    block.first_row, block.batch, block.thread, warp, block.lane);
    continue_from<0>(block, accumulators);
  }

 private:
  struct Block {
    Params const& params;
    SharedStorage& shared;
    int thread;
    int warp;
    int lane;
    int first_row;
    int batch;

    /// First row and column of the warp in the threadblock's tile of a layer.
    template <int kLayer>
    CUTLASS_DEVICE int warp_row() const {
      return warp % Layer<kLayer>::kWarpsM * Layer<kLayer>::WarpMma::Shape::kM;
    }
    template <int kLayer>
    CUTLASS_DEVICE int warp_column() const {
      return warp / Layer<kLayer>::kWarpsM * Layer<kLayer>::WarpMma::Shape::kN;
    }
  };

  /// What remains to be done with the accumulators of a layer.
  template <int kLayer>
  CUTLASS_DEVICE static void continue_from(Block const& block,
                                           typename Layer<kLayer>::FragmentC const& accumulators) {
    if constexpr (kLayer + 1 == kLayers) {
      store(block, accumulators);
    } else {
      using Next = Layer<kLayer + 1>;
      // No warp reads the tiles or the intermediate any more.
      __syncthreads();
      Next next(block.params.layers[kLayer + 1], block.params.layers[kLayer].n, block.batch,
                block.shared.working.tiles.inner, block.thread);
      next.prologue();
      typename Next::FragmentC sums;
      sums.clear();
      if constexpr (kInRegisters) {
        through_registers<kLayer>(block, accumulators, next, sums);
      } else {
        through_shared_memory<kLayer>(block, accumulators, next, sums);
      }
      continue_from<kLayer + 1>(block, sums);
    }
  }

  template <int kLayer, typename Sink>
  CUTLASS_DEVICE static void apply_epilogue(Block const& block,
                                            typename Layer<kLayer>::FragmentC const& accumulators,
                                            Sink&& sink) {
    using This = Layer<kLayer>;
    auto const& layer = block.params.layers[kLayer];
    using Iterations = typename This::WarpMma::MmaIterations;
    inner_epilogue<typename This::Graph, (This::kAlignmentD > 1), Iterations::kRow,
                   Iterations::kColumn>(
        accumulators, layer.operands, block.batch,
        block.first_row + block.template warp_row<kLayer>() + block.lane / 4, block.params.rows,
        block.template warp_column<kLayer>() + block.lane % 4 * 2, layer.n, sink);
  }

  template <int kLayer, typename Next>
  CUTLASS_DEVICE static void through_shared_memory(
      Block const& block, typename Layer<kLayer>::FragmentC const& accumulators, Next& next,
      typename Next::FragmentC& sums) {
    using Tile = Intermediate<kLayer>;
    using Pair = cutlass::Array<Element, 2>;
    Element* const tile = block.shared.working.intermediate;
    int const row = block.template warp_row<kLayer>() + block.lane / 4;
    int const vector = block.template warp_column<kLayer>() / 8;
    int const in_vector = block.lane % 4 * 2;
    apply_epilogue<kLayer>(block, accumulators, [&](int m, int n, int half, auto const& pair) {
      int const offset = Tile::offset(row + 16 * m + 8 * half, vector + n);
      *reinterpret_cast<Pair*>(tile + offset + in_vector) = to_halves(pair);
    });
    using Group = KGroup<typename Next::WarpMma>;
    int const next_row = block.template warp_row<kLayer + 1>();
    next.multiply(sums, block.template warp_column<kLayer + 1>(), block.lane,
                  [&](typename Group::FragmentA& a, int column) {
                    Group::template load_a<Tile>(a, tile, next_row, column, block.lane);
                  });
  }

  template <int kLayer, typename Next>
  CUTLASS_DEVICE static void through_registers(
      Block const& block, typename Layer<kLayer>::FragmentC const& accumulators, Next& next,
      typename Next::FragmentC& sums) {
    using Pair = cutlass::Array<Element, 2>;
    using Group = KGroup<typename Next::WarpMma>;
    constexpr int kN = Layer<kLayer>::Shape::kN;
    static_assert(kN % Next::Shape::kK == 0, "whole steps of the next layer's K");
    typename Group::FragmentA a[kN / 16];
    apply_epilogue<kLayer>(block, accumulators, [&](int m, int n, int half, auto const& pair) {
      Pair const halves = to_halves(pair);
      a[n / 2][m][n % 2 * 2 + half] = reinterpret_cast<unsigned const&>(halves);
    });
    next.template multiply<kN / Next::Shape::kK>(
        sums, block.template warp_column<kLayer + 1>(), block.lane,
        [&](typename Group::FragmentA& fragment, int column) {
          CUTLASS_PRAGMA_UNROLL
          for (int m = 0; m < Group::kM; ++m) {
            fragment[m] = a[column / 16][m];
          }
        });
  }

  CUTLASS_DEVICE
  static void store(Block const& block, typename Last::FragmentC const& accumulators) {
    Params const& params = block.params;
    OutputTileIterator const d(params.d, params.pointer_d + block.batch * params.batch_stride_d,
                               {params.rows, params.layers[kLayers - 1].n}, block.thread,
                               {block.first_row, 0});
    OutputOp const output_op(params.output_op);
    Epilogue epilogue(block.shared.epilogue, block.thread, block.warp, block.lane);
    epilogue(output_op, d, accumulators, d);
  }
};

/// The parameters that do not depend on what the first layer is.
template <typename Kernel>
typename Kernel::Params chain_params(int rows, int batch, boltgen_chain_layer const* layers,
                                     void* d, int64_t ldd, int64_t batch_stride_d) {
  typename Kernel::Params params{};
  params.grid_tiled_shape = {(rows + Kernel::kM - 1) / Kernel::kM, 1, batch};
  params.rows = rows;
  for (int i = 0; i < Kernel::kLayers; ++i) {
    params.layers[i] = layers[i];
  }
  params.d = cutlass::layout::RowMajor(ldd);
  params.pointer_d = static_cast<typename Kernel::ElementD*>(d);
  params.batch_stride_d = batch_stride_d;
  boltgen_chain_layer const& last = layers[Kernel::kLayers - 1];
  for (int i = 0; i < Kernel::Last::Graph::Operands::kCount; ++i) {
    params.output_op.operands[i] = last.operands[i];
  }
  params.output_op.batched = true;
  return params;
}

/// Enqueues a chain whose arguments were checked. It needs no workspace.
template <typename Kernel>
int launch_chain(void (*kernel)(typename Kernel::Params), typename Kernel::Params const& params,
                 void* stream, boltgen_status* status) {
  auto const tiles = params.grid_tiled_shape;
  dim3 const grid(tiles.m(), tiles.n(), tiles.k());
  return launch<Kernel>(kernel, params, grid, SplitWorkspace(0, 1, 0), nullptr, stream, status);
}

}  // namespace boltgen
