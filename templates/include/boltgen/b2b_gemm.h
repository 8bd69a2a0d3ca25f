// Chains that begin with a matrix product: the first layer, and the host entry.

#pragma once

#include <cutlass/gemm/gemm.h>
#include <cutlass/gemm/threadblock/default_mma.h>

#include "boltgen/b2b_kernel.h"

namespace boltgen {

/// The first layer: CUTLASS's mainloop `Mma_` over all of K.
template <typename Mma_, typename Graph, int kAlignmentD>
struct GemmFirst : FirstLayer<Mma_, Graph, kAlignmentD> {
  using Mma = Mma_;
  using ElementA = typename Mma::IteratorA::Element;
  using ElementB = typename Mma::IteratorB::Element;
  using LayoutB = typename Mma::IteratorB::Layout;

  static constexpr int kAlignmentA = Mma::IteratorA::AccessType::kElements;
  static constexpr int kAlignmentB = Mma::IteratorB::AccessType::kElements;
  static constexpr bool kRowMajorB = std::is_same<LayoutB, cutlass::layout::RowMajor>::value;

  struct Params {
    int m;
    int k;
    typename Mma::IteratorA::Params a;
    typename Mma::IteratorB::Params b;
    ElementA* pointer_a;
    int64_t batch_stride_a;
  };

  CUTLASS_DEVICE
  static void multiply(Params const& params, boltgen_chain_layer const& layer,
                       typename Mma::SharedStorage& shared_storage,
                       typename Mma::FragmentC& accumulators, int first_row, int batch, int thread,
                       int warp, int lane) {
    auto* const pointer_b = static_cast<ElementB*>(const_cast<void*>(layer.b));
    typename Mma::IteratorA a(params.a, params.pointer_a + batch * params.batch_stride_a,
                              {params.m, params.k}, thread, {first_row, 0});
    typename Mma::IteratorB b(params.b, pointer_b + batch * layer.batch_stride_b,
                              {params.k, layer.n}, thread, {0, 0});
    Mma mma(shared_storage, thread, warp, lane);
    mma((params.k + Mma::Shape::kK - 1) / Mma::Shape::kK, accumulators, a, b, accumulators);
  }
};

template <typename Kernel>
typename Kernel::Params gemm_chain_params(boltgen_gemm_chain_args const& args) {
  using First = typename Kernel::First;
  auto params =
      chain_params<Kernel>(args.m, args.batch, args.layers, args.d, args.ldd, args.batch_stride_d);
  params.first.m = args.m;
  params.first.k = args.k;
  params.first.a = cutlass::layout::RowMajor(args.lda);
  params.first.b = typename First::LayoutB(args.layers[0].ldb);
  params.first.pointer_a = static_cast<typename First::ElementA*>(const_cast<void*>(args.a));
  params.first.batch_stride_a = args.batch_stride_a;
  return params;
}

template <typename Kernel>
int run_gemm_chain(void (*kernel)(typename Kernel::Params), boltgen_gemm_chain_args const* args,
                   boltgen_status* status) {
  ArgumentCheck check(status);
  check_gemm_chain<Kernel>(check, *args);
  // The grid's z dimension. Source: CUDA C++ Programming Guide, compute capabilities.
  check.at_most("batch", args->batch, 65535);
  return check.failed()
             ? check.code()
             : launch_chain<Kernel>(kernel, gemm_chain_params<Kernel>(*args), args->stream, status);
}

}  // namespace boltgen
