// Norms of rows: D = graph(normalise(prologue(A))), for layer norm, RMS norm and softmax.
//
// A row is in the registers of kThreads threads, in vectors that lie kThreads apart, so that it is
// read once. Statistics are in FP32, of what is in registers: the mean first, then the mean of the
// squares of what is left. Threads add by shuffles, and the warps of a row through shared memory.
//
// A's rows may be taken by integers, as an embedding's are; see gathered_rows.h.

#pragma once

#include <cutlass/arch/memory.h>
#include <cutlass/array.h>
#include <cutlass/numeric_conversion.h>

#include <utility>

#include "boltgen/activations.h"
#include "boltgen/gathered_rows.h"
#include "boltgen/launch.h"
#include "boltgen/results.h"

namespace boltgen {

/// What is done to a row, and its epsilon: the values of NormFunction in boltgen/ir/norm.py.
enum class NormFunction { kLayer, kRms, kSoftmax };

/// An operand of a graph for a thread, which visits vectors of kVector columns of one row.
template <typename Operand, int kVector>
class VectorOperand;

template <typename Element, int kVector>
class VectorOperand<Tensor<Element>, kVector> {
 public:
  CUTLASS_DEVICE
  VectorOperand(boltgen_operand const& operand, int row, bool)
      : pointer_(static_cast<Element const*>(operand.pointer) + row * operand.ld) {}

  CUTLASS_DEVICE
  void load(int column, bool inside) {
    vector_.clear();
    cutlass::arch::global_load<Vector, sizeof(Vector)>(vector_, pointer_ + column, inside);
  }

  CUTLASS_DEVICE
  float get(int element) const { return float(Element(vector_[element])); }

 private:
  using Vector = cutlass::AlignedArray<Element, kVector>;

  Element const* pointer_;
  Vector vector_;
};

template <typename Element, int kVector>
class VectorOperand<Row<Element>, kVector> : public VectorOperand<Tensor<Element>, kVector> {
 public:
  CUTLASS_DEVICE
  VectorOperand(boltgen_operand const& operand, int, bool is_row)
      : VectorOperand<Tensor<Element>, kVector>(operand, 0, is_row) {}
};

template <typename Element, int kVector>
class VectorOperand<Column<Element>, kVector> {
 public:
  CUTLASS_DEVICE
  VectorOperand(boltgen_operand const& operand, int row, bool is_row)
      : value_(is_row ? float(static_cast<Element const*>(operand.pointer)[row]) : 0.0f) {}

  CUTLASS_DEVICE
  void load(int, bool) {}

  CUTLASS_DEVICE
  float get(int) const { return value_; }

 private:
  float value_;
};

/// All operands of a graph, and its further results.
template <typename OperandTypes, int kVector>
class VectorOperands;

template <typename... Operand, int kVector>
class VectorOperands<Operands<Operand...>, kVector> {
  template <size_t kIndex, typename Operand_>
  struct Slot : VectorOperand<Operand_, kVector> {
    using VectorOperand<Operand_, kVector>::VectorOperand;
  };

  template <typename Sequence>
  struct Slots;

  template <size_t... kIndex>
  struct Slots<std::index_sequence<kIndex...>> : Slot<kIndex, Operand>... {
    CUTLASS_DEVICE
    Slots([[maybe_unused]] boltgen_operand const* operands, [[maybe_unused]] int row,
          [[maybe_unused]] bool is_row)
        : Slot<kIndex, Operand>(operands[kIndex], row, is_row)... {}

    CUTLASS_DEVICE
    void load([[maybe_unused]] int column, [[maybe_unused]] bool inside) {
      (Slot<kIndex, Operand>::load(column, inside), ...);
    }

    template <typename Graph>
    CUTLASS_DEVICE float apply(Graph const& graph, float value,
                               [[maybe_unused]] int element) const {
      return graph(value, Slot<kIndex, Operand>::get(element)...);
    }
  };

  Slots<std::index_sequence_for<Operand...>> slots_;

 public:
  CUTLASS_DEVICE
  VectorOperands(boltgen_operand const* operands, boltgen_operand const*, int row, bool is_row)
      : slots_(operands, row, is_row) {}

  CUTLASS_DEVICE
  void load(int column, bool inside) { slots_.load(column, inside); }

