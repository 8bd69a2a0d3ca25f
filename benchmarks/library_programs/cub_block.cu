// CUB: algorithms of a block and of a warp.
#include <cub/block/block_shuffle.cuh>
#include <cub/cub.cuh>

#include <algorithm>
#include <numeric>

#include "programs.h"

namespace {

constexpr int kThreads = 128, kItems = 4, kTile = kThreads * kItems, kBlocks = 3;

template <class Kernel>
std::vector<int> on_tiles(Kernel kernel, const std::vector<int>& numbers) {
  const OnDevice<int> in(numbers), out(numbers.size());
  kernel<<<kBlocks, kThreads>>>(in.get(), out.get());
  return out.read();
}

const std::vector<int>& tiles() {
  static const std::vector<int> numbers = random_numbers(kTile * kBlocks, 1000);
  return numbers;
}

// What each tile becomes.
template <class Do>
std::vector<int> each_tile(Do change) {
  std::vector<int> numbers = tiles();
  for (int t = 0; t < kBlocks; ++t)
    change(numbers.begin() + t * kTile, numbers.begin() + (t + 1) * kTile);
  return numbers;
}

// --- of a block ----------------------------------------------------------------------------------

__global__ void sort_tile(const int* in, int* out) {
  using Load = cub::BlockLoad<int, kThreads, kItems, cub::BLOCK_LOAD_TRANSPOSE>;
  using Store = cub::BlockStore<int, kThreads, kItems, cub::BLOCK_STORE_TRANSPOSE>;
  using Sort = cub::BlockRadixSort<int, kThreads, kItems>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Store::TempStorage store;
    typename Sort::TempStorage sort;
  } memory;
  int keys[kItems];
  Load(memory.load).Load(in + blockIdx.x * kTile, keys);
  __syncthreads();
  Sort(memory.sort).Sort(keys, 0, 10);
  __syncthreads();
  Store(memory.store).Store(out + blockIdx.x * kTile, keys);
}
bool block_radix_sort() {
  return on_tiles(sort_tile, tiles()) == each_tile([](auto a, auto b) { std::sort(a, b); });
}

struct Less {
  __device__ bool operator()(int a, int b) const { return a < b; }
};
__global__ void merge_sort_tile(const int* in, int* out) {
  using Sort = cub::BlockMergeSort<int, kThreads, kItems>;
  __shared__ typename Sort::TempStorage memory;
  int keys[kItems];
  cub::LoadDirectBlocked(threadIdx.x, in + blockIdx.x * kTile, keys);
  Sort(memory).Sort(keys, Less());
  cub::StoreDirectBlocked(threadIdx.x, out + blockIdx.x * kTile, keys);
}
bool block_merge_sort() {
  return on_tiles(merge_sort_tile, tiles()) == each_tile([](auto a, auto b) { std::sort(a, b); });
}

template <cub::BlockScanAlgorithm kAlgorithm>
__global__ void scan_tile(const int* in, int* out) {
  using Scan = cub::BlockScan<int, kThreads, kAlgorithm>;
  __shared__ typename Scan::TempStorage memory;
  int items[kItems];
  cub::LoadDirectBlocked(threadIdx.x, in + blockIdx.x * kTile, items);
  Scan(memory).InclusiveSum(items, items);
  cub::StoreDirectBlocked(threadIdx.x, out + blockIdx.x * kTile, items);
}
bool block_scan() {
  const auto want = each_tile([](auto a, auto b) { std::partial_sum(a, b, a); });
  return on_tiles(scan_tile<cub::BLOCK_SCAN_WARP_SCANS>, tiles()) == want &&
         on_tiles(scan_tile<cub::BLOCK_SCAN_RAKING>, tiles()) == want &&
         on_tiles(scan_tile<cub::BLOCK_SCAN_RAKING_MEMOIZE>, tiles()) == want;
}

