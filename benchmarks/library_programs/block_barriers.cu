// libcu++'s barriers and pipelines, which are mbarriers from sm_80 on.
#include <cooperative_groups.h>

#include <cuda/barrier>
#include <cuda/latch>
#include <cuda/pipeline>

#include <algorithm>
#include <new>

#include "programs.h"

namespace cg = cooperative_groups;

namespace {

constexpr int kThreads = 128;

const std::vector<int>& numbers() {
  static const std::vector<int> n = random_numbers(kThreads * 4, 1000);
  return n;
}
template <class Kernel>
bool reverses(Kernel kernel) {
  const OnDevice<int> in(numbers()), out(numbers().size());
  kernel<<<1, kThreads>>>(in.get(), out.get());
  std::vector<int> want = numbers();
  for (int k = 0; k < 4; ++k)
    std::reverse(want.begin() + k * kThreads, want.begin() + (k + 1) * kThreads);
  return out.read() == want;
}

__global__ void with_barrier(const int* in, int* out) {
  using Barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ Barrier barrier;
  __shared__ int tile[kThreads];
  if (threadIdx.x == 0) init(&barrier, kThreads);
  __syncthreads();
  for (int k = 0; k < 4; ++k) {
    tile[threadIdx.x] = in[k * kThreads + threadIdx.x];
    barrier.arrive_and_wait();
    out[k * kThreads + threadIdx.x] = tile[kThreads - 1 - threadIdx.x];
    barrier.arrive_and_wait();
  }
}
bool barrier() { return reverses(with_barrier); }

__global__ void with_copies(const int* in, int* out) {
  using Barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ Barrier barrier;
  __shared__ int tile[kThreads];
  const auto block = cg::this_thread_block();
  if (threadIdx.x == 0) init(&barrier, kThreads);
  block.sync();
  for (int k = 0; k < 4; ++k) {
    cuda::memcpy_async(block, tile, in + k * kThreads, sizeof(tile), barrier);
    barrier.arrive_and_wait();
    out[k * kThreads + threadIdx.x] = tile[kThreads - 1 - threadIdx.x];
    block.sync();
  }
}
bool barrier_copies() { return reverses(with_copies); }

__global__ void with_pipeline(const int* in, int* out) {
  constexpr int kStages = 2;
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
  __shared__ int tile[kStages][kThreads];
  const auto block = cg::this_thread_block();
  auto pipeline = cuda::make_pipeline(block, &state);
  for (int computed = 0, fetched = 0; computed < 4; ++computed) {
    for (; fetched < 4 && fetched < computed + kStages; ++fetched) {
      pipeline.producer_acquire();
      cuda::memcpy_async(block, tile[fetched % kStages], in + fetched * kThreads, sizeof(tile[0]),
                         pipeline);
      pipeline.producer_commit();
    }
    pipeline.consumer_wait();
    out[computed * kThreads + threadIdx.x] = tile[computed % kStages][kThreads - 1 - threadIdx.x];
    pipeline.consumer_release();
  }
}
bool pipeline() { return reverses(with_pipeline); }

__global__ void with_latch(const int* in, int* out) {
  using Latch = cuda::latch<cuda::thread_scope_block>;
  __shared__ alignas(Latch) char memory[sizeof(Latch)];
  Latch& latch = reinterpret_cast<Latch&>(memory);
  __shared__ int tile[4 * kThreads];
  if (threadIdx.x == 0) new (memory) Latch(kThreads);
  __syncthreads();
  for (int k = 0; k < 4; ++k)
    tile[k * kThreads + threadIdx.x] = in[k * kThreads + kThreads - 1 - threadIdx.x];
  latch.arrive_and_wait();
  for (int k = 0; k < 4; ++k) out[k * kThreads + threadIdx.x] = tile[k * kThreads + threadIdx.x];
}
bool latch() { return reverses(with_latch); }

}  // namespace

int main(int count, char** arguments) {
  const Program programs[] = {{"libcudacxx_barrier", barrier},
                              {"libcudacxx_barrier_copies", barrier_copies},
                              {"libcudacxx_pipeline", pipeline},
                              {"libcudacxx_latch", latch}};
  return run_programs(programs, count, arguments);
}
