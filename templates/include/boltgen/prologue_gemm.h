// Matrix products of what an elementwise graph makes of A: D = graph(prologue(A) x B).
//
// A goes from global memory to registers, through the graph, and to shared memory, as CUTLASS's
// double-buffered mainloop has it: what cp.async copies no thread sees. The graph's operands are
// loaded with A's elements, a step of K before the two meet, so that tensor cores work meanwhile.

#pragma once

#include <cutlass/gemm/threadblock/mma_pipelined.h>
#include <cutlass/numeric_conversion.h>
#include <cutlass/transform/threadblock/predicated_tile_iterator.h>

#include "boltgen/gemm.h"

namespace boltgen {

/// Whether all rows of A read the same elements.
template <typename Operand>
inline constexpr bool kIsOfAllRows = std::is_same_v<Operand, Row<typename Operand::Element>>;

/// A thread's vectors of one operand in a tile of A: kRows_ rows with kColumns_ vectors in each.
template <typename Operand, int kVector, int kRows_, int kColumns_>
struct PrologueVectors {
  using Element = typename Operand::Element;
  static constexpr int kRows = kIsOfAllRows<Operand> ? 1 : kRows_;

  CUTLASS_DEVICE
  void load(boltgen_operand const& operand, int row, int k, int r, int c, bool inside) {
    if (r < kRows) {
      Vector& vector = vectors[r * kColumns_ + c];
      vector.clear();
      cutlass::arch::global_load<Vector, sizeof(Vector)>(
          vector, typename Operand::Rows(operand, /*batch=*/0)(row) + k, inside);
    }
  }

  CUTLASS_DEVICE
  float get(int r, int c, int element) const {
    return float(Element(vectors[(kRows == 1 ? 0 : r) * kColumns_ + c][element]));
  }

 private:
  using Vector = cutlass::AlignedArray<Element, kVector>;

  Vector vectors[kRows * kColumns_];
};

/// Those of all operands.
template <typename OperandTypes, int kVector, int kRows, int kColumns>
struct PrologueOperands;

template <typename... Operand, int kVector, int kRows, int kColumns>
struct PrologueOperands<Operands<Operand...>, kVector, kRows, kColumns> {
  template <size_t kIndex, typename Operand_>
  struct Slot : PrologueVectors<Operand_, kVector, kRows, kColumns> {};

  template <typename Sequence>
  struct Slots;

  template <size_t... kIndex>
  struct Slots<std::index_sequence<kIndex...>> : Slot<kIndex, Operand>... {
    CUTLASS_DEVICE
    void load([[maybe_unused]] boltgen_operand const* operands, [[maybe_unused]] int row,
              [[maybe_unused]] int k, [[maybe_unused]] int r, [[maybe_unused]] int c,
              [[maybe_unused]] bool inside) {
      (Slot<kIndex, Operand>::load(operands[kIndex], row, k, r, c, inside), ...);
    }

    template <typename Graph>
    CUTLASS_DEVICE float apply(Graph const& graph, float value, [[maybe_unused]] int r,
                               [[maybe_unused]] int c, [[maybe_unused]] int element) const {
      return graph(value, Slot<kIndex, Operand>::get(r, c, element)...);
    }
  };

  Slots<std::index_sequence_for<Operand...>> slots;
};

/// CUTLASS's iterator over A, whose fragments have the graph's operands too.
///
/// Like it, it begins with the part of K that is no whole tile.
template <typename Base_, typename Graph>
class PreparedIterator : public Base_ {
 public:
  using Base = Base_;
  using Element = typename Base::Element;
  using Layout = typename Base::Layout;
  using ThreadMap = typename Base::ThreadMap;
  using AccessType = typename Base::AccessType;

  static constexpr int kVector = AccessType::kElements;
  static constexpr int kVectorsOfAccess = ThreadMap::kElementsPerAccess / kVector;
  static constexpr int kRows = ThreadMap::Iterations::kStrided;
  static constexpr int kColumns = ThreadMap::Iterations::kContiguous * kVectorsOfAccess;
  static constexpr int kDepth = Base::Shape::kColumn;
  static constexpr int kOperands = Graph::Operands::kCount;

  struct Params {
    typename Base::Params base;
    boltgen_operand operands[kOperands > 0 ? kOperands : 1];

    CUTLASS_HOST_DEVICE
    Params() {}

    /// Implicit, as that of CUTLASS's iterator: its launch assigns a layout.
    CUTLASS_HOST_DEVICE
    Params(Layout const& layout) : base(layout) {}
  };

  /// A thread's elements of a tile, before the graph. What lies beyond K stays zero.
  struct Fragment {
    typename Base::Fragment elements;
    PrologueOperands<typename Graph::Operands, kVector, kRows, kColumns> operands;
    bool inside[kColumns];

    CUTLASS_DEVICE
    void clear() { elements.clear(); }

