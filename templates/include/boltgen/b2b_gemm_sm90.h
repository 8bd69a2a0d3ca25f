// Chains on sm_90a that begin with a matrix product: the first layer's operands, the host entry.

#pragma once

#include "boltgen/b2b_check.h"
#include "boltgen/b2b_sm90.h"

namespace boltgen {

/// Brings A, `kM` rows of it, and the first layer's B, `kColumns` of it.
template <typename Layer, int kM, int kColumns>
struct GemmFirstSm90 {
  using LoadA = sm90::MatrixLoad<sm90::Major::K, kM>;
  using LoadB = sm90::MatrixLoad<Layer::kMajorB, kColumns>;

  using ElementA = sm90::Element;
  using ElementB = sm90::Element;

  static constexpr int kAlignmentA = Layer::kAlignmentB, kAlignmentB = Layer::kAlignmentB;
  static constexpr bool kRowMajorB = Layer::kRowMajorB;
  static constexpr int kBytesA = LoadA::kBytes, kBytesB = LoadB::kBytes;

  LoadA load_a;
  LoadB load_b;
  int steps;
};

template <typename Kernel>
typename Kernel::Params gemm_chain_params_sm90(boltgen_gemm_chain_args const& args) {
  using First = typename Kernel::First;
  boltgen_chain_layer const& layer = args.layers[0];
  typename Kernel::Params params{};
  params.first.load_a =
      First::LoadA::of(args.a, {args.m, args.k, args.batch}, args.lda, args.batch_stride_a);
  params.first.load_b =
      First::LoadB::of(layer.b, {layer.n, args.k, args.batch}, layer.ldb, layer.batch_stride_b);
  params.first.steps = (args.k + sm90::kDepth - 1) / sm90::kDepth;
  set_chain_sm90<Kernel>(params, args.m, args.batch, args.layers, args.d, args.ldd,
                         args.batch_stride_d);
  return params;
}

template <typename Kernel>
int run_gemm_chain_sm90(void (*kernel)(typename Kernel::Params),
                        boltgen_gemm_chain_args const* args, boltgen_status* status) {
  ArgumentCheck check(status);
  check_gemm_chain<Kernel>(check, *args);
  if (args->batch > 1) {
    // No document says that TMA takes a stride of 0.
    check.at_least("batch_stride_a", args->batch_stride_a, 1);
    for (int i = 0; i < Kernel::kLayers; ++i) {
      char name[48];
      std::snprintf(name, sizeof(name), "layers[%d].batch_stride_b", i);
      check.at_least(name, args->layers[i].batch_stride_b, 1);
    }
  }
  return check.failed() ? check.code()
                        : launch_persistent<Kernel>(kernel, gemm_chain_params_sm90<Kernel>(*args),
                                                    args->stream, status);
}

}  // namespace boltgen
