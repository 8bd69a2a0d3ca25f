// Norms of rows: D = graph(normalise(prologue(A))), for layer norm, RMS norm and softmax.
//
// A row is in the registers of kThreads threads, in vectors that lie kThreads apart, so that it is
// read once. A streamed row is longer: it is read in such parts, once for each of its statistics
// and once more to be normed, mostly from L2. Statistics are in FP32: the mean first, then the mean
// of the squares of what is left. Threads add by shuffles, and the warps of a row through shared
// memory.
//
// A's rows may be taken by integers, as an embedding's are; see gathered_rows.h.

#pragma once

#include <cutlass/arch/memory.h>
#include <cutlass/array.h>

#include <type_traits>

#include "boltgen/activations.h"
#include "boltgen/gathered_rows.h"
#include "boltgen/launch.h"
#include "boltgen/norm_operands.h"
#include "boltgen/norm_rows.h"
#include "boltgen/widen.h"

namespace boltgen {

/// What is done to a row, and its epsilon: the values of NormFunction in boltgen/ir/norm.py.
enum class NormFunction { kLayer, kRms, kSoftmax };

struct RowSum {
  static constexpr float kNeutral = 0.0f;
  CUTLASS_DEVICE static float join(float x, float y) { return x + y; }
};

/// NaN stays.
struct RowMaximum {
  static constexpr float kNeutral = -INFINITY;
  CUTLASS_DEVICE static float join(float x, float y) { return maximum(x, y); }
};

/// A norm of rows, which lie as Rows_ says. A threadblock has kRows rows, kThreads threads for
/// each, and of a row each thread has kVectors vectors of kVector columns at a time. Where
/// `RowIndex` is a type, integers of it take A's rows.
template <NormFunction kFunction, typename ElementA_, typename ElementD_, typename Prologue,
          typename Epilogue, typename Rows_, int kVector_, int kThreads, int kVectors, int kRows_,
          bool kStreamed, typename RowIndex = void>
struct Norm {
  using Taken = TakenRows<RowIndex>;
  using ElementA = ElementA_;
  using ElementD = ElementD_;
  using Rows = Rows_;
  using Args = typename Rows::Args;
  using Before = LoadsOf<typename Prologue::Operands>;
  using After = LoadsOf<typename Epilogue::Operands>;

  static constexpr int kVector = kVector_;
  static constexpr int kRows = kRows_;
  static constexpr int kThreadCount = kThreads * kRows;
  static constexpr int kColumns = kThreads * kVectors * kVector;  // at a time
  // Of a row; more are not counted by an FP32 number, which a mean is divided by.
  static constexpr int kMostColumns = kStreamed ? Rows::kGroups << 24 : kColumns;
  static constexpr int kLoads = Before::Type::kCount + After::Type::kCount;
  static constexpr int kOperands = kLoads + Before::kResults;
  static constexpr int kWarps = kThreads > 32 ? kThreads / 32 : 1;
  static constexpr int kGroups = Rows::kGroups;
  static_assert(kThreadCount % 32 == 0, "whole warps");
  static_assert((kThreads & (kThreads - 1)) == 0 && kWarps <= 32, "lanes join by halves");
  static_assert(kVector % kGroups == 0, "a vector has as much of each of its groups");
  static_assert(After::kResults == 0, "an epilogue's one result is D");
  static_assert(!Taken::kIsTaken || kGroups == 1, "rows that are taken are those of a matrix");

  struct Params {
    Rows rows;
    float epsilon;
    ElementA const* a;
    ElementD* d;
    boltgen_operand operands[BOLTGEN_MAX_OPERANDS];
    Taken taken;
  };

  /// Of each of the two reductions, what each warp of a row has.
  struct SharedStorage {
    float parts[2][kRows][kWarps][kGroups];
  };

  static void check(ArgumentCheck& check, Args const& args) {
    using Both = typename Joined<typename Before::Type, typename After::Type>::Type;
    int const columns = Rows::matrix_columns(args);
    check_operands(Both(), check, args.operands, columns, kVector);
    Before::check_results(check, args.operands, kLoads, columns, kVector);
    Taken::check(check, args);
  }

