// Matrix products on sm_90a, of CUTLASS 3.x's collectives without its device adapter. One
// warpgroup fills shared memory by TMA, ahead of two others that multiply by wgmma. The elementwise
// graph is one node of the epilogue's visitor tree.

#pragma once

#include <cuda_runtime_api.h>
#include <cutlass/cutlass.h>
#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp>
#include <cutlass/gemm/collective/collective_mma_decl.hpp>

// Parts of CUTLASS's collective_builder.hpp and gemm_universal.hpp, which bring sm_100's too.
#include <cutlass/gemm/kernel/gemm_universal_decl.h>
#include <cutlass/gemm/collective/builders/sm90_gmma_builder.inl>
#include <cutlass/gemm/collective/collective_builder_decl.hpp>
#include <cutlass/gemm/collective/sm90_mma_tma_gmma_rs_warpspecialized.hpp>
#include <cutlass/gemm/collective/sm90_mma_tma_gmma_ss_warpspecialized.hpp>
#include <cutlass/gemm/kernel/sm90_gemm_tma_warpspecialized_cooperative.hpp>
#include <cutlass/gemm/kernel/sm90_gemm_tma_warpspecialized_pingpong.hpp>
#include <cutlass/gemm/kernel/tile_scheduler.hpp>

#include <type_traits>
#include <utility>

#include "boltgen/arguments.h"
#include "boltgen/launch_sm90.h"
#include "boltgen/operands.h"
#include "boltgen/slice_row_sm90.h"

namespace boltgen {

/// The generated functor on arrays, as `Sm90Compute` calls it.
template <typename Graph>
struct OnArrays {
  template <typename Array>
  struct Function {
    template <typename... Arrays>
    CUTLASS_DEVICE Array operator()(Array const& accumulators, Arrays const&... operands) const {
      Graph const graph;
      Array results;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < Array::kElements; ++i) {
        results[i] = graph(accumulators[i], operands[i]...);
      }
      return results;
    }
  };
};

/// The node of a visitor tree that loads one operand. No pointer is null: the launch checks.
template <typename Operand, typename Tile>
struct OperandNode;

/// The full tensor is the collective's C, which TMA brings.
template <typename Element, typename Tile>
struct OperandNode<Tensor<Element>, Tile> {
  using Node = cutlass::epilogue::fusion::Sm90SrcFetch<Element>;

  static typename Node::Arguments arguments(boltgen_operand const&) { return {}; }
};

template <typename Element, typename Tile>
struct OperandNode<Row<Element>, Tile> {
  using Node = cutlass::epilogue::fusion::Sm90RowBroadcast<
      /*Stages=*/0, Tile, Element, /*ElementCompute=*/float,
      cute::Stride<cute::_0, cute::_1, int64_t>, /*Alignment=*/1, /*EnableNullptr=*/false>;

  static typename Node::Arguments arguments(boltgen_operand const& operand) {
    return {
        static_cast<Element const*>(operand.pointer), Element(0), {{}, {}, operand.batch_stride}};
  }
};

template <typename Element, bool kOfPositions>
struct NodeOfSlices {
  using Node = SliceRowNode<Element, kOfPositions>;

  static typename Node::Arguments arguments(boltgen_operand const& operand) {
    return {static_cast<Element const*>(operand.pointer), int(operand.ld), operand.batch_stride};
  }
};

template <typename Element, typename Tile>
struct OperandNode<SliceRow<Element>, Tile> : NodeOfSlices<Element, false> {};

template <typename Element, typename Tile>
struct OperandNode<PositionRow<Element>, Tile> : NodeOfSlices<Element, true> {};

template <typename Element, typename Tile>
struct OperandNode<Column<Element>, Tile> {
  using Node = cutlass::epilogue::fusion::Sm90ColBroadcast<
      /*Stages=*/0, Tile, Element, /*ElementCompute=*/float,
      cute::Stride<cute::_1, cute::_0, int64_t>, /*Alignment=*/1, /*EnableNullptr=*/false>;

  static typename Node::Arguments arguments(boltgen_operand const& operand) {
    return {
        static_cast<Element const*>(operand.pointer), Element(0), {{}, {}, operand.batch_stride}};
  }
};

/// Element type of the full tensor among the operands; void where there is none.
template <typename... Operand>
struct TensorElement {
  using Type = void;
};

template <typename Element, typename... Rest>
struct TensorElement<Tensor<Element>, Rest...> {
  static_assert(std::is_void<typename TensorElement<Rest...>::Type>::value,
                "the collective has one C, and so the epilogue one full tensor");
  using Type = Element;
};

template <typename First, typename... Rest>
struct TensorElement<First, Rest...> : TensorElement<Rest...> {};

/// The visitor tree of a graph: its functor over the accumulator and all operands.
template <typename Graph, typename Tile, typename ElementD, typename Operands>
struct GraphTree;

