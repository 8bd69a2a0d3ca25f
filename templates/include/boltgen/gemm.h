// Matrix products: the host entry.

#pragma once

#include "boltgen/gemm_kernel.h"
#include "boltgen/launch.h"

namespace boltgen {

/// Everything that the kernel is launched with but the workspace.
template <typename Kernel>
typename Kernel::Params gemm_params(boltgen_gemm_args const& args) {
  using Shape = typename Kernel::Shape;
  typename Kernel::Params params{};
  params.problem_size = {args.m, args.n * Kernel::kProducts, args.k};
  params.batched = args.batch > 1;
  // A slice is whole tiles of K. Fewer slices than asked for may be enough then.
  int const k_tiles = (args.k + Shape::kK - 1) / Shape::kK;
  int const tiles_per_slice = (k_tiles + args.split_k - 1) / args.split_k;
  int const slices = (k_tiles + tiles_per_slice - 1) / tiles_per_slice;
  params.k_per_slice = params.batched ? args.k : tiles_per_slice * Shape::kK;
  params.grid_tiled_shape = ThreadblockSwizzle::get_tiled_shape(
      params.problem_size, {Shape::kM, Shape::kN, Shape::kK}, params.batched ? args.batch : slices);
  params.swizzle_log_tile = swizzle_log_tile(args.swizzle, params.grid_tiled_shape);
  params.a = typename Kernel::LayoutA(args.lda);
  params.b = typename Kernel::LayoutB(args.ldb);
  params.d = cutlass::layout::RowMajor(args.ldd);
  params.pointer_a = static_cast<typename Kernel::ElementA*>(const_cast<void*>(args.a));
  params.pointer_b = static_cast<typename Kernel::ElementB*>(const_cast<void*>(args.b));
  params.pointer_d = static_cast<typename Kernel::ElementD*>(args.d);
  params.batch_stride_a = args.batch_stride_a;
  params.batch_stride_b = args.batch_stride_b;
  params.batch_stride_d = args.batch_stride_d;
  for (int i = 0; i < Kernel::Operands::kCount; ++i) {
    params.output_op.operands[i] = args.operands[i];
  }
  params.output_op.operands[Kernel::Operands::kCount] = {args.d, args.ldd, args.batch_stride_d};
  params.output_op.batched = params.batched;
  return params;
}

/// Workspace of a product that is split along K; `params` knows into how many slices it really is.
template <typename Kernel>
SplitWorkspace gemm_workspace(typename Kernel::Params const& params) {
  auto const tiles = params.grid_tiled_shape;
  return SplitWorkspace(int64_t(tiles.m()) * tiles.n(), params.batched ? 1 : tiles.k(),
                        Kernel::Epilogue::kPartialsPerTile);
}

/// The arguments of a kernel that makes D of so many products.
template <typename Kernel, int kProducts = 1>
void check_gemm(ArgumentCheck& check, boltgen_gemm_args const& args) {
  constexpr bool kRowMajorB =
      std::is_same<typename Kernel::LayoutB, cutlass::layout::RowMajor>::value;
  int64_t const columns_of_b = int64_t(args.n) * kProducts;
  check.at_least("m", args.m, 1);
  check.at_least("n", args.n, 1);
  check.at_least("k", args.k, 1);
  check.at_least("batch", args.batch, 1);
  check.at_least("split_k", args.split_k, 1);
  // The grid's z dimension. Source: CUDA C++ Programming Guide, compute capabilities.
  check.at_most("batch", args.batch, 65535);
  check.at_most("split_k", args.split_k, args.batch > 1 ? 1 : 65535);
  check_order(check, args.swizzle, args.raster);
  check.at_least("lda", args.lda, args.k);
  check.at_most("columns of B", columns_of_b, INT32_MAX);
  check.at_least("ldb", args.ldb, kRowMajorB ? columns_of_b : args.k);
  check.at_least("ldd", args.ldd, args.n);
  check.multiple("k (rows of A)", args.k, Kernel::kAlignmentA);
  check.multiple("lda", args.lda, Kernel::kAlignmentA);
  check.multiple("batch_stride_a", args.batch_stride_a, Kernel::kAlignmentA);
  check.multiple(kRowMajorB ? "n (rows of B)" : "k (columns of B)",
                 kRowMajorB ? columns_of_b : args.k, Kernel::kAlignmentB);
  check.multiple("ldb", args.ldb, Kernel::kAlignmentB);
  check.multiple("batch_stride_b", args.batch_stride_b, Kernel::kAlignmentB);
  check.multiple("n (rows of D)", args.n, Kernel::kAlignmentD);
  check.multiple("ldd", args.ldd, Kernel::kAlignmentD);
  check.multiple("batch_stride_d", args.batch_stride_d, Kernel::kAlignmentD);
  check.pointer("a", args.a, Kernel::kAlignmentA, sizeof(typename Kernel::ElementA));
  check.pointer("b", args.b, Kernel::kAlignmentB, sizeof(typename Kernel::ElementB));
  check.pointer("d", args.d, Kernel::kAlignmentD, sizeof(typename Kernel::ElementD));
  check_operands(typename Kernel::Operands(), check, args.operands, args.n, Kernel::kAlignmentD);
}

template <typename Kernel>
size_t gemm_workspace_bytes(boltgen_gemm_args const* args) {
  bool const sensible =
      args->m > 0 && args->n > 0 && args->k > 0 && args->batch > 0 && args->split_k > 0;
  return sensible ? gemm_workspace<Kernel>(gemm_params<Kernel>(*args)).bytes : 0;
}

/// Enqueues the kernel, whose `params` need a workspace only.
template <typename Kernel>
int launch_gemm(void (*kernel)(typename Kernel::Params), ArgumentCheck& check,
                typename Kernel::Params& params, boltgen_gemm_args const& args,
                boltgen_status* status) {
  SplitWorkspace const split = gemm_workspace<Kernel>(params);
  check.workspace(args.workspace, args.workspace_bytes, split.bytes);
  dim3 const grid = swizzled_grid(params.grid_tiled_shape, params.swizzle_log_tile);
  check.at_most("number of blocks along N", grid.y, 65535);
  if (check.failed()) {
    return check.code();
  }
  params.semaphore = split.bytes > 0 ? static_cast<int*>(args.workspace) : nullptr;
  params.output_op.partials = split.partials(args.workspace);
  return launch<Kernel>(kernel, params, grid, split, args.workspace, args.stream, status);
}

template <typename Kernel>
int run_gemm(void (*kernel)(typename Kernel::Params), boltgen_gemm_args const* args,
             boltgen_status* status) {
  ArgumentCheck check(status);
  check_gemm<Kernel, Kernel::kProducts>(check, *args);
  if (check.failed()) {
    return check.code();
  }
  typename Kernel::Params params = gemm_params<Kernel>(*args);
  return launch_gemm<Kernel>(kernel, check, params, *args, status);
}

}  // namespace boltgen
