// The warpgroups of a chain on sm_90a that multiply: see b2b_sm90.h.

#pragma once

#include <cutlass/arch/barrier.h>
#include <cutlass/arch/memory.h>
#include <cutlass/cutlass.h>
#include <cute/tensor.hpp>

#include "boltgen/b2b_epilogue.h"
#include "boltgen/b2b_sm90_tiles.h"
#include "boltgen/fragment_store.h"

namespace boltgen {

/// One of the warpgroups of `Kernel`, a `ChainSm90`, with 64 rows of its tiles.
template <typename Kernel>
class ChainWarpgroup {
  using Element = typename Kernel::Element;
  using ElementD = typename Kernel::ElementD;
  using Params = typename Kernel::Params;
  using SharedStorage = typename Kernel::SharedStorage;

  template <int kLayer>
  using Layer = typename Kernel::template Layer<kLayer>;
  template <int kLayer>
  using Tiling = typename Kernel::template Tiling<kLayer>;
  template <int kLayer>
  using TiledMma = typename Kernel::template TiledMma<kLayer>;
  template <int kLayer>
  using Sums = typename Kernel::template Sums<kLayer>;

  static constexpr int kLayers = Kernel::kLayers;
  static constexpr int kBlocksOfStep = Kernel::kBlocksOfStep;

 public:
  /// `index` counts the warpgroups that multiply.
  CUTLASS_DEVICE
  ChainWarpgroup(Params const& params, SharedStorage& shared, int index)
      : params_(params),
        shared_(shared),
        thread_(int(threadIdx.x) % sm90::kWarpgroup),
        below_(index / Kernel::kAlongN),
        side_(index % Kernel::kAlongN) {}

  /// All layers of all tiles of the threadblock.
  CUTLASS_DEVICE
  void multiply() {
    for (int tile = blockIdx.x; tile < params_.tiles; tile += gridDim.x) {
      first_row_ = tile % params_.row_tiles * Kernel::kM + below_ * sm90::kWarpgroupM;
      batch_ = tile / params_.row_tiles;
      Sums<0> sums;
      TiledMma<0> mma;
      mma.accumulate_ = cute::GMMA::ScaleOut::Zero;
      for (int step = 0; step < params_.first.steps; ++step) {
        using Tile = sm90::SharedTile<sm90::Major::K, sm90::kWarpgroupM>;
        auto const a = fragments_a<Tile>(
            mma, shared_.stages[filled_.index()].a + below_ * sm90::kWarpgroupM * sm90::kDepth);
        multiply_step<0, kBlocksOfStep>(mma, step > 0, a, 0, sums);
      }
      finish(sums);
      continue_from<0>(sums);
    }
  }

 private:
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
  CUTLASS_DEVICE void multiply_step(Mma& mma, bool is_later, FragmentsA const& a, int begin,
                                    Sums<kLayer>& sums) {
    int const stage = filled_.index();
    auto const slice = mma.get_slice(0);
    auto const b = slice.make_fragment_B(slice.partition_B(
        cute::make_tensor(cute::make_smem_ptr(shared_.stages[stage].b +
                                              side_ * Tiling<kLayer>::kColumns * sm90::kDepth),
                          typename Tiling<kLayer>::TileB())));
    shared_.full[stage].wait(filled_.phase());
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
      release();
    }
    ++filled_;
  }

  /// Waits for the layer's last step.
  template <typename AnySums>
  CUTLASS_DEVICE void finish(AnySums& sums) {
    cute::warpgroup_wait<0>();
    cute::warpgroup_fence_operand(sums);
    release();
  }

  /// What remains to be done with the accumulators of a layer.
  template <int kLayer>
  CUTLASS_DEVICE void continue_from(Sums<kLayer> const& sums) {
    if constexpr (kLayer + 1 == kLayers) {
      store(sums);
    } else {
      Sums<kLayer + 1> next;
      if constexpr (Kernel::kInRegisters) {
        through_registers<kLayer>(sums, next);
      } else {
        through_shared_memory<kLayer>(sums, next);
      }
      continue_from<kLayer + 1>(next);
    }
  }

  /// Applies the layer's epilogue: see `inner_epilogue`, whose fragments of 16 rows are a warp's.
  /// `column` is `first_column`'s.
  template <int kLayer, typename Sink>
  CUTLASS_DEVICE void apply_epilogue(Sums<kLayer> const& sums, int column, Sink&& sink) {
    using This = Layer<kLayer>;
    auto const& layer = params_.layers[kLayer];
    inner_epilogue<typename This::Graph, (This::kAlignmentD > 1), 1, Tiling<kLayer>::kColumns / 8>(
        sums, layer.operands, batch_, first_row_ + row_in_tile(), params_.rows, column, layer.n,
        [&](int m, int n, int half, auto const& pair) {
          sink(m, n, half, pair);
          if (half == 1 && n % 4 == 3) {
            // Otherwise ptxas loads the operands of all columns ahead, and runs out of registers.
            __syncwarp();
          }
        });
  }

  /// The first of the thread's columns in the layer's tile.
  template <int kLayer>
  CUTLASS_DEVICE int first_column() const {
    int column = side_ * Tiling<kLayer>::kColumns + thread_ % 4 * 2;
    // Or the compiler keeps what follows from it for each column in registers, from tile to tile.
    asm volatile("" : "+r"(column));
    return column;
  }

