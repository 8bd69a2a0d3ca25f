// Suspicion: example 13's back-to-back GEMM runs, and is wrong, where the first product has more
// columns than the threadblock's tile, 64; also where it is not asked whether it can. The second product multiplies by the identity, so that
// both together are relu(A x B).

#include "device/b2b_gemm.h"
#include "device_gemm.h"

#include "cutlass/epilogue/thread/linear_combination_relu.h"

namespace {

using Half = suspicion::Half;
using cutlass::epilogue::thread::ScaleType;
using Relu0 = cutlass::epilogue::thread::LinearCombinationRelu<Half, 4, Half, Half,
                                                               ScaleType::OnlyAlphaScaling>;
using Relu1 = cutlass::epilogue::thread::LinearCombinationRelu<Half, 8, Half, Half,
                                                               ScaleType::OnlyAlphaScaling>;
using B2b = cutlass::gemm::device::B2bGemm<
    Half, suspicion::Row, Half, suspicion::Column, Half, suspicion::Row, Half,
    cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80, cutlass::gemm::GemmShape<64, 64, 32>,
    cutlass::gemm::GemmShape<64, 128, 32>, cutlass::gemm::GemmShape<16, 64, 32>,
    cutlass::gemm::GemmShape<16, 128, 32>, cutlass::gemm::GemmShape<16, 8, 16>, Relu0, Relu1,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<1>, 3>;

/// The identity of n x n, and behind it a bias of n zeros, which the kernel reads in any case.
__global__ void write_identity(Half* to, int n) {
  for (int i = int(threadIdx.x); i < n * (n + 1); i += int(blockDim.x)) {
    to[i] = Half(i / n == i % n && i < n * n ? 1.0f : 0.0f);
  }
}

int run(boltgen_gemm_args const* args, bool ask, boltgen_status* status) {
  auto const stream = static_cast<cudaStream_t>(args->stream);
  auto* const identity = static_cast<Half*>(args->workspace);
  write_identity<<<1, 256, 0, stream>>>(identity, args->n);
  auto* const bias = identity + args->n * args->n;
  auto* const d = static_cast<Half*>(args->d);
  B2b::Arguments const arguments{
      cutlass::gemm::GemmUniversalMode::kGemm,
      {args->m, args->n, args->k},
      {args->m, args->n, args->n},
      {static_cast<Half*>(const_cast<void*>(args->a)), args->lda},
      {static_cast<Half*>(const_cast<void*>(args->b)), args->ldb},
      {d, args->ldd},
      {bias, 0},
      {bias, 0},
      {identity, args->n},
      {d, args->ldd},
      {d, args->ldd},
      0,
      0,
      0,
      0,
      0,
      0,
      0,
      {Half(1.0f), Half(0.0f)},
      {Half(1.0f), Half(0.0f)},
      1};
  auto const code = ask ? B2b::can_implement(arguments) : cutlass::Status::kSuccess;
  if (code != cutlass::Status::kSuccess) {
    return suspicion::told(status, code);
  }
  B2b b2b;
  b2b.initialize(arguments, nullptr, stream);
  return suspicion::told(status, b2b.run(stream));
}

size_t workspace(boltgen_gemm_args const* args) {
  return size_t(args->n) * size_t(args->n + 1) * sizeof(Half);
}

}  // namespace

extern "C" int suspicion_b2b(boltgen_gemm_args const* args, boltgen_status* status) {
  return run(args, true, status);
}

extern "C" size_t suspicion_b2b_workspace(boltgen_gemm_args const* args) { return workspace(args); }

extern "C" int suspicion_b2b_unasked(boltgen_gemm_args const* args, boltgen_status* status) {
  return run(args, false, status);
}

extern "C" size_t suspicion_b2b_unasked_workspace(boltgen_gemm_args const* args) {
  return workspace(args);
}
