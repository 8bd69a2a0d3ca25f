// Chains of products on sm_90a, on the device: a threadblock computes all columns of every layer
// for its rows, so what lies between two layers never leaves it.
//
// One thread of the first warpgroup brings A and the B of every layer by TMA, through one ring of
// stages that goes on from layer to layer and from tile to tile. The other warpgroups multiply 64
// rows each by wgmma. Accumulators pass the layer's epilogue in registers. Where warpgroups lie
// below each other, each holds all columns of its rows, and what comes out is the A of the next
// wgmma in the same registers: an accumulator's layout is that of A's fragments, 16 columns of it
// one fragment (PTX ISA, wgmma register fragments). Where two lie side by side, each holds half of
// the columns, and the next layer's A is in shared memory.
//
// Threadblocks are persistent, one to a multiprocessor: the next tile's first stages are loaded
// while the last layer is stored.
//
// Source: Xing et al., Bolt, MLSys 2022, section 3.1; the division of labour between warpgroups is
// that of CUTLASS's cooperative kernels, cutlass/gemm/kernel/sm90_gemm_tma_warpspecialized_*.hpp.

#pragma once

#include <cuda_runtime_api.h>
#include <cutlass/arch/barrier.h>
#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/cutlass.h>
#include <cute/tensor.hpp>
#include <cutlass/pipeline/sm90_pipeline.hpp>

#include <tuple>
#include <utility>

#include "boltgen/b2b_sm90_tiles.h"
#include "boltgen/b2b_sm90_warpgroup.h"
#include "boltgen/persistent_sm90.h"

namespace boltgen {

/// A chain. `First` brings the first layer's operands; `Layer_` are `LayerSm90`s. There are
/// `kAlongM` warpgroups below each other, or `kAlongN` side by side.
template <template <typename Layer, int kM, int kColumns> class First_, int kAlongM, int kAlongN_,
          int kStages, typename ElementD_, typename... Layer_>
struct ChainSm90 {
  using Element = sm90::Element;
  using ElementD = ElementD_;
  using Layers = std::tuple<Layer_...>;

  template <int kLayer>
  using Layer = std::tuple_element_t<kLayer, Layers>;

  static constexpr int kLayers = int(sizeof...(Layer_));
  static constexpr int kAlongN = kAlongN_;
  static constexpr bool kInRegisters = kAlongN == 1;
  static constexpr int kM = sm90::kWarpgroupM * kAlongM;
  static constexpr int kWarpgroups = kAlongM * kAlongN;
  static constexpr int kMathThreads = sm90::kWarpgroup * kWarpgroups;
  static constexpr int kThreadCount = sm90::kWarpgroup + kMathThreads;
  static constexpr int kAlignmentD = Layer<kLayers - 1>::kAlignmentD;

  static_assert(kLayers >= 2 && kLayers <= BOLTGEN_MAX_LAYERS);
  static_assert(kAlongM == 1 || kAlongN == 1, "four would have too few registers each");

  static constexpr int kBlocksOfStep = sm90::kDepth / sm90::kInstructionK;

  /// A layer as one warpgroup computes it. Along K a later layer has `kBlocks` fragments of A.
  template <int kLayer>
  struct Tiling {
    using Before = Layer<(kLayer > 0 ? kLayer - 1 : 0)>;

    static constexpr int kColumns = Layer<kLayer>::Shape::kN / kAlongN;
    static constexpr int kBlocks = Before::Shape::kN / sm90::kInstructionK;
    static constexpr int kSteps = (kBlocks + kBlocksOfStep - 1) / kBlocksOfStep;
    static constexpr auto kMajorB = Layer<kLayer>::kMajorB;

    using LoadB = sm90::MatrixLoad<kMajorB, kColumns>;
    using TileB = sm90::SharedTile<kMajorB, kColumns>;
    using Extent = cute::Shape<cute::Int<sm90::kWarpgroupM>, cute::Int<kColumns>>;

    static constexpr auto instruction() {
      using Tile = decltype(cute::append(Extent(), cute::Int<sm90::kInstructionK>()));
      if constexpr (kLayer > 0 && kInRegisters) {
        return cute::GMMA::rs_op_selector<Element, Element, float, Tile, sm90::Major::K, kMajorB>();
      } else {
        return cute::GMMA::ss_op_selector<Element, Element, float, Tile, sm90::Major::K, kMajorB>();
      }
    }
  };

  template <int kLayer>
  using TiledMma = decltype(cute::make_tiled_mma(Tiling<kLayer>::instruction()));
  template <int kLayer>
  using Sums =
      decltype(cute::partition_fragment_C(TiledMma<kLayer>(), typename Tiling<kLayer>::Extent()));

  using First = First_<Layer<0>, kM, Tiling<0>::kColumns>;

  static constexpr int kMostColumns = [] {
    int most = 0;
    ((most = Layer_::Shape::kN > most ? Layer_::Shape::kN : most), ...);
    return most;
  }();
  static constexpr int kIntermediateColumns = [] {
    int const columns[] = {Layer_::Shape::kN...};
    int most = 0;
    for (int i = 0; i + 1 < kLayers; ++i) {
      most = columns[i] > most ? columns[i] : most;
    }
    return kInRegisters ? 0 : most;
  }();

  using Ring = cutlass::PipelineState<kStages>;

  /// A step of the first layer's A, and of any layer's B. Swizzles repeat after 1024 bytes.
  struct Stage {
    alignas(1024) Element a[kM * sm90::kDepth];
    alignas(1024) Element b[kMostColumns * sm90::kDepth];
  };

