// The epilogue of an inner layer of a chain: the graph is applied where the accumulators are, in
// the registers of the tensor core's fragments, because the result becomes the next layer's operand
// and never reaches global memory.
//
// In an m16n8 accumulator a lane holds two neighbouring columns of two rows, eight apart; wgmma's
// of a warp are such accumulators side by side. Source: PTX ISA, matrix fragments for mma.m16n8k16,
// register fragments of wgmma.

#pragma once

#include <cutlass/array.h>
#include <cutlass/numeric_conversion.h>

#include <utility>

#include "boltgen/operands.h"

namespace boltgen {

/// Two neighbouring elements, loaded at once where kPaired; zero where they do not exist.
template <typename Element, bool kPaired>
CUTLASS_DEVICE void load_pair(float (&pair)[2], Element const* pointer, bool first, bool second) {
  cutlass::AlignedArray<Element, 2, kPaired ? 2 * sizeof(Element) : sizeof(Element)> values;
  values.clear();
  if constexpr (kPaired) {
    if (first) {
      values = *reinterpret_cast<decltype(values) const*>(pointer);
    }
  } else {
    if (first) {
      values[0] = pointer[0];
    }
    if (second) {
      values[1] = pointer[1];
    }
  }
  pair[0] = float(Element(values[0]));
  pair[1] = float(Element(values[1]));
}

/// An operand for one lane, which visits pairs of columns and in each of them some rows.
template <typename Operand, bool kPaired>
class FragmentOperand {
  using Element = typename Operand::Element;

 public:
  CUTLASS_DEVICE
  FragmentOperand(boltgen_operand const& operand, int batch) : rows_(operand, batch) {}

  CUTLASS_DEVICE
  void visit_columns(int, int) {}

  CUTLASS_DEVICE
  void visit_row(int row, int rows, int column, int columns) {
    bool const inside = row < rows;
    load_pair<Element, kPaired>(pair_, rows_(row) + column, inside && column < columns,
                                inside && column + 1 < columns);
  }

  CUTLASS_DEVICE
  float get(int element) const { return pair_[element]; }

 private:
  typename Operand::Rows rows_;
  float pair_[2];
};

template <typename Element, bool kPaired>
class FragmentOperand<Row<Element>, kPaired> {
 public:
  CUTLASS_DEVICE
  FragmentOperand(boltgen_operand const& operand, int batch)
      : pointer_(static_cast<Element const*>(operand.pointer) + batch * operand.batch_stride) {}

  CUTLASS_DEVICE
  void visit_columns(int column, int columns) {
    load_pair<Element, kPaired>(pair_, pointer_ + column, column < columns, column + 1 < columns);
  }

  CUTLASS_DEVICE
  void visit_row(int, int, int, int) {}

  CUTLASS_DEVICE
  float get(int element) const { return pair_[element]; }

 private:
  Element const* pointer_;
  float pair_[2];
};

template <typename Element, bool kPaired>
class FragmentOperand<Column<Element>, kPaired> {
 public:
  CUTLASS_DEVICE
  FragmentOperand(boltgen_operand const& operand, int batch)
      : pointer_(static_cast<Element const*>(operand.pointer) + batch * operand.batch_stride) {}

  CUTLASS_DEVICE
  void visit_columns(int, int) {}

  CUTLASS_DEVICE
  void visit_row(int row, int rows, int, int) { value_ = row < rows ? float(pointer_[row]) : 0.0f; }

  CUTLASS_DEVICE
  float get(int) const { return value_; }

 private:
  Element const* pointer_;
  float value_;
};

/// All operands of a graph.
template <typename OperandTypes, bool kPaired>
class FragmentOperands;

template <typename... Operand, bool kPaired>
class FragmentOperands<Operands<Operand...>, kPaired> {
  template <size_t kIndex, typename Operand_>
  struct Slot : FragmentOperand<Operand_, kPaired> {
    using FragmentOperand<Operand_, kPaired>::FragmentOperand;
  };

