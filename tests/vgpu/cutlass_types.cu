// GEMMs of the types beside FP16, straight from CUTLASS.
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/thread/linear_combination_clamp.h"
#include "cutlass/gemm/device/gemm_universal.h"

using RowMajor = cutlass::layout::RowMajor;
using ColumnMajor = cutlass::layout::ColumnMajor;
using Swizzle = cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>;
template <int kM, int kN, int kK>
using Shape = cutlass::gemm::GemmShape<kM, kN, kK>;

// kDepth: of the threadblock; kAlign: elements of A and B in 16 bytes.
template <class Element, class Sum, class Output, class Instruction, int kDepth, int kAlign,
          class Operation>
using Gemm = cutlass::gemm::device::GemmUniversal<
    Element, RowMajor, Element, ColumnMajor, typename Output::ElementOutput, RowMajor, Sum,
    cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80, Shape<64, 64, kDepth>,
    Shape<32, 32, kDepth>, Instruction, Output, Swizzle, 3, kAlign, kAlign, Operation>;

template <class Operator>
int run(int m, int n, int k, void* a, void* b, void* c, void* d, float alpha) {
  typename Operator::Arguments arguments(cutlass::gemm::GemmUniversalMode::kGemm, {m, n, k}, 1,
                                         {alpha, 0.5f}, a, b, c, d, 0, 0, 0, 0, k, k, n, n);
  Operator gemm;
  cutlass::Status status = gemm.can_implement(arguments);
  if (status == cutlass::Status::kSuccess) status = gemm.initialize(arguments, nullptr);
  if (status == cutlass::Status::kSuccess) status = gemm.run();
  if (status != cutlass::Status::kSuccess) return 10000 + static_cast<int>(status);
  return static_cast<int>(cudaDeviceSynchronize());
}

template <class Element, int kCount>
using Linear = cutlass::epilogue::thread::LinearCombination<Element, kCount, float, float>;
using Clamped = cutlass::epilogue::thread::LinearCombinationClamp<int8_t, 8, int32_t, float>;
using Bfloat = cutlass::bfloat16_t;

extern "C" int gemm_bf16(int m, int n, int k, void* a, void* b, void* c, void* d, float alpha) {
  return run<Gemm<Bfloat, float, Linear<Bfloat, 8>, Shape<16, 8, 16>, 32, 8,
                  cutlass::arch::OpMultiplyAdd>>(m, n, k, a, b, c, d, alpha);
}
extern "C" int gemm_tf32(int m, int n, int k, void* a, void* b, void* c, void* d, float alpha) {
  return run<
      Gemm<float, float, Linear<float, 4>, Shape<16, 8, 8>, 16, 4, cutlass::arch::OpMultiplyAdd>>(
      m, n, k, a, b, c, d, alpha);
}
extern "C" int gemm_int8(int m, int n, int k, void* a, void* b, void* c, void* d, float alpha) {
  return run<Gemm<int8_t, int32_t, Clamped, Shape<16, 8, 32>, 64, 16,
                  cutlass::arch::OpMultiplyAddSaturate>>(m, n, k, a, b, c, d, alpha);
}
