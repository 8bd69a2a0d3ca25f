// A GEMM of CUTLASS's collective builders: warp specialised pingpong, TMA multicast in clusters of
// two, and a TMA store. D = A B^T of ones, minus ones and zeros, so that sums are exact.
#include <cstdio>
#include <vector>

#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"

using namespace cute;
using Half = cutlass::half_t;
using TileShape = Shape<_64, _64, _64>;
using ClusterShape = Shape<_2, _1, _1>;
using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;
using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, Row, 8, Half, Row, 8,
    cutlass::epilogue::TmaWarpSpecialized>::CollectiveOp;
using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Half, Row, 8, Half, Column, 8, float,
    TileShape, ClusterShape, _4, cutlass::gemm::KernelTmaWarpSpecializedPingpong>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Mainloop, Epilogue>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

int main() {
  const int m = 256, n = 128, k = 64 * 9;
  std::vector<Half> a(m * k), b(n * k), d(m * n);
  unsigned state = 1;
  const auto next = [&] {
    state = state * 1664525u + 1013904223u;
    return Half(static_cast<int>(state >> 24) % 3 - 1);
  };
  for (auto& x : a) x = next();
  for (auto& x : b) x = next();
  Half *da, *db, *dd;
  cudaMalloc(&da, a.size() * 2);
  cudaMalloc(&db, b.size() * 2);
  cudaMalloc(&dd, d.size() * 2);
  cudaMemcpy(da, a.data(), a.size() * 2, cudaMemcpyHostToDevice);
  cudaMemcpy(db, b.data(), b.size() * 2, cudaMemcpyHostToDevice);
  using Strides = typename Kernel::StrideA;
  const Strides sa = make_stride(int64_t(k), Int<1>{}, int64_t(0));
  cutlass::KernelHardwareInfo hardware;
  hardware.sm_count = 2;  // so that clusters do several tiles each
  typename Gemm::Arguments arguments{
      cutlass::gemm::GemmUniversalMode::kGemm,
      {m, n, k, 1},
      {da, sa, db, sa},
      {{1.0f, 0.0f}, nullptr, {}, dd, make_stride(int64_t(n), Int<1>{}, int64_t(0))},
      hardware};
  Gemm gemm;
  if (gemm.can_implement(arguments) != cutlass::Status::kSuccess) {
    std::printf("Error: cannot be implemented\n");
    return 1;
  }
  const auto launched = gemm(arguments, nullptr);
  const cudaError_t status = cudaDeviceSynchronize();
  if (status != cudaSuccess || launched != cutlass::Status::kSuccess) {
    std::printf("Error: %s\n", cudaGetErrorString(status));
    return 1;
  }
  cudaMemcpy(d.data(), dd, d.size() * 2, cudaMemcpyDeviceToHost);
  int wrong = 0;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int l = 0; l < k; ++l) sum += float(a[i * k + l]) * float(b[j * k + l]);
      wrong += !(float(d[i * n + j]) == sum);
    }
  }
  for (Half* p : {da, db, dd}) cudaFree(p);
  std::printf(wrong ? "Failed: %d wrong\n" : "Passed\n", wrong);
  return wrong != 0;
}
