// CUTLASS's device-wide convolution in the tile of its example 16, with FP16 results.
// The kernel's header first: the device's one asks for sizes that it does not include.
#include <cutlass/conv/kernel/default_conv2d_fprop.h>

#include <cutlass/conv/device/implicit_gemm_convolution.h>

using Half = cutlass::half_t;
using Nhwc = cutlass::layout::TensorNHWC;
using Shape = cutlass::gemm::GemmShape<128, 128, 64>;
using Kernel = typename cutlass::conv::kernel::DefaultConv2dFprop<
    Half, Nhwc, Half, Nhwc, Half, Nhwc, float, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80,
    Shape, cutlass::gemm::GemmShape<64, 64, 64>, cutlass::gemm::GemmShape<16, 8, 16>,
    cutlass::epilogue::thread::LinearCombination<Half, 8, float, float>,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>, 3,
    cutlass::arch::OpMultiplyAdd, cutlass::conv::IteratorAlgorithm::kOptimized>::Kernel;
using Convolution = cutlass::conv::device::ImplicitGemmConvolution<Kernel>;

// Images are (n, h, h, c), the filter (k, r, r, c), the result (n, p, p, k). Returns a status.
extern "C" int race(void* x, void* w, void* d, int n, int h, int c, int k, int r, int stride,
                    int pad, int p) {
  cutlass::conv::Conv2dProblemSize size({n, h, h, c}, {k, r, r, c}, {pad, pad, pad, pad},
                                        {stride, stride}, {1, 1}, {n, p, p, k},
                                        cutlass::conv::Mode::kCrossCorrelation);
  auto packed = [](int height, int channels) {
    return Nhwc::packed({1, height, height, channels});
  };
  cutlass::TensorRef<Half, Nhwc> out(static_cast<Half*>(d), packed(p, k));
  typename Convolution::Arguments arguments(
      size, {static_cast<Half*>(x), packed(h, c)}, {static_cast<Half*>(w), packed(r, c)}, out, out,
      {1.0f, 0.0f});
  Convolution convolution;
  if (auto status = convolution.can_implement(arguments); status != cutlass::Status::kSuccess)
    return static_cast<int>(status);
  if (auto status = convolution.initialize(arguments); status != cutlass::Status::kSuccess)
    return static_cast<int>(status);
  return static_cast<int>(convolution());
}
