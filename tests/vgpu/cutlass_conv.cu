// A forward convolution for sm_90a from CUTLASS's collective builder: NHWC activations come by
// im2col tensor copies, KRSC filters by tiles.
#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/kernel_hardware_info.hpp"

// These count on the ones above.
#include "cutlass/conv/collective/collective_builder.hpp"
#include "cutlass/conv/convnd_problem_shape.hpp"
#include "cutlass/conv/device/conv_universal_adapter.hpp"
#include "cutlass/conv/dispatch_policy.hpp"
#include "cutlass/conv/kernel/conv_universal.hpp"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/util/packed_stride.hpp"

namespace {

using cute::_1;
using cute::_2;
using cute::_64;
using cute::Shape;
using Half = cutlass::half_t;
using Nhwc = cutlass::layout::TensorNHWC;
using Sm90 = cutlass::arch::Sm90;
using TensorOp = cutlass::arch::OpClassTensorOp;
constexpr auto kFprop = cutlass::conv::Operator::kFprop;

template <class Cluster>
struct Conv {
  using Tile = Shape<_64, _64, Shape<_64>>;
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      Sm90, TensorOp, Tile, Cluster, cutlass::epilogue::collective::EpilogueTileAuto, float, float,
      float, Nhwc, 4, float, Nhwc, 4, cutlass::epilogue::TmaWarpSpecialized>::CollectiveOp;
  static constexpr int kCarved = static_cast<int>(sizeof(typename Epilogue::SharedStorage));
  using Main = typename cutlass::conv::collective::CollectiveBuilder<
      Sm90, TensorOp, kFprop, Half, Nhwc, 8, Half, Nhwc, 8, float, Tile, Cluster,
      cutlass::conv::collective::StageCountAutoCarveout<kCarved>,
      cutlass::conv::KernelImplicitTmaWarpSpecializedSm90>::CollectiveOp;
  using Problem = cutlass::conv::ConvProblemShape<kFprop, 2>;
  using Kernel = cutlass::conv::kernel::ConvUniversal<Problem, Main, Epilogue>;
  using Adapter = cutlass::conv::device::ConvUniversalAdapter<Kernel>;

  // Sizes: n, h, w, c, k, r, s, padding, stride, dilation.
  static int run(const int* z, void* activations, void* filters, void* output) {
    Problem problem(cutlass::conv::Mode::kCrossCorrelation, {z[0], z[1], z[2], z[3]},
                    {z[4], z[5], z[6], z[3]}, {z[7], z[7]}, {z[7], z[7]}, {z[8], z[8]},
                    {z[9], z[9]}, 1);
    typename Kernel::StrideD stride{};
    cute::for_each(cute::make_seq<cute::rank<0>(typename Kernel::StrideD{})>{},
                   [&](auto i) { cute::get<0, i>(stride) = problem.stride_C[2 - i]; });
    auto* out = static_cast<float*>(output);
    typename Adapter::Arguments arguments{
        problem,
        {static_cast<Half*>(activations), static_cast<Half*>(filters)},
        {{1.0f, 0.0f}, out, stride, out, stride}};
    Adapter conv;
    cutlass::Status status = conv.can_implement(arguments);
    if (status == cutlass::Status::kSuccess) status = conv.initialize(arguments, nullptr);
    if (status == cutlass::Status::kSuccess) status = conv.run();
    if (status != cutlass::Status::kSuccess) return 10000 + static_cast<int>(status);
    return static_cast<int>(cudaDeviceSynchronize());
  }
};

}  // namespace

extern "C" int conv_alone(const int* sizes, void* activations, void* filters, void* output) {
  return Conv<Shape<_1, _1, _1>>::run(sizes, activations, filters, output);
}
extern "C" int conv_pair(const int* sizes, void* activations, void* filters, void* output) {
  return Conv<Shape<_1, _2, _1>>::run(sizes, activations, filters, output);
}