template <typename Graph, typename Tile, typename ElementD, typename... Operand>
struct GraphTree<Graph, Tile, ElementD, Operands<Operand...>> {
  using ElementC = typename TensorElement<Operand...>::Type;
  using Compute =
      cutlass::epilogue::fusion::Sm90Compute<OnArrays<Graph>::template Function, ElementD,
                                             /*ElementCompute=*/float,
                                             cutlass::FloatRoundStyle::round_to_nearest>;
  using Tree = cutlass::epilogue::fusion::Sm90EVT<Compute, cutlass::epilogue::fusion::Sm90AccFetch,
                                                  typename OperandNode<Operand, Tile>::Node...>;

  static typename Tree::Arguments arguments(boltgen_operand const* operands) {
    return arguments(operands, std::index_sequence_for<Operand...>());
  }

  /// The full tensor, all zeros where there is none.
  static boltgen_operand tensor([[maybe_unused]] boltgen_operand const* operands) {
    boltgen_operand found{};
    [[maybe_unused]] int index = 0;
    ((std::is_same<Operand, Tensor<typename Operand::Element>>::value
          ? void(found = operands[index++])
          : void(++index)),
     ...);
    return found;
  }

 private:
  template <size_t... kIndex>
  static typename Tree::Arguments arguments([[maybe_unused]] boltgen_operand const* operands,
                                            std::index_sequence<kIndex...>) {
    return {{}, OperandNode<Operand, Tile>::arguments(operands[kIndex])..., {}};
  }
};

/// The epilogue of a kernel, which is the same for products and convolutions: D is a matrix.
/// `Schedule` is CUTLASS's tag; 16 bytes is the alignment of all that TMA moves.
template <typename ElementD_, typename Graph, typename Tile, typename Cluster, typename Schedule>
struct EpilogueSm90 {
  using ElementD = ElementD_;
  using Operands = typename Graph::Operands;
  using Tree = GraphTree<Graph, Tile, ElementD, Operands>;
  using ElementC = typename Tree::ElementC;

  static constexpr int kAlignmentD = 128 / cutlass::sizeof_bits<ElementD>::value;
  static constexpr int kAlignmentC =
      std::is_same<ElementC, float>::value ? 4 : 8;  // of void any will do

  using Collective = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, /*ElementAccumulator=*/float,
      /*ElementCompute=*/float, ElementC, cutlass::layout::RowMajor, kAlignmentC, ElementD,
      cutlass::layout::RowMajor, kAlignmentD, Schedule, typename Tree::Tree>::CollectiveOp;

  static constexpr int kSharedBytes = int(sizeof(typename Collective::SharedStorage));
  static constexpr bool kLoadsTensor = !std::is_void<ElementC>::value;

  /// CUTLASS's arguments; `batch_stride` is D's.
  static typename Collective::Arguments arguments(boltgen_operand const* operands, void* d,
                                                  int64_t ldd, int64_t batch_stride) {
    boltgen_operand const tensor = Tree::tensor(operands);
    typename Collective::StrideC stride_c{};
    typename Collective::StrideD stride_d{};
    cute::get<0>(stride_c) = tensor.ld;
    cute::get<0>(stride_d) = ldd;
    cute::get<2>(stride_d) = batch_stride;
    return {Tree::arguments(operands), static_cast<ElementC const*>(tensor.pointer), stride_c,
            static_cast<ElementD*>(d), stride_d};
  }

  /// Of D, whose rows have `n` elements, and of the operands.
  static void check(ArgumentCheck& check, boltgen_operand const* operands, void const* d, int n) {
    check.multiple("n (rows of D)", n, kAlignmentD);
    check.pointer("d", d, kAlignmentD, sizeof(ElementD));
    check_operands(Operands(), check, operands, n, kAlignmentD);
    if (kLoadsTensor) {
      boltgen_operand const tensor = Tree::tensor(operands);
      check.multiple("n (rows of the full tensor)", n, kAlignmentC);
      check.multiple("ld of the full tensor", tensor.ld, kAlignmentC);
      // 16 bytes, whatever its type: D's may be wider.
      check.pointer("the full tensor", tensor.pointer, 16, 1);
    }
  }
};

/// A kernel of CUTLASS's around a mainloop and an epilogue. Its threadblocks go from tile to tile,
/// or, by the tag of the stream-K scheduler, through steps of K of several tiles.
template <typename Mainloop, typename Epilogue, typename Scheduler>
using KernelSm90 = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop,
                                                        typename Epilogue::Collective, Scheduler>;

/// Whether one wgmma has all columns of a tile. Without wgmma_widths.h CUTLASS takes several narrow
/// ones instead, and each of them reads A again.
template <typename Mainloop>
constexpr bool kHasOneWgmmaInWidth = cute::size<1>(typename Mainloop::TiledMma::AtomShape_MNK{}) ==
                                     cute::size<1>(typename Mainloop::TileShape{});

