// Cooperative groups, and libcu++'s atomics and what stands on them.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include <cuda/atomic>
#include <cuda/semaphore>
#include <cuda/std/complex>

#include <algorithm>
#include <complex>
#include <new>
#include <numeric>

#include "programs.h"

namespace cg = cooperative_groups;

namespace {

constexpr int kThreads = 128, kBlocks = 4, kAll = kThreads * kBlocks;

const std::vector<int>& numbers() {
  static const std::vector<int> n = random_numbers(kAll, 1000);
  return n;
}

template <class Kernel>
std::vector<int> run(Kernel kernel) {
  const OnDevice<int> in(numbers()), out(kAll);
  kernel<<<kBlocks, kThreads>>>(in.get(), out.get());
  return out.read();
}

template <class Do>
std::vector<int> each(int width, Do change) {
  std::vector<int> all = numbers();
  for (int t = 0; t < kAll; t += width) change(all.begin() + t, all.begin() + t + width);
  return all;
}

template <int kWidth>
__global__ void reduce_tiles(const int* in, int* out) {
  const auto tile = cg::tiled_partition<kWidth>(cg::this_thread_block());
  const int at = cg::this_grid().thread_rank();
  out[at] = cg::reduce(tile, in[at], cg::plus<int>());
}
template <int kWidth>
bool right_tiles() {
  return run(reduce_tiles<kWidth>) ==
         each(kWidth, [](auto a, auto b) { std::fill(a, b, std::accumulate(a, b, 0)); });
}
bool tiles() { return right_tiles<32>() && right_tiles<8>() && right_tiles<2>(); }

__global__ void scan_tiles(const int* in, int* out) {
  const auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  const int at = cg::this_grid().thread_rank();
  out[at] = cg::inclusive_scan(tile, in[at]);
}
bool tile_scan() {
  return run(scan_tiles) == each(16, [](auto a, auto b) { std::partial_sum(a, b, a); });
}

__global__ void count_odd(const int* in, int* out) {
  const int at = cg::this_grid().thread_rank();
  out[at] = 0;
  if (in[at] % 2) {
    const auto odd = cg::coalesced_threads();
    out[at] = 100 * odd.size() + odd.thread_rank();
  }
}
bool coalesced() {
  return run(count_odd) == each(32, [](auto a, auto b) {
           const int all = static_cast<int>(std::count_if(a, b, [](int n) { return n % 2; }));
           int rank = 0;
           for (auto n = a; n != b; ++n) *n = *n % 2 ? 100 * all + rank++ : 0;
         });
}

__global__ void split(const int* in, int* out) {
  const auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  const int at = cg::this_grid().thread_rank();
  const auto half = cg::binary_partition(tile, in[at] % 3 == 0);
  out[at] = cg::reduce(half, in[at], cg::less<int>());
}
bool binary_partition() {
  return run(split) == each(32, [](auto a, auto b) {
           int least[2] = {1 << 30, 1 << 30};
           for (auto n = a; n != b; ++n) least[*n % 3 == 0] = std::min(least[*n % 3 == 0], *n);
           for (auto n = a; n != b; ++n) *n = least[*n % 3 == 0];
         });
}

__global__ void sum_labels(const int* in, int* out) {
  const int at = cg::this_grid().thread_rank();
  const auto group = cg::labeled_partition(cg::coalesced_threads(), in[at] % 5);
  out[at] = cg::reduce(group, in[at], cg::plus<int>());
}
bool labeled_partition() {
  return run(sum_labels) == each(32, [](auto a, auto b) {
           int sums[5] = {};
           for (auto n = a; n != b; ++n) sums[*n % 5] += *n;
           for (auto n = a; n != b; ++n) *n = sums[*n % 5];
         });
}

__global__ void turn_around(const int* in, int* out) {
  __shared__ int tile[kThreads];
  const auto block = cg::this_thread_block();
  cg::memcpy_async(block, tile, in + blockIdx.x * kThreads, sizeof(tile));
  cg::wait(block);
  out[cg::this_grid().thread_rank()] = tile[kThreads - 1 - threadIdx.x];
}
bool copy_async() {
  return run(turn_around) == each(kThreads, [](auto a, auto b) { std::reverse(a, b); });
}

__global__ void total_of_grid(const int* in, int* out) {
  const auto grid = cg::this_grid();
  atomicAdd(out, in[grid.thread_rank()]);
  grid.sync();
  const int total = *static_cast<volatile int*>(out);
  grid.sync();
  out[grid.thread_rank()] = total;
}
bool grid_sync() {
  const OnDevice<int> in(numbers()), out(kAll);
  const int* from = in.get();
  int* to = out.get();
  void* arguments[] = {&from, &to};
  const void* kernel = reinterpret_cast<const void*>(total_of_grid);
  if (cudaLaunchCooperativeKernel(kernel, kBlocks, kThreads, arguments, 0, nullptr) != cudaSuccess)
    return false;
  return out.read() ==
         each(kAll, [](auto a, auto b) { std::fill(a, b, std::accumulate(a, b, 0)); });
}

__global__ void add_by_reference(const int* in, int* out) {
  const int at = cg::this_grid().thread_rank();
  cuda::atomic_ref<int, cuda::thread_scope_device> sum(out[0]), most(out[1]), bits(out[2]);
  sum.fetch_add(in[at], cuda::memory_order_relaxed);
  most.fetch_max(in[at]);
  bits.fetch_or(1 << in[at] % 31, cuda::memory_order_acq_rel);
}
bool atomic_ref() {
  std::vector<int> want(kAll);
  for (int n : numbers()) {
    want[0] += n;
    want[1] = std::max(want[1], n);
    want[2] |= 1 << n % 31;
  }
  return run(add_by_reference) == want;
}

__global__ void multiply_by_exchange(const int*, int* out) {
  cuda::atomic_ref<double, cuda::thread_scope_device> value(*reinterpret_cast<double*>(out));
  double seen = value.load(cuda::memory_order_relaxed);
  while (!value.compare_exchange_weak(seen, seen + 0.5, cuda::memory_order_acq_rel)) {
  }
}
bool atomic_double() {
  const std::vector<int> found = run(multiply_by_exchange);
  double value;
  std::memcpy(&value, found.data(), sizeof(value));
  return value == kAll * 0.5;
}

__device__ int guarded;
__global__ void guard(const int*, int* out) {
  using Semaphore = cuda::counting_semaphore<cuda::thread_scope_block, 2>;
  __shared__ alignas(Semaphore) char memory[sizeof(Semaphore)];
  Semaphore& places = reinterpret_cast<Semaphore&>(memory);
  if (threadIdx.x == 0) new (memory) Semaphore(1);
  __syncthreads();
  if (threadIdx.x % 32 == 0) {  // lanes of one warp must not wait for each other
    places.acquire();
    guarded += 1;
    out[blockIdx.x * kThreads + threadIdx.x] = 1;
    places.release();
  }
}
bool semaphore() {
  return run(guard) == each(32, [](auto a, auto b) {
           std::fill(a, b, 0);
           *a = 1;
         });
}

__global__ void roots(const int* in, int* out) {
  const int at = cg::this_grid().thread_rank();
  const cuda::std::complex<float> z(static_cast<float>(in[at]), 3.0f);
  const cuda::std::complex<float> back = cuda::std::sqrt(z) * cuda::std::sqrt(z);
  out[at] = cuda::std::abs(back - z) < 1e-3f * cuda::std::abs(z);
}
bool complex_roots() {
  return run(roots) == each(kAll, [](auto a, auto b) { std::fill(a, b, 1); });
}

}  // namespace

int main(int count, char** arguments) {
  const Program programs[] = {{"groups_tile_reduce", tiles},
                              {"groups_tile_scan", tile_scan},
                              {"groups_coalesced", coalesced},
                              {"groups_binary_partition", binary_partition},
                              {"groups_labeled_partition", labeled_partition},
                              {"groups_memcpy_async", copy_async},
                              {"groups_grid_sync", grid_sync},
                              {"libcudacxx_atomic_ref", atomic_ref},
                              {"libcudacxx_atomic_double", atomic_double},
                              {"libcudacxx_semaphore", semaphore},
                              {"libcudacxx_complex", complex_roots}};
  return run_programs(programs, count, arguments);
}