  /// The first of the thread's rows among the warpgroup's.
  CUTLASS_DEVICE
  int row_in_tile() const { return thread_ / 32 * 16 + thread_ % 32 / 4; }

  template <int kLayer>
  CUTLASS_DEVICE void through_registers(Sums<kLayer> const& sums, Sums<kLayer + 1>& next) {
    using Fragment = cute::Shape<cute::_2, cute::_2, cute::_2>;
    auto a = cute::make_tensor<Element>(
        cute::Shape<Fragment, cute::_1, cute::Int<Tiling<kLayer + 1>::kBlocks>>());
    int const column = first_column<kLayer>();
    apply_epilogue<kLayer>(sums, column, [&](int, int n, int half, auto const& pair) {
      auto const halves = to_halves(pair);
      a(4 * n + 2 * half) = halves[0];
      a(4 * n + 2 * half + 1) = halves[1];
    });
    cute::warpgroup_fence_operand(a);
    multiply_inner<kLayer + 1>(a, next);
    cute::warpgroup_fence_operand(a);
  }

  template <int kLayer>
  CUTLASS_DEVICE void through_shared_memory(Sums<kLayer> const& sums, Sums<kLayer + 1>& next) {
    using Tile = sm90::SharedTile<sm90::Major::K, sm90::kWarpgroupM, Layer<kLayer>::Shape::kN>;
    // Of the swizzle's block, whose vectors are permuted by their row; blocks are all alike.
    constexpr int kBlockColumns = Layer<kLayer>::Shape::kN < 64 ? Layer<kLayer>::Shape::kN : 64;
    constexpr int kColumns = Tiling<kLayer>::kColumns;
    constexpr int kVectors = (kColumns < kBlockColumns ? kColumns : kBlockColumns) / 8;
    constexpr int kRowBytes = kBlockColumns * int(sizeof(Element));
    auto tile = cute::make_tensor(cute::make_smem_ptr(shared_.intermediate), Tile());
    int const row = row_in_tile(), column = first_column<kLayer>();
    uint32_t addresses[kVectors];
    CUTLASS_PRAGMA_UNROLL
    for (int vector = 0; vector < kVectors; ++vector) {
      addresses[vector] = cute::cast_smem_ptr_to_uint(&tile(row, column + 8 * vector));
    }
    // No warpgroup multiplies what lies there any more.
    cutlass::arch::NamedBarrier::sync(Kernel::kMathThreads, /*id=*/0);
    apply_epilogue<kLayer>(sums, column, [&](int, int n, int half, auto const& pair) {
      auto const halves = to_halves(pair);
      int const block = n / kVectors * sm90::kWarpgroupM * kRowBytes;
      cutlass::arch::shared_store<sizeof(halves)>(
          addresses[n % kVectors] + block + 8 * half * kRowBytes, &halves);
    });
    // What wgmma reads, it reads through the asynchronous proxy.
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::NamedBarrier::sync(Kernel::kMathThreads, /*id=*/0);
    auto const a = fragments_a<Tile>(TiledMma<kLayer + 1>(), shared_.intermediate);
    multiply_inner<kLayer + 1>(a, next);
  }

  template <int kLayer, typename FragmentsA>
  CUTLASS_DEVICE void multiply_inner(FragmentsA const& a, Sums<kLayer>& sums) {
    TiledMma<kLayer> mma;
    mma.accumulate_ = cute::GMMA::ScaleOut::Zero;
    constexpr int kWhole = Tiling<kLayer>::kBlocks / kBlocksOfStep,
                  kRest = Tiling<kLayer>::kBlocks % kBlocksOfStep;
    // Registers cannot be indexed by a variable.
    CUTLASS_PRAGMA_UNROLL
    for (int step = 0; step < kWhole; ++step) {
      multiply_step<kLayer, kBlocksOfStep>(mma, step > 0, a, step * kBlocksOfStep, sums);
    }
    if constexpr (kRest > 0) {
      multiply_step<kLayer, kRest>(mma, kWhole > 0, a, kWhole * kBlocksOfStep, sums);
    }
    finish(sums);
  }

  CUTLASS_DEVICE
  void store(Sums<kLayers - 1> const& sums) {
    int const row = first_row_ + row_in_tile(), column = first_column<kLayers - 1>();
    auto const apply = [&](auto const& store) { apply_epilogue<kLayers - 1>(sums, column, store); };
    store_fragments<ElementD, Kernel::kAlignmentD, 1, Tiling<kLayers - 1>::kColumns / 8>(
        apply, params_.d + batch_ * params_.batch_stride_d, params_.ldd, row, params_.rows, column,
        params_.layers[kLayers - 1].n);
  }

  /// Frees the stage that has been read longest, once all threads of the warp call.
  CUTLASS_DEVICE
  void release() {
    if (thread_ % 32 == 0) {
      shared_.empty[freed_.index()].arrive();
    }
    ++freed_;
  }

  Params const& params_;
  SharedStorage& shared_;
  int thread_;  ///< in the warpgroup
  int below_;   ///< which of those below each other
  int side_;    ///< which of those side by side
  typename Kernel::Ring filled_;
  typename Kernel::Ring freed_;  ///< follows `filled_`
  int first_row_ = 0;
  int batch_ = 0;
};

}  // namespace boltgen
