// Chains that begin with a convolution and go on with 1x1 ones: the first layer, the host entry.

#pragma once

#include "boltgen/b2b_kernel.h"
#include "boltgen/conv2d.h"

namespace boltgen {

/// The first layer: CUTLASS's implicit GEMM `Mma_`.
template <typename Mma_, typename Graph, int kAlignmentD>
struct Conv2dFirst : FirstLayer<Mma_, Graph, kAlignmentD> {
  using Mma = Mma_;
  using ElementA = typename Mma::IteratorA::Element;
  using ElementB = typename Mma::IteratorB::Element;
  using Nhwc = cutlass::layout::TensorNHWC;

  static constexpr auto kIteratorAlgorithm = Mma::IteratorA::kIteratorAlgorithm;
  static constexpr int kAlignmentA = Mma::IteratorA::AccessType::kElements;
  static constexpr int kAlignmentB = Mma::IteratorB::AccessType::kElements;

  struct Params {
    cutlass::conv::Conv2dProblemSize problem_size;
    int k_iterations;
    int k_iterations_per_channel;
    typename Mma::IteratorA::Params a;
    typename Mma::IteratorB::Params b;
    ElementA const* pointer_a;
  };

  CUTLASS_DEVICE
  static void multiply(Params const& params, boltgen_chain_layer const& layer,
                       typename Mma::SharedStorage& shared_storage,
                       typename Mma::FragmentC& accumulators, int first_row, int, int thread,
                       int warp, int lane) {
    typename Mma::IteratorA a(params.a, params.problem_size, params.pointer_a, thread,
                              cutlass::MatrixCoord(first_row, 0));
    typename Mma::IteratorB b(params.b, params.problem_size, static_cast<ElementB const*>(layer.b),
                              thread, cutlass::MatrixCoord(0, 0));
    Mma mma(shared_storage, thread, warp, lane);
    mma(params.k_iterations, accumulators, a, b, accumulators, params.k_iterations_per_channel);
  }
};

template <typename Kernel>
void check_conv2d_chain(ArgumentCheck& check, boltgen_conv2d_chain_args const& args) {
  using First = typename Kernel::First;
  check_conv2d_geometry(check, first_convolution(args), First::kIteratorAlgorithm,
                        sizeof(cutlass::half_t));
  ChainCheck<Kernel>(check, args.layers);
  check.at_most("rows of the output", int64_t(args.n) * args.p * args.q, INT32_MAX - 256);
  check.multiple("c (of A)", args.c, First::kAlignmentA);
  check.multiple("c (of layers[0].b)", args.c, First::kAlignmentB);
  check.pointer("a", args.a, First::kAlignmentA, sizeof(typename First::ElementA));
  check.pointer("layers[0].b", args.layers[0].b, First::kAlignmentB,
                sizeof(typename First::ElementB));
  check.pointer("d", args.d, Kernel::kAlignmentD, sizeof(typename Kernel::ElementD));
}

template <typename Kernel>
typename Kernel::Params conv2d_chain_params(boltgen_conv2d_chain_args const& args) {
  using First = typename Kernel::First;
  using Nhwc = typename First::Nhwc;
  int const rows = args.n * args.p * args.q;
  int const columns = args.layers[Kernel::kLayers - 1].n;
  auto params = chain_params<Kernel>(rows, 1, args.layers, args.d, columns, 0);
  auto const problem = conv2d_problem(first_convolution(args));
  auto const filter = Nhwc::packed({args.layers[0].n, args.r, args.s, args.c});
  params.first.problem_size = problem;
  params.first.k_iterations = cutlass::conv::implicit_gemm_k_iterations(
      cutlass::conv::Operator::kFprop, First::Shape::kK, problem, First::kIteratorAlgorithm,
      cutlass::conv::GroupMode::kNone, First::Shape::kN);
  params.first.k_iterations_per_channel = cutlass::conv::implicit_gemm_k_iterations_per_channel(
      cutlass::conv::Operator::kFprop, problem, First::kIteratorAlgorithm);
  params.first.a =
      First::Mma::IteratorA::getParams(problem, Nhwc::packed({args.n, args.h, args.w, args.c}));
  params.first.b = typename First::Mma::IteratorB::Params(problem, filter);
  params.first.pointer_a = static_cast<typename First::ElementA const*>(args.a);
  return params;
}

template <typename Kernel>
int run_conv2d_chain(void (*kernel)(typename Kernel::Params), boltgen_conv2d_chain_args const* args,
                     boltgen_status* status) {
  ArgumentCheck check(status);
  check_conv2d_chain<Kernel>(check, *args);
  return check.failed() ? check.code()
                        : launch_chain<Kernel>(kernel, conv2d_chain_params<Kernel>(*args),
                                               args->stream, status);
}

}  // namespace boltgen
