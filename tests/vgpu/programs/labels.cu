// Labeled partitions: lanes of a warp come together to one instruction, and name other members.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace cg = cooperative_groups;

__global__ void largest_and_number(const int* value, const int* bucket, int* largest, int* number,
                                   int n, int buckets) {
  for (int i = cg::this_grid().thread_rank(); i < n; i += cg::this_grid().size()) {
    const int b = bucket[i];
    if (b >= buckets) continue;
    const auto group = cg::labeled_partition(cg::coalesced_threads(), b);
    const int most = cg::reduce(group, value[i], cg::greater<int>());
    const int sum = cg::reduce(group, 1, cg::plus<int>());
    if (group.thread_rank() == 0) {
      atomicMax(&largest[b], most);
      atomicAdd(&number[b], sum);
    }
  }
}

int main() {
  constexpr int n = 10007, buckets = 5;
  std::vector<int> value(n), bucket(n), largest(buckets), number(buckets);
  for (int i = 0; i < n; ++i) {
    value[i] = std::rand();
    bucket[i] = std::rand() % (buckets + 2);
    if (bucket[i] >= buckets) continue;
    largest[bucket[i]] = std::max(largest[bucket[i]], value[i]);
    ++number[bucket[i]];
  }
  int* on_device;
  cudaMalloc(&on_device, (2 * n + 2 * buckets) * sizeof(int));
  int* const results = on_device + 2 * n;
  cudaMemcpy(on_device, value.data(), n * sizeof(int), cudaMemcpyHostToDevice);
  cudaMemcpy(on_device + n, bucket.data(), n * sizeof(int), cudaMemcpyHostToDevice);
  cudaMemset(results, 0, 2 * buckets * sizeof(int));
  largest_and_number<<<8, 128>>>(on_device, on_device + n, results, results + buckets, n, buckets);
  std::vector<int> found(2 * buckets);
  cudaMemcpy(found.data(), results, 2 * buckets * sizeof(int), cudaMemcpyDeviceToHost);
  const bool right = std::equal(largest.begin(), largest.end(), found.begin()) &&
                     std::equal(number.begin(), number.end(), found.begin() + buckets);
  std::puts(right ? "passed" : "failed");
}
