// Products of few rows, as of decoding: D = graph(A x B), bound by the bytes of B.
//
// The tensor cores take the columns of B as the rows of an m16n8 instruction, and the few rows of A
// as its columns. B goes from global memory to registers in vectors, with no stage in between: the
// order of K within a fragment is free as long as both operands have the same, and so is that of
// columns. The warps of a threadblock have its columns in common and divide K; their FP32 sums meet
// in shared memory, in the order of the warps.
//
// Source: PTX ISA, matrix fragments for mma.m16n8k8 and mma.m16n8k16.

#pragma once

#include <cutlass/arch/mma.h>

#include <type_traits>

#include "boltgen/b2b_epilogue.h"
#include "boltgen/fragment_store.h"
#include "boltgen/gemm.h"

namespace boltgen {

/// Loads kCount elements of two bytes in vectors of kVector, the first `valid` of them; the others
/// are zero. Vectors exist as a whole or not at all.
template <int kCount, int kVector, typename Element>
CUTLASS_DEVICE cutlass::Array<unsigned, kCount / 2> load_vectors(Element const* source, int valid) {
  static_assert(sizeof(Element) == 2, "a register has two elements");
  cutlass::Array<unsigned, kCount / 2> loaded;
  if constexpr (kVector > 1) {
    using Words = cutlass::Array<unsigned, kVector / 2>;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kCount / kVector; ++i) {
      Words words;
      words.clear();
      cutlass::arch::global_load<Words, sizeof(Words)>(words, source + i * kVector,
                                                       i * kVector < valid);
      CUTLASS_PRAGMA_UNROLL
      for (int w = 0; w < kVector / 2; ++w) {
        loaded[i * (kVector / 2) + w] = words[w];
      }
    }
  } else {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kCount; i += 2) {
      uint16_t halves[2] = {0, 0};
      CUTLASS_PRAGMA_UNROLL
      for (int e = 0; e < 2; ++e) {
        cutlass::arch::global_load<uint16_t, sizeof(uint16_t)>(halves[e], source + i + e,
                                                               i + e < valid);
      }
      loaded[i / 2] = halves[0] | unsigned(halves[1]) << 16;
    }
  }
  return loaded;
}

/// Halves of the same place in two registers.
CUTLASS_DEVICE unsigned lower_halves(unsigned first, unsigned second) {
  return __byte_perm(first, second, 0x5410);
}

CUTLASS_DEVICE unsigned upper_halves(unsigned first, unsigned second) {
  return __byte_perm(first, second, 0x7632);
}

/// How a lane holds a step of K, `kDepth` deep, where B is column-major: a lane has eight elements
/// of K in a row, of two columns in each sixteen.
template <typename Element, typename Layout, int kColumns, int kAlignmentB>
struct SkinnyStep {
  using ElementB = Element;
  static constexpr int kDepth = 32;
  static constexpr int kElements = 8;
  static constexpr int kVector = kAlignmentB < kElements ? kAlignmentB : kElements;
  static constexpr int kTiles = kColumns / 16;

  /// Of a lane: the first of its elements of K.
  CUTLASS_DEVICE static int first_k(int lane) { return lane % 4 * kElements; }

  /// The column that is row `half` * 8 + lane / 4 of sixteen-row tile `tile`.
  CUTLASS_DEVICE static int column(int lane, int tile, int half) {
    return 16 * tile + 8 * half + lane / 4;
  }

  CUTLASS_DEVICE
  void load(Element const* b, int64_t ldb, int k, int depth, int columns, int lane) {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 2 * kTiles; ++i) {
      int const c = column(lane, i / 2, i % 2);
      values_[i] = load_vectors<kElements, kVector>(b + c * ldb + k, c < columns ? depth - k : 0);
    }
  }

  /// Sixteen elements of K of the `tile`-th sixteen columns.
  CUTLASS_DEVICE
  cutlass::Array<unsigned, 4> fragment(int tile, int sixteen) const {
    auto const& upper = values_[2 * tile];
    auto const& lower = values_[2 * tile + 1];
    int const pair = 2 * sixteen;
    return {upper[pair], lower[pair], upper[pair + 1], lower[pair + 1]};
  }

 private:
  cutlass::Array<unsigned, kElements / 2> values_[2 * kTiles];
};

