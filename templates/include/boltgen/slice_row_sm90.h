// Rows of slices in an epilogue of sm_90a: an operand with a row for each image or sequence, or for
// each position in all of them.
//
// CUTLASS's nodes of visitor trees have strides, and no stride leads from row m of D to row
// m / rows, or m % rows, of an operand where a tile has rows of several slices. This node is
// Sm90AuxLoad without shared memory, but for where it reads: each thread loads its elements, mostly
// from L1.

#pragma once

#include <cutlass/cutlass.h>
#include <cutlass/fast_math.h>
#include <cute/tensor.hpp>
#include <cutlass/epilogue/fusion/sm90_visitor_load_tma_warpspecialized.hpp>

#include "boltgen/abi.h"

namespace boltgen {

template <typename Element, bool kOfPositions>
struct SliceRowNode {
  struct SharedStorage {};

  struct Arguments {
    Element const* pointer;
    int rows;  ///< of a slice
    int64_t stride;
  };

  struct Params {
    Element const* pointer;
    cutlass::FastDivmod rows;
    int64_t stride;
  };

  template <typename ProblemShape>
  static Params to_underlying_arguments(ProblemShape const&, Arguments const& args, void*) {
    return {args.pointer, cutlass::FastDivmod(args.rows), args.stride};
  }

  template <typename ProblemShape>
  static bool can_implement(ProblemShape const&, Arguments const&) {
    return true;
  }

  template <typename ProblemShape>
  static size_t get_workspace_size(ProblemShape const&, Arguments const&) {
    return 0;
  }

  template <typename ProblemShape>
  static cutlass::Status initialize_workspace(ProblemShape const&, Arguments const&, void*,
                                              cudaStream_t, cutlass::CudaHostAdapter* = nullptr) {
    return cutlass::Status::kSuccess;
  }

  CUTLASS_HOST_DEVICE
  SliceRowNode() {}

  CUTLASS_HOST_DEVICE
  SliceRowNode(Params const& params, SharedStorage const&) : params_(&params) {}

  CUTLASS_DEVICE
  bool is_producer_load_needed() const { return false; }

  CUTLASS_DEVICE
  bool is_C_load_needed() const { return false; }

  template <typename... Args>
  CUTLASS_DEVICE auto get_producer_load_callbacks(
      cutlass::epilogue::fusion::ProducerLoadArgs<Args...> const&) {
    return cutlass::epilogue::fusion::EmptyProducerLoadCallbacks{};
  }

  /// `Places` are the coordinates in D of a thread's elements, `Values` those of one subtile.
  template <typename Places, typename Values, typename Extents>
  struct ConsumerStoreCallbacks : cutlass::epilogue::fusion::EmptyConsumerStoreCallbacks {
    CUTLASS_DEVICE
    ConsumerStoreCallbacks(Places const& places, Values const& values, Extents const& extents,
                           Params const& params)
        : places(places), values(values), extents(extents), params(params) {}

    CUTLASS_DEVICE
    void begin_loop(int epi_m, int epi_n) {
      auto const here = places(cute::_, cute::_, cute::_, epi_m, epi_n);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < cute::size(values); ++i) {
        auto const place = here(i);
        int slice, position;
        params.rows(slice, position, int(cute::get<0>(place)));
        int const read = kOfPositions ? position : slice;
        values(i) = cute::elem_less(place, extents)
                        ? params.pointer[read * params.stride + cute::get<1>(place)]
                        : Element(0);
      }
    }

    template <typename Accumulator, int kElements>
    CUTLASS_DEVICE cutlass::Array<float, kElements> visit(
        cutlass::Array<Accumulator, kElements> const&, int epi_v, int, int) {
      cutlass::Array<float, kElements> loaded;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kElements; ++i) {
        loaded[i] = float(values(epi_v * kElements + i));
      }
      return loaded;
    }

    Places places;
    Values values;
    Extents extents;
    Params const& params;
  };

  template <bool kReferenceSource, typename... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      cutlass::epilogue::fusion::ConsumerStoreArgs<Args...> const& args) {
    auto const [m, n, k, l] = args.problem_shape_mnkl;
    auto const extents = cute::make_shape(m, n, l);
    auto const places = cutlass::epilogue::fusion::sm90_partition_for_epilogue<kReferenceSource>(
        cute::make_identity_tensor(extents), args.tile_shape_mnk, args.tile_coord_mnkl,
        args.epi_tile, args.tiled_copy, args.thread_idx);
    auto const values = cute::make_tensor<Element>(cute::take<0, 3>(cute::shape(places)));
    return ConsumerStoreCallbacks<cute::remove_cvref_t<decltype(places)>,
                                  cute::remove_cvref_t<decltype(values)>,
                                  cute::remove_cvref_t<decltype(extents)>>(places, values, extents,
                                                                           *params_);
  }

 private:
  Params const* params_;
};

}  // namespace boltgen
