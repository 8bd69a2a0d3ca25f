// One GEMM per generation of tensor-core instructions and one convolution, straight from CUTLASS.
#include "cutlass/cutlass.h"
// CUTLASS's device header needs what the kernel header includes.
#include "cutlass/conv/kernel/default_conv2d_fprop.h"

#include "cutlass/conv/device/implicit_gemm_convolution.h"
#include "cutlass/gemm/device/gemm_universal.h"

using Half = cutlass::half_t;
using RowMajor = cutlass::layout::RowMajor;
using ColumnMajor = cutlass::layout::ColumnMajor;
using Nhwc = cutlass::layout::TensorNHWC;
using Swizzle = cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<4>;
template <class Accumulator>
using Linear = cutlass::epilogue::thread::LinearCombination<Half, 8, Accumulator, float>;

template <class Arch, class Instruction, int kStages, class Accumulator>
using Gemm = cutlass::gemm::device::GemmUniversal<
    Half, RowMajor, Half, ColumnMajor, Half, RowMajor, Accumulator, cutlass::arch::OpClassTensorOp,
    Arch, cutlass::gemm::GemmShape<128, 128, 32>, cutlass::gemm::GemmShape<64, 64, 32>, Instruction,
    Linear<Accumulator>, Swizzle, kStages, 8, 8>;

template <class Operator>
int run(int m, int n, int k, void* a, void* b, void* c, void* d, int slices) {
  typename Operator::Arguments arguments(cutlass::gemm::GemmUniversalMode::kGemm, {m, n, k}, slices,
                                         {1.0f, 0.5f}, a, b, c, d, 0, 0, 0, 0, k, k, n, n);
  void* workspace = nullptr;
  const size_t bytes = Operator::get_workspace_size(arguments);
  if (bytes && cudaMalloc(&workspace, bytes) != cudaSuccess) return 1;
  Operator gemm;
  cutlass::Status status = gemm.can_implement(arguments);
  if (status == cutlass::Status::kSuccess) status = gemm.initialize(arguments, workspace);
  if (status == cutlass::Status::kSuccess) status = gemm.run();
  if (status != cutlass::Status::kSuccess) return 10000 + static_cast<int>(status);
  const int error = static_cast<int>(cudaDeviceSynchronize());
  cudaFree(workspace);
  return error;
}

extern "C" int gemm_sm80(int m, int n, int k, void* a, void* b, void* c, void* d, int slices) {
  using Mma = cutlass::gemm::GemmShape<16, 8, 16>;
  return run<Gemm<cutlass::arch::Sm80, Mma, 3, float>>(m, n, k, a, b, c, d, slices);
}
extern "C" int gemm_sm80_half(int m, int n, int k, void* a, void* b, void* c, void* d, int slices) {
  using Mma = cutlass::gemm::GemmShape<16, 8, 16>;
  return run<Gemm<cutlass::arch::Sm80, Mma, 3, Half>>(m, n, k, a, b, c, d, slices);
}
extern "C" int gemm_sm75(int m, int n, int k, void* a, void* b, void* c, void* d, int slices) {
  using Mma = cutlass::gemm::GemmShape<16, 8, 8>;
  return run<Gemm<cutlass::arch::Sm75, Mma, 2, float>>(m, n, k, a, b, c, d, slices);
}

using Kernel = cutlass::conv::kernel::DefaultConv2dFprop<
    Half, Nhwc, Half, Nhwc, Half, Nhwc, float, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80,
    cutlass::gemm::GemmShape<64, 64, 32>, cutlass::gemm::GemmShape<32, 32, 32>,
    cutlass::gemm::GemmShape<16, 8, 16>, Linear<float>, Swizzle, 3, cutlass::arch::OpMultiplyAdd,
    cutlass::conv::IteratorAlgorithm::kOptimized>::Kernel;

extern "C" int conv_sm80(int n, int h, int w, int c, int k, int r, int pad, int stride, void* x,
                         void* weight, void* source, void* d) {
  using Convolution = cutlass::conv::device::ImplicitGemmConvolution<Kernel>;
  const int p = (h + 2 * pad - r) / stride + 1;
  const int q = (w + 2 * pad - r) / stride + 1;
  cutlass::conv::Conv2dProblemSize problem({n, h, w, c}, {k, r, r, c}, {pad, pad, pad, pad},
                                           {stride, stride}, {1, 1},
                                           cutlass::conv::Mode::kCrossCorrelation, 1);
  typename Convolution::Arguments arguments(
      problem, {static_cast<Half*>(x), Nhwc::packed({n, h, w, c})},
      {static_cast<Half*>(weight), Nhwc::packed({k, r, r, c})},
      {static_cast<Half*>(source), Nhwc::packed({n, p, q, k})},
      {static_cast<Half*>(d), Nhwc::packed({n, p, q, k})}, {1.0f, 0.5f});
  Convolution convolution;
  cutlass::Status status = convolution.can_implement(arguments);
  if (status == cutlass::Status::kSuccess) status = convolution.initialize(arguments, nullptr);
  if (status == cutlass::Status::kSuccess) status = convolution();
  if (status != cutlass::Status::kSuccess) return 10000 + static_cast<int>(status);
  return static_cast<int>(cudaDeviceSynchronize());
}
