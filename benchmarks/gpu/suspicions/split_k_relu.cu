// Suspicion: serial split-K with LinearCombinationRelu gives NaN, for its threshold is NaN.

#include "cutlass/epilogue/thread/linear_combination_relu.h"
#include "device_gemm.h"

using SplitKRelu = cutlass::gemm::device::Gemm<
    suspicion::Half, suspicion::Row, suspicion::Half, suspicion::Column, suspicion::Half,
    suspicion::Row, float, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80,
    cutlass::gemm::GemmShape<128, 128, 32>, cutlass::gemm::GemmShape<64, 64, 32>,
    cutlass::gemm::GemmShape<16, 8, 16>,
    cutlass::epilogue::thread::LinearCombinationRelu<suspicion::Half, 8, float, float>,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>, 3, 8, 8, true>;

extern "C" int suspicion_split_k_relu(boltgen_gemm_args const* args, boltgen_status* status) {
  return suspicion::run<SplitKRelu>(args, status);
}

extern "C" size_t suspicion_split_k_relu_workspace(boltgen_gemm_args const* args) {
  return SplitKRelu::get_workspace_size(suspicion::arguments<SplitKRelu>(*args));
}