    CUTLASS_DEVICE
    typename Base::Fragment prepared() const {
      Graph const graph;
      cutlass::NumericConverter<Element, float> const rounded;
      typename Base::Fragment made;
      CUTLASS_PRAGMA_UNROLL
      for (int r = 0; r < kRows; ++r) {
        CUTLASS_PRAGMA_UNROLL
        for (int c = 0; c < kColumns; ++c) {
          CUTLASS_PRAGMA_UNROLL
          for (int e = 0; e < kVector; ++e) {
            int const i = (r * kColumns + c) * kVector + e;
            float const value = operands.slots.apply(graph, float(elements[i]), r, c, e);
            made[i] = inside[c] ? rounded(value) : Element(0);
          }
        }
      }
      return made;
    }
  };

  CUTLASS_DEVICE
  PreparedIterator(Params const& params, typename Base::Pointer pointer,
                   typename Base::TensorCoord extent, int thread,
                   typename Base::TensorCoord const& offset)
      : Base(params.base, pointer, extent, thread, offset),
        operands_(params.operands),
        rows_(extent.row()),
        end_(extent.column()),
        tile_(offset.column()) {
    auto const first = ThreadMap::initial_offset(thread);
    row_ = offset.row() + first.strided();
    column_ = first.contiguous();
    int const residue = (end_ - tile_) % kDepth;
    next_ = tile_ + (residue > 0 ? residue : kDepth);
  }

  CUTLASS_DEVICE
  void load(Fragment& fragment) {
    Base::load(fragment.elements);
    CUTLASS_PRAGMA_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      int const k = tile_ + column_ + c / kVectorsOfAccess * ThreadMap::Delta::kContiguous +
                    c % kVectorsOfAccess * kVector;
      fragment.inside[c] = k < next_ && k < end_;
      CUTLASS_PRAGMA_UNROLL
      for (int r = 0; r < kRows; ++r) {
        // What is loaded for rows beyond A is of no account, but has to be in memory.
        int const row = row_ + r * ThreadMap::Delta::kStrided;
        fragment.operands.slots.load(operands_, row < rows_ ? row : rows_ - 1, k, r, c,
                                     fragment.inside[c]);
      }
    }
  }

  CUTLASS_DEVICE
  PreparedIterator& operator++() {
    Base::operator++();
    tile_ = next_;
    next_ += kDepth;
    return *this;
  }

 private:
  boltgen_operand const* operands_;
  int rows_;    ///< of A
  int end_;     ///< of the threadblock's part of K
  int tile_;    ///< where the tile begins that is loaded next
  int next_;    ///< where it ends
  int row_;     ///< of A: the thread's first one
  int column_;  ///< of the tile: the thread's first one
};

struct Prepare {
  template <typename Fragment>
  CUTLASS_DEVICE auto operator()(Fragment const& fragment) const {
    return fragment.prepared();
  }
};

/// CUTLASS's double-buffered mainloop, of what `Graph` makes of A.
template <typename Mainloop, typename Graph>
struct Preparing;

template <typename Shape, typename A, typename SharedA, typename B, typename SharedB,
          typename ElementC, typename LayoutC, typename Policy, typename TransformA,
          typename TransformB, typename Graph>
struct Preparing<cutlass::gemm::threadblock::MmaPipelined<Shape, A, SharedA, B, SharedB, ElementC,
                                                          LayoutC, Policy, TransformA, TransformB>,
                 Graph> {
  using Type = cutlass::gemm::threadblock::MmaPipelined<Shape, PreparedIterator<A, Graph>, SharedA,
                                                        B, SharedB, ElementC, LayoutC, Policy,
                                                        Prepare, TransformB>;
};

/// The arguments of the product alone: operands of the prologue come first in a launch.
template <typename Kernel>
boltgen_gemm_args behind_prologue(boltgen_gemm_args const& args) {
  constexpr int kBefore = Kernel::Mma::IteratorA::kOperands;
  boltgen_gemm_args found = args;
  for (int i = 0; i < Kernel::Operands::kCount; ++i) {
    found.operands[i] = args.operands[kBefore + i];
  }
  return found;
}

template <typename Kernel, typename Prologue>
int run_prologue_gemm(void (*kernel)(typename Kernel::Params), boltgen_gemm_args const* args,
                      boltgen_status* status) {
  ArgumentCheck check(status);
  boltgen_gemm_args const own = behind_prologue<Kernel>(*args);
  check_gemm<Kernel, Kernel::kProducts>(check, own);
  check_operands(typename Prologue::Operands(), check, args->operands, args->k,
                 Kernel::kAlignmentA);
  check.at_most("batch", args->batch, 1);
  if (check.failed()) {
    return check.code();
  }
  typename Kernel::Params params = gemm_params<Kernel>(own);
  for (int i = 0; i < Prologue::Operands::kCount; ++i) {
    params.a.operands[i] = args->operands[i];
  }
  return launch_gemm<Kernel>(kernel, check, params, *args, status);
}

}  // namespace boltgen