/// The same where B is row-major: a lane has some columns in a row, of four elements of K.
template <typename Element, int kColumns, int kAlignmentB>
struct SkinnyStep<Element, cutlass::layout::RowMajor, kColumns, kAlignmentB> {
  using ElementB = Element;
  static constexpr int kDepth = 16;
  static constexpr int kElements = 4;
  static constexpr int kTiles = kColumns / 16;
  static constexpr int kRun = 2 * kTiles;
  static constexpr int kVector = kAlignmentB < kRun ? kAlignmentB : kRun;

  CUTLASS_DEVICE static int first_k(int lane) { return lane % 4 * kElements; }

  CUTLASS_DEVICE static int column(int lane, int tile, int half) {
    return lane / 4 * kRun + 2 * tile + half;
  }

  CUTLASS_DEVICE
  void load(Element const* b, int64_t ldb, int k, int depth, int columns, int lane) {
    int const first = column(lane, 0, 0);
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kElements; ++i) {
      values_[i] = load_vectors<kRun, kVector>(b + (k + i) * ldb + first,
                                               k + i < depth ? columns - first : 0);
    }
  }

  CUTLASS_DEVICE
  cutlass::Array<unsigned, 4> fragment(int tile, int) const {
    return {lower_halves(values_[0][tile], values_[1][tile]),
            upper_halves(values_[0][tile], values_[1][tile]),
            lower_halves(values_[2][tile], values_[3][tile]),
            upper_halves(values_[2][tile], values_[3][tile])};
  }

 private:
  cutlass::Array<unsigned, kTiles> values_[kElements];
};

/// A product of few rows. A threadblock has kRows rows, eight or sixteen, and kColumns columns;
/// kSteps steps of K are on their way at once.
template <typename ElementIn, typename LayoutB_, int kAlignmentA_, int kAlignmentB_, int kRows_,
          int kColumns_, int kWarps, int kSteps, typename Instruction, typename Graph,
          typename ElementD_, int kAlignmentD_>
struct Skinny {
  using ElementD = ElementD_;
  using LayoutB = LayoutB_;
  using Operands = typename Graph::Operands;
  using Step = SkinnyStep<ElementIn, LayoutB, kColumns_, kAlignmentB_>;
  using ElementA = ElementIn;
  using ElementB = typename Step::ElementB;
  using Mma = cutlass::arch::Mma<Instruction, 32, ElementIn, cutlass::layout::RowMajor, ElementIn,
                                 cutlass::layout::ColumnMajor, float, cutlass::layout::RowMajor,
                                 cutlass::arch::OpMultiplyAdd>;

  static constexpr int kAlignmentA = kAlignmentA_;
  static constexpr int kAlignmentB = kAlignmentB_;
  static constexpr int kAlignmentD = kAlignmentD_;
  static constexpr int kRows = kRows_;
  static constexpr int kColumns = kColumns_;
  static constexpr int kThreadCount = 32 * kWarps;
  static constexpr int kRowTiles = kRows / 8;
  static constexpr int kVectorA = kAlignmentA < Step::kElements ? kAlignmentA : Step::kElements;
  static_assert(kRows % 8 == 0 && kColumns % 16 == 0, "whole fragments of mma.m16n8");

  struct Params {
    int m;
    int n;
    int k;
    int64_t lda;
    int64_t ldb;
    int64_t ldd;
    int64_t batch_stride_a;
    int64_t batch_stride_b;
    int64_t batch_stride_d;
    ElementA const* a;
    ElementB const* b;
    ElementD* d;
    boltgen_operand operands[BOLTGEN_MAX_OPERANDS];
  };