  template <typename Graph>
  CUTLASS_DEVICE float apply(Graph const& graph, float value, int element) const {
    return slots_.apply(graph, value, element);
  }

  CUTLASS_DEVICE
  void store(int, bool) const {}
};

template <typename Loads, typename... Result, int kVector>
class VectorOperands<OperandsAndResults<Loads, Result...>, kVector> {
  template <size_t kIndex, typename Element>
  struct Slot {
    using Vector = cutlass::AlignedArray<Element, kVector>;

    CUTLASS_DEVICE
    Slot(boltgen_operand const& result, int row)
        : pointer(static_cast<Element*>(const_cast<void*>(result.pointer)) + row * result.ld) {}

    CUTLASS_DEVICE
    void put(float value, int element) {
      vector[element] = cutlass::NumericConverter<Element, float>()(value);
    }

    CUTLASS_DEVICE
    void store(int column, bool inside) const {
      cutlass::arch::global_store<Vector, sizeof(Vector)>(vector, pointer + column, inside);
    }

    Element* pointer;
    Vector vector;
  };

  template <typename Sequence>
  struct Slots;

  template <size_t... kIndex>
  struct Slots<std::index_sequence<kIndex...>> : Slot<kIndex, Result>... {
    CUTLASS_DEVICE
    Slots(boltgen_operand const* results, int row)
        : Slot<kIndex, Result>(results[kIndex], row)... {}

    CUTLASS_DEVICE
    void put(float const* further, int element) {
      (Slot<kIndex, Result>::put(further[kIndex], element), ...);
    }

    CUTLASS_DEVICE
    void store(int column, bool inside) const {
      (Slot<kIndex, Result>::store(column, inside), ...);
    }
  };

  VectorOperands<Loads, kVector> loads_;
  Slots<std::index_sequence_for<Result...>> results_;

 public:
  CUTLASS_DEVICE
  VectorOperands(boltgen_operand const* operands, boltgen_operand const* results, int row,
                 bool is_row)
      : loads_(operands, results, row, is_row), results_(results, row) {}

  CUTLASS_DEVICE
  void load(int column, bool inside) { loads_.load(column, inside); }

  template <typename Graph>
  CUTLASS_DEVICE float apply(Graph const& graph, float value, int element) {
    float further[sizeof...(Result)];
    auto const with_further = [&](float x, auto... operands) {
      return graph(x, operands..., further);
    };
    float const made = loads_.apply(with_further, value, element);
    results_.put(further, element);
    return made;
  }

  /// Stores the vector of each further result whose elements were computed last.
  CUTLASS_DEVICE
  void store(int column, bool inside) const { results_.store(column, inside); }
};

/// What a graph loads: its operands without its further results, which lie behind all operands.
template <typename OperandTypes>
struct LoadsOf {
  using Type = OperandTypes;
  static constexpr int kResults = 0;

  static void check_results(ArgumentCheck&, boltgen_operand const*, int, int, int) {}
};

template <typename Loads, typename... Result>
struct LoadsOf<OperandsAndResults<Loads, Result...>> {
  using Type = Loads;
  static constexpr int kResults = sizeof...(Result);

  static void check_results(ArgumentCheck& check, boltgen_operand const* operands, int first,
                            int columns, int vector) {
    int index = first;
    ((check_operand<Tensor<Result>>(check, index, operands[index], columns, vector), ++index), ...);
  }
};

/// The operands of two graphs, one after the other.
template <typename First, typename Second>
struct Joined;

template <typename... First, typename... Second>
struct Joined<Operands<First...>, Operands<Second...>> {
  using Type = Operands<First..., Second...>;
};

struct Sum {
  static constexpr float kNeutral = 0.0f;
  CUTLASS_DEVICE static float join(float x, float y) { return x + y; }
};

/// NaN stays.
struct Maximum {
  static constexpr float kNeutral = -INFINITY;
  CUTLASS_DEVICE static float join(float x, float y) { return maximum(x, y); }
};

/// A norm of rows. A threadblock has kRows rows, kThreads threads for each, and of a row each
/// thread has kVectors vectors of kVector columns. Where `RowIndex` is a type, integers of it take
/// A's rows.
template <NormFunction kFunction, typename ElementA_, typename ElementD_, typename Prologue,
          typename Epilogue, int kVector_, int kThreads, int kVectors, int kRows_,
          typename RowIndex = void>
struct Norm {
  using Taken = TakenRows<RowIndex>;
  using ElementA = ElementA_;
  using ElementD = ElementD_;
  using Before = LoadsOf<typename Prologue::Operands>;
  using After = LoadsOf<typename Epilogue::Operands>;

