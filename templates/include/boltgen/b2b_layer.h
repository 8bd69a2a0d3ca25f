// An inner layer of a chain: its A is the layer before it, on chip; its B comes from global memory.
//
// CUTLASS's example 13 does this with its threadblock iterators. They begin with what is left over
// of K, which shifts every later step against the intermediate on chip: results are wrong unless
// tiles divide K. Here B is copied from its beginning, so K may be anything.

#pragma once

#include <cutlass/arch/memory_sm75.h>
#include <cutlass/gemm/warp/default_mma_tensor_op.h>
#include <cutlass/layout/tensor_op_multiplicand_sm75.h>

#include "boltgen/b2b_epilogue.h"
#include "boltgen/b2b_tile.h"

namespace boltgen {

/// Sixteen steps of K of a warp's operands, as mma.m16n8k16 takes them; mma.m16n8k8 takes halves.
template <typename WarpMma>
struct KGroup {
  static constexpr int kM = WarpMma::MmaIterations::kRow;
  static constexpr int kN = WarpMma::MmaIterations::kColumn;
  using FragmentA = cutlass::Array<unsigned, 4>[kM];
  using FragmentB = cutlass::Array<unsigned, 2>[kN];

  /// A's sixteen columns that begin with `column`, out of the intermediate in shared memory.
  template <typename Tile>
  CUTLASS_DEVICE static void load_a(FragmentA& a, cutlass::half_t const* tile, int row, int column,
                                    int lane) {
    CUTLASS_PRAGMA_UNROLL
    for (int m = 0; m < kM; ++m) {
      int const offset = Tile::offset(row + 16 * m + lane % 16, column / 8 + lane / 16);
      cutlass::arch::ldsm<cutlass::layout::RowMajor, 4>(a[m], tile + offset);
    }
  }

  /// B's sixteen rows that begin with `k`. The tile holds B as it is stored: rows of K where it is
  /// row-major, rows of N where it is column-major.
  template <typename Tile, bool kRowMajor>
  CUTLASS_DEVICE static void load_b(FragmentB& b, cutlass::half_t const* tile, int k, int column,
                                    int lane) {
    CUTLASS_PRAGMA_UNROLL
    for (int n = 0; n < kN; n += 2) {
      int const first = column + 8 * n;
      cutlass::Array<unsigned, 4> both;
      if constexpr (kRowMajor) {
        int const offset = Tile::offset(k + lane % 16, first / 8 + lane / 16);
        cutlass::arch::ldsm<cutlass::layout::ColumnMajor, 4>(both, tile + offset);
      } else {
        int const offset = Tile::offset(first + lane % 8 + lane / 16 * 8, k / 8 + lane / 8 % 2);
        cutlass::arch::ldsm<cutlass::layout::RowMajor, 4>(both, tile + offset);
      }
      b[n][0] = both[0];
      b[n][1] = both[1];
      b[n + 1][0] = both[2];
      b[n + 1][1] = both[3];
    }
  }

  CUTLASS_DEVICE
  static void multiply(typename WarpMma::FragmentC& accumulators, FragmentA const& a,
                       FragmentB const& b) {
    using Mma = typename WarpMma::ArchMmaOperator;
    using A = typename Mma::FragmentA;
    using B = typename Mma::FragmentB;
    using C = typename Mma::FragmentC;
    Mma const mma;
    C* const c = reinterpret_cast<C*>(&accumulators);
    CUTLASS_PRAGMA_UNROLL
    for (int n = 0; n < kN; ++n) {
      CUTLASS_PRAGMA_UNROLL
      for (int m = 0; m < kM; ++m) {
        C& sum = c[m + n * kM];
        CUTLASS_PRAGMA_UNROLL
        for (int k = 0; k < 16 / Mma::Shape::kK; ++k) {
          mma(sum, reinterpret_cast<A const*>(&a[m])[k], reinterpret_cast<B const*>(&b[n])[k], sum);
        }
      }
    }
  }
};

/// A layer's A that is there before the layer begins.
struct MadeBefore {
  CUTLASS_DEVICE
  void operator()(int) const {}
};

/// A layer after the first. Threadblock is M x N x K, M that of the chain and N at least the
/// layer's columns; `Graph` is its epilogue. Its operands are multiplied as `Multiplied`; whatever
/// copies them takes 16 bits for halves.
template <typename Threadblock, typename Warp, typename Instruction, int kStages_,
          typename LayoutB_, int kAlignmentB_, typename ElementAccumulator, typename Graph_,
          int kAlignmentD_, bool kHasAsyncCopies, typename Multiplied = cutlass::half_t>
struct InnerLayer {
  using Element = cutlass::half_t;
  using Shape = Threadblock;
  using Graph = Graph_;
  using LayoutB = LayoutB_;

  /// Layouts and K of the operands in shared memory are CUTLASS's; nothing here depends on them.
  using WarpMma = typename cutlass::gemm::warp::DefaultMmaTensorOp<
      cutlass::gemm::GemmShape<Warp::kM, Warp::kN, 32>, Instruction, Multiplied,
      cutlass::layout::RowMajorTensorOpMultiplicandCrosswise<16, 32>, Multiplied,
      cutlass::layout::ColumnMajorTensorOpMultiplicandCrosswise<16, 32>, ElementAccumulator,
      cutlass::layout::RowMajor>::Type;
  using FragmentC = typename WarpMma::FragmentC;

