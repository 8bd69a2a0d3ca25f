// Results besides D on sm_90a: the root of the visitor tree, which stores them from registers.

#pragma once

#include "boltgen/gemm_sm90.h"
#include "boltgen/results.h"

namespace boltgen {

/// The node that stores one result, a full tensor. Without stages it does so from registers, with a
/// predicate for each vector, and takes no shared memory.
template <typename Result, typename Tile>
struct ResultNode {
  using Node = cutlass::epilogue::fusion::Sm90AuxStore<
      /*Stages=*/0, /*EpilogueTile=*/void, Result, cutlass::FloatRoundStyle::round_to_nearest,
      cute::Stride<int64_t, cute::_1, int64_t>, /*SmemLayoutAtom=*/void, /*CopyOpR2S=*/void,
      /*Alignment=*/128 / cutlass::sizeof_bits<Result>::value, /*EnableNullptr=*/false>;

  /// What of the graph's value is stored.
  CUTLASS_DEVICE static float term(float x) { return x; }

  static typename Node::Arguments arguments(boltgen_operand const& result) {
    return {static_cast<Result*>(const_cast<void*>(result.pointer)),
            {result.ld, {}, result.batch_stride}};
  }
};

/// The root of a tree: the generated functor, whose further results it gives to their stores.
template <typename Graph, typename Tile, typename ElementD, typename... Result>
struct ResultsNode
    : cutlass::epilogue::fusion::Sm90VisitorImpl<typename ResultNode<Result, Tile>::Node...> {
  using Impl =
      cutlass::epilogue::fusion::Sm90VisitorImpl<typename ResultNode<Result, Tile>::Node...>;
  using Impl::Impl;

  template <typename Callbacks>
  struct ConsumerStoreCallbacks : Callbacks {
    CUTLASS_DEVICE
    explicit ConsumerStoreCallbacks(Callbacks&& callbacks)
        : Callbacks(cute::forward<Callbacks>(callbacks)) {}

    /// D's elements, of the accumulators and all that is loaded.
    template <typename Accumulators, typename... Arrays>
    CUTLASS_DEVICE auto visit(Accumulators const& accumulators, int epi_v, int epi_m, int epi_n,
                              Arrays const&... inputs) {
      constexpr int kElements = Accumulators::kElements;
      constexpr int kResults = sizeof...(Result);
      Graph const graph;
      cutlass::Array<float, kElements> d;
      cutlass::Array<float, kElements> further[kResults];
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kElements; ++i) {
        float values[kResults];
        d[i] = graph(float(inputs[i])..., values);
        int result = 0;
        ((further[result][i] = ResultNode<Result, Tile>::term(values[result]), ++result), ...);
      }
      cute::for_each(cute::make_seq<kResults>(), [&](auto result) {
        cute::get<result>(Callbacks::callbacks_tuple)
            .visit(accumulators, epi_v, epi_m, epi_n, further[result]);
      });
      return cutlass::NumericArrayConverter<ElementD, float, kElements>()(d);
    }
  };

  template <bool kReferenceSource, typename... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      cutlass::epilogue::fusion::ConsumerStoreArgs<Args...> const& args) {
    auto callbacks = Impl::template get_consumer_store_callbacks<kReferenceSource>(args);
    return ConsumerStoreCallbacks<decltype(callbacks)>(cute::move(callbacks));
  }
};

/// The visitor tree of a graph with further results.
template <typename Graph, typename Tile, typename ElementD, typename... Operand, typename... Result>
struct GraphTree<Graph, Tile, ElementD, OperandsAndResults<Operands<Operand...>, Result...>> {
  using Loaded = GraphTree<Graph, Tile, ElementD, Operands<Operand...>>;
  using ElementC = typename Loaded::ElementC;
  using Root = ResultsNode<Graph, Tile, ElementD, Result...>;
  using Tree = cutlass::epilogue::fusion::Sm90EVT<Root, cutlass::epilogue::fusion::Sm90AccFetch,
                                                  typename OperandNode<Operand, Tile>::Node...>;

  static typename Tree::Arguments arguments(boltgen_operand const* operands) {
    return arguments(operands, std::index_sequence_for<Operand...>(),
                     std::index_sequence_for<Result...>());
  }

  static boltgen_operand tensor(boltgen_operand const* operands) {
    return Loaded::tensor(operands);
  }

 private:
  template <size_t... kOperand, size_t... kResult>
  static typename Tree::Arguments arguments(boltgen_operand const* operands,
                                            std::index_sequence<kOperand...>,
                                            std::index_sequence<kResult...>) {
    boltgen_operand const* const results = operands + sizeof...(Operand);
    return {{},
            OperandNode<Operand, Tile>::arguments(operands[kOperand])...,
            {ResultNode<Result, Tile>::arguments(results[kResult])...}};
  }
};

}  // namespace boltgen