template <cub::BlockReduceAlgorithm kAlgorithm>
__global__ void reduce_tile(const int* in, int* out) {
  using Reduce = cub::BlockReduce<int, kThreads, kAlgorithm>;
  __shared__ typename Reduce::TempStorage memory;
  int items[kItems];
  cub::LoadDirectStriped<kThreads>(threadIdx.x, in + blockIdx.x * kTile, items);
  const int sum = Reduce(memory).Sum(items);
  if (threadIdx.x == 0) out[blockIdx.x * kTile] = sum;
}
bool block_reduce() {
  const auto want = each_tile([](auto a, auto b) {
    const int sum = std::accumulate(a, b, 0);
    std::fill(a, b, 0);
    *a = sum;
  });
  return on_tiles(reduce_tile<cub::BLOCK_REDUCE_WARP_REDUCTIONS>, tiles()) == want &&
         on_tiles(reduce_tile<cub::BLOCK_REDUCE_RAKING>, tiles()) == want &&
         on_tiles(reduce_tile<cub::BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY>, tiles()) == want;
}

template <cub::BlockHistogramAlgorithm kAlgorithm>
__global__ void histogram_tile(const int* in, int* out) {
  using Histogram = cub::BlockHistogram<unsigned char, kThreads, kItems, 256, kAlgorithm>;
  __shared__ typename Histogram::TempStorage memory;
  __shared__ int bins[256];
  unsigned char items[kItems];
  for (int k = 0; k < kItems; ++k)
    items[k] = static_cast<unsigned char>(in[blockIdx.x * kTile + k * kThreads + threadIdx.x]);
  Histogram(memory).Histogram(items, bins);
  __syncthreads();
  for (int k = threadIdx.x; k < 256; k += kThreads) out[blockIdx.x * kTile + k] = bins[k];
}
bool block_histogram() {
  const auto want = each_tile([](auto a, auto b) {
    std::vector<int> bins(256);
    for (auto n = a; n != b; ++n) ++bins[*n & 255];
    std::fill(a, b, 0);
    std::copy(bins.begin(), bins.end(), a);
  });
  return on_tiles(histogram_tile<cub::BLOCK_HISTO_ATOMIC>, tiles()) == want &&
         on_tiles(histogram_tile<cub::BLOCK_HISTO_SORT>, tiles()) == want;
}

__global__ void exchange_tile(const int* in, int* out) {
  using Exchange = cub::BlockExchange<int, kThreads, kItems>;
  __shared__ typename Exchange::TempStorage memory;
  int items[kItems];
  cub::LoadDirectStriped<kThreads>(threadIdx.x, in + blockIdx.x * kTile, items);
  Exchange(memory).StripedToBlocked(items);
  cub::StoreDirectBlocked(threadIdx.x, out + blockIdx.x * kTile, items);
}
bool block_exchange() { return on_tiles(exchange_tile, tiles()) == tiles(); }

struct Differ {
  __device__ bool operator()(int a, int b) const { return a / 8 != b / 8; }
};
__global__ void heads_of_tile(const int* in, int* out) {
  using Heads = cub::BlockDiscontinuity<int, kThreads>;
  __shared__ typename Heads::TempStorage memory;
  int items[kItems], flags[kItems];
  cub::LoadDirectBlocked(threadIdx.x, in + blockIdx.x * kTile, items);
  Heads(memory).FlagHeads(flags, items, Differ());
  cub::StoreDirectBlocked(threadIdx.x, out + blockIdx.x * kTile, flags);
}
bool block_discontinuity() {
  const auto want = each_tile([](auto a, auto b) {
    for (auto n = b - 1; n != a; --n) *n = *n / 8 != n[-1] / 8;
    *a = 1;
  });
  return on_tiles(heads_of_tile, tiles()) == want;
}

__global__ void shuffle_tile(const int* in, int* out) {
  using Shuffle = cub::BlockShuffle<int, kThreads>;
  __shared__ typename Shuffle::TempStorage memory;
  int items[kItems], moved[kItems] = {-1, -1, -1, -1};
  cub::LoadDirectBlocked(threadIdx.x, in + blockIdx.x * kTile, items);
  Shuffle(memory).Up(items, moved);
  cub::StoreDirectBlocked(threadIdx.x, out + blockIdx.x * kTile, moved);
}
bool block_shuffle() {
  const auto want = each_tile([](auto a, auto b) {
    std::rotate(a, b - 1, b);
    *a = -1;
  });
  return on_tiles(shuffle_tile, tiles()) == want;
}