  static constexpr int kVector = kVector_;
  static constexpr int kRows = kRows_;
  static constexpr int kThreadCount = kThreads * kRows;
  static constexpr int kColumns = kThreads * kVectors * kVector;
  static constexpr int kLoads = Before::Type::kCount + After::Type::kCount;
  static constexpr int kOperands = kLoads + Before::kResults;
  static constexpr int kWarps = kThreads > 32 ? kThreads / 32 : 1;
  static_assert(kThreadCount % 32 == 0, "whole warps");
  static_assert(kThreads <= 32 ? 32 % kThreads == 0 : kThreads % 32 == 0,
                "a row has a part of a warp, or whole warps");
  static_assert(After::kResults == 0, "an epilogue's one result is D");
  static_assert(!Taken::kIsTaken || kOperands < BOLTGEN_MAX_OPERANDS,
                "the integers that take A's rows are an operand of the launch too");

  struct Params {
    int rows;
    int columns;
    float epsilon;
    int64_t lda;
    int64_t ldd;
    ElementA const* a;
    ElementD* d;
    boltgen_operand operands[BOLTGEN_MAX_OPERANDS];
    Taken taken;
  };

  /// Of each of the two reductions, what each warp of a row has.
  struct SharedStorage {
    float parts[2][kRows][kWarps];
  };

  static void check(ArgumentCheck& check, boltgen_norm_args const& args) {
    using Both = typename Joined<typename Before::Type, typename After::Type>::Type;
    check_operands(Both(), check, args.operands, args.columns, kVector);
    Before::check_results(check, args.operands, kLoads, args.columns, kVector);
    Taken::check(check, args.operands, kOperands);
  }

