// CUTLASS's direct depthwise convolution in the tile of its example 46, which sums in FP16. FILTER
// and STRIDE are compiled.
#include <cutlass/conv/device/direct_convolution.h>
#include <cutlass/conv/kernel/default_depthwise_fprop.h>
#include <cutlass/epilogue/thread/linear_combination.h>

using Half = cutlass::half_t;
using Nhwc = cutlass::layout::TensorNHWC;
using Filter = cutlass::MatrixShape<FILTER, FILTER>;
constexpr int kChannels = 64;
using Output = cutlass::conv::TensorNHWCShape<1, 8, 8, kChannels>;
using Kernel = typename cutlass::conv::kernel::DefaultDepthwiseDirect2dConvFprop<
    Half, Nhwc, Half, Nhwc, Half, Nhwc, Half, cutlass::arch::OpClassSimt, cutlass::arch::Sm60,
    cutlass::gemm::GemmShape<Output::kNHW, kChannels, Filter::kCount>, Output, Filter,
    cutlass::gemm::GemmShape<16, kChannels, Filter::kCount>, cutlass::gemm::GemmShape<1, 1, 1>,
    cutlass::epilogue::thread::LinearCombination<
        Half, 8, Half, Half, cutlass::epilogue::thread::ScaleType::OnlyAlphaScaling>,
    cutlass::conv::threadblock::DepthwiseDirect2dConvIdentityThreadblockSwizzle<
        1, Output::kN, Output::kH, Output::kW>,
    4, cutlass::arch::OpMultiplyAdd, cutlass::conv::IteratorAlgorithm::kFixedStrideDilation,
    cutlass::conv::StrideSupport::kFixed, cutlass::MatrixShape<STRIDE, STRIDE>,
    cutlass::MatrixShape<1, 1>>::Kernel;
using Convolution = cutlass::conv::device::DirectConvolution<Kernel>;

// Images are (n, h, h, c), the filter (c, r, r), the result (n, p, p, c). The workspace takes the
// filter in the kernel's own order, which a kernel of CUTLASS's writes first. Returns a status.
extern "C" int race(void* x, void* w, void* d, void* workspace, int n, int h, int c, int pad, int p,
                    int parts) {
  cutlass::conv::Conv2dProblemSize size({n, h, h, c}, {c, FILTER, FILTER, 1}, {pad, pad, pad, pad},
                                        {STRIDE, STRIDE}, {1, 1}, {n, p, p, c},
                                        cutlass::conv::Mode::kCrossCorrelation, parts, c);
  auto packed = [](int height, int channels) {
    return Nhwc::packed({1, height, height, channels});
  };
  cutlass::TensorRef<Half, Nhwc> out(static_cast<Half*>(d), packed(p, c));
  cutlass::TensorRef<Half, Nhwc> filter(static_cast<Half*>(w), packed(FILTER, 1));
  cutlass::TensorRef<Half, Nhwc> ordered(static_cast<Half*>(workspace), packed(FILTER, 1));
  typename Convolution::Arguments arguments(size, {static_cast<Half*>(x), packed(h, c)}, filter, out,
                                            out, {Half(1.0f), Half(0.0f)}, ordered);
  Convolution convolution;
  if (auto status = convolution.can_implement(arguments); status != cutlass::Status::kSuccess)
    return static_cast<int>(status);
  if (auto status = convolution.initialize(arguments); status != cutlass::Status::kSuccess)
    return static_cast<int>(status);
  return static_cast<int>(convolution());
}
