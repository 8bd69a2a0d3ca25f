// How a thread of the epilogue gets its elements of the epilogue's operands.
//
// A thread of CUTLASS's PredicatedTileIterator visits, in every iteration, some rows and in each of
// them kColumn vectors of kElementsPerAccess elements. "Vector v" below is row v / kColumn of those
// and column v % kColumn.

#pragma once

#include <cutlass/aligned_buffer.h>
#include <cutlass/arch/memory.h>
#include <cutlass/array.h>
#include <cutlass/numeric_conversion.h>

#include <cstdint>
#include <utility>

#include "boltgen/abi.h"

namespace boltgen {

// An operand's `vector` is how many of its elements a kernel of an alignment accesses at once. Its
// `columns` are those of its rows where D has n; 0 where a launch passes no distance of rows. Of an
// operand with vectors of columns, `Rows` says where that one begins which a row of D reads.
// `before` is how many elements are those of the rows before one of D, the first of an image.

/// A full (M, N) tensor: a residual.
template <typename Element_>
struct Tensor {
  using Element = Element_;

  static constexpr bool kIsOfSlices = false;
  static constexpr int vector(int alignment) { return alignment; }
  static constexpr int columns(int n) { return n; }
  static int64_t before(boltgen_operand const& operand, int64_t row) { return row * operand.ld; }

  class Rows {
   public:
    CUTLASS_DEVICE
    Rows(boltgen_operand const& operand, int batch)
        : pointer_(static_cast<Element const*>(operand.pointer) + batch * operand.batch_stride),
          ld_(operand.ld) {}

    CUTLASS_DEVICE
    Element const* operator()(int64_t row) const { return pointer_ + row * ld_; }

   private:
    Element const* pointer_;
    int64_t ld_;
  };
};

/// One value per column, (N,): a bias.
template <typename Element_>
struct Row {
  using Element = Element_;

  static constexpr bool kIsOfSlices = false;
  static constexpr int vector(int alignment) { return alignment; }
  static constexpr int columns(int) { return 0; }
  static int64_t before(boltgen_operand const&, int64_t) { return 0; }

  class Rows {
   public:
    CUTLASS_DEVICE
    Rows(boltgen_operand const& operand, int batch)
        : pointer_(static_cast<Element const*>(operand.pointer) + batch * operand.batch_stride) {}

    CUTLASS_DEVICE
    Element const* operator()(int64_t) const { return pointer_; }

   private:
    Element const* pointer_;
  };
};

/// Values per column that depend on which rows are a slice: an image, or a sequence.
template <typename Element_, bool kOfPositions>
struct RowOfSlices {
  using Element = Element_;

  static constexpr bool kIsOfSlices = true;
  static constexpr int vector(int alignment) { return alignment; }
  static constexpr int columns(int) { return 0; }
  static int64_t before(boltgen_operand const& operand, int64_t row) {
    return kOfPositions ? 0 : row / operand.ld * operand.batch_stride;
  }

  class Rows {
   public:
    CUTLASS_DEVICE
    Rows(boltgen_operand const& operand, int) : operand_(operand) {}

    CUTLASS_DEVICE
    Element const* operator()(int64_t row) const {
      int const rows = int(operand_.ld);
      int const read = kOfPositions ? int(row) % rows : int(row) / rows;
      return static_cast<Element const*>(operand_.pointer) + read * operand_.batch_stride;
    }

   private:
    boltgen_operand const& operand_;
  };
};

/// One row for each slice, (slices, N): a scale of each image.
template <typename Element>
struct SliceRow : RowOfSlices<Element, false> {};

/// One row for each position in all slices, (rows of a slice, N): where a token is.
template <typename Element>
struct PositionRow : RowOfSlices<Element, true> {};

/// One value per row, (M,).
template <typename Element_>
struct Column {
  using Element = Element_;

  static constexpr bool kIsOfSlices = false;
  static constexpr int vector(int) { return 1; }
  static constexpr int columns(int) { return 0; }
  static int64_t before(boltgen_operand const&, int64_t row) { return row; }
};

/// The sum of kParts_ values per row, (M, kParts_).
template <typename Element_, int kParts_>
struct Parts {
  using Element = Element_;
  static constexpr int kVector = kParts_ % 4 == 0 ? 4 : kParts_ % 2 == 0 ? 2 : 1;

  static constexpr bool kIsOfSlices = false;
  static constexpr int vector(int) { return kVector; }
  static constexpr int columns(int) { return kParts_; }
  static int64_t before(boltgen_operand const& operand, int64_t row) { return row * operand.ld; }
};

/// Where the rows and columns lie that one thread of the output iterator visits.
template <typename OutputTileIterator>
struct ThreadTile {
  using ThreadMap = typename OutputTileIterator::ThreadMap;
  using Iterations = typename ThreadMap::Iterations;
  using Delta = typename ThreadMap::Delta;