// --- of a warp -----------------------------------------------------------------------------------

constexpr int kWarp = 32;

template <class Do>
std::vector<int> each_warp(int width, Do change) {
  std::vector<int> numbers = random_numbers(kThreads * kBlocks, 1000);
  for (int t = 0; t < kThreads * kBlocks; t += width)
    change(numbers.begin() + t, numbers.begin() + t + width);
  return numbers;
}
template <class Kernel>
std::vector<int> on_warps(Kernel kernel) {
  return on_tiles(kernel, random_numbers(kThreads * kBlocks, 1000));
}

template <int kWidth>
__global__ void scan_warps(const int* in, int* out) {
  using Scan = cub::WarpScan<int, kWidth>;
  __shared__ typename Scan::TempStorage memory[kThreads / kWidth];
  const int at = blockIdx.x * kThreads + threadIdx.x;
  int sum;
  Scan(memory[threadIdx.x / kWidth]).ExclusiveSum(in[at], sum);
  out[at] = sum;
}
template <int kWidth>
bool right_scan() {
  return on_warps(scan_warps<kWidth>) ==
         each_warp(kWidth, [](auto a, auto b) { std::exclusive_scan(a, b, a, 0); });
}
bool warp_scan() { return right_scan<kWarp>() && right_scan<8>(); }

template <int kWidth>
__global__ void reduce_warps(const int* in, int* out) {
  using Reduce = cub::WarpReduce<int, kWidth>;
  __shared__ typename Reduce::TempStorage memory[kThreads / kWidth];
  const int at = blockIdx.x * kThreads + threadIdx.x;
  const int most = Reduce(memory[threadIdx.x / kWidth]).Reduce(in[at], cuda::maximum<>());
  out[at] = threadIdx.x % kWidth == 0 ? most : 0;
}
template <int kWidth>
bool right_reduction() {
  return on_warps(reduce_warps<kWidth>) == each_warp(kWidth, [](auto a, auto b) {
           const int most = *std::max_element(a, b);
           std::fill(a, b, 0);
           *a = most;
         });
}
bool warp_reduce() { return right_reduction<kWarp>() && right_reduction<16>(); }

__global__ void sort_warps(const int* in, int* out) {
  using Sort = cub::WarpMergeSort<int, 1, kWarp>;
  __shared__ typename Sort::TempStorage memory[kThreads / kWarp];
  const int at = blockIdx.x * kThreads + threadIdx.x;
  int key[1] = {in[at]};
  Sort(memory[threadIdx.x / kWarp]).Sort(key, Less());
  out[at] = key[0];
}
bool warp_merge_sort() {
  return on_warps(sort_warps) == each_warp(kWarp, [](auto a, auto b) { std::sort(a, b); });
}

__global__ void exchange_warps(const int* in, int* out) {
  using Exchange = cub::WarpExchange<int, kItems, kWarp>;
  __shared__ typename Exchange::TempStorage memory[kThreads / kWarp];
  const int at = blockIdx.x * kTile + threadIdx.x / kWarp * kWarp * kItems;
  int items[kItems];
  cub::LoadDirectStriped<kWarp>(threadIdx.x % kWarp, in + at, items);
  Exchange(memory[threadIdx.x / kWarp]).StripedToBlocked(items, items);
  cub::StoreDirectBlocked(threadIdx.x % kWarp, out + at, items);
}
bool warp_exchange() { return on_tiles(exchange_warps, tiles()) == tiles(); }

}  // namespace

int main(int count, char** arguments) {
  const Program programs[] = {{"cub_block_radix_sort", block_radix_sort},
                              {"cub_block_merge_sort", block_merge_sort},
                              {"cub_block_scan", block_scan},
                              {"cub_block_reduce", block_reduce},
                              {"cub_block_histogram", block_histogram},
                              {"cub_block_exchange", block_exchange},
                              {"cub_block_discontinuity", block_discontinuity},
                              {"cub_block_shuffle", block_shuffle},
                              {"cub_warp_scan", warp_scan},
                              {"cub_warp_reduce", warp_reduce},
                              {"cub_warp_merge_sort", warp_merge_sort},
                              {"cub_warp_exchange", warp_exchange}};
  return run_programs(programs, count, arguments);
}
