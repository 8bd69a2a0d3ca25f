// Results of one number for each row or column of D on sm_90a: CUTLASS's nodes of its visitor
// trees, with atomic operations. `ld` of a row's operand is not read: all rows of a product make
// one number.

#pragma once

#include "boltgen/reductions.h"
#include "boltgen/results_sm90.h"

namespace boltgen {

/// `Maximum` in the form of CUTLASS's functors, of numbers and of arrays of them.
template <typename T>
struct MergeMaximum {
  CUTLASS_DEVICE T operator()(T x, T y) const { return Maximum::merge(x, y); }
};

template <int kElements>
struct MergeMaximum<cutlass::Array<float, kElements>> {
  using Array = cutlass::Array<float, kElements>;

  CUTLASS_DEVICE Array operator()(Array const& x, Array const& y) const {
    Array merged;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kElements; ++i) {
      merged[i] = Maximum::merge(x[i], y[i]);
    }
    return merged;
  }
};

template <typename T>
struct AddMaximum {
  CUTLASS_DEVICE void operator()(T* to, T value) const { Maximum::add(to, value); }
};

}  // namespace boltgen

template <typename T>
struct cutlass::is_atomic<boltgen::AddMaximum<T>> : cutlass::platform::true_type {};

namespace boltgen {

/// CUTLASS's node of a reduction, by how values are merged and how they are added in memory.
template <typename Span, typename Tile, template <typename> class Merge,
          template <typename> class Add>
struct ReductionNode;

template <typename Tile, template <typename> class Merge, template <typename> class Add>
struct ReductionNode<Column<float>, Tile, Merge, Add> {
  using Stride = cute::Stride<cute::_1, cute::_0, int64_t>;
  using Node =
      cutlass::epilogue::fusion::Sm90ColReduction<Merge, Merge, Add, /*Stages=*/0, Tile, float,
                                                  float, cutlass::FloatRoundStyle::round_to_nearest,
                                                  Stride, /*Alignment=*/4, /*EnableNullptr=*/false>;
};

/// CUTLASS's node of sums of columns, but for how lanes merge theirs: it indexes a thread's sums by
/// its lane, and so keeps them in local memory.
template <typename Node_, template <typename> class Merge, template <typename> class Add>
struct RowNode : Node_ {
  using Node_::Node_;

  template <typename Callbacks>
  struct ConsumerStoreCallbacks : Callbacks {
    CUTLASS_DEVICE
    explicit ConsumerStoreCallbacks(Callbacks&& callbacks)
        : Callbacks(cute::forward<Callbacks>(callbacks)) {}

    template <typename Shared, typename Sync, typename Visited>
    CUTLASS_DEVICE void reduce(Shared&&, Sync const& sync, int, int, bool is_last, Visited) {
      auto& [by_source, sums, places, numbers, tile, buffer, staging, lanes, lane, warps, warp,
             coordinates, tile_residue, residue, epilogue_tile, copy, thread] =
          Callbacks::args_tuple;
      if (!is_last || !cute::elem_less(tile(cute::_0(), cute::_0()), tile_residue)) {
        return;
      }
      auto own = cute::filter_zeros(sums);
      CUTLASS_PRAGMA_UNROLL
      for (int rows = cute::size<0>(lanes) / 2; rows > 0; rows /= 2) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < cute::size(own); ++i) {
          float const other = __shfl_down_sync(0xFFFFFFFF, own(i), lanes(rows, cute::_0()));
          own(i) = Merge<float>()(own(i), other);
        }
      }
      constexpr bool kBySource = cute::remove_cvref_t<decltype(by_source)>::value;
      auto const where =
          cute::filter_zeros(cutlass::epilogue::fusion::sm90_partition_for_epilogue<kBySource>(
              numbers(cute::_, cute::_, cute::get<3>(coordinates)), epilogue_tile, copy, thread));
      auto const place =
          cute::make_tensor(places.data(), cute::make_layout(own.shape(), places.stride()));
      if (cute::get<0>(lane) == 0) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < cute::size(own); ++i) {
          if (cute::elem_less(place(i), residue)) {
            Add<float>()(&where(i), own(i));
          }
        }
      }
      sync();
    }
  };

  template <bool kReferenceSource, typename... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      cutlass::epilogue::fusion::ConsumerStoreArgs<Args...> const& args) {
    auto callbacks = Node_::template get_consumer_store_callbacks<kReferenceSource>(args);
    return ConsumerStoreCallbacks<decltype(callbacks)>(cute::move(callbacks));
  }
};

template <typename Tile, template <typename> class Merge, template <typename> class Add>
struct ReductionNode<Row<float>, Tile, Merge, Add> {
  using Stride = cute::Stride<cute::_0, cute::_1, int64_t>;
  using Node = RowNode<cutlass::epilogue::fusion::Sm90RowReduction<
                           Merge, Merge, Add, /*Stages=*/0, Tile, float, float,
                           cutlass::FloatRoundStyle::round_to_nearest, Stride, /*Alignment=*/4,
                           /*EnableNullptr=*/false>,
                       Merge, Add>;
};

template <typename Span, typename Tile, typename Reduction>
struct NodeOf : ReductionNode<Span, Tile, cutlass::plus, cutlass::atomic_add> {
  static float empty() { return 0.0f; }
};

template <typename Span, typename Tile>
struct NodeOf<Span, Tile, Maximum> : ReductionNode<Span, Tile, MergeMaximum, AddMaximum> {
  static float empty() { return -INFINITY; }
};

template <typename Span, typename Reduction, typename Tile>
struct ResultNode<Reduced<Span, Reduction>, Tile> {
  using Made = NodeOf<Span, Tile, Reduction>;
  using Node = typename Made::Node;

  CUTLASS_DEVICE static float term(float x) { return Reduction::term(x); }

  static typename Node::Arguments arguments(boltgen_operand const& result) {
    return {const_cast<void*>(result.pointer), Made::empty(), {{}, {}, result.batch_stride}};
  }
};

}  // namespace boltgen