  static constexpr int kColumns = Iterations::kColumn;
  static constexpr int kRows = Iterations::kRow * Iterations::kGroup * Iterations::kCluster;
  static constexpr int kVectors = kRows * kColumns;
  static constexpr int kElements = ThreadMap::kElementsPerAccess;

  /// Row of the output that is the thread's `index`-th in this iteration.
  CUTLASS_DEVICE
  static int row(OutputTileIterator const& d, int index) {
    int const row = index % Iterations::kRow;
    int const group = index / Iterations::kRow % Iterations::kGroup;
    int const cluster = index / (Iterations::kRow * Iterations::kGroup);
    return d.thread_start_row() + row * Delta::kRow + group * Delta::kGroup +
           cluster * Delta::kCluster;
  }

  /// First column of the thread's `index`-th vector of a row.
  CUTLASS_DEVICE
  static int column(OutputTileIterator const& d, int index) {
    return d.thread_start_column() + index * Delta::kColumn;
  }
};

/// What an epilogue computes with: integers of 32 bits as they are, everything else in FP32.
template <typename Element>
struct Computed {
  using Type = float;
};

template <>
struct Computed<int32_t> {
  using Type = int;
};

/// Loads a vector that may be longer than the 32 bytes which CUTLASS loads at once.
template <typename Element, int kCount>
CUTLASS_DEVICE void load_vector(cutlass::AlignedArray<Element, kCount>& vector,
                                Element const* begin, bool is_inside) {
  constexpr int kMost = 32 / int(sizeof(Element));
  constexpr int kPart = kCount < kMost ? kCount : kMost;
  using Part = cutlass::AlignedArray<Element, kPart>;
  vector.clear();
  CUTLASS_PRAGMA_UNROLL
  for (int e = 0; e < kCount; e += kPart) {
    cutlass::arch::global_load<Part, sizeof(Part)>(reinterpret_cast<Part*>(&vector)[e / kPart],
                                                   begin + e, is_inside);
  }
}

/// Loads the operand for one thread. `load` is called once in every iteration, `get` after it.
template <typename Operand, typename OutputTileIterator>
class OperandLoader {
  using Element = typename Operand::Element;

 public:
  CUTLASS_DEVICE
  OperandLoader(boltgen_operand const& operand, int batch, OutputTileIterator const&)
      : rows_(operand, batch) {}

  CUTLASS_DEVICE
  void load(OutputTileIterator const& d) {
    CUTLASS_PRAGMA_UNROLL
    for (int r = 0; r < Tile::kRows; ++r) {
      int const row = Tile::row(d, r);
      Element const* const begin = rows_(row);
      CUTLASS_PRAGMA_UNROLL
      for (int c = 0; c < Tile::kColumns; ++c) {
        int const column = Tile::column(d, c);
        load_vector(vectors_[r * Tile::kColumns + c], begin + column,
                    row < d.extent_row() && column < d.extent_column());
      }
    }
  }

  CUTLASS_DEVICE
  typename Computed<Element>::Type get(int vector, int element) const {
    return typename Computed<Element>::Type(Element(vectors_[vector][element]));
  }

 private:
  using Tile = ThreadTile<OutputTileIterator>;
  using Vector = cutlass::AlignedArray<Element, Tile::kElements>;

  typename Operand::Rows rows_;
  Vector vectors_[Tile::kVectors];
};

template <typename Element, typename OutputTileIterator>
class OperandLoader<Row<Element>, OutputTileIterator> {
 public:
  /// A thread's columns are the same in every iteration, so they are loaded once, here.
  CUTLASS_DEVICE
  OperandLoader(boltgen_operand const& operand, int batch, OutputTileIterator const& d) {
    Element const* const pointer =
        static_cast<Element const*>(operand.pointer) + batch * operand.batch_stride;
    CUTLASS_PRAGMA_UNROLL
    for (int c = 0; c < Tile::kColumns; ++c) {
      int const column = Tile::column(d, c);
      load_vector(vectors_[c], pointer + column, column < d.extent_column());
    }
  }

  CUTLASS_DEVICE
  void load(OutputTileIterator const&) {}

  CUTLASS_DEVICE
  typename Computed<Element>::Type get(int vector, int element) const {
    return typename Computed<Element>::Type(Element(vectors_[vector % Tile::kColumns][element]));
  }

 private:
  using Tile = ThreadTile<OutputTileIterator>;
  using Vector = cutlass::AlignedArray<Element, Tile::kElements>;

