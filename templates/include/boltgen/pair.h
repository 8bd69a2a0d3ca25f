// D of two products of one A: silu(x Wg) * (x Wu) is one kernel.
//
// The columns of both are those of one B: a run of the first one's by turns with as many of the
// second one's. A vector of the output's thread map has a run of each, so that one thread has what
// it makes a run of D of, and the mainloop is that of one product.

#pragma once

#include "boltgen/epilogue_graph.h"
#include "boltgen/results.h"

namespace boltgen {

/// `Graph_` has two accumulators: `float operator()(float first, float second, float operand...)`.
template <typename Graph_>
struct Paired : Graph_ {};

template <typename Graph>
struct Products<Paired<Graph>> {
  static constexpr int kCount = 2;
};

/// The iterator of the sums' tile as one of D's, which has half of its columns. It moves as that
/// one does.
template <typename SumIterator>
class HalfColumns {
 public:
  struct ThreadMap {
    using Iterations = typename SumIterator::ThreadMap::Iterations;
    struct Delta : SumIterator::ThreadMap::Delta {
      static constexpr int kColumn = SumIterator::ThreadMap::Delta::kColumn / 2;
    };
    static constexpr int kElementsPerAccess = SumIterator::ThreadMap::kElementsPerAccess / 2;
  };
  static_assert(SumIterator::ThreadMap::kElementsPerAccess % 2 == 0, "a run of each product");

  CUTLASS_DEVICE
  explicit HalfColumns(SumIterator const& sums) : sums_(sums) {}

  CUTLASS_DEVICE int thread_start_row() const { return sums_.thread_start_row(); }
  CUTLASS_DEVICE int thread_start_column() const { return sums_.thread_start_column() / 2; }
  CUTLASS_DEVICE int extent_row() const { return sums_.extent_row(); }
  CUTLASS_DEVICE int extent_column() const { return sums_.extent_column() / 2; }

 private:
  SumIterator const& sums_;
};

/// A thread's vectors of sums, each a run of the first product and one of the second, to runs of D.
template <typename Graph, typename SumIterator>
class TileResult<Paired<Graph>, SumIterator> {
 public:
  CUTLASS_DEVICE
  TileResult(boltgen_operand const* operands, int batch, SumIterator const& sums)
      : operands_(operands, batch, Columns(sums)),
        d_(operands[Graph::Operands::kCount]),
        batch_(batch) {}

  CUTLASS_DEVICE
  void load(SumIterator const& at) { operands_.load(Columns(at)); }

  template <typename Sums>
  CUTLASS_DEVICE void store(SumIterator const& at, Sums const& sums) const {
    Graph const graph;
    Columns const columns(at);
    ResultWriter<typename SumIterator::Element, Columns> d(d_, batch_, columns);
    CUTLASS_PRAGMA_UNROLL
    for (int v = 0; v < Tile::kVectors; ++v) {
      CUTLASS_PRAGMA_UNROLL
      for (int e = 0; e < Tile::kElements; ++e) {
        int const first = 2 * v * Tile::kElements + e;
        float const second = sums[first + Tile::kElements];
        auto const of_both = [&](float sum, auto... operands) {
          return graph(sum, second, operands...);
        };
        d.put(operands_.apply(of_both, sums[first], v, e), v, e);
      }
    }
  }

 private:
  using Columns = HalfColumns<SumIterator>;
  using Tile = ThreadTile<Columns>;

  OperandLoaders<typename Graph::Operands, Columns> operands_;
  boltgen_operand const& d_;
  int batch_;
};

}  // namespace boltgen