  CUTLASS_DEVICE
  void operator()(Params const& params, SharedStorage& shared) {
    Part part(params);
    if constexpr (!kStreamed) {
      part.template load<true>();
    }
    float const count = float(params.rows.columns / kGroups);
    float shift[kGroups] = {};
    if constexpr (kFunction != NormFunction::kRms) {
      using Operation = std::conditional_t<kFunction == NormFunction::kSoftmax, RowMaximum, RowSum>;
      neutral<Operation>(shift);
      visit<true>(part, [&] { part.template join<Operation>(shift, [](float x) { return x; }); });
      reduce<Operation>(shared.parts[0], shift);
      if constexpr (kFunction == NormFunction::kLayer) {
        CUTLASS_PRAGMA_UNROLL
        for (int g = 0; g < kGroups; ++g) {
          shift[g] /= count;
        }
      }
      if constexpr (!kStreamed) {
        part.shift(shift);
      }
    }
    float factor[kGroups];
    neutral<RowSum>(factor);
    visit<kFunction == NormFunction::kRms>(part, [&] {
      if constexpr (kStreamed) {
        part.shift(shift);
      }
      part.template join<RowSum>(
          factor, [](float x) { return kFunction == NormFunction::kSoftmax ? x : x * x; });
    });
    reduce<RowSum>(shared.parts[1], factor);
    CUTLASS_PRAGMA_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      factor[g] = kFunction == NormFunction::kSoftmax ? 1.0f / factor[g]
                                                      : rsqrtf(factor[g] / count + params.epsilon);
    }
    visit<false>(part, [&] {
      if constexpr (kStreamed) {
        part.shift(shift);
      }
      part.store(factor);
    });
  }

 private:
  /// What a thread has of a row at a time.
  struct Part {
    Params const& params;
    Place row;
    int64_t source;  ///< the row of A's matrix that the row begins in
    int first;       ///< element of the thread's first vector, in the row's first part
    bool is_row;
    int begin = 0;  ///< element of the row at which the part begins
    float values[kVectors][kVector];

    CUTLASS_DEVICE
    explicit Part(Params const& given)
        : params(given), first(int(threadIdx.x) % kThreads * kVector) {
      int const index = int(blockIdx.x) * kRows + int(threadIdx.x) / kThreads;
      is_row = index < params.rows.rows;
      row = params.rows.begin(index);
      source = row.row;
      if constexpr (Taken::kIsTaken) {
        source = is_row ? params.taken[index] : 0;
      }
    }

    CUTLASS_DEVICE
    int element(int v) const { return begin + first + v * kThreads * kVector; }

    CUTLASS_DEVICE
    static constexpr int group(int e) { return e / (kVector / kGroups); }

