// Forward convolutions on sm_90a: persistent implicit matrix products. CUTLASS has the mainloop,
// whose producer brings A by im2col TMA, for a kernel that computes one tile; here it is made to
// fit the persistent kernels of products.

#pragma once

#include "boltgen/gemm_sm90.h"
#include "boltgen/im2col_sm90.h"

// They count on the above, and the last ones on the first.
#include <cutlass/conv/collective/collective_conv.hpp>

#include <cutlass/conv/collective/builders/sm90_common.inl>
#include <cutlass/conv/convnd_problem_shape.hpp>

namespace boltgen {

/// CUTLASS's mainloop of a convolution, for a kernel of so many warpgroups to a tile. `Schedule` is
/// the tag of the product's kernel; the tile's depth is of channels.
template <typename Element, typename Tile, typename Cluster, typename Schedule, int kCarvedBytes>
struct Im2colCollective {
  static constexpr bool kCooperates =
      std::is_base_of<cutlass::gemm::KernelTmaWarpSpecializedCooperative, Schedule>::value;
  static constexpr auto kMajor = cute::GMMA::Major::K;
  using M = decltype(cute::get<0>(Tile{}));
  using N = decltype(cute::get<1>(Tile{}));
  using K = decltype(cute::get<2>(Tile{}));
  using NestedTile = cute::Shape<M, N, cute::Shape<K>>;

  using TiledMma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float, Tile, kMajor, kMajor>(),
      cute::Layout<cute::Shape<cute::Int<kCooperates ? 2 : 1>, cute::_1, cute::_1>>{}));
  static constexpr int kStages = cutlass::gemm::collective::detail::compute_stage_count_or_override<
      cutlass::gemm::collective::detail::sm90_smem_capacity_bytes, Element, Element, Tile>(
      cutlass::gemm::collective::StageCountAutoCarveout<kCarvedBytes>{});

  template <typename Rows>
  using SharedLayout = decltype(cute::tile_to_shape(
      cutlass::gemm::collective::detail::ss_smem_selector<kMajor, Element, Rows, K>(),
      cute::make_shape(Rows{}, K{}, cute::Int<kStages>{}),
      cute::Step<cute::_2, cute::_1, cute::_3>{}));
  using CopyA = decltype(cutlass::conv::collective::detail::sm90_cluster_shape_to_im2col_tma_atom(
      cute::shape<1>(Cluster{})));
  using CopyB = decltype(cutlass::gemm::collective::detail::sm90_cluster_shape_to_tma_atom(
      cute::shape<0>(Cluster{})));

  using Type = cutlass::conv::collective::CollectiveConv<
      cutlass::conv::MainloopSm90TmaGmmaWarpSpecializedImplicitGemm<
          cutlass::conv::Operator::kFprop, kStages, /*NumSpatialDimensions=*/2, Cluster, Schedule>,
      NestedTile, Element, Element, TiledMma,
      cutlass::conv::collective::detail::Sm90ImplicitGemmTileTraits<CopyA, SharedLayout<M>>,
      cutlass::conv::collective::detail::Sm90ImplicitGemmTileTraits<CopyB, SharedLayout<N>>>;
};

/// The same as the mainloop of a product: M pixels, N filters, and K of whole tiles of channels for
/// each tap of the filter.
template <typename Collective, typename Tile>
struct ConvMainloopSm90 : Collective {
  using TileShape = Tile;
  static constexpr int NumProducerThreadEvents = 1;
  // Of no use: TMA has the strides. The kernel asks for three of them.
  using StrideA = cute::Stride<int64_t, cute::_1, int64_t>;
  using StrideB = StrideA;

  struct Arguments {
    typename Collective::ProblemShape shape;
    typename Collective::Arguments operands;
  };

  struct Params : Collective::Params {
    cute::Shape<int, int, int> taps;  // channels, columns and rows of the filter
  };

  template <typename ProblemShape>
  static Params to_underlying_arguments(ProblemShape const&, Arguments const& args,
                                        void* workspace) {
    auto const& filter = args.shape.shape_B;
    return {Collective::to_underlying_arguments(args.shape, args.operands, workspace),
            cute::make_shape(int(filter[3]), int(filter[2]), int(filter[1]))};
  }

  template <typename ProblemShape>
  static bool can_implement(ProblemShape const&, Arguments const& args) {
    return Collective::can_implement(args.shape, args.operands);
  }