  /// Four elements more than a row has keep the lanes of a store in different banks.
  struct SharedStorage {
    float sums[kWarps][kRows][kColumns + 4];
  };

  CUTLASS_DEVICE
  void operator()(Params const& params, SharedStorage& shared) {
    int const lane = int(threadIdx.x) % 32, warp = cutlass::canonical_warp_idx_sync();
    int const batch = int(blockIdx.z);
    int const first_row = int(blockIdx.y) * kRows;
    int64_t const first_column = int64_t(blockIdx.x) * kColumns;
    int const rows = params.m - first_row, columns = int(params.n - first_column);
    int64_t const column_stride = kRowMajor ? 1 : params.ldb;
    ElementA const* const a = params.a + batch * params.batch_stride_a + first_row * params.lda;
    ElementB const* const b =
        params.b + batch * params.batch_stride_b + first_column * column_stride;

    FragmentC sums[Step::kTiles][kRowTiles];
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Step::kTiles * kRowTiles; ++i) {
      sums[i / kRowTiles][i % kRowTiles].clear();
    }
    constexpr int kGroup = Step::kDepth * kWarps;
    for (int first = warp * Step::kDepth; first < params.k; first += kSteps * kGroup) {
      Step steps[kSteps];
      RowsOfA rows_of_a[kSteps][kRowTiles];
      CUTLASS_PRAGMA_UNROLL
      for (int s = 0; s < kSteps; ++s) {
        int const k = first + s * kGroup + Step::first_k(lane);
        steps[s].load(b, params.ldb, k, params.k, columns, lane);
        CUTLASS_PRAGMA_UNROLL
        for (int r = 0; r < kRowTiles; ++r) {
          int const row = 8 * r + lane / 4;
          rows_of_a[s][r] = load_vectors<Step::kElements, kVectorA>(a + row * params.lda + k,
                                                                    row < rows ? params.k - k : 0);
        }
      }
      CUTLASS_PRAGMA_UNROLL
      for (int s = 0; s < kSteps; ++s) {
        multiply(sums, steps[s], rows_of_a[s]);
      }
    }
    gather(shared, sums, warp, lane);
    __syncthreads();
    store(params, shared, batch, first_row, int(first_column), columns);
  }

 private:
  using FragmentC = typename Mma::FragmentC;
  using RowsOfA = cutlass::Array<unsigned, Step::kElements / 2>;
  static constexpr bool kRowMajor = std::is_same<LayoutB, cutlass::layout::RowMajor>::value;

  CUTLASS_DEVICE
  static void multiply(FragmentC (&sums)[Step::kTiles][kRowTiles], Step const& step,
                       RowsOfA const (&a)[kRowTiles]) {
    Mma const mma;
    CUTLASS_PRAGMA_UNROLL
    for (int sixteen = 0; sixteen < Step::kDepth / 16; ++sixteen) {
      CUTLASS_PRAGMA_UNROLL
      for (int tile = 0; tile < Step::kTiles; ++tile) {
        cutlass::Array<unsigned, 4> const columns = step.fragment(tile, sixteen);
        CUTLASS_PRAGMA_UNROLL
        for (int r = 0; r < kRowTiles; ++r) {
          cutlass::Array<unsigned, 2> const rows = {a[r][2 * sixteen], a[r][2 * sixteen + 1]};
          CUTLASS_PRAGMA_UNROLL
          for (int half = 0; half < 16 / Instruction::kK; ++half) {
            mma(sums[tile][r], reinterpret_cast<typename Mma::FragmentA const*>(&columns)[half],
                reinterpret_cast<typename Mma::FragmentB const*>(&rows)[half], sums[tile][r]);
          }
        }
      }
    }
  }

  /// Writes a warp's sums. An m16n8 accumulator's rows are columns of D, and its columns are rows.
  CUTLASS_DEVICE
  static void gather(SharedStorage& shared, FragmentC const (&sums)[Step::kTiles][kRowTiles],
                     int warp, int lane) {
    CUTLASS_PRAGMA_UNROLL
    for (int tile = 0; tile < Step::kTiles; ++tile) {
      CUTLASS_PRAGMA_UNROLL
      for (int r = 0; r < kRowTiles; ++r) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < 4; ++i) {
          int const row = 8 * r + lane % 4 * 2 + i % 2;
          shared.sums[warp][row][Step::column(lane, tile, i / 2)] = sums[tile][r][i];
        }
      }
    }
  }

  /// Adds the warps' sums, applies the graph, and stores pairs of neighbouring columns.
  CUTLASS_DEVICE
  static void store(Params const& params, SharedStorage const& shared, int batch, int first_row,
                    int first_column, int columns) {
    constexpr bool kPaired = kAlignmentD > 1;
    constexpr int kPairs = kColumns / 2;
    Graph const graph;
    FragmentOperands<Operands, kPaired> loads(params.operands, batch);
    ElementD* const d = params.d + batch * params.batch_stride_d;
    for (int i = int(threadIdx.x); i < kRows * kPairs; i += kThreadCount) {
      int const row = i / kPairs, column = i % kPairs * 2;
      if (first_row + row >= params.m || column >= columns) {
        continue;
      }
      loads.visit_columns(first_column + column, params.n);
      loads.visit_row(first_row + row, params.m, first_column + column, params.n);
      cutlass::Array<float, 2> results;
      CUTLASS_PRAGMA_UNROLL
      for (int e = 0; e < 2; ++e) {
        float sum = 0.0f;
        CUTLASS_PRAGMA_UNROLL
        for (int w = 0; w < kWarps; ++w) {
          sum += shared.sums[w][row][column + e];
        }
        results[e] = loads.apply(graph, sum, e);
      }
      store_pair<ElementD, kPaired>(d + (first_row + row) * params.ldd + first_column + column,
                                    results, columns - column);
    }
  }
};

