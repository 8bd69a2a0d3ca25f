// GEMMs for sm_90a from CUTLASS's collective builder: D = A B + C / 2, with A by rows and B by
// columns. TMA with multicast fills shared memory, warpgroups multiply.
#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/util/packed_stride.hpp"

namespace {

using cute::_1;
using cute::_128;
using cute::_2;
using cute::_64;
using cute::Shape;
using Sm90 = cutlass::arch::Sm90;
using TensorOp = cutlass::arch::OpClassTensorOp;
using RowMajor = cutlass::layout::RowMajor;
using ColumnMajor = cutlass::layout::ColumnMajor;
namespace collective = cutlass::epilogue::collective;
using Pingpong = cutlass::gemm::KernelTmaWarpSpecializedPingpong;
using Cooperative = cutlass::gemm::KernelTmaWarpSpecializedCooperative;

template <class Operand, class Sum, class Output, class Tile, class Cluster, class Schedule>
struct Gemm {
  static constexpr int kIn = 128 / cutlass::sizeof_bits<Operand>::value;
  static constexpr int kOut = 128 / cutlass::sizeof_bits<Output>::value;
  using Store =
      std::conditional_t<std::is_same_v<Schedule, Pingpong>, cutlass::epilogue::TmaWarpSpecialized,
                         cutlass::epilogue::TmaWarpSpecializedCooperative>;
  using Epilogue = typename collective::CollectiveBuilder<
      Sm90, TensorOp, Tile, Cluster, collective::EpilogueTileAuto, Sum, float, Output, RowMajor,
      kOut, Output, RowMajor, kOut, Store>::CollectiveOp;
  static constexpr int kCarved = static_cast<int>(sizeof(typename Epilogue::SharedStorage));
  using Main = typename cutlass::gemm::collective::CollectiveBuilder<
      Sm90, TensorOp, Operand, RowMajor, kIn, Operand, ColumnMajor, kIn, Sum, Tile, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<kCarved>, Schedule>::CollectiveOp;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Main, Epilogue>;
  using Adapter = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

  static int run(int m, int n, int k, void* a, void* b, void* c, void* d) {
    using cutlass::make_cute_packed_stride;
    const auto of_c = make_cute_packed_stride(typename Kernel::StrideC{}, {m, n, 1});
    typename Adapter::Arguments arguments{
        cutlass::gemm::GemmUniversalMode::kGemm,
        {m, n, k, 1},
        {static_cast<Operand*>(a), make_cute_packed_stride(typename Kernel::StrideA{}, {m, k, 1}),
         static_cast<Operand*>(b), make_cute_packed_stride(typename Kernel::StrideB{}, {n, k, 1})},
        {{1.0f, 0.5f}, static_cast<Output*>(c), of_c, static_cast<Output*>(d), of_c}};
    Adapter gemm;
    cutlass::Status status = gemm.can_implement(arguments);
    if (status == cutlass::Status::kSuccess) status = gemm.initialize(arguments, nullptr);
    if (status == cutlass::Status::kSuccess) status = gemm.run();
    if (status != cutlass::Status::kSuccess) return 10000 + static_cast<int>(status);
    return static_cast<int>(cudaDeviceSynchronize());
  }
};

using Tile = Shape<_128, _128, _64>;
using Long = Shape<_128, _128, _128>;
using Pair = Shape<_2, _1, _1>;

}  // namespace

#define GEMM(name, ...)                                                          \
  extern "C" int name(int m, int n, int k, void* a, void* b, void* c, void* d) { \
    return Gemm<__VA_ARGS__>::run(m, n, k, a, b, c, d);                          \
  }
GEMM(pingpong_f16, cutlass::half_t, float, cutlass::half_t, Tile, Pair, Pingpong)
GEMM(pingpong_e4m3, cutlass::float_e4m3_t, float, cutlass::half_t, Long, Pair, Pingpong)
GEMM(cooperative_s8, int8_t, int32_t, float, Long, Pair, Cooperative)
