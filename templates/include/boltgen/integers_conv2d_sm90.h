// Forward convolutions of 8-bit integers on sm_90a.

#pragma once

#include "boltgen/conv2d_sm90.h"
#include "boltgen/integers_sm90.h"

namespace boltgen {

/// CUTLASS's mainloop but for the type of the filters' pointer, which is int8_t where A is uint8_t.
template <typename Mainloop, typename Element>
struct IntegerConvMainloop : Mainloop {
  struct Arguments {
    Element const* a;
    Element const* b;
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
    return {args.a, reinterpret_cast<int8_t const*>(args.b)};
  }
};

/// The mainloop of images by filters of int8_t, with sums of 32 bits. Stages, copies and layouts
/// are those of any element of 8 bits.
template <typename Element, typename Tile, typename Cluster, typename Schedule, int kCarvedBytes>
struct Im2colCollective<Element, Tile, Cluster, OfIntegers<Schedule>, kCarvedBytes> {
  using Bytes = Im2colCollective<cutlass::float_e4m3_t, Tile, Cluster, Schedule, kCarvedBytes>;
  static constexpr auto kMajor = Bytes::kMajor;

  using TiledMma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, int8_t, int32_t, Tile, kMajor, kMajor>(),
      cute::Layout<cute::Shape<cute::Int<Bytes::kCooperates ? 2 : 1>, cute::_1, cute::_1>>{}));

  using Type = IntegerConvMainloop<
      cutlass::conv::collective::CollectiveConv<
          cutlass::conv::MainloopSm90TmaGmmaWarpSpecializedImplicitGemm<
              cutlass::conv::Operator::kFprop, Bytes::kStages, /*NumSpatialDimensions=*/2, Cluster,
              Schedule>,
          typename Bytes::NestedTile, Element, int8_t, TiledMma,
          cutlass::conv::collective::detail::Sm90ImplicitGemmTileTraits<
              typename Bytes::CopyA, typename Bytes::template SharedLayout<typename Bytes::M>>,
          cutlass::conv::collective::detail::Sm90ImplicitGemmTileTraits<
              typename Bytes::CopyB, typename Bytes::template SharedLayout<typename Bytes::N>>>,
      Element>;
};

}  // namespace boltgen
