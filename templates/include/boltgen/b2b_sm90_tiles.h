// What chains on sm_90a are made of: tiles in shared memory, their loads by TMA, and layers.

#pragma once

#include <cutlass/cutlass.h>
#include <cute/tensor.hpp>
#include <cutlass/gemm/collective/builders/sm90_common.inl>

#include <type_traits>

namespace boltgen {
namespace sm90 {

using Element = cutlass::half_t;
using Major = cute::GMMA::Major;

constexpr int kWarpgroup = 128;
/// Rows of one wgmma, and its step along K.
constexpr int kWarpgroupM = 64, kInstructionK = 16;
/// The step of a stage along K: 128 bytes, the widest swizzle of TMA and wgmma.
constexpr int kDepth = 64;
/// Of a thread of three warpgroups that loads, and of one that multiplies: they have 65536.
constexpr int kLoadRegisters = 24, kMathRegisters = 240;

/// A tile in shared memory, of so many rows of A or columns of B, in the widest swizzle.
template <Major kMajor, int kExtent, int kK = kDepth, typename Element_ = Element>
using SharedTile = decltype(cute::tile_to_shape(
    cutlass::gemm::collective::detail::ss_smem_selector<kMajor, Element_, cute::Int<kExtent>,
                                                        cute::Int<kK>>(),
    cute::Shape<cute::Int<kExtent>, cute::Int<kK>>{},
    cute::conditional_t<kMajor == Major::K, cute::Step<cute::_1, cute::_2>,
                        cute::Step<cute::_2, cute::_1>>{}));

/// TMA's copy of tiles of a matrix of `shape`: (extent, K), so many times.
template <Major kMajor, int kExtent>
auto make_load(void const* pointer, cute::Shape<int, int, int> const& shape, int64_t ld,
               int64_t batch_stride) {
  auto const one = cute::_1();
  auto const strides = [&] {
    if constexpr (kMajor == Major::K) {
      return cute::make_stride(ld, one, batch_stride);
    } else {
      return cute::make_stride(one, ld, batch_stride);
    }
  }();
  auto const matrix =
      cute::make_tensor(cute::make_gmem_ptr(static_cast<Element const*>(pointer)), shape, strides);
  return cute::make_tma_copy(cute::SM90_TMA_LOAD(), matrix, SharedTile<kMajor, kExtent>());
}

/// Brings tiles of a matrix: A, whose extent is M, or B, whose is N.
template <Major kMajor, int kExtent>
struct MatrixLoad {
  using Shape = cute::Shape<int, int, int>;
  using Copy = decltype(make_load<kMajor, kExtent>(nullptr, Shape(), 0, 0));

  static constexpr int kBytes = kExtent * kDepth * int(sizeof(Element));

  Copy copy;
  Shape shape;

  /// Of one product TMA has no use for the batch's stride, which may be anything.
  static MatrixLoad of(void const* pointer, Shape const& shape, int64_t ld, int64_t batch_stride) {
    int64_t const stride = cute::get<2>(shape) > 1 ? batch_stride : 0;
    return {make_load<kMajor, kExtent>(pointer, shape, ld, stride), shape};
  }

  /// What lies beyond the matrix arrives as zeros, and counts as bytes too.
  CUTLASS_DEVICE
  void operator()(Element* shared, uint64_t& barrier, int tile, int step, int batch) const {
    using Tile = cute::Shape<cute::Int<kExtent>, cute::Int<kDepth>>;
    auto const whole = copy.get_tma_tensor(shape)(cute::_, cute::_, batch);
    auto const source = cute::local_tile(whole, Tile(), cute::make_coord(tile, step));
    auto const target =
        cute::make_tensor(cute::make_smem_ptr(shared), SharedTile<kMajor, kExtent>());
    auto const slice = copy.get_slice(0);
    cute::copy(copy.with(barrier), slice.partition_S(source), slice.partition_D(target));
  }
};

}  // namespace sm90

/// A layer of a chain; `kColumns` are those of the threadblock's tile.
template <typename Graph_, typename LayoutB, int kColumns, int kAlignmentD_>
struct LayerSm90 {
  using Graph = Graph_;

  struct Shape {
    static constexpr int kN = kColumns;
  };
  static constexpr int kAlignmentD = kAlignmentD_;
  /// TMA takes nothing below 16 bytes.
  static constexpr int kAlignmentB = 8;
  static constexpr bool kRowMajorB = std::is_same<LayoutB, cutlass::layout::RowMajor>::value;
  static constexpr sm90::Major kMajorB = kRowMajorB ? sm90::Major::MN : sm90::Major::K;
};

}  // namespace boltgen
