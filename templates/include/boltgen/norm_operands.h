// The operands of a norm's graphs for a thread, and their further results: vectors at places.

#pragma once

#include <cutlass/arch/memory.h>
#include <cutlass/array.h>

#include <utility>

#include "boltgen/launch.h"
#include "boltgen/norm_rows.h"
#include "boltgen/results.h"
#include "boltgen/widen.h"

namespace boltgen {

/// An operand of a graph for a thread, which visits vectors of kVector columns.
template <typename Operand, int kVector>
class VectorOperand {
  using Element = typename Operand::Element;

 public:
  CUTLASS_DEVICE
  explicit VectorOperand(boltgen_operand const& operand) : rows_(operand, /*batch=*/0) {}

  CUTLASS_DEVICE
  void load(Place const& place, bool inside) {
    Vector vector;
    vector.clear();
    cutlass::arch::global_load<Vector, sizeof(Vector)>(vector, rows_(place.row) + place.column,
                                                       inside);
    widen(values_, vector);
  }

  CUTLASS_DEVICE
  float get(int element) const { return values_[element]; }

 private:
  using Vector = cutlass::AlignedArray<Element, kVector>;

  typename Operand::Rows rows_;
  float values_[kVector];
};

template <typename Element, int kVector>
class VectorOperand<Column<Element>, kVector> {
 public:
  CUTLASS_DEVICE
  explicit VectorOperand(boltgen_operand const& operand)
      : pointer_(static_cast<Element const*>(operand.pointer)) {}

  CUTLASS_DEVICE
  void load(Place const& place, bool inside) {
    value_ = inside ? float(pointer_[place.row]) : 0.0f;
  }

  CUTLASS_DEVICE
  float get(int) const { return value_; }

 private:
  Element const* pointer_;
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
    explicit Slots([[maybe_unused]] boltgen_operand const* operands)
        : Slot<kIndex, Operand>(operands[kIndex])... {}

    CUTLASS_DEVICE
    void load([[maybe_unused]] Place const& place, [[maybe_unused]] bool inside) {
      (Slot<kIndex, Operand>::load(place, inside), ...);
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
  VectorOperands(boltgen_operand const* operands, boltgen_operand const*) : slots_(operands) {}

  CUTLASS_DEVICE
  void load(Place const& place, bool inside) { slots_.load(place, inside); }

  template <typename Graph>
  CUTLASS_DEVICE float apply(Graph const& graph, float value, int element) const {
    return slots_.apply(graph, value, element);
  }

  CUTLASS_DEVICE
  void store(Place const&, bool) const {}

  CUTLASS_DEVICE
  void finish(Place const&, int) const {}
};

/// A further result of a graph for a thread: a vector at each place that it visits.
template <typename Element, int kVector>
class VectorResult {
  using Vector = cutlass::AlignedArray<Element, kVector>;

 public:
  CUTLASS_DEVICE
  explicit VectorResult(boltgen_operand const& result)
      : pointer_(static_cast<Element*>(const_cast<void*>(result.pointer))), ld_(result.ld) {}

  CUTLASS_DEVICE
  void put(float value, int element) { values_[element] = value; }

  CUTLASS_DEVICE
  void store(Place const& place, bool inside) const {
    cutlass::arch::global_store<Vector, sizeof(Vector)>(
        narrow<Element>(values_), pointer_ + place.row * ld_ + place.column, inside);
  }

  CUTLASS_DEVICE
  void finish(Place const&, int) const {}

 private:
  Element* pointer_;
  int64_t ld_;
  float values_[kVector];
};

template <typename Loads, typename... Result, int kVector>
class VectorOperands<OperandsAndResults<Loads, Result...>, kVector> {
  template <size_t kIndex, typename Result_>
  struct Slot : VectorResult<Result_, kVector> {
    using VectorResult<Result_, kVector>::VectorResult;
  };

  template <typename Sequence>
  struct Slots;

  template <size_t... kIndex>
  struct Slots<std::index_sequence<kIndex...>> : Slot<kIndex, Result>... {
    CUTLASS_DEVICE
    explicit Slots(boltgen_operand const* results) : Slot<kIndex, Result>(results[kIndex])... {}

    CUTLASS_DEVICE
    void put(float const* further, int element) {
      (Slot<kIndex, Result>::put(further[kIndex], element), ...);
    }

    CUTLASS_DEVICE
    void store(Place const& place, bool inside) {
      (Slot<kIndex, Result>::store(place, inside), ...);
    }

    CUTLASS_DEVICE
    void finish(Place const& first, int columns) const {
      (Slot<kIndex, Result>::finish(first, columns), ...);
    }
  };

  VectorOperands<Loads, kVector> loads_;
  Slots<std::index_sequence_for<Result...>> results_;

 public:
  CUTLASS_DEVICE
  VectorOperands(boltgen_operand const* operands, boltgen_operand const* results)
      : loads_(operands, results), results_(results) {}

  CUTLASS_DEVICE
  void load(Place const& place, bool inside) { loads_.load(place, inside); }

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
  void store(Place const& place, bool inside) { results_.store(place, inside); }

  /// Ends what reduces: the thread's first place, and the columns of D.
  CUTLASS_DEVICE
  void finish(Place const& first, int columns) const { results_.finish(first, columns); }
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
    ((check_operand<typename ResultOperand<Result>::Type>(check, index, operands[index], columns,
                                                          vector),
      ++index),
     ...);
  }
};

/// The operands of two graphs, one after the other.
template <typename First, typename Second>
struct Joined;

template <typename... First, typename... Second>
struct Joined<Operands<First...>, Operands<Second...>> {
  using Type = Operands<First..., Second...>;
};

}  // namespace boltgen