/// Checks the arguments of a product, by the layout of B.
template <typename Kernel, typename LayoutB>
struct CheckSkinny {
  static void apply(ArgumentCheck& check, boltgen_gemm_args const& args) {
    check_gemm<Kernel>(check, args);
  }
};

template <typename Kernel>
int run_skinny(void (*kernel)(typename Kernel::Params), boltgen_gemm_args const* args,
               boltgen_status* status) {
  ArgumentCheck check(status);
  CheckSkinny<Kernel, typename Kernel::LayoutB>::apply(check, *args);
  check.at_most("split_k", args->split_k, 1);
  int const below = (args->m + Kernel::kRows - 1) / Kernel::kRows;
  // The grid's y dimension. Source: CUDA C++ Programming Guide, compute capabilities.
  check.at_most("number of blocks along M", below, 65535);
  if (check.failed()) {
    return check.code();
  }
  typename Kernel::Params params{args->m,
                                 args->n,
                                 args->k,
                                 args->lda,
                                 args->ldb,
                                 args->ldd,
                                 args->batch_stride_a,
                                 args->batch_stride_b,
                                 args->batch_stride_d,
                                 static_cast<typename Kernel::ElementA const*>(args->a),
                                 static_cast<typename Kernel::ElementB const*>(args->b),
                                 static_cast<typename Kernel::ElementD*>(args->d),
                                 {}};
  for (int i = 0; i < Kernel::Operands::kCount; ++i) {
    params.operands[i] = args->operands[i];
  }
  dim3 const grid((args->n + Kernel::kColumns - 1) / Kernel::kColumns, below, args->batch);
  return launch<Kernel>(kernel, params, grid, SplitWorkspace(0, 1, 0), nullptr, args->stream,
                        status);
}

}  // namespace boltgen