  CUTLASS_DEVICE
  void operator()(Params const& params, SharedStorage& shared) {
    int const row = int(blockIdx.x) * kRows + int(threadIdx.x) / kThreads;
    bool const is_row = row < params.rows;
    int const first = int(threadIdx.x) % kThreads * kVector;

    float values[kVectors][kVector];
    load(params, row, is_row, first, values);
    float factor = 1.0f;
    if constexpr (kFunction == NormFunction::kSoftmax) {
      float const greatest =
          reduce<Maximum>(shared, 0, params, first, values, [](float x) { return x; });
      float const total = reduce<Sum>(shared, 1, params, first, values, [&](float& x) {
        // 2 to the power of a difference times log2(e). Source: PTX ISA, ex2: within 2 ulp.
        float const difference = (x - greatest) * 1.44269504f;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(x) : "f"(difference));
        return x;
      });
      factor = 1.0f / total;
    } else {
      float const count = float(params.columns);
      if constexpr (kFunction == NormFunction::kLayer) {
        float const mean =
            reduce<Sum>(shared, 0, params, first, values, [](float x) { return x; }) / count;
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kVectors * kVector; ++i) {
          values[i / kVector][i % kVector] -= mean;
        }
      }
      float const squares =
          reduce<Sum>(shared, 1, params, first, values, [](float x) { return x * x; });
      factor = rsqrtf(squares / count + params.epsilon);
    }
    store(params, row, is_row, first, values, factor);
  }

 private:
  CUTLASS_DEVICE
  static void load(Params const& params, int row, bool is_row, int first,
                   float (&values)[kVectors][kVector]) {
    using Vector = cutlass::AlignedArray<ElementA, kVector>;
    Prologue const prologue;
    VectorOperands<typename Prologue::Operands, kVector> operands(
        params.operands, params.operands + kLoads, row, is_row);
    int source = row;
    if constexpr (Taken::kIsTaken) {
      source = is_row ? params.taken[row] : 0;
    }
    ElementA const* const a = params.a + source * params.lda;
    CUTLASS_PRAGMA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      int const column = first + v * kThreads * kVector;
      bool const inside = is_row && column < params.columns;
      Vector vector;
      vector.clear();
      cutlass::arch::global_load<Vector, sizeof(Vector)>(vector, a + column, inside);
      operands.load(column, inside);
      CUTLASS_PRAGMA_UNROLL
      for (int e = 0; e < kVector; ++e) {
        values[v][e] = operands.apply(prologue, float(ElementA(vector[e])), e);
      }
      operands.store(column, inside);
    }
  }

  /// Joins what `part` makes of each of the row's elements; all threads of the row get the same.
  template <typename Operation, typename Part>
  CUTLASS_DEVICE static float reduce(SharedStorage& shared, int place, Params const& params,
                                     int first, float (&values)[kVectors][kVector],
                                     Part const& part) {
    float joined = Operation::kNeutral;
    CUTLASS_PRAGMA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      if (first + v * kThreads * kVector < params.columns) {
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < kVector; ++e) {
          joined = Operation::join(joined, part(values[v][e]));
        }
      }
    }
    CUTLASS_PRAGMA_UNROLL
    for (int distance = kThreads < 32 ? kThreads / 2 : 16; distance > 0; distance /= 2) {
      joined = Operation::join(joined, __shfl_xor_sync(0xffffffffu, joined, distance));
    }
    if constexpr (kWarps > 1) {
      int const row = int(threadIdx.x) / kThreads;
      int const warp = int(threadIdx.x) % kThreads / 32;
      float (&parts)[kWarps] = shared.parts[place][row];
      if (threadIdx.x % 32 == 0) {
        parts[warp] = joined;
      }
      __syncthreads();
      joined = parts[0];
      CUTLASS_PRAGMA_UNROLL
      for (int w = 1; w < kWarps; ++w) {
        joined = Operation::join(joined, parts[w]);
      }
    }
    return joined;
  }

  CUTLASS_DEVICE
  static void store(Params const& params, int row, bool is_row, int first,
                    float const (&values)[kVectors][kVector], float factor) {
    using Vector = cutlass::AlignedArray<ElementD, kVector>;
    Epilogue const epilogue;
    VectorOperands<typename Epilogue::Operands, kVector> operands(
        params.operands + Before::Type::kCount, nullptr, row, is_row);
    ElementD* const d = params.d + row * params.ldd;
    CUTLASS_PRAGMA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      int const column = first + v * kThreads * kVector;
      bool const inside = is_row && column < params.columns;
      operands.load(column, inside);
      Vector vector;
      CUTLASS_PRAGMA_UNROLL
      for (int e = 0; e < kVector; ++e) {
        float const made = operands.apply(epilogue, values[v][e] * factor, e);
        vector[e] = cutlass::NumericConverter<ElementD, float>()(made);
      }
      cutlass::arch::global_store<Vector, sizeof(Vector)>(vector, d + column, inside);
    }
  }
};

template <typename Kernel>
int run_norm(void (*kernel)(typename Kernel::Params), float epsilon, boltgen_norm_args const* args,
             boltgen_status* status) {
  ArgumentCheck check(status);
  check.at_least("rows", args->rows, 1);
  check.at_least("columns", args->columns, 1);
  check.at_most("columns", args->columns, Kernel::kColumns);
  check.multiple("columns", args->columns, Kernel::kVector);
  check.at_least("lda", args->lda, args->columns);
  check.multiple("lda", args->lda, Kernel::kVector);
  check.at_least("ldd", args->ldd, args->columns);
  check.multiple("ldd", args->ldd, Kernel::kVector);
  check.pointer("a", args->a, Kernel::kVector, sizeof(typename Kernel::ElementA));
  check.pointer("d", args->d, Kernel::kVector, sizeof(typename Kernel::ElementD));
  Kernel::check(check, *args);
  if (check.failed()) {
    return check.code();
  }
  typename Kernel::Params params{args->rows,
                                 args->columns,
                                 epsilon,
                                 args->lda,
                                 args->ldd,
                                 static_cast<typename Kernel::ElementA const*>(args->a),
                                 static_cast<typename Kernel::ElementD*>(args->d),
                                 {},
                                 Kernel::Taken::of(args->operands, Kernel::kOperands)};
  for (int i = 0; i < Kernel::kOperands; ++i) {
    params.operands[i] = args->operands[i];
  }
  int const blocks = args->rows / Kernel::kRows + (args->rows % Kernel::kRows != 0);
  return launch<Kernel>(kernel, params, dim3(blocks), SplitWorkspace(0, 1, 0), nullptr,
                        args->stream, status);
}

}  // namespace boltgen