  struct SharedStorage {
    Stage stages[kStages];
    /// An array has at least one element, which here is a swizzle's 1024 bytes.
    alignas(1024) Element
        intermediate[sm90::kWarpgroupM * (kInRegisters ? 8 : kIntermediateColumns)];
    cutlass::arch::ClusterTransactionBarrier full[kStages];
    cutlass::arch::ClusterBarrier empty[kStages];
  };

  template <typename Sequence>
  struct LoadsOf;

  template <int... kLayer>
  struct LoadsOf<std::integer_sequence<int, kLayer...>> {
    using Type = cute::tuple<typename Tiling<kLayer + 1>::LoadB...>;
  };

  struct Params {
    First first;
    typename LoadsOf<std::make_integer_sequence<int, kLayers - 1>>::Type loads;  ///< from layer 1
    int rows;
    int row_tiles;
    int tiles;  ///< of all products of the batch
    boltgen_chain_layer layers[kLayers];
    ElementD* d;
    int64_t ldd;
    int64_t batch_stride_d;
  };

  CUTLASS_DEVICE
  void operator()(Params const& params, SharedStorage& shared) {
    // The same in all threads of a warp, and known to be by the compiler.
    int const warpgroup = cutlass::canonical_warp_group_idx();
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < kStages; ++stage) {
        shared.full[stage].init(1);
        shared.empty[stage].init(kMathThreads / 32);
      }
      cutlass::arch::fence_barrier_init();
    }
    __syncthreads();
    wait_for_earlier_kernels();
    // Each thread of two warpgroups has as many registers as there can be.
    constexpr bool kMovesRegisters = kWarpgroups > 1;
    if (warpgroup == 0) {
      if constexpr (kMovesRegisters) {
        cutlass::arch::warpgroup_reg_dealloc<sm90::kLoadRegisters>();
      }
      if (threadIdx.x == 0) {
        load(params, shared);
      }
    } else {
      if constexpr (kMovesRegisters) {
        cutlass::arch::warpgroup_reg_alloc<sm90::kMathRegisters>();
      }
      ChainWarpgroup<ChainSm90>(params, shared, warpgroup - 1).multiply();
    }
  }

 private:
  CUTLASS_DEVICE
  static void load(Params const& params, SharedStorage& shared) {
    Ring ring(/*index=*/0, /*phase=*/1, /*count=*/0);  // a fresh barrier's phase before is over
    for (int tile = blockIdx.x; tile < params.tiles; tile += gridDim.x) {
      int const row_tile = tile % params.row_tiles, batch = tile / params.row_tiles;
      for (int step = 0; step < params.first.steps; ++step, ++ring) {
        Stage& stage = shared.stages[ring.index()];
        uint64_t& full = acquire(shared, ring, First::kBytesA + kAlongN * First::kBytesB);
        params.first.load_a(stage.a, full, row_tile, step, batch);
        CUTLASS_PRAGMA_UNROLL
        for (int side = 0; side < kAlongN; ++side) {
          params.first.load_b(stage.b + side * Tiling<0>::kColumns * sm90::kDepth, full, side, step,
                              batch);
        }
      }
      load_inner(params, shared, ring, batch, std::make_integer_sequence<int, kLayers - 1>());
    }
  }

  template <int... kLayer>
  CUTLASS_DEVICE static void load_inner(Params const& params, SharedStorage& shared, Ring& ring,
                                        int batch, std::integer_sequence<int, kLayer...>) {
    (load_layer<kLayer + 1>(params, shared, ring, batch), ...);
  }

  template <int kLayer>
  CUTLASS_DEVICE static void load_layer(Params const& params, SharedStorage& shared, Ring& ring,
                                        int batch) {
    auto const& load = cute::get<kLayer - 1>(params.loads);
    for (int step = 0; step < Tiling<kLayer>::kSteps; ++step, ++ring) {
      Stage& stage = shared.stages[ring.index()];
      uint64_t& full = acquire(shared, ring, kAlongN * load.kBytes);
      CUTLASS_PRAGMA_UNROLL
      for (int side = 0; side < kAlongN; ++side) {
        load(stage.b + side * Tiling<kLayer>::kColumns * sm90::kDepth, full, side, step, batch);
      }
    }
  }

  /// The barrier of the ring's stage, which is free, and then expects so many bytes.
  CUTLASS_DEVICE
  static uint64_t& acquire(SharedStorage& shared, Ring const& ring, uint32_t bytes) {
    shared.empty[ring.index()].wait(ring.phase());
    auto& full = shared.full[ring.index()];
    full.arrive_and_expect_tx(bytes);
    return reinterpret_cast<uint64_t&>(full);
  }
};

/// The parameters that do not depend on what the first layer is.
template <typename Kernel>
void set_chain_sm90(typename Kernel::Params& params, int rows, int batch,
                    boltgen_chain_layer const* layers, void* d, int64_t ldd,
                    int64_t batch_stride_d) {
  params.rows = rows;
  params.row_tiles = (rows + Kernel::kM - 1) / Kernel::kM;
  params.tiles = params.row_tiles * batch;
  params.d = static_cast<typename Kernel::ElementD*>(d);
  params.ldd = ldd;
  params.batch_stride_d = batch_stride_d;
  for (int i = 0; i < Kernel::kLayers; ++i) {
    params.layers[i] = layers[i];
  }
  boltgen_chain_layer const* layer = layers;
  cute::for_each(params.loads, [&](auto& load) {
    int const k = layer->n;
    ++layer;
    load = load.of(layer->b, {layer->n, k, batch}, layer->ldb, layer->batch_stride_b);
  });
}

}  // namespace boltgen
