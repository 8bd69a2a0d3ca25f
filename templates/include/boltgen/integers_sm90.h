// Products of 8-bit integers on sm_90a. wgmma sums them in integers of 32 bits, which the visitor
// tree keeps until the graph makes FP32 of them: CUTLASS's own nodes would round each to FP32.
//
// The tag `OfIntegers` around a kernel's schedules and graph selects what is here, as CUTLASS's
// builders are selected by tags of schedules.

#pragma once

#include "boltgen/gemm_sm90.h"

namespace boltgen {

/// Marks a schedule or a graph of a product of integers.
template <typename Marked>
struct OfIntegers : Marked {};

/// The elements of 16 bytes, which TMA moves at once; of void any number will do.
template <typename Element>
struct VectorOf {
  static constexpr int kElements = 128 / cutlass::sizeof_bits<Element>::value;
};

template <>
struct VectorOf<void> {
  static constexpr int kElements = 8;
};

/// The node that loads an operand: integers of 32 bits stay as they are.
template <typename Operand, typename Tile>
struct IntegerOperandNode : OperandNode<Operand, Tile> {};

template <typename Node_>
struct WholeNode {
  using Node = Node_;

  static typename Node::Arguments arguments(boltgen_operand const& operand) {
    return {static_cast<int32_t const*>(operand.pointer), 0, {{}, {}, operand.batch_stride}};
  }
};

template <typename Tile>
struct IntegerOperandNode<Row<int32_t>, Tile>
    : WholeNode<cutlass::epilogue::fusion::Sm90RowBroadcast<
          /*Stages=*/0, Tile, int32_t, /*ElementCompute=*/int32_t,
          cute::Stride<cute::_0, cute::_1, int64_t>, /*Alignment=*/1, /*EnableNullptr=*/false>> {};

template <typename Tile>
struct IntegerOperandNode<Column<int32_t>, Tile>
    : WholeNode<cutlass::epilogue::fusion::Sm90ColBroadcast<
          /*Stages=*/0, Tile, int32_t, /*ElementCompute=*/int32_t,
          cute::Stride<cute::_1, cute::_0, int64_t>, /*Alignment=*/1, /*EnableNullptr=*/false>> {};

/// The node that computes a graph of sums and operands.
template <typename Graph, typename ElementD>
struct IntegerGraphNode : cutlass::epilogue::fusion::Sm90VisitorImpl<> {
  using cutlass::epilogue::fusion::Sm90VisitorImpl<>::Sm90VisitorImpl;

  struct ConsumerStoreCallbacks : cutlass::epilogue::fusion::EmptyConsumerStoreCallbacks {
    /// D's elements. The `inputs` are the sums and all that is loaded.
    template <typename Accumulators, typename... Arrays>
    CUTLASS_DEVICE auto visit(Accumulators const&, int, int, int, Arrays const&... inputs) {
      constexpr int kElements = Accumulators::kElements;
      Graph const graph;
      using Value = decltype(graph(typename Computed<typename Arrays::Element>::Type{}...));
      cutlass::Array<Value, kElements> results;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kElements; ++i) {
        results[i] = graph(typename Computed<typename Arrays::Element>::Type(inputs[i])...);
      }
      return cutlass::NumericArrayConverter<ElementD, Value, kElements>()(results);
    }
  };

  template <bool kReferenceSource, typename... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      cutlass::epilogue::fusion::ConsumerStoreArgs<Args...> const&) {
    return ConsumerStoreCallbacks{};
  }
};

/// The visitor tree of a graph of integers.
template <typename Graph, typename Tile, typename ElementD, typename... Operand>
struct GraphTree<OfIntegers<Graph>, Tile, ElementD, Operands<Operand...>> {
  using Floats = GraphTree<Graph, Tile, ElementD, Operands<Operand...>>;
  using ElementC = typename Floats::ElementC;
  using Tree =
      cutlass::epilogue::fusion::Sm90EVT<IntegerGraphNode<Graph, ElementD>,
                                         cutlass::epilogue::fusion::Sm90AccFetch,
                                         typename IntegerOperandNode<Operand, Tile>::Node...>;

  static typename Tree::Arguments arguments(boltgen_operand const* operands) {
    return arguments(operands, std::index_sequence_for<Operand...>());
  }

  static boltgen_operand tensor(boltgen_operand const* operands) {
    return Floats::tensor(operands);
  }

 private:
  template <size_t... kIndex>
  static typename Tree::Arguments arguments([[maybe_unused]] boltgen_operand const* operands,
                                            std::index_sequence<kIndex...>) {
    return {{}, IntegerOperandNode<Operand, Tile>::arguments(operands[kIndex])..., {}};
  }
};

/// CUTLASS's mainloop but for the type of B's pointer, which is int8_t where A is uint8_t.
template <typename Mainloop, typename Element>
struct IntegerMainloop : Mainloop {
  struct Arguments {
    Element const* a;
    typename Mainloop::StrideA stride_a;
    Element const* b;
    typename Mainloop::StrideB stride_b;
  };

  template <typename ProblemShape>
  static typename Mainloop::Params to_underlying_arguments(ProblemShape const& shape,
                                                           Arguments const& args, void* workspace) {
    return Mainloop::to_underlying_arguments(shape, made(args), workspace);
  }

  template <typename ProblemShape>
  static bool can_implement(ProblemShape const& shape, Arguments const& args) {
    return Mainloop::can_implement(shape, made(args));
  }

 private:
  static typename Mainloop::Arguments made(Arguments const& args) {
    return {args.a, args.stride_a, reinterpret_cast<int8_t const*>(args.b), args.stride_b};
  }
};

}  // namespace boltgen

/// A product of A by int8_t, with sums of 32 bits.
template <typename Element, typename LayoutA, int kAlignmentA, typename LayoutB, int kAlignmentB,
          typename Tile, typename Cluster, typename Stages, typename Schedule>
struct cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, LayoutA, kAlignmentA, Element,
    LayoutB, kAlignmentB, float, Tile, Cluster, Stages, boltgen::OfIntegers<Schedule>> {
  using CollectiveOp = boltgen::IntegerMainloop<
      typename CollectiveBuilder<cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element,
                                 LayoutA, kAlignmentA, int8_t, LayoutB, kAlignmentB, int32_t, Tile,
                                 Cluster, Stages, Schedule>::CollectiveOp,
      Element>;
};

/// An epilogue of sums of 32 bits. TMA moves C, the full tensor, in vectors of 16 bytes.
template <typename Tile, typename Cluster, typename ElementC, typename LayoutC, int kAlignmentC,
          typename ElementD, typename LayoutD, int kAlignmentD, typename Schedule, typename Tree>
struct cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, ElementC, LayoutC, kAlignmentC,
    ElementD, LayoutD, kAlignmentD, boltgen::OfIntegers<Schedule>, Tree>
    : CollectiveBuilder<cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
                        cutlass::epilogue::collective::EpilogueTileAuto, int32_t, float, ElementC,
                        LayoutC, boltgen::VectorOf<ElementC>::kElements, ElementD, LayoutD,
                        kAlignmentD, Schedule, Tree> {};