  static constexpr int kAlignmentB = kAlignmentB_;
  static constexpr int kAlignmentD = kAlignmentD_;
  static constexpr int kStages = kStages_;
  static constexpr int kWarpsM = Shape::kM / Warp::kM;
  static constexpr int kWarps = kWarpsM * (Shape::kN / Warp::kN);
  static constexpr bool kRowMajorB = std::is_same<LayoutB, cutlass::layout::RowMajor>::value;

  /// Source: PTX ISA, cp.async: 4, 8 or 16 bytes.
  static constexpr bool kAsync = kHasAsyncCopies && kAlignmentB > 1;
  static_assert(kAsync || kStages == 2, "copies through registers are double-buffered");

  using Tile = std::conditional_t<kRowMajorB, SwizzledTile<Shape::kK, Shape::kN>,
                                  SwizzledTile<Shape::kN, Shape::kK>>;
  static constexpr int kTileElements = Tile::kElements;

  CUTLASS_DEVICE
  InnerLayer(boltgen_chain_layer const& params, int k, int batch, Element* tiles, int thread)
      : InnerLayer(static_cast<Element const*>(params.b) + batch * params.batch_stride_b,
                   params.ldb, params.n, k, tiles, thread) {}

  /// Multiplies with `n` columns of B, of which `b` is the first.
  CUTLASS_DEVICE
  InnerLayer(Element const* b, int64_t ldb, int n, int k, Element* tiles, int thread)
      : b_(b),
        ldb_(ldb),
        n_(n),
        k_(k),
        steps_((k + Shape::kK - 1) / Shape::kK),
        tiles_(tiles),
        copy_(thread) {}

  /// Begins to copy B. The shared memory may not be in use by then.
  CUTLASS_DEVICE
  void prologue() {
    CUTLASS_PRAGMA_UNROLL
    for (int step = 0; step < kStages - 1; ++step) {
      start(step);
    }
  }

  /// Multiplies the layer's A with B; `load_a(fragment, column)` gives sixteen columns of A, and
  /// `make_a(step)` writes the columns of a step to shared memory, before that step's barrier.
  ///
  /// The first barrier inside also orders what the warps wrote to shared memory before. Where A is
  /// in registers, which no variable can index, kUnrolledSteps is the threadblock's steps along K.
  template <int kUnrolledSteps = 0, typename LoadA, typename MakeA = MadeBefore>
  CUTLASS_DEVICE void multiply(FragmentC& accumulators, int column, int lane, LoadA&& load_a,
                               MakeA&& make_a = MakeA()) {
    if constexpr (!kAsync) {
      copy_.finish(tile(0));
    }
    if constexpr (kUnrolledSteps == 0) {
      for (int step = 0; step < steps_; ++step) {
        multiply_step(accumulators, step, column, lane, load_a, make_a);
      }
    } else {
      CUTLASS_PRAGMA_UNROLL
      for (int step = 0; step < kUnrolledSteps; ++step) {
        if (step < steps_) {
          multiply_step(accumulators, step, column, lane, load_a, make_a);
        }
      }
    }
  }

 private:
  CUTLASS_DEVICE
  Element* tile(int step) { return tiles_ + step % kStages * kTileElements; }

  /// Begins to copy B's tile of step `step`, if there is one.
  CUTLASS_DEVICE
  void start(int step) {
    int const k = step * Shape::kK;
    if (step < steps_) {
      if constexpr (kRowMajorB) {
        copy_.start(tile(step), b_ + k * ldb_, ldb_, k_ - k, n_);
      } else {
        copy_.start(tile(step), b_ + k, ldb_, n_, k_ - k);
      }
    }
    if constexpr (kAsync) {
      cutlass::arch::cp_async_fence();
    }
  }

  template <typename LoadA, typename MakeA>
  CUTLASS_DEVICE void multiply_step(FragmentC& accumulators, int step, int column, int lane,
                                    LoadA&& load_a, MakeA&& make_a) {
    using Group = KGroup<WarpMma>;
    make_a(step);
    if constexpr (kAsync) {
      cutlass::arch::cp_async_wait<kStages - 2>();
    }
    // This step's tile is there, and the one that the next copy overwrites is no longer read.
    __syncthreads();
    start(step + kStages - 1);
    CUTLASS_PRAGMA_UNROLL
    for (int k = 0; k < Shape::kK; k += 16) {
      typename Group::FragmentA a;
      typename Group::FragmentB b;
      load_a(a, step * Shape::kK + k);
      Group::template load_b<Tile, kRowMajorB>(b, tile(step), k, column, lane);
      Group::multiply(accumulators, a, b);
    }
    if constexpr (!kAsync) {
      if (step + 1 < steps_) {
        copy_.finish(tile(step + 1));
      }
    }
  }

  Element const* b_;
  int64_t ldb_;
  int n_;
  int k_;
  int steps_;
  Element* tiles_;
  TileCopy<Tile, 32 * kWarps, kAlignmentB, kAsync> copy_;
};

}  // namespace boltgen