    /// Reads the part; what the prologue stores besides is written once.
    template <bool kStores>
    CUTLASS_DEVICE void load() {
      using Vector = cutlass::AlignedArray<ElementA, kVector>;
      Prologue const prologue;
      VectorOperands<typename Prologue::Operands, kVector> operands(params.operands,
                                                                    params.operands + kLoads);
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        bool const inside = is_row && element(v) < params.rows.columns;
        Place const place = params.rows.at(row, element(v));
        Vector vector;
        vector.clear();
        cutlass::arch::global_load<Vector, sizeof(Vector)>(
            vector, params.a + (source + place.row - row.row) * params.rows.lda + place.column,
            inside);
        operands.load(place, inside);
        widen(values[v], vector);
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < kVector; ++e) {
          values[v][e] = operands.apply(prologue, values[v][e], e);
        }
        if constexpr (kStores) {
          operands.store(place, inside);
        }
      }
    }

    /// Takes each group's mean from its elements; a softmax makes powers of the differences.
    CUTLASS_DEVICE
    void shift(float const (&by)[kGroups]) {
      if constexpr (kFunction != NormFunction::kRms) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kVectors * kVector; ++i) {
          float& x = values[i / kVector][i % kVector];
          x -= by[group(i % kVector)];
          if constexpr (kFunction == NormFunction::kSoftmax) {
            // 2 to the power of a difference times log2(e). Source: PTX ISA, ex2: within 2 ulp.
            float const difference = x * 1.44269504f;
            asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(x) : "f"(difference));
          }
        }
      }
    }

    /// Joins what `use` makes of each element to what its group has so far.
    template <typename Operation, typename Use>
    CUTLASS_DEVICE void join(float (&joined)[kGroups], Use const& use) const {
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        if (element(v) < params.rows.columns) {
          CUTLASS_PRAGMA_UNROLL
          for (int e = 0; e < kVector; ++e) {
            joined[group(e)] = Operation::join(joined[group(e)], use(values[v][e]));
          }
        }
      }
    }

    CUTLASS_DEVICE
    void store(float const (&factor)[kGroups]) const {
      using Vector = cutlass::AlignedArray<ElementD, kVector>;
      Epilogue const epilogue;
      VectorOperands<typename Epilogue::Operands, kVector> operands(
          params.operands + Before::Type::kCount, nullptr);
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        bool const inside = is_row && element(v) < params.rows.columns;
        Place const place = params.rows.at(row, element(v));
        operands.load(place, inside);
        float made[kVector];
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < kVector; ++e) {
          made[e] = operands.apply(epilogue, values[v][e] * factor[group(e)], e);
        }
        cutlass::arch::global_store<Vector, sizeof(Vector)>(
            narrow<ElementD>(made), params.d + place.row * params.rows.ldd + place.column, inside);
      }
    }
  };

  template <typename Operation>
  CUTLASS_DEVICE static void neutral(float (&joined)[kGroups]) {
    CUTLASS_PRAGMA_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      joined[g] = Operation::kNeutral;
    }
  }

  /// Does `use` with each part of the row in turn.
  template <bool kStores, typename Use>
  CUTLASS_DEVICE static void visit(Part& part, Use const& use) {
    if constexpr (kStreamed) {
      for (part.begin = 0; part.begin < part.params.rows.columns; part.begin += kColumns) {
        part.template load<kStores>();
        use();
      }
    } else {
      use();
    }
  }

  /// Joins what so many lanes as kLanes have that follow each other; all of them get the same.
  template <typename Operation, int kLanes>
  CUTLASS_DEVICE static void shuffle(float (&joined)[kGroups]) {
    CUTLASS_PRAGMA_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      CUTLASS_PRAGMA_UNROLL
      for (int distance = kLanes / 2; distance > 0; distance /= 2) {
        joined[g] = Operation::join(joined[g], __shfl_xor_sync(0xffffffffu, joined[g], distance));
      }
    }
  }

  /// Joins what the threads of a row have; all of them get the same.
  template <typename Operation>
  CUTLASS_DEVICE static void reduce(float (&parts)[kRows][kWarps][kGroups],
                                    float (&joined)[kGroups]) {
    shuffle<Operation, kThreads / kWarps>(joined);
    if constexpr (kWarps > 1) {
      int const warp = int(threadIdx.x) % kThreads / 32;
      float (&of_row)[kWarps][kGroups] = parts[int(threadIdx.x) / kThreads];
      if (threadIdx.x % 32 == 0) {
        CUTLASS_PRAGMA_UNROLL
        for (int g = 0; g < kGroups; ++g) {
          of_row[warp][g] = joined[g];
        }
      }
      __syncthreads();
      CUTLASS_PRAGMA_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        joined[g] = of_row[int(threadIdx.x) % kWarps][g];
      }
      shuffle<Operation, kWarps>(joined);
    }
  }
};

template <typename Kernel>
int run_norm(void (*kernel)(typename Kernel::Params), float epsilon,
             typename Kernel::Args const* args, boltgen_status* status) {
  using Rows = typename Kernel::Rows;
  ArgumentCheck check(status);
  Rows::check(check, *args, Kernel::kVector, Kernel::kMostColumns);
  check.pointer("a", args->a, Kernel::kVector, sizeof(typename Kernel::ElementA));
  check.pointer("d", args->d, Kernel::kVector, sizeof(typename Kernel::ElementD));
  Kernel::check(check, *args);
  if (check.failed()) {
    return check.code();
  }
  typename Kernel::Params params{Rows(*args),
                                 epsilon,
                                 static_cast<typename Kernel::ElementA const*>(args->a),
                                 static_cast<typename Kernel::ElementD*>(args->d),
                                 {},
                                 Kernel::Taken::of(*args)};
  for (int i = 0; i < Kernel::kOperands; ++i) {
    params.operands[i] = args->operands[i];
  }
  int const rows = params.rows.rows;
  int const blocks = rows / Kernel::kRows + (rows % Kernel::kRows != 0);
  return launch<Kernel>(kernel, params, dim3(blocks), SplitWorkspace(0, 1, 0), nullptr,
                        args->stream, status);
}

}  // namespace boltgen
