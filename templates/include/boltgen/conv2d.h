// Forward convolutions: the kernel type and its host entry.

#pragma once

#include <cutlass/conv/kernel/default_conv2d_fprop.h>
#include <cutlass/conv/kernel/implicit_gemm_convolution.h>
#include <cutlass/epilogue/thread/linear_combination.h>

#include "boltgen/epilogue_graph.h"
#include "boltgen/image_slices.h"
#include "boltgen/launch.h"
#include "boltgen/swizzle.h"

namespace boltgen {

/// Stands in for the output operator where CUTLASS's defaults want one only to pick the mainloop.
/// Of integers it has single sums: not every tile has rows for vectors of bytes.
template <typename ElementD, int kAlignmentD, typename ElementAccumulator>
struct Placeholder {
  using Type = cutlass::epilogue::thread::LinearCombination<ElementD, kAlignmentD,
                                                            ElementAccumulator, float>;
};

template <typename ElementD, int kAlignmentD>
struct Placeholder<ElementD, kAlignmentD, int32_t> {
  using Type = cutlass::epilogue::thread::LinearCombination<int32_t, 1, int32_t, float>;
};

template <typename ElementD, int kAlignmentD, typename ElementAccumulator>
using PlaceholderOutputOp = typename Placeholder<ElementD, kAlignmentD, ElementAccumulator>::Type;

/// A convolution with `Graph` as its epilogue; alignments are in elements. `Conv2dInGroups` is the
/// one whose channels and filters are in groups.
template <typename Mainloop, typename Graph, typename ElementD, int kAlignmentD_>
struct Conv2d : cutlass::conv::kernel::ImplicitGemmConvolution<
                    Mainloop, GraphEpilogue<Mainloop, ElementD, kAlignmentD_, Graph>,
                    ThreadblockSwizzle, cutlass::conv::Operator::kFprop> {
  using Operands = typename Graph::Operands;
  static constexpr int kAlignmentA = Mainloop::IteratorA::AccessType::kElements;
  static constexpr int kAlignmentB = Mainloop::IteratorB::AccessType::kElements;
  static constexpr int kAlignmentD = kAlignmentD_;
  static constexpr bool kInGroups = false;
};

/// The channels and the filters of a group; of all, where there is one.
inline int channels_of_group(boltgen_conv2d_args const& args) { return args.c / args.groups; }
inline int filters_of_group(boltgen_conv2d_args const& args) { return args.k / args.groups; }

/// The problem of one group. Members by name: the constructors of Conv2dProblemSize disagree on the
/// order of their integers.
inline cutlass::conv::Conv2dProblemSize conv2d_problem(boltgen_conv2d_args const& args) {
  cutlass::conv::Conv2dProblemSize problem;
  problem.N = args.n;
  problem.H = args.h;
  problem.W = args.w;
  problem.C = channels_of_group(args);
  problem.P = args.p;
  problem.Q = args.q;
  problem.K = filters_of_group(args);
  problem.R = args.r;
  problem.S = args.s;
  problem.pad_h = args.pad_h;
  problem.pad_w = args.pad_w;
  problem.stride_h = args.stride_h;
  problem.stride_w = args.stride_w;
  problem.dilation_h = args.dilation_h;
  problem.dilation_w = args.dilation_w;
  problem.mode = cutlass::conv::Mode::kCrossCorrelation;
  problem.split_k_slices = args.split_k;
  problem.groups = 1;
  return problem;
}

template <typename Kernel>
typename Kernel::Params conv2d_params(boltgen_conv2d_args const& args, int* semaphore) {
  using Nhwc = cutlass::layout::TensorNHWC;
  using A = typename Kernel::ElementA;
  using B = typename Kernel::ElementB;
  using D = typename Kernel::ElementC;
  typename Kernel::EpilogueOutputOp::Params epilogue{};
  for (int i = 0; i < Kernel::Operands::kCount; ++i) {
    epilogue.operands[i] = args.operands[i];
  }
  typename Kernel::TensorRefC const d(static_cast<D*>(args.d),
                                      Nhwc::packed({args.n, args.p, args.q, args.k}));
  typename Kernel::Arguments const arguments(
      conv2d_problem(args),
      {static_cast<A*>(const_cast<void*>(args.a)), Nhwc::packed({args.n, args.h, args.w, args.c})},
      {static_cast<B*>(const_cast<void*>(args.b)),
       Nhwc::packed({args.k, args.r, args.s, channels_of_group(args)})},
      /*ref_C=*/d, d, epilogue);
  typename Kernel::Params params(arguments, semaphore);
  params.swizzle_log_tile = swizzle_log_tile(args.swizzle, params.grid_tiled_shape);
  if constexpr (Kernel::kInGroups) {
    Kernel::count_groups(params, args);
  }
  return params;
}

/// Workspace of a convolution whose reduction is split.
template <typename Kernel>
SplitWorkspace conv2d_workspace(boltgen_conv2d_args const& args) {
  auto const tiles = ThreadblockSwizzle::get_tiled_shape(
      cutlass::conv::implicit_gemm_problem_size(cutlass::conv::Operator::kFprop,
                                                conv2d_problem(args)),
      {Kernel::ThreadblockShape::kM, Kernel::ThreadblockShape::kN, Kernel::ThreadblockShape::kK},
      args.split_k);
  return SplitWorkspace(int64_t(tiles.m()) * tiles.n(), tiles.k(),
                        Kernel::Epilogue::kPartialsPerTile);
}

/// A tensor of one slice of images.
inline void check_conv2d_tensor(ArgumentCheck& check, char const* name, int64_t outer, int64_t mid,
                                int64_t inner, int64_t channels, size_t element_bytes) {
  check.at_most(name, outer * mid * inner * channels * int64_t(element_bytes),
                BOLTGEN_MOST_CONV_BYTES);
}

/// Extents, and what the iterators can address.
inline void check_conv2d_geometry(ArgumentCheck& check, boltgen_conv2d_args const& args,
                                  cutlass::conv::IteratorAlgorithm algorithm,
                                  size_t operand_bytes) {
  struct {
    char const* name;
    int value;
  } const extents[] = {{"n", args.n},
                       {"h", args.h},
                       {"w", args.w},
                       {"c", args.c},
                       {"k", args.k},
                       {"r", args.r},
                       {"s", args.s},
                       {"p", args.p},
                       {"q", args.q},
                       {"stride_h", args.stride_h},
                       {"stride_w", args.stride_w},
                       {"dilation_h", args.dilation_h},
                       {"dilation_w", args.dilation_w},
                       {"groups", args.groups},
                       {"split_k", args.split_k}};
  for (auto const& extent : extents) {
    check.at_least(extent.name, extent.value, 1);
  }
  check.at_least("pad_h", args.pad_h, 0);
  check.at_least("pad_w", args.pad_w, 0);
  check.at_most("split_k", args.split_k, 65535);
  if (algorithm == cutlass::conv::IteratorAlgorithm::kOptimized) {
    // One predicate bit for each filter row and column. Source: cutlass/conv/threadblock/
    // conv2d_fprop_activation_tile_access_iterator_optimized.h, can_implement.
    check.at_most("r (optimised iterator)", args.r, 32);
    check.at_most("s (optimised iterator)", args.s, 32);
  }
  check_conv2d_tensor(check, "bytes of A", args.n, args.h, args.w, args.c, operand_bytes);
  check_conv2d_tensor(check, "bytes of B", args.k, args.r, args.s, args.c, operand_bytes);
}

template <typename Kernel>
void check_conv2d(ArgumentCheck& check, boltgen_conv2d_args const& args) {
  check_conv2d_geometry(check, args, Kernel::kIteratorAlgorithm, sizeof(typename Kernel::ElementA));
  if (check.failed()) {
    return;  // what follows divides by the number of groups
  }
  check_order(check, args.swizzle, args.raster);
  check.at_most("groups", args.groups, Kernel::kInGroups ? 65535 : 1);
  check.multiple("c (of all groups)", args.c, args.groups);
  check.multiple("k (of all groups)", args.k, args.groups);
  check.at_most("split_k (in groups)", args.split_k, Kernel::kInGroups ? 1 : 65535);
  check_conv2d_tensor(check, "bytes of D", args.n, args.p, args.q, args.k,
                      sizeof(typename Kernel::ElementC));
  if (Kernel::kIteratorAlgorithm == cutlass::conv::IteratorAlgorithm::kFixedChannels) {
    check.at_most("c (fixed channels)", args.c, Kernel::kAlignmentA);
    check.at_most("split_k (fixed channels)", args.split_k, 1);
  }
  check.multiple("c (of A)", channels_of_group(args), Kernel::kAlignmentA);
  check.multiple("c (of B)", channels_of_group(args), Kernel::kAlignmentB);
  check.multiple("k (of D)", filters_of_group(args), Kernel::kAlignmentD);
  check.pointer("a", args.a, Kernel::kAlignmentA, sizeof(typename Kernel::ElementA));
  check.pointer("b", args.b, Kernel::kAlignmentB, sizeof(typename Kernel::ElementB));
  check.pointer("d", args.d, Kernel::kAlignmentD, sizeof(typename Kernel::ElementC));
  check_operands(typename Kernel::Operands(), check, args.operands, args.k, Kernel::kAlignmentD);
}

template <typename Kernel>
size_t conv2d_workspace_bytes(boltgen_conv2d_args const* args) {
  return args->split_k > 1 && args->groups > 0 ? conv2d_workspace<Kernel>(*args).bytes : 0;
}

template <typename Kernel>
int run_conv2d_images(void (*kernel)(typename Kernel::Params), boltgen_conv2d_args const* args,
                      boltgen_status* status) {
  ArgumentCheck check(status);
  check_conv2d<Kernel>(check, *args);
  if (check.failed()) {
    return check.code();
  }
  SplitWorkspace const split = conv2d_workspace<Kernel>(*args);
  check.workspace(args->workspace, args->workspace_bytes, split.bytes);
  int* const semaphore = split.bytes > 0 ? static_cast<int*>(args->workspace) : nullptr;
  typename Kernel::Params params = conv2d_params<Kernel>(*args, semaphore);
  dim3 const grid = swizzled_grid(params.grid_tiled_shape, params.swizzle_log_tile);
  check.at_most("number of blocks along N", grid.y, 65535);
  if (check.failed()) {
    return check.code();
  }
  params.output_op.partials = split.partials(args->workspace);
  return launch<Kernel>(kernel, params, grid, split, args->workspace, args->stream, status);
}

template <typename Kernel>
int run_conv2d(void (*kernel)(typename Kernel::Params), boltgen_conv2d_args const* args,
               boltgen_status* status) {
  return for_slices_of_images<Kernel>(
      *args, int64_t(args->h) * args->w * args->c, int64_t(args->p) * args->q,
      [&](auto const& slice) { return run_conv2d_images<Kernel>(kernel, &slice, status); });
}

}  // namespace boltgen
