// Chains on sm_90a that begin with a convolution and go on with 1x1 ones: the first layer's
// operands, the host entry.

#pragma once

#include <cute/atom/copy_traits_sm90_im2col.hpp>
#include <cute/tensor.hpp>

#include "boltgen/b2b_check.h"
#include "boltgen/b2b_sm90.h"
#include "boltgen/im2col_sm90.h"

namespace boltgen {
namespace sm90 {

/// Tiles of (rows, channels of one tap of the filter): the taps' order is that of the filter's
/// columns, and beyond the channels of each there are zeros.
template <int kExtent, typename Copy_>
struct TapLoad {
  using Copy = Copy_;
  using Shape = cute::Shape<int, cute::Shape<int, int, int>>;

  static constexpr int kBytes = kExtent * kDepth * int(sizeof(Element));

  Copy copy;
  Shape shape;  ///< rows; channels, columns and rows of the filter

  CUTLASS_DEVICE
  void operator()(Element* shared, uint64_t& barrier, int tile, int step, int) const {
    using Tile = cute::Shape<cute::Int<kExtent>, cute::Shape<cute::Int<kDepth>>>;
    auto const whole = copy.get_tma_tensor(shape);
    auto const tiles = cute::local_tile(whole, Tile(), cute::make_coord(cute::_, cute::_));
    auto const source = tiles(cute::_, cute::_, tile, step);
    auto const target =
        cute::make_tensor(cute::make_smem_ptr(shared), SharedTile<Major::K, kExtent>());
    auto const slice = copy.get_slice(0);
    cute::copy(copy.with(barrier), slice.partition_S(source), slice.partition_D(target));
  }
};

/// Columns before rows, as TMA has them.
inline auto columns_and_rows(int columns, int rows) { return cute::make_shape(columns, rows); }

/// The activation: for every tap TMA visits the pixels that it multiplies, in the output's order.
template <int kExtent>
auto make_activation_copy(boltgen_conv2d_args const& args) {
  int64_t const pixel = args.c, row = pixel * args.w, image = row * args.h;
  auto const activation = cute::make_tensor(
      cute::make_gmem_ptr(static_cast<Element const*>(args.a)),
      cute::make_layout(cute::make_shape(cute::make_shape(args.w, args.h, args.n), args.c),
                        cute::make_stride(cute::make_stride(pixel, row, image), cute::_1())));
  int const bottom =
      padding_behind(args.p, args.h, args.r, args.stride_h, args.dilation_h, args.pad_h);
  int const right =
      padding_behind(args.q, args.w, args.s, args.stride_w, args.dilation_w, args.pad_w);
  return cute::make_im2col_tma_copy(
      cute::SM90_TMA_LOAD_IM2COL(), activation, SharedTile<Major::K, kExtent>(),
      /*lower_corner=*/columns_and_rows(-args.pad_w, -args.pad_h),
      /*upper_corner=*/
      columns_and_rows(right - (args.s - 1) * args.dilation_w,
                       bottom - (args.r - 1) * args.dilation_h),
      /*lower_padding=*/columns_and_rows(args.pad_w, args.pad_h),
      /*upper_padding=*/columns_and_rows(right, bottom),
      /*stride=*/columns_and_rows(args.stride_w, args.stride_h),
      /*first_tap=*/columns_and_rows(0, 0),
      /*dilation=*/columns_and_rows(args.dilation_w, args.dilation_h));
}

template <int kExtent>
auto make_filter_copy(boltgen_conv2d_args const& args) {
  int64_t const tap = args.c, row = tap * args.s, filter = row * args.r;
  auto const filters = cute::make_tensor(
      cute::make_gmem_ptr(static_cast<Element const*>(args.b)),
      cute::make_layout(cute::make_shape(args.k, cute::make_shape(args.c, args.s, args.r)),
                        cute::make_stride(filter, cute::make_stride(cute::_1(), tap, row))));
  using Tile = cute::Shape<cute::Int<kExtent>, cute::Shape<cute::Int<kDepth>>>;
  return cute::make_tma_copy(cute::SM90_TMA_LOAD(), filters, SharedTile<Major::K, kExtent>(),
                             Tile(), cute::_1());
}

}  // namespace sm90

/// Brings the pixels of `kM` rows by im2col TMA, and `kColumns` filters.
template <typename Layer, int kM, int kColumns>
struct Conv2dFirstSm90 {
  using LoadA = sm90::TapLoad<kM, decltype(sm90::make_activation_copy<kM>({}))>;
  using LoadB = sm90::TapLoad<kColumns, decltype(sm90::make_filter_copy<kColumns>({}))>;

  static constexpr int kColumnsB = kColumns;
  static constexpr int kBytesA = LoadA::kBytes, kBytesB = LoadB::kBytes;
  static constexpr int kAlignment = Layer::kAlignmentB;
  static_assert(!Layer::kRowMajorB, "filters are contiguous along the channels");

  LoadA load_a;
  LoadB load_b;
  int steps;
};

template <typename Kernel>
void check_conv2d_chain_sm90(ArgumentCheck& check, boltgen_conv2d_chain_args const& args) {
  using First = typename Kernel::First;
  check_im2col(check, first_convolution(args));
  ChainCheck<Kernel>(check, args.layers);
  check.at_most("rows of the output", int64_t(args.n) * args.p * args.q, INT32_MAX - Kernel::kM);
  check.multiple("c (of A and layers[0].b)", args.c, First::kAlignment);
  check.pointer("a", args.a, First::kAlignment, sizeof(sm90::Element));
  check.pointer("layers[0].b", args.layers[0].b, First::kAlignment, sizeof(sm90::Element));
  check.pointer("d", args.d, Kernel::kAlignmentD, sizeof(typename Kernel::ElementD));
}

template <typename Kernel>
typename Kernel::Params conv2d_chain_params_sm90(boltgen_conv2d_chain_args const& args) {
  using First = typename Kernel::First;
  boltgen_conv2d_args const first = first_convolution(args);
  int const rows = args.n * args.p * args.q, columns = args.layers[Kernel::kLayers - 1].n;
  auto const taps = cute::make_shape(args.c, args.s, args.r);
  typename Kernel::Params params{};
  params.first.load_a = {sm90::make_activation_copy<Kernel::kM>(first), {rows, taps}};
  params.first.load_b = {sm90::make_filter_copy<First::kColumnsB>(first), {first.k, taps}};
  params.first.steps = (args.c + sm90::kDepth - 1) / sm90::kDepth * args.r * args.s;
  set_chain_sm90<Kernel>(params, rows, /*batch=*/1, args.layers, args.d, columns, 0);
  return params;
}

template <typename Kernel>
int run_conv2d_chain_sm90(void (*kernel)(typename Kernel::Params),
                          boltgen_conv2d_chain_args const* args, boltgen_status* status) {
  ArgumentCheck check(status);
  check_conv2d_chain_sm90<Kernel>(check, *args);
  return check.failed() ? check.code()
                        : launch_persistent<Kernel>(kernel, conv2d_chain_params_sm90<Kernel>(*args),
                                                    args->stream, status);
}

}  // namespace boltgen
