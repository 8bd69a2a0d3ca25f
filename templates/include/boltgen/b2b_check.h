// Checks of a chain's arguments, whatever the kernel that computes it.

#pragma once

#include <cstdio>
#include <utility>

#include "boltgen/launch.h"

namespace boltgen {

/// Checks of the layers, whatever the first one is; the caller checks the first one's A and B.
template <typename Kernel>
class ChainCheck {
 public:
  ChainCheck(ArgumentCheck& check, boltgen_chain_layer const* layers)
      : check_(check), layers_(layers) {
    run(std::make_integer_sequence<int, Kernel::kLayers>());
  }

 private:
  template <int... kLayer>
  void run(std::integer_sequence<int, kLayer...>) {
    (layer<kLayer>(), ...);
  }

  template <int kLayer>
  void layer() {
    using Layer = typename Kernel::template Layer<kLayer>;
    using Operands = typename Layer::Graph::Operands;
    auto const& layer = layers_[kLayer];
    check_.at_least(name(kLayer, "n"), layer.n, 1);
    // A threadblock must have all columns of a layer.
    check_.at_most(name(kLayer, "n"), layer.n, Layer::Shape::kN);
    check_.multiple(name(kLayer, "n"), layer.n, Layer::kAlignmentD);
    if constexpr (kLayer > 0) {
      int const k = layers_[kLayer - 1].n;
      int const along = Layer::kRowMajorB ? layer.n : k;
      check_.at_least(name(kLayer, "ldb"), layer.ldb, along);
      check_.multiple(name(kLayer, Layer::kRowMajorB ? "n (rows of B)" : "k (columns of B)"), along,
                      Layer::kAlignmentB);
      check_.multiple(name(kLayer, "ldb"), layer.ldb, Layer::kAlignmentB);
      check_.multiple(name(kLayer, "batch_stride_b"), layer.batch_stride_b, Layer::kAlignmentB);
      check_.pointer(name(kLayer, "b"), layer.b, Layer::kAlignmentB, sizeof(cutlass::half_t));
    }
    check_operands(Operands(), check_, layer.operands, layer.n, Layer::kAlignmentD);
  }

  /// `layers[1].n`; good until the next call.
  char const* name(int layer, char const* field) {
    std::snprintf(name_, sizeof(name_), "layers[%d].%s", layer, field);
    return name_;
  }

  ArgumentCheck& check_;
  boltgen_chain_layer const* layers_;
  char name_[48];
};

template <typename Kernel>
void check_gemm_chain(ArgumentCheck& check, boltgen_gemm_chain_args const& args) {
  using First = typename Kernel::First;
  boltgen_chain_layer const& first = args.layers[0];
  int const n = args.layers[Kernel::kLayers - 1].n;
  check.at_least("m", args.m, 1);
  check.at_least("k", args.k, 1);
  check.at_least("batch", args.batch, 1);
  ChainCheck<Kernel>(check, args.layers);
  check.at_least("lda", args.lda, args.k);
  check.at_least("layers[0].ldb", first.ldb, First::kRowMajorB ? first.n : args.k);
  check.at_least("ldd", args.ldd, n);
  check.multiple("k (rows of A)", args.k, First::kAlignmentA);
  check.multiple("lda", args.lda, First::kAlignmentA);
  check.multiple("batch_stride_a", args.batch_stride_a, First::kAlignmentA);
  check.multiple(First::kRowMajorB ? "layers[0].n (rows of B)" : "k (columns of B)",
                 First::kRowMajorB ? first.n : args.k, First::kAlignmentB);
  check.multiple("layers[0].ldb", first.ldb, First::kAlignmentB);
  check.multiple("layers[0].batch_stride_b", first.batch_stride_b, First::kAlignmentB);
  check.multiple("ldd", args.ldd, Kernel::kAlignmentD);
  check.multiple("batch_stride_d", args.batch_stride_d, Kernel::kAlignmentD);
  check.pointer("a", args.a, First::kAlignmentA, sizeof(typename First::ElementA));
  check.pointer("layers[0].b", first.b, First::kAlignmentB, sizeof(typename First::ElementB));
  check.pointer("d", args.d, Kernel::kAlignmentD, sizeof(typename Kernel::ElementD));
}

/// The first layer as a convolution of its own.
inline boltgen_conv2d_args first_convolution(boltgen_conv2d_chain_args const& args) {
  boltgen_conv2d_args first{};
  first.groups = 1;
  first.a = args.a;
  first.b = args.layers[0].b;
  first.n = args.n;
  first.h = args.h;
  first.w = args.w;
  first.c = args.c;
  first.k = args.layers[0].n;
  first.r = args.r;
  first.s = args.s;
  first.p = args.p;
  first.q = args.q;
  first.pad_h = args.pad_h;
  first.pad_w = args.pad_w;
  first.stride_h = args.stride_h;
  first.stride_w = args.stride_w;
  first.dilation_h = args.dilation_h;
  first.dilation_w = args.dilation_w;
  first.split_k = 1;
  return first;
}

}  // namespace boltgen