/// The mainloop of a product. `Schedule` is CUTLASS's tag.
template <typename Element, typename LayoutB, typename Tile, typename Cluster, typename Schedule,
          int kCarvedBytes>
using GemmMainloopSm90 = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, cutlass::layout::RowMajor,
    128 / cutlass::sizeof_bits<Element>::value, Element, LayoutB,
    128 / cutlass::sizeof_bits<Element>::value, /*ElementAccumulator=*/float, Tile, Cluster,
    cutlass::gemm::collective::StageCountAutoCarveout<kCarvedBytes>, Schedule>::CollectiveOp;

/// A product's kernel, and its host side.
template <typename ElementA, typename LayoutB, typename ElementD, typename Graph, typename Tile,
          typename Cluster_, typename MainSchedule, typename EpilogueSchedule, typename Scheduler_>
struct GemmSm90 {
  using Cluster = Cluster_;
  using Scheduler = Scheduler_;
  using Epilogue = EpilogueSm90<ElementD, Graph, Tile, Cluster, EpilogueSchedule>;
  using Mainloop =
      GemmMainloopSm90<ElementA, LayoutB, Tile, Cluster, MainSchedule, Epilogue::kSharedBytes>;
  using Kernel = KernelSm90<Mainloop, Epilogue, Scheduler>;

  static_assert(kHasOneWgmmaInWidth<Mainloop>, "wgmma_widths.h must come before CUTLASS's headers");

  static constexpr int kAlignment = 128 / cutlass::sizeof_bits<ElementA>::value;
  static constexpr bool kRowMajorB = std::is_same<LayoutB, cutlass::layout::RowMajor>::value;

  /// M, N, K and the batch.
  static cute::Shape<int, int, int, int> extents(boltgen_gemm_args const& args) {
    return {args.m, args.n, args.k, args.batch};
  }

  /// CUTLASS's arguments: all sizes and addresses.
  static typename Kernel::Arguments arguments(boltgen_gemm_args const& args) {
    typename Kernel::StrideA a{};
    typename Kernel::StrideB b{};
    cute::get<0>(a) = args.lda;
    cute::get<kRowMajorB ? 1 : 0>(b) = args.ldb;
    // Where there is one product TMA has no use for its stride, which may be anything.
    bool const is_batch = args.batch > 1;
    if (is_batch) {
      cute::get<2>(a) = args.batch_stride_a;
      cute::get<2>(b) = args.batch_stride_b;
    }
    return {
        cutlass::gemm::GemmUniversalMode::kGemm,
        extents(args),
        {static_cast<ElementA const*>(args.a), a, static_cast<ElementA const*>(args.b), b},
        Epilogue::arguments(args.operands, args.d, args.ldd, is_batch ? args.batch_stride_d : 0)};
  }

  /// What TMA and the kernel can do.
  static void check(ArgumentCheck& check, boltgen_gemm_args const& args) {
    constexpr int kVector = kAlignment;
    check.at_least("m", args.m, 1);
    check.at_least("n", args.n, 1);
    check.at_least("k", args.k, 1);
    check.at_least("batch", args.batch, 1);
    check.at_least("lda", args.lda, args.k);
    check.at_least("ldb", args.ldb, kRowMajorB ? args.n : args.k);
    check.at_least("ldd", args.ldd, args.n);
    check.multiple("k (rows of A)", args.k, kVector);
    check.multiple("lda", args.lda, kVector);
    check.multiple(kRowMajorB ? "n (rows of B)" : "k (columns of B)", kRowMajorB ? args.n : args.k,
                   kVector);
    check.multiple("ldb", args.ldb, kVector);
    check.multiple("ldd", args.ldd, Epilogue::kAlignmentD);
    check.pointer("a", args.a, kVector, sizeof(ElementA));
    check.pointer("b", args.b, kVector, sizeof(ElementA));
    Epilogue::check(check, args.operands, args.d, args.n);
    if (args.batch > 1) {
      check.at_least("batch_stride_a", args.batch_stride_a, 1);
      check.at_least("batch_stride_b", args.batch_stride_b, 1);
      check.at_least("batch_stride_d", args.batch_stride_d, 1);
      check.multiple("batch_stride_a", args.batch_stride_a, kVector);
      check.multiple("batch_stride_b", args.batch_stride_b, kVector);
      check.multiple("batch_stride_d", args.batch_stride_d, Epilogue::kAlignmentD);
    }
    if (Epilogue::kLoadsTensor) {
      // A batch may share it, and no document says that TMA takes a stride of 0.
      check.at_most("batch", args.batch, 1);
    }
  }
};

}  // namespace boltgen