  template <typename Sequence>
  struct Slots;

  template <size_t... kIndex>
  struct Slots<std::index_sequence<kIndex...>> : Slot<kIndex, Operand>... {
    CUTLASS_DEVICE
    Slots([[maybe_unused]] boltgen_operand const* operands, [[maybe_unused]] int batch)
        : Slot<kIndex, Operand>(operands[kIndex], batch)... {}

    CUTLASS_DEVICE
    void visit_columns([[maybe_unused]] int column, [[maybe_unused]] int columns) {
      (Slot<kIndex, Operand>::visit_columns(column, columns), ...);
    }

    CUTLASS_DEVICE
    void visit_row([[maybe_unused]] int row, [[maybe_unused]] int rows, [[maybe_unused]] int column,
                   [[maybe_unused]] int columns) {
      (Slot<kIndex, Operand>::visit_row(row, rows, column, columns), ...);
    }

    template <typename Graph>
    CUTLASS_DEVICE float apply(Graph const& graph, float accumulator,
                               [[maybe_unused]] int element) const {
      return graph(accumulator, Slot<kIndex, Operand>::get(element)...);
    }
  };

  Slots<std::index_sequence_for<Operand...>> slots_;

 public:
  CUTLASS_DEVICE
  FragmentOperands(boltgen_operand const* operands, int batch) : slots_(operands, batch) {}

  CUTLASS_DEVICE
  void visit_columns(int column, int columns) { slots_.visit_columns(column, columns); }

  CUTLASS_DEVICE
  void visit_row(int row, int rows, int column, int columns) {
    slots_.visit_row(row, rows, column, columns);
  }

  template <typename Graph>
  CUTLASS_DEVICE float apply(Graph const& graph, float accumulator, int element) const {
    return slots_.apply(graph, accumulator, element);
  }
};

/// Two neighbouring results of an inner layer, as the next one multiplies them.
CUTLASS_DEVICE cutlass::Array<cutlass::half_t, 2> to_halves(cutlass::Array<float, 2> const& pair) {
  return cutlass::NumericArrayConverter<cutlass::half_t, float, 2>()(pair);
}

/// Applies `Graph` to the accumulators of a warp, `kM` times sixteen rows and `kN` times eight
/// columns, and hands pairs of FP32 results to `sink(m, n, half, pair)`: the upper (`half` 0) or
/// lower eight rows of the m-th sixteen, the n-th eight columns.
///
/// Columns beyond `columns` become zero: they are the next layer's K, where only zero times zero is
/// certain to be zero. Rows beyond `rows` may be anything, since no row reaches another.
///
/// `row` and `column` are the lane's first ones in the output. With `kAll` no column is beyond.
template <typename Graph, bool kPaired, int kM, int kN, bool kAll = false, typename Accumulators,
          typename Sink>
CUTLASS_DEVICE void inner_epilogue(Accumulators const& accumulators,
                                   boltgen_operand const* operands, int batch, int row, int rows,
                                   int column, int columns, Sink&& sink) {
  FragmentOperands<typename Graph::Operands, kPaired> loads(operands, batch);
  Graph const graph;

  CUTLASS_PRAGMA_UNROLL
  for (int n = 0; n < kN; ++n) {
    int const c = column + 8 * n;
    loads.visit_columns(c, columns);
    CUTLASS_PRAGMA_UNROLL
    for (int m = 0; m < kM; ++m) {
      CUTLASS_PRAGMA_UNROLL
      for (int half = 0; half < 2; ++half) {
        loads.visit_row(row + 16 * m + 8 * half, rows, c, columns);
        cutlass::Array<float, 2> results;
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < 2; ++e) {
          float const sum = float(accumulators[4 * (m + n * kM) + 2 * half + e]);
          results[e] = kAll || c + e < columns ? loads.apply(graph, sum, e) : 0.0f;
        }
        sink(m, n, half, results);
      }
    }
  }
}

}  // namespace boltgen
