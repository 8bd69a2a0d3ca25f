// Results besides D, of what the elementwise graph gives on its way there: full tensors here.
//
// The kernels that write one tensor know nothing of this header. They take what a graph names as
// its operands, pass so many addresses on, and ask it for D's elements one after the other.

#pragma once

#include <cutlass/numeric_conversion.h>

#include <utility>

#include "boltgen/image_slices.h"
#include "boltgen/launch.h"
#include "boltgen/operands.h"

namespace boltgen {

/// The operands of a graph, and the element types of its further results. Their addresses lie
/// behind those of the operands; the pointers are to const because all others are.
template <typename Loads_, typename... Result>
struct OperandsAndResults {
  using Loads = Loads_;
  static constexpr int kResults = sizeof...(Result);
  static constexpr int kCount = Loads::kCount + kResults;
};

/// What kind of operand has the strides and the address of a result.
template <typename Result>
struct ResultOperand {
  using Type = Tensor<Result>;
};

/// How many elements of a result are those of the rows before one of D, the first of an image.
template <typename Result>
struct ResultRows {
  static int64_t before(boltgen_operand const& result, int64_t row, int64_t) {
    return ResultOperand<Result>::Type::before(result, row);
  }
};

template <typename Loads, typename... Result>
void move_to_row(OperandsAndResults<Loads, Result...>, boltgen_operand* operands, int64_t row,
                 int64_t columns) {
  move_to_row(Loads(), operands, row, columns);
  boltgen_operand* result = operands + Loads::kCount;
  ((result->pointer =
        static_cast<typename ResultOperand<Result>::Type::Element const*>(result->pointer) +
        ResultRows<Result>::before(*result, row, columns),
    ++result),
   ...);
}

template <typename Loads, typename... Result>
void check_operands(OperandsAndResults<Loads, Result...>, ArgumentCheck& check,
                    boltgen_operand const* operands, int n, int alignment) {
  check_operands(Loads(), check, operands, n, alignment);
  int index = Loads::kCount;
  ((check_operand<typename ResultOperand<Result>::Type>(check, index, operands[index], n,
                                                        alignment),
    ++index),
   ...);
}

/// Writes a thread's elements of a further result, a vector at a time.
template <typename Element, typename OutputTileIterator>
class ResultWriter {
 public:
  CUTLASS_DEVICE
  ResultWriter(boltgen_operand const& result, int batch, OutputTileIterator const& d)
      : pointer_(static_cast<Element*>(const_cast<void*>(result.pointer)) +
                 batch * result.batch_stride),
        ld_(result.ld),
        d_(d) {}

  /// Elements come in order, so that the last one completes the vector.
  CUTLASS_DEVICE
  void put(float value, int vector, int element) {
    vector_[element] = cutlass::NumericConverter<Element, float>()(value);
    if (element + 1 == Tile::kElements) {
      int const row = Tile::row(d_, vector / Tile::kColumns);
      int const column = Tile::column(d_, vector % Tile::kColumns);
      cutlass::arch::global_store<Vector, sizeof(Vector)>(
          vector_, pointer_ + row * ld_ + column,
          row < d_.extent_row() && column < d_.extent_column());
    }
  }

 private:
  using Tile = ThreadTile<OutputTileIterator>;
  using Vector = cutlass::AlignedArray<Element, Tile::kElements>;

  Element* pointer_;
  int64_t ld_;
  OutputTileIterator const& d_;  // the epilogue's own, which moves from iteration to iteration
  Vector vector_;
};

/// The loaders of a graph's operands, and the writers of its further results.
template <typename Loads, typename... Result, typename OutputTileIterator>
class OperandLoaders<OperandsAndResults<Loads, Result...>, OutputTileIterator> {
 public:
  CUTLASS_DEVICE
  OperandLoaders(boltgen_operand const* operands, int batch, OutputTileIterator const& d)
      : loaders_(operands, batch, d), writers_(operands + Loads::kCount, batch, d) {}

  CUTLASS_DEVICE
  void load(OutputTileIterator const& d) { loaders_.load(d); }

  /// The graph's D for element `element` of vector `vector`; writes the further results.
  template <typename Graph>
  CUTLASS_DEVICE float apply(Graph const& graph, float accumulator, int vector, int element) const {
    float further[sizeof...(Result)];
    auto const with_further = [&](float sum, auto... operands) {
      return graph(sum, operands..., further);
    };
    float const d = loaders_.apply(with_further, accumulator, vector, element);
    writers_.put(further, vector, element);
    return d;
  }

 private:
  template <size_t kIndex, typename Element>
  struct Slot : ResultWriter<Element, OutputTileIterator> {
    using ResultWriter<Element, OutputTileIterator>::ResultWriter;
  };

  template <typename Sequence>
  struct Slots;

  template <size_t... kIndex>
  struct Slots<std::index_sequence<kIndex...>> : Slot<kIndex, Result>... {
    CUTLASS_DEVICE
    Slots(boltgen_operand const* results, int batch, OutputTileIterator const& d)
        : Slot<kIndex, Result>(results[kIndex], batch, d)... {}

    CUTLASS_DEVICE
    void put(float const* further, int vector, int element) {
      (Slot<kIndex, Result>::put(further[kIndex], vector, element), ...);
    }
  };

  OperandLoaders<Loads, OutputTileIterator> loaders_;
  mutable Slots<std::index_sequence_for<Result...>> writers_;  // vectors under way
};

}  // namespace boltgen
