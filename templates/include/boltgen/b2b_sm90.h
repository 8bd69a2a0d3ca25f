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
#include <cutlass/arch/memory.h>
#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/cutlass.h>
#include <cute/tensor.hpp>
#include <cutlass/gemm/collective/builders/sm90_common.inl>
#include <cutlass/pipeline/sm90_pipeline.hpp>

#include <tuple>
#include <type_traits>
#include <utility>

#include "boltgen/b2b_epilogue.h"
#include "boltgen/launch.h"

namespace boltgen {
namespace sm90 {

using Element = cutlass::half_t;
using Major = cute::GMMA::Major;

constexpr int kWarpgroup = 128;
/// Rows of one wgmma, and its step along K.
constexpr int kWarpgroupM = 64, kInstructionK = 16;
/// The step of a stage along K: 128 bytes, the widest swizzle of TMA and wgmma.
constexpr int kDepth = 64;
/// Of a thread of three warpgroups that loads, and of one that multiplies: they have 65536.
constexpr int kLoadRegisters = 24, kMathRegisters = 240;

/// A tile in shared memory, of so many rows of A or columns of B, in the widest swizzle.
template <Major kMajor, int kExtent, int kK = kDepth>
using SharedTile = decltype(cute::tile_to_shape(
    cutlass::gemm::collective::detail::ss_smem_selector<kMajor, Element, cute::Int<kExtent>,
                                                        cute::Int<kK>>(),
    cute::Shape<cute::Int<kExtent>, cute::Int<kK>>{},
    cute::conditional_t<kMajor == Major::K, cute::Step<cute::_1, cute::_2>,
                        cute::Step<cute::_2, cute::_1>>{}));

/// Tiles of a matrix of (extent, K), `batch` times, as TMA brings them.
template <Major kMajor, int kExtent>
auto make_load(void const* pointer, cute::Shape<int, int, int> const& shape, int64_t ld,
               int64_t batch_stride) {
  auto const one = cute::_1();
  auto const strides = [&] {
    if constexpr (kMajor == Major::K) {
      return cute::make_stride(ld, one, batch_stride);
    } else {
      return cute::make_stride(one, ld, batch_stride);
    }
  }();
  auto const matrix =
      cute::make_tensor(cute::make_gmem_ptr(static_cast<Element const*>(pointer)), shape, strides);
  return cute::make_tma_copy(cute::SM90_TMA_LOAD(), matrix, SharedTile<kMajor, kExtent>());
}

template <Major kMajor, int kExtent>
struct MatrixLoad {
  using Shape = cute::Shape<int, int, int>;
  using Copy = decltype(make_load<kMajor, kExtent>(nullptr, Shape(), 0, 0));

  static constexpr int kBytes = kExtent * kDepth * int(sizeof(Element));

  Copy copy;
  Shape shape;

  /// Of one product TMA has no use for the batch's stride, which may be anything.
  static MatrixLoad of(void const* pointer, Shape const& shape, int64_t ld, int64_t batch_stride) {
    int64_t const stride = cute::get<2>(shape) > 1 ? batch_stride : 0;
    return {make_load<kMajor, kExtent>(pointer, shape, ld, stride), shape};
  }

  /// What lies beyond the matrix arrives as zeros, and counts as bytes too.
  CUTLASS_DEVICE
  void operator()(Element* shared, uint64_t& barrier, int tile, int step, int batch) const {
    using Tile = cute::Shape<cute::Int<kExtent>, cute::Int<kDepth>>;
    auto const whole = copy.get_tma_tensor(shape)(cute::_, cute::_, batch);
    auto const source = cute::local_tile(whole, Tile(), cute::make_coord(tile, step));
    auto const target =
        cute::make_tensor(cute::make_smem_ptr(shared), SharedTile<kMajor, kExtent>());
    auto const slice = copy.get_slice(0);
    cute::copy(copy.with(barrier), slice.partition_S(source), slice.partition_D(target));
  }
};

}  // namespace sm90

/// A layer of a chain; `kColumns` are those of the threadblock's tile.
template <typename Graph_, typename LayoutB, int kColumns, int kAlignmentD_>
struct LayerSm90 {
  using Graph = Graph_;