  Vector vectors_[Tile::kColumns];
};

template <typename Element, typename OutputTileIterator>
class OperandLoader<Column<Element>, OutputTileIterator> {
 public:
  CUTLASS_DEVICE
  OperandLoader(boltgen_operand const& operand, int batch, OutputTileIterator const&)
      : pointer_(static_cast<Element const*>(operand.pointer) + batch * operand.batch_stride) {}

  CUTLASS_DEVICE
  void load(OutputTileIterator const& d) {
    CUTLASS_PRAGMA_UNROLL
    for (int r = 0; r < Tile::kRows; ++r) {
      int const row = Tile::row(d, r);
      values_[r] = row < d.extent_row() ? Value(pointer_[row]) : Value(0);
    }
  }

  CUTLASS_DEVICE
  typename Computed<Element>::Type get(int vector, int) const {
    return values_[vector / Tile::kColumns];
  }

 private:
  using Tile = ThreadTile<OutputTileIterator>;
  using Value = typename Computed<Element>::Type;

  Element const* pointer_;
  Value values_[Tile::kRows];
};

template <typename Element, int kParts, typename OutputTileIterator>
class OperandLoader<Parts<Element, kParts>, OutputTileIterator> {
 public:
  CUTLASS_DEVICE
  OperandLoader(boltgen_operand const& operand, int batch, OutputTileIterator const&)
      : pointer_(static_cast<Element const*>(operand.pointer) + batch * operand.batch_stride),
        ld_(operand.ld) {}

  CUTLASS_DEVICE
  void load(OutputTileIterator const& d) {
    CUTLASS_PRAGMA_UNROLL
    for (int r = 0; r < Tile::kRows; ++r) {
      int const row = Tile::row(d, r);
      sums_[r] = 0.0f;
      CUTLASS_PRAGMA_UNROLL
      for (int part = 0; part < kParts; part += kVector) {
        Vector vector;
        vector.clear();
        cutlass::arch::global_load<Vector, sizeof(Vector)>(vector, pointer_ + row * ld_ + part,
                                                           row < d.extent_row());
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kVector; ++i) {
          sums_[r] += float(vector[i]);
        }
      }
    }
  }

  CUTLASS_DEVICE
  float get(int vector, int) const { return sums_[vector / Tile::kColumns]; }

 private:
  using Tile = ThreadTile<OutputTileIterator>;
  static constexpr int kVector = Parts<Element, kParts>::kVector;
  using Vector = cutlass::AlignedArray<Element, kVector>;

  Element const* pointer_;
  int64_t ld_;
  float sums_[Tile::kRows];
};

/// The operands of an epilogue, in the order of the graph's loads.
template <typename... Operand>
struct Operands {
  static constexpr int kCount = sizeof...(Operand);
};

/// The loaders of all operands of an epilogue.
template <typename OperandTypes, typename OutputTileIterator>
class OperandLoaders;

template <typename... Operand, typename OutputTileIterator>
class OperandLoaders<Operands<Operand...>, OutputTileIterator> {
  template <size_t kIndex, typename Operand_>
  struct Slot : OperandLoader<Operand_, OutputTileIterator> {
    using OperandLoader<Operand_, OutputTileIterator>::OperandLoader;
  };

  template <typename Sequence>
  struct Slots;

  template <size_t... kIndex>
  struct Slots<std::index_sequence<kIndex...>> : Slot<kIndex, Operand>... {
    CUTLASS_DEVICE
    Slots([[maybe_unused]] boltgen_operand const* operands, [[maybe_unused]] int batch,
          [[maybe_unused]] OutputTileIterator const& d)
        : Slot<kIndex, Operand>(operands[kIndex], batch, d)... {}

    CUTLASS_DEVICE
    void load([[maybe_unused]] OutputTileIterator const& d) {
      (Slot<kIndex, Operand>::load(d), ...);
    }

    template <typename Graph, typename Sum>
    CUTLASS_DEVICE auto apply(Graph const& graph, Sum accumulator, [[maybe_unused]] int vector,
                              [[maybe_unused]] int element) const {
      return graph(accumulator, Slot<kIndex, Operand>::get(vector, element)...);
    }
  };

  Slots<std::index_sequence_for<Operand...>> slots_;

 public:
  CUTLASS_DEVICE
  OperandLoaders(boltgen_operand const* operands, int batch, OutputTileIterator const& d)
      : slots_(operands, batch, d) {}

  CUTLASS_DEVICE
  void load(OutputTileIterator const& d) { slots_.load(d); }

  /// The graph's value for element `element` of vector `vector`.
  template <typename Graph, typename Sum>
  CUTLASS_DEVICE auto apply(Graph const& graph, Sum accumulator, int vector, int element) const {
    return slots_.apply(graph, accumulator, vector, element);
  }
};

}  // namespace boltgen
