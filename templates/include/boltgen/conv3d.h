// Forward convolutions of volumes: the kernel type and its host entry.

#pragma once

#include <cutlass/conv/kernel/default_conv3d_fprop.h>

#include "boltgen/conv2d.h"

namespace boltgen {

/// A convolution of volumes with `Graph` as its epilogue; `kAlignmentD_` is in elements. CUTLASS's
/// iterators of volumes read whole vectors of channels.
template <typename Mainloop, typename Graph, typename ElementD, int kAlignmentD_>
struct Conv3d
    : cutlass::conv::kernel::ImplicitGemmConvolution<
          Mainloop, GraphEpilogue<Mainloop, ElementD, kAlignmentD_, Graph>, ThreadblockSwizzle,
          cutlass::conv::Operator::kFprop, cutlass::conv::Conv3dProblemSize> {
  using Operands = typename Graph::Operands;
  static constexpr int kAlignmentA = Mainloop::IteratorA::AccessType::kElements;
  static constexpr int kAlignmentB = Mainloop::IteratorB::AccessType::kElements;
  static constexpr int kAlignmentD = kAlignmentD_;
};

/// Members by name, as in `conv2d_problem`.
inline cutlass::conv::Conv3dProblemSize conv3d_problem(boltgen_conv3d_args const& args) {
  cutlass::conv::Conv3dProblemSize problem;
  problem.N = args.n;
  problem.D = args.depth;
  problem.H = args.h;
  problem.W = args.w;
  problem.C = args.c;
  problem.Z = args.z;
  problem.P = args.p;
  problem.Q = args.q;
  problem.K = args.k;
  problem.T = args.t;
  problem.R = args.r;
  problem.S = args.s;
  problem.pad_d = args.pad_d;
  problem.pad_h = args.pad_h;
  problem.pad_w = args.pad_w;
  problem.stride_d = args.stride_d;
  problem.stride_h = args.stride_h;
  problem.stride_w = args.stride_w;
  problem.dilation_d = args.dilation_d;
  problem.dilation_h = args.dilation_h;
  problem.dilation_w = args.dilation_w;
  problem.mode = cutlass::conv::Mode::kCrossCorrelation;
  problem.split_k_slices = args.split_k;
  problem.groups = 1;
  return problem;
}

template <typename Kernel>
typename Kernel::Params conv3d_params(boltgen_conv3d_args const& args, int* semaphore) {
  using Ndhwc = cutlass::layout::TensorNDHWC;
  using A = typename Kernel::ElementA;
  using B = typename Kernel::ElementB;
  using D = typename Kernel::ElementC;
  typename Kernel::EpilogueOutputOp::Params epilogue{};
  for (int i = 0; i < Kernel::Operands::kCount; ++i) {
    epilogue.operands[i] = args.operands[i];
  }
  typename Kernel::TensorRefC const d(static_cast<D*>(args.d),
                                      Ndhwc::packed({args.n, args.z, args.p, args.q, args.k}));
  typename Kernel::Arguments const arguments(
      conv3d_problem(args),
      {static_cast<A*>(const_cast<void*>(args.a)),
       Ndhwc::packed({args.n, args.depth, args.h, args.w, args.c})},
      {static_cast<B*>(const_cast<void*>(args.b)),
       Ndhwc::packed({args.k, args.t, args.r, args.s, args.c})},
      /*ref_C=*/d, d, epilogue);
  typename Kernel::Params params(arguments, semaphore);
  params.swizzle_log_tile = swizzle_log_tile(args.swizzle, params.grid_tiled_shape);
  return params;
}

/// Workspace of a convolution whose reduction is split.
template <typename Kernel>
SplitWorkspace conv3d_workspace(boltgen_conv3d_args const& args) {
  auto const tiles = ThreadblockSwizzle::get_tiled_shape(
      cutlass::conv::implicit_gemm_problem_size(cutlass::conv::Operator::kFprop,
                                                conv3d_problem(args)),
      {Kernel::ThreadblockShape::kM, Kernel::ThreadblockShape::kN, Kernel::ThreadblockShape::kK},
      args.split_k);
  return SplitWorkspace(int64_t(tiles.m()) * tiles.n(), tiles.k(),
                        Kernel::Epilogue::kPartialsPerTile);
}

template <typename Kernel>
void check_conv3d(ArgumentCheck& check, boltgen_conv3d_args const& args) {
  struct {
    char const* name;
    int value;
  } const extents[] = {{"n", args.n},
                       {"depth", args.depth},
                       {"h", args.h},
                       {"w", args.w},
                       {"c", args.c},
                       {"k", args.k},
                       {"t", args.t},
                       {"r", args.r},
                       {"s", args.s},
                       {"z", args.z},
                       {"p", args.p},
                       {"q", args.q},
                       {"stride_d", args.stride_d},
                       {"stride_h", args.stride_h},
                       {"stride_w", args.stride_w},
                       {"dilation_d", args.dilation_d},
                       {"dilation_h", args.dilation_h},
                       {"dilation_w", args.dilation_w},
                       {"split_k", args.split_k}};
  for (auto const& extent : extents) {
    check.at_least(extent.name, extent.value, 1);
  }
  check.at_least("pad_d", args.pad_d, 0);
  check.at_least("pad_h", args.pad_h, 0);
  check.at_least("pad_w", args.pad_w, 0);
  check.at_most("split_k", args.split_k, 65535);
  // One predicate bit for each filter plane, row and column. Source: cutlass/conv/threadblock/
  // conv3d_fprop_activation_tile_access_iterator_optimized.h.
  check.at_most("t", args.t, 32);
  check.at_most("r", args.r, 32);
  check.at_most("s", args.s, 32);
  if (check.failed()) {
    return;
  }
  check_order(check, args.swizzle, args.raster);
  using A = typename Kernel::ElementA;
  using D = typename Kernel::ElementC;
  check_conv2d_tensor(check, "bytes of A", args.n, int64_t(args.depth) * args.h, args.w, args.c,
                      sizeof(A));
  check_conv2d_tensor(check, "bytes of B", args.k, int64_t(args.t) * args.r, args.s, args.c,
                      sizeof(A));
  check_conv2d_tensor(check, "bytes of D", args.n, int64_t(args.z) * args.p, args.q, args.k,
                      sizeof(D));
  check.multiple("c (of A)", args.c, Kernel::kAlignmentA);
  check.multiple("k (of D)", args.k, Kernel::kAlignmentD);
  check.pointer("a", args.a, Kernel::kAlignmentA, sizeof(A));
  check.pointer("b", args.b, Kernel::kAlignmentB, sizeof(A));
  check.pointer("d", args.d, Kernel::kAlignmentD, sizeof(D));
  check_operands(typename Kernel::Operands(), check, args.operands, args.k, Kernel::kAlignmentD);
}

template <typename Kernel>
size_t conv3d_workspace_bytes(boltgen_conv3d_args const* args) {
  return args->split_k > 1 ? conv3d_workspace<Kernel>(*args).bytes : 0;
}

template <typename Kernel>
int run_conv3d_images(void (*kernel)(typename Kernel::Params), boltgen_conv3d_args const* args,
                      boltgen_status* status) {
  ArgumentCheck check(status);
  check_conv3d<Kernel>(check, *args);
  if (check.failed()) {
    return check.code();
  }
  SplitWorkspace const split = conv3d_workspace<Kernel>(*args);
  check.workspace(args->workspace, args->workspace_bytes, split.bytes);
  int* const semaphore = split.bytes > 0 ? static_cast<int*>(args->workspace) : nullptr;
  typename Kernel::Params params = conv3d_params<Kernel>(*args, semaphore);
  dim3 const grid = swizzled_grid(params.grid_tiled_shape, params.swizzle_log_tile);
  check.at_most("number of blocks along N", grid.y, 65535);
  if (check.failed()) {
    return check.code();
  }
  params.output_op.partials = split.partials(args->workspace);
  return launch<Kernel>(kernel, params, grid, split, args->workspace, args->stream, status);
}

template <typename Kernel>
int run_conv3d(void (*kernel)(typename Kernel::Params), boltgen_conv3d_args const* args,
               boltgen_status* status) {
  return for_slices_of_images<Kernel>(*args, int64_t(args->depth) * args->h * args->w * args->c,
                                      int64_t(args->z) * args->p * args->q, [&](auto const& slice) {
                                        return run_conv3d_images<Kernel>(kernel, &slice, status);
                                      });
}

}  // namespace boltgen