  struct Shape {
    static constexpr int kN = kColumns;
  };
  static constexpr int kAlignmentD = kAlignmentD_;
  /// TMA takes nothing below 16 bytes.
  static constexpr int kAlignmentB = 8;
  static constexpr bool kRowMajorB = std::is_same<LayoutB, cutlass::layout::RowMajor>::value;
  static constexpr sm90::Major kMajorB = kRowMajorB ? sm90::Major::MN : sm90::Major::K;
};

/// A chain. `First` brings the first layer's operands; `Layer_` are `LayerSm90`s. There are
/// `kAlongM` warpgroups below each other, or `kAlongN` side by side.
template <template <typename Layer, int kM, int kColumns> class First_, int kAlongM, int kAlongN,
          int kStages, typename ElementD_, typename... Layer_>
struct ChainSm90 {
  using Element = sm90::Element;
  using ElementD = ElementD_;
  using Layers = std::tuple<Layer_...>;

  template <int kLayer>
  using Layer = std::tuple_element_t<kLayer, Layers>;

  static constexpr int kLayers = int(sizeof...(Layer_));
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
      multiply(params, shared, warpgroup - 1);
    }
  }

 private:
  using Ring = cutlass::PipelineState<kStages>;

  // --- the thread that loads -------------------------------------------------------------------

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

  // --- warpgroups that multiply ----------------------------------------------------------------

  struct Warpgroup {
    Params const& params;
    SharedStorage& shared;
    int thread;  ///< in the warpgroup
    int below;   ///< which of those below each other
    int side;    ///< which of those side by side
    Ring filled;
    Ring freed;  ///< follows `filled`
    int first_row;
    int batch;

    /// Frees the stage that has been read longest, once all threads of the warp call.
    CUTLASS_DEVICE
    void release() {
      if (thread % 32 == 0) {
        shared.empty[freed.index()].arrive();
      }
      ++freed;
    }
  };

  CUTLASS_DEVICE
  static void multiply(Params const& params, SharedStorage& shared, int index) {
    Warpgroup group{params,
                    shared,
                    int(threadIdx.x) % sm90::kWarpgroup,
                    index / kAlongN,
                    index % kAlongN,
                    Ring(),
                    Ring(),
                    0,
                    0};
    for (int tile = blockIdx.x; tile < params.tiles; tile += gridDim.x) {
      group.first_row = tile % params.row_tiles * kM + group.below * sm90::kWarpgroupM;
      group.batch = tile / params.row_tiles;
      Sums<0> sums;
      TiledMma<0> mma;
      mma.accumulate_ = cute::GMMA::ScaleOut::Zero;
      for (int step = 0; step < params.first.steps; ++step) {
        using Tile = sm90::SharedTile<sm90::Major::K, sm90::kWarpgroupM>;
        auto const a = fragments_a<Tile>(mma, group.shared.stages[group.filled.index()].a +
                                                  group.below * sm90::kWarpgroupM * sm90::kDepth);
        multiply_step<0, kBlocksOfStep>(group, mma, step > 0, a, 0, sums);
      }
      finish(group, sums);
      continue_from<0>(group, sums);
    }
  }

  /// Descriptors of a tile of A in shared memory.
  template <typename Tile, typename Mma>
  CUTLASS_DEVICE static auto fragments_a(Mma const& mma, Element* shared) {
    auto const slice = mma.get_slice(0);
    auto const tile = cute::make_tensor(cute::make_smem_ptr(shared), Tile());
    return slice.make_fragment_A(slice.partition_A(tile));
  }

  /// Multiplies a stage's B once it is there: `kCount` fragments of A, from the `begin`-th on.
  /// Frees the stage of the step before, if there is one.
  template <int kLayer, int kCount, typename Mma, typename FragmentsA>
  CUTLASS_DEVICE static void multiply_step(Warpgroup& group, Mma& mma, bool is_later,
                                           FragmentsA const& a, int begin, Sums<kLayer>& sums) {
    int const stage = group.filled.index();
    auto const slice = mma.get_slice(0);
    auto const b = slice.make_fragment_B(slice.partition_B(
        cute::make_tensor(cute::make_smem_ptr(group.shared.stages[stage].b +
                                              group.side * Tiling<kLayer>::kColumns * sm90::kDepth),
                          typename Tiling<kLayer>::TileB())));
    group.shared.full[stage].wait(group.filled.phase());
    cute::warpgroup_fence_operand(sums);
    cute::warpgroup_arrive();
    CUTLASS_PRAGMA_UNROLL
    for (int block = 0; block < kCount; ++block) {
      cute::gemm(mma, a(cute::_, cute::_, begin + block), b(cute::_, cute::_, block), sums);
      mma.accumulate_ = cute::GMMA::ScaleOut::One;
    }
    cute::warpgroup_commit_batch();
    cute::warpgroup_wait<1>();
    cute::warpgroup_fence_operand(sums);
    if (is_later) {
      group.release();
    }
    ++group.filled;
  }

  /// Waits for the layer's last step.
  template <typename AnySums>
  CUTLASS_DEVICE static void finish(Warpgroup& group, AnySums& sums) {
    cute::warpgroup_wait<0>();
    cute::warpgroup_fence_operand(sums);
    group.release();
  }

  /// What remains to be done with the accumulators of a layer.
  template <int kLayer>
  CUTLASS_DEVICE static void continue_from(Warpgroup& group, Sums<kLayer> const& sums) {
    if constexpr (kLayer + 1 == kLayers) {
      store(group, sums);
    } else {
      Sums<kLayer + 1> next;
      if constexpr (kInRegisters) {
        through_registers<kLayer>(group, sums, next);
      } else {
        through_shared_memory<kLayer>(group, sums, next);
      }
      continue_from<kLayer + 1>(group, next);
    }
  }

  /// Applies the layer's epilogue: see `inner_epilogue`, whose fragments of 16 rows are a warp's.
  /// `column` is `first_column`'s.
  template <int kLayer, typename Sink>
  CUTLASS_DEVICE static void apply_epilogue(Warpgroup const& group, Sums<kLayer> const& sums,
                                            int column, Sink&& sink) {
    using This = Layer<kLayer>;
    auto const& layer = group.params.layers[kLayer];
    inner_epilogue<typename This::Graph, (This::kAlignmentD > 1), 1, Tiling<kLayer>::kColumns / 8>(
        sums, layer.operands, group.batch, group.first_row + row_in_tile(group), group.params.rows,
        column, layer.n, [&](int m, int n, int half, auto const& pair) {
          sink(m, n, half, pair);
          if (half == 1 && n % 4 == 3) {
            // Or ptxas loads operands of all columns ahead, into registers that there are not.
            __syncwarp();
          }
        });
  }

  /// The first of the thread's columns in the layer's tile.
  template <int kLayer>
  CUTLASS_DEVICE static int first_column(Warpgroup const& group) {
    int column = group.side * Tiling<kLayer>::kColumns + group.thread % 4 * 2;
    // Or the compiler keeps what follows from it for each column in registers, from tile to tile.
    asm volatile("" : "+r"(column));
    return column;
  }

  /// The first of the thread's rows among the warpgroup's.
  CUTLASS_DEVICE
  static int row_in_tile(Warpgroup const& group) {
    return group.thread / 32 * 16 + group.thread % 32 / 4;
  }

  template <int kLayer>
  CUTLASS_DEVICE static void through_registers(Warpgroup& group, Sums<kLayer> const& sums,
                                               Sums<kLayer + 1>& next) {
    using Fragment = cute::Shape<cute::_2, cute::_2, cute::_2>;
    auto a = cute::make_tensor<Element>(
        cute::Shape<Fragment, cute::_1, cute::Int<Tiling<kLayer + 1>::kBlocks>>());
    int const column = first_column<kLayer>(group);
    apply_epilogue<kLayer>(group, sums, column, [&](int, int n, int half, auto const& pair) {
      auto const halves = to_halves(pair);
      a(4 * n + 2 * half) = halves[0];
      a(4 * n + 2 * half + 1) = halves[1];
    });
    cute::warpgroup_fence_operand(a);
    multiply_inner<kLayer + 1>(group, a, next);
    cute::warpgroup_fence_operand(a);
  }

  template <int kLayer>
  CUTLASS_DEVICE static void through_shared_memory(Warpgroup& group, Sums<kLayer> const& sums,
                                                   Sums<kLayer + 1>& next) {
    using Tile = sm90::SharedTile<sm90::Major::K, sm90::kWarpgroupM, Layer<kLayer>::Shape::kN>;
    // Of the swizzle's block, whose vectors are permuted by their row; blocks are all alike.
    constexpr int kBlockColumns = Layer<kLayer>::Shape::kN < 64 ? Layer<kLayer>::Shape::kN : 64;
    constexpr int kColumns = Tiling<kLayer>::kColumns;
    constexpr int kVectors = (kColumns < kBlockColumns ? kColumns : kBlockColumns) / 8;
    constexpr int kRowBytes = kBlockColumns * int(sizeof(Element));
    auto tile = cute::make_tensor(cute::make_smem_ptr(group.shared.intermediate), Tile());
    int const row = row_in_tile(group), column = first_column<kLayer>(group);
    uint32_t addresses[kVectors];
    CUTLASS_PRAGMA_UNROLL
    for (int vector = 0; vector < kVectors; ++vector) {
      addresses[vector] = cute::cast_smem_ptr_to_uint(&tile(row, column + 8 * vector));
    }
    // No warpgroup multiplies what lies there any more.
    cutlass::arch::NamedBarrier::sync(kMathThreads, /*id=*/0);
    apply_epilogue<kLayer>(group, sums, column, [&](int, int n, int half, auto const& pair) {
      auto const halves = to_halves(pair);
      int const block = n / kVectors * sm90::kWarpgroupM * kRowBytes;
      cutlass::arch::shared_store<sizeof(halves)>(
          addresses[n % kVectors] + block + 8 * half * kRowBytes, &halves);
    });
    // What wgmma reads, it reads through the asynchronous proxy.
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::NamedBarrier::sync(kMathThreads, /*id=*/0);
    auto const a = fragments_a<Tile>(TiledMma<kLayer + 1>(), group.shared.intermediate);
    multiply_inner<kLayer + 1>(group, a, next);
  }

  template <int kLayer, typename FragmentsA>
  CUTLASS_DEVICE static void multiply_inner(Warpgroup& group, FragmentsA const& a,
                                            Sums<kLayer>& sums) {
    TiledMma<kLayer> mma;
    mma.accumulate_ = cute::GMMA::ScaleOut::Zero;
    constexpr int kWhole = Tiling<kLayer>::kBlocks / kBlocksOfStep,
                  kRest = Tiling<kLayer>::kBlocks % kBlocksOfStep;
    // Registers cannot be indexed by a variable.
    CUTLASS_PRAGMA_UNROLL
    for (int step = 0; step < kWhole; ++step) {
      multiply_step<kLayer, kBlocksOfStep>(group, mma, step > 0, a, step * kBlocksOfStep, sums);
    }
    if constexpr (kRest > 0) {
      multiply_step<kLayer, kRest>(group, mma, kWhole > 0, a, kWhole * kBlocksOfStep, sums);
    }
    finish(group, sums);
  }

  CUTLASS_DEVICE
  static void store(Warpgroup const& group, Sums<kLayers - 1> const& sums) {
    constexpr int kWidth = kAlignmentD > 1 ? 2 : 1;
    using Vector = cutlass::AlignedArray<ElementD, kWidth>;
    Params const& params = group.params;
    int const columns = params.layers[kLayers - 1].n;
    int const row = group.first_row + row_in_tile(group);
    int const column = first_column<kLayers - 1>(group);
    ElementD* const d = params.d + group.batch * params.batch_stride_d;
    apply_epilogue<kLayers - 1>(group, sums, column, [&](int, int n, int half, auto const& pair) {
      ElementD* const pointer = d + (row + 8 * half) * params.ldd + column + 8 * n;
      CUTLASS_PRAGMA_UNROLL
      for (int e = 0; e < 2; e += kWidth) {
        Vector vector;
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kWidth; ++i) {
          vector[i] = ElementD(pair[e + i]);
        }
        if (row + 8 * half < params.rows && column + 8 * n + e < columns) {
          *reinterpret_cast<Vector*>(pointer + e) = vector;
        }
      }
    });
  }
};

/// The body of every generated `__global__` function.
template <typename Kernel>
__device__ __forceinline__ void chain_main_sm90(typename Kernel::Params const& params) {
  extern __shared__ __align__(1024) unsigned char boltgen_shared_memory_of_chain[];
  Kernel kernel;
  kernel(params,
         *reinterpret_cast<typename Kernel::SharedStorage*>(boltgen_shared_memory_of_chain));
}

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

/// Enqueues a chain whose arguments were checked, a threadblock on every multiprocessor. It needs
/// no workspace.
template <typename Kernel>
int launch_chain_sm90(void (*kernel)(typename Kernel::Params),
                      typename Kernel::Params const& params, void* stream, boltgen_status* status) {
  int device = 0, multiprocessors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  if (error != cudaSuccess) {
    return fail_cuda(status, error, "cannot ask the device for its multiprocessors");
  }
  dim3 const grid(params.tiles < multiprocessors ? params.tiles : multiprocessors);
  return launch<Kernel>(kernel, params, grid, SplitWorkspace(0, 1, 0), nullptr, stream, status);
}

}  // namespace boltgen