  /// Tensors of rank 5, as the kernel wants them: the last extent is a batch of one.
  template <typename ProblemShape>
  CUTLASS_DEVICE auto load_init(ProblemShape const& shape, Params const& params) {
    auto const taken = cute::make_shape(cute::get<0>(shape), cute::get<1>(shape), params.taps,
                                        cute::get<3>(shape));
    auto const [a, b] = Collective::load_init(taken, params);
    return cute::make_tuple(as_batch(a), as_batch(b));
  }

  template <typename TensorA, typename TensorB, typename KTileIterator, typename BlockCoord>
  CUTLASS_DEVICE void load(Params const& params, typename Collective::MainloopPipeline pipeline,
                           typename Collective::PipelineState state,
                           cute::tuple<TensorA, TensorB> const& inputs, BlockCoord const& block,
                           KTileIterator k_tile, int k_tiles, int thread, uint32_t rank,
                           typename Collective::TensorStorage& shared) {
    auto const one = cute::make_tuple(cute::get<0>(inputs)(cute::_, cute::_, cute::_, cute::_, 0),
                                      cute::get<1>(inputs)(cute::_, cute::_, cute::_, cute::_, 0));
    Collective::load(params, pipeline, state, one, block, k_tile, k_tiles, thread, rank, shared);
  }

 private:
  template <typename Tensor>
  CUTLASS_DEVICE static auto as_batch(Tensor const& tensor) {
    return cute::make_tensor(tensor.data(),
                             cute::append<5>(tensor.layout(), cute::Layout<cute::_1, cute::_0>{}));
  }
};

/// A convolution's kernel, and its host side.
template <typename ElementA, typename ElementD, typename Graph, typename Tile, typename Cluster_,
          typename MainSchedule, typename EpilogueSchedule, typename Scheduler_>
struct Conv2dSm90 {
  using Cluster = Cluster_;
  using Scheduler = Scheduler_;
  using Epilogue = EpilogueSm90<ElementD, Graph, Tile, Cluster, EpilogueSchedule>;
  using Collective = typename Im2colCollective<ElementA, Tile, Cluster, MainSchedule,
                                               Epilogue::kSharedBytes>::Type;
  using Mainloop = ConvMainloopSm90<Collective, Tile>;
  using Kernel = KernelSm90<Mainloop, Epilogue, Scheduler>;

  static_assert(kHasOneWgmmaInWidth<Mainloop>, "wgmma_widths.h must come before CUTLASS's headers");

  static constexpr int kAlignment = 128 / cutlass::sizeof_bits<ElementA>::value;
  static constexpr int kDepth = cute::size<2>(Tile{});

  /// Pixels, filters, and whole tiles of channels for each tap; a batch of one.
  static cute::Shape<int, int, int, int> extents(boltgen_conv2d_args const& args) {
    int const depth = (args.c + kDepth - 1) / kDepth * kDepth;
    return {args.n * args.p * args.q, args.k, args.r * args.s * depth, 1};
  }

  /// CUTLASS's arguments: all sizes and addresses.
  static typename Kernel::Arguments arguments(boltgen_conv2d_args const& args) {
    using Shape = typename Collective::ProblemShape;
    int const bottom =
        padding_behind(args.p, args.h, args.r, args.stride_h, args.dilation_h, args.pad_h);
    int const right =
        padding_behind(args.q, args.w, args.s, args.stride_w, args.dilation_w, args.pad_w);
    Shape const shape(cutlass::conv::Mode::kCrossCorrelation, {args.n, args.h, args.w, args.c},
                      {args.k, args.r, args.s, args.c}, {args.pad_h, args.pad_w}, {bottom, right},
                      {args.stride_h, args.stride_w}, {args.dilation_h, args.dilation_w},
                      /*groups=*/1);
    return {cutlass::gemm::GemmUniversalMode::kGemm,
            extents(args),
            {shape, {static_cast<ElementA const*>(args.a), static_cast<ElementA const*>(args.b)}},
            Epilogue::arguments(args.operands, args.d, args.k, 0)};
  }

  /// What TMA and the kernel can do.
  static void check(ArgumentCheck& check, boltgen_conv2d_args const& args) {
    check_im2col(check, args);
    check.multiple("c (of A and B)", args.c, kAlignment);
    check.pointer("a", args.a, kAlignment, sizeof(ElementA));
    check.pointer("b", args.b, kAlignment, sizeof(ElementA));
    Epilogue::check(check, args.operands, args.d, args.k);
  }
};

}  // namespace boltgen
