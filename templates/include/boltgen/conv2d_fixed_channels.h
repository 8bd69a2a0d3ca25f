// Convolutions whose vectors are all channels of a pixel: what CUTLASS's iterator lacks.

#pragma once

#include "boltgen/conv2d.h"

namespace boltgen {

/// CUTLASS's iterator of A, which also reads no pixel beyond the last filter position.
///
/// A step of K is several positions, so the last step has some beyond the filter. Of those CUTLASS
/// predicates only the weights: a NaN or an infinity in a pixel there, times zero, would be a NaN
/// in an output that the pixel has no part in. Source:
/// cutlass/conv/threadblock/conv2d_fprop_activation_tile_access_iterator_fixed_channels.h, valid().
template <typename Base>
class WithinFilter : public Base {
 public:
  using Params = typename Base::Params;
  using Index = typename Base::Index;
  using Element = typename Base::Element;
  using ThreadMap = typename Base::ThreadMap;

  CUTLASS_HOST_DEVICE
  WithinFilter(Params const& params, cutlass::conv::Conv2dProblemSize const& problem,
               Element const* pointer, int thread,
               cutlass::MatrixCoord const& offset = cutlass::MatrixCoord())
      : Base(params, problem, pointer, thread, offset),
        positions_left_(problem.R * problem.S -
                        (offset.column() + ThreadMap::initial_offset(thread).contiguous()) /
                            Base::AccessType::kElements) {}

  CUTLASS_HOST_DEVICE
  void set_iteration_index(Index index) {
    Base::set_iteration_index(index);
    vector_ = int(index % Base::kAccessesPerVector);
  }

  /// To the next step of K. There is one slice of K only: see check_conv2d.
  CUTLASS_HOST_DEVICE
  void advance() {
    Base::advance();
    positions_left_ -= Base::kFilterPositionsPerTile;
  }

  CUTLASS_HOST_DEVICE
  bool valid() const { return vector_ < positions_left_ && Base::valid(); }

  CUTLASS_HOST_DEVICE
  WithinFilter& operator++() {
    Base::operator++();
    vector_ = (vector_ + 1) % Base::kAccessesPerVector;
    return *this;
  }

 private:
  int positions_left_;  ///< in the filter, from the thread's first one in this step
  int vector_ = 0;      ///< of the access that comes next: the position after that first one
};

/// `Mainloop` with such an iterator.
template <typename Mainloop>
struct FixedChannelsOf;

template <typename Shape, typename IteratorA, typename SmemIteratorA,
          cutlass::arch::CacheOperation::Kind kCacheA, typename IteratorB, typename SmemIteratorB,
          cutlass::arch::CacheOperation::Kind kCacheB, typename Policy, int kStages>
struct FixedChannelsOf<cutlass::conv::threadblock::ImplicitGemmMultistage<
    Shape, IteratorA, SmemIteratorA, kCacheA, IteratorB, SmemIteratorB, kCacheB, Policy, kStages>> {
  using Type =
      cutlass::conv::threadblock::ImplicitGemmMultistage<Shape, WithinFilter<IteratorA>,
                                                         SmemIteratorA, kCacheA, IteratorB,
                                                         SmemIteratorB, kCacheB, Policy, kStages>;
};

template <typename Shape, typename AccessIteratorA, typename SmemIteratorA, typename IteratorB,
          typename SmemIteratorB, typename ElementC, typename LayoutC, typename Policy>
struct FixedChannelsOf<cutlass::conv::threadblock::ImplicitGemmPipelined<
    Shape, cutlass::conv::threadblock::TileIterator<AccessIteratorA>, SmemIteratorA, IteratorB,
    SmemIteratorB, ElementC, LayoutC, Policy>> {
  using Type = cutlass::conv::threadblock::ImplicitGemmPipelined<
      Shape, cutlass::conv::threadblock::TileIterator<WithinFilter<AccessIteratorA>>, SmemIteratorA,
      IteratorB, SmemIteratorB, ElementC, LayoutC, Policy>;
};

template <typename Mainloop>
using FixedChannels = typename FixedChannelsOf<Mainloop>::Type;

}  // namespace boltgen
