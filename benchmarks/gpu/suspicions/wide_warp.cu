// Suspicion: with FP32 accumulators, FP16 output and warp tiles of 128 columns a plain GEMM of
// CUTLASS is wrong (epilogue/warp/tile_iterator_tensor_op_mixed.h).

#include "device_gemm.h"

template <typename WarpShape>
using Gemm = cutlass::gemm::device::Gemm<
    suspicion::Half, suspicion::Row, suspicion::Half, suspicion::Column, suspicion::Half,
    suspicion::Row, float, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80,
    cutlass::gemm::GemmShape<128, 128, 32>, WarpShape, cutlass::gemm::GemmShape<16, 8, 16>>;

using WideWarp = Gemm<cutlass::gemm::GemmShape<32, 128, 32>>;
// The control: as many warps, beside and below each other.
using NarrowWarp = Gemm<cutlass::gemm::GemmShape<64, 64, 32>>;

extern "C" int suspicion_wide_warp(boltgen_gemm_args const* args, boltgen_status* status) {
  return suspicion::run<WideWarp>(args, status);
}

extern "C" size_t suspicion_wide_warp_workspace(boltgen_gemm_args const* args) {
  return WideWarp::get_workspace_size(suspicion::arguments<WideWarp>(*args));
}

extern "C" int suspicion_narrow_warp(boltgen_gemm_args const* args, boltgen_status* status) {
  return suspicion::run<NarrowWarp>(args, status);
}

extern "C" size_t suspicion_narrow_warp_workspace(boltgen_gemm_args const* args) {
  return NarrowWarp::get_workspace_size(suspicion::arguments<NarrowWarp>(*args));
}
