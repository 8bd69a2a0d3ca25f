// Matrix products: the kernel type and its host entry.

#pragma once

#include <cutlass/gemm/kernel/default_gemm.h>
#include <cutlass/gemm/kernel/gemm_universal.h>
#include <cutlass/gemm/threadblock/default_mma.h>
#include <cutlass/gemm/threadblock/threadblock_swizzle.h>

#include "boltgen/epilogue_graph.h"
#include "boltgen/launch.h"

namespace boltgen {

/// A GEMM with `Graph` as its epilogue; alignments are in elements.
template <typename Mainloop, typename Graph, typename ElementD, int kAlignmentD_, typename Swizzle>
struct Gemm : cutlass::gemm::kernel::GemmUniversal<
                  Mainloop, GraphEpilogue<Mainloop, ElementD, kAlignmentD_, Graph>, Swizzle> {
  using Operands = typename Graph::Operands;
  static constexpr int kAlignmentD = kAlignmentD_;
};

template <typename Kernel>
typename Kernel::Params gemm_params(boltgen_gemm_args const& args) {
  using cutlass::gemm::GemmUniversalMode;
  typename Kernel::EpilogueOutputOp::Params epilogue{};
  for (int i = 0; i < Kernel::Operands::kCount; ++i) {
    epilogue.operands[i] = args.operands[i];
  }
  epilogue.batched = args.batch > 1;
  typename Kernel::Arguments const arguments(
      args.batch > 1 ? GemmUniversalMode::kBatched : GemmUniversalMode::kGemm,
      {args.m, args.n, args.k}, args.batch > 1 ? args.batch : args.split_k, epilogue, args.a,
      args.b, /*ptr_C=*/nullptr, args.d, args.batch_stride_a, args.batch_stride_b,
      /*batch_stride_C=*/0, args.batch_stride_d, args.lda, args.ldb, /*ldc=*/args.ldd, args.ldd);
  return typename Kernel::Params(arguments, /*device_sms=*/0, /*sm_occupancy=*/0);
}

/// Workspace of a product that is split along K; `params` knows into how many slices it really is.
template <typename Kernel>
SplitWorkspace gemm_workspace(typename Kernel::Params const& params) {
  bool const batched = params.mode == cutlass::gemm::GemmUniversalMode::kBatched;
  auto const tiles = params.grid_tiled_shape;
  return SplitWorkspace(int64_t(tiles.m()) * tiles.n(), batched ? 1 : tiles.k(),
                        Kernel::Epilogue::kPartialsPerTile);
}

template <typename Kernel>
void check_gemm(ArgumentCheck& check, boltgen_gemm_args const& args) {
  constexpr bool kRowMajorB =
      std::is_same<typename Kernel::LayoutB, cutlass::layout::RowMajor>::value;
  check.at_least("m", args.m, 1);
  check.at_least("n", args.n, 1);
  check.at_least("k", args.k, 1);
  check.at_least("batch", args.batch, 1);
  check.at_least("split_k", args.split_k, 1);
  // The grid's z dimension. Source: CUDA C++ Programming Guide, compute capabilities.
  check.at_most("batch", args.batch, 65535);
  check.at_most("split_k", args.split_k, args.batch > 1 ? 1 : 65535);
  check.at_least("lda", args.lda, args.k);
  check.at_least("ldb", args.ldb, kRowMajorB ? args.n : args.k);
  check.at_least("ldd", args.ldd, args.n);
  check.multiple("k (rows of A)", args.k, Kernel::kAlignmentA);
  check.multiple("lda", args.lda, Kernel::kAlignmentA);
  check.multiple("batch_stride_a", args.batch_stride_a, Kernel::kAlignmentA);
  check.multiple(kRowMajorB ? "n (rows of B)" : "k (columns of B)", kRowMajorB ? args.n : args.k,
                 Kernel::kAlignmentB);
  check.multiple("ldb", args.ldb, Kernel::kAlignmentB);
  check.multiple("batch_stride_b", args.batch_stride_b, Kernel::kAlignmentB);
  check.multiple("n (rows of D)", args.n, Kernel::kAlignmentD);
  check.multiple("ldd", args.ldd, Kernel::kAlignmentD);
  check.multiple("batch_stride_d", args.batch_stride_d, Kernel::kAlignmentD);
  check.pointer("a", args.a, Kernel::kAlignmentA, sizeof(typename Kernel::ElementA));
  check.pointer("b", args.b, Kernel::kAlignmentB, sizeof(typename Kernel::ElementB));
  check.pointer("d", args.d, Kernel::kAlignmentD, sizeof(typename Kernel::ElementC));
  check_operands(typename Kernel::Operands(), check, args.operands, args.n, Kernel::kAlignmentD);
}

template <typename Kernel>
size_t gemm_workspace_bytes(boltgen_gemm_args const* args) {
  bool const sensible =
      args->m > 0 && args->n > 0 && args->k > 0 && args->batch > 0 && args->split_k > 0;
  return sensible ? gemm_workspace<Kernel>(gemm_params<Kernel>(*args)).bytes : 0;
}

template <typename Kernel>
int run_gemm(void (*kernel)(typename Kernel::Params), boltgen_gemm_args const* args,
             boltgen_status* status) {
  ArgumentCheck check(status);
  check_gemm<Kernel>(check, *args);
  if (check.failed()) {
    return check.code();
  }
  typename Kernel::Params params = gemm_params<Kernel>(*args);
  SplitWorkspace const split = gemm_workspace<Kernel>(params);
  check.workspace(args->workspace, args->workspace_bytes, split.bytes);
  check.at_most("number of tiles along N", params.grid_tiled_shape.n(), 65535);
  if (check.failed()) {
    return check.code();
  }
  params.semaphore = split.bytes > 0 ? static_cast<int*>(args->workspace) : nullptr;
  params.output_op.partials = split.partials(args->workspace);
  return launch<Kernel>(kernel, params, split, args->workspace, args->stream, status);
}

}  // namespace boltgen
