// The accesses of back-to-back kernels to the intermediate and to later layers' B in shared memory,
// and nothing else, for test_chain_staging.py: one warp, 32 rows, kN columns.

#include "boltgen/b2b_layer.h"

namespace {

using Half = cutlass::half_t;
constexpr int kRows = 32;
constexpr int kDepth = 32;

template <int kN>
using Layer = boltgen::InnerLayer<
    cutlass::gemm::GemmShape<kRows, kN, kDepth>, cutlass::gemm::GemmShape<kRows, kN, kDepth>,
    cutlass::gemm::GemmShape<16, 8, 16>, 2, cutlass::layout::ColumnMajor, 8, float, void, 8, true>;

template <typename Fragment>
__device__ unsigned digest(Fragment const& fragment) {
  unsigned sum = 0;
  for (auto const& registers : fragment) {
    for (int i = 0; i < int(sizeof(registers) / sizeof(unsigned)); ++i) {
      sum = sum * 31 + registers[i];
    }
  }
  return sum;
}

/// Stores what a lane's accumulators become, and loads it as the next layer's A.
template <int kN>
__global__ void stage(Half const*, unsigned* result) {
  using Tile = boltgen::SwizzledTile<kRows, kN>;
  using Group = boltgen::KGroup<typename Layer<kN>::WarpMma>;
  extern __shared__ __align__(16) unsigned char shared[];
  Half* const tile = reinterpret_cast<Half*>(shared);
  int const lane = int(threadIdx.x);
  for (int m = 0; m < kRows; m += 8) {
    for (int n = 0; n < kN / 8; ++n) {
      int const offset = Tile::offset(m + lane / 4, n) + lane % 4 * 2;
      *reinterpret_cast<unsigned*>(tile + offset) = unsigned(m * kN + n * 32 + lane);
    }
  }
  __syncthreads();
  unsigned sum = 0;
  for (int column = 0; column < kN; column += 16) {
    typename Group::FragmentA a;
    Group::template load_a<Tile>(a, tile, 0, column, lane);
    sum += digest(a);
  }
  result[lane] = sum;
}

/// Copies a tile of B as it is stored, and loads it.
template <int kN, bool kRowMajor>
__global__ void copy(Half const* b, unsigned* result) {
  using Tile = cutlass::platform::conditional_t<kRowMajor, boltgen::SwizzledTile<kDepth, kN>,
                                                boltgen::SwizzledTile<kN, kDepth>>;
  using Group = boltgen::KGroup<typename Layer<kN>::WarpMma>;
  extern __shared__ __align__(16) unsigned char shared[];
  Half* const tile = reinterpret_cast<Half*>(shared);
  int const lane = int(threadIdx.x);
  boltgen::TileCopy<Tile, 32, 8, true> copy(lane);
  copy.start(tile, b, kRowMajor ? kN : kDepth, kRowMajor ? kDepth : kN, kRowMajor ? kN : kDepth);
  cutlass::arch::cp_async_fence();
  cutlass::arch::cp_async_wait<0>();
  __syncthreads();
  unsigned sum = 0;
  for (int k = 0; k < kDepth; k += 16) {
    typename Group::FragmentB fragment;
    Group::template load_b<Tile, kRowMajor>(fragment, tile, k, 0, lane);
    sum += digest(fragment);
  }
  result[lane] = sum;
}

template <int kN>
int run(int access, Half const* b, unsigned* result) {
  constexpr int kBytes = 256 * 64 * int(sizeof(Half));
  auto const kernel = access == 0 ? stage<kN> : access == 1 ? copy<kN, false> : copy<kN, true>;
  kernel<<<1, 32, kBytes>>>(b, result);
  return int(cudaGetLastError());
}

}  // namespace

/// Runs the accesses: 0 the intermediate's, 1 of a column-major B, 2 of a row-major B.
extern "C" int run_staging(int columns, int access, void const* b, void* result) {
  auto const* const from = static_cast<Half const*>(b);
  auto* const to = static_cast<unsigned*>(result);
  switch (columns) {
    case 16:
      return run<16>(access, from, to);
    case 32:
      return run<32>(access, from, to);
    case 48:
      return run<48>(access, from, to);
    case 64:
      return run<64>(access, from, to);
    case 96:
      return run<96>(access, from, to);
    case 128:
      return run<128>(access, from, to);
    case 256:
      return run<256>(access, from, to);
  }
  return -1;
}
