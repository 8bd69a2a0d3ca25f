// Thrust: sorting, searching and merging.
#include <thrust/adjacent_difference.h>
#include <thrust/binary_search.h>
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/merge.h>
#include <thrust/partition.h>
#include <thrust/set_operations.h>
#include <thrust/sort.h>
#include <thrust/unique.h>

#include <algorithm>
#include <numeric>

#include "programs.h"

namespace {

using Device = thrust::device_vector<int>;

std::vector<int> host(const Device& from) {
  std::vector<int> to(from.size());
  thrust::copy(from.begin(), from.end(), to.begin());
  return to;
}

bool sort() {
  std::vector<int> want = random_numbers(20000, 1 << 30);
  Device found(want.begin(), want.end());
  thrust::sort(found.begin(), found.end());
  std::sort(want.begin(), want.end());
  return host(found) == want;
}

bool sort_descending() {
  std::vector<int> want = random_numbers(5000, 1 << 30);
  Device found(want.begin(), want.end());
  thrust::sort(found.begin(), found.end(), thrust::greater<int>());
  std::sort(want.begin(), want.end(), std::greater<int>());
  return host(found) == want;
}

struct LastDigits {
  __host__ __device__ bool operator()(int a, int b) const { return a % 100 < b % 100; }
};

bool stable_sort_by_key() {
  std::vector<int> keys = random_numbers(5000, 100000);
  std::vector<int> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  Device device_keys(keys.begin(), keys.end()), device_order(order.begin(), order.end());
  thrust::stable_sort_by_key(device_keys.begin(), device_keys.end(), device_order.begin(),
                             LastDigits());
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return LastDigits()(keys[a], keys[b]); });
  return host(device_order) == order;
}

bool unique() {
  std::vector<int> want = random_numbers(10000, 4);
  Device found(want.begin(), want.end());
  found.erase(thrust::unique(found.begin(), found.end()), found.end());
  want.erase(std::unique(want.begin(), want.end()), want.end());
  return host(found) == want;
}

struct Even {
  __host__ __device__ bool operator()(int a) const { return a % 2 == 0; }
};

bool stable_partition() {
  std::vector<int> want = random_numbers(10000, 1000);
  Device found(want.begin(), want.end());
  thrust::stable_partition(found.begin(), found.end(), Even());
  std::stable_partition(want.begin(), want.end(), Even());
  return host(found) == want;
}

bool lower_bound() {
  std::vector<int> sorted = random_numbers(3000, 5000);
  std::sort(sorted.begin(), sorted.end());
  const std::vector<int> wanted = random_numbers(2000, 6000, 2);
  Device in(sorted.begin(), sorted.end()), of(wanted.begin(), wanted.end()), at(wanted.size());
  thrust::lower_bound(in.begin(), in.end(), of.begin(), of.end(), at.begin());
  const std::vector<int> found = host(at);
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    const auto want = std::lower_bound(sorted.begin(), sorted.end(), wanted[k]) - sorted.begin();
    if (found[k] != want) return false;
  }
  return true;
}

struct Sorted {
  std::vector<int> a = random_numbers(4000, 3000), b = random_numbers(5000, 3000, 2);
  Sorted() {
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
  }
};

bool merge() {
  const Sorted s;
  Device a(s.a.begin(), s.a.end()), b(s.b.begin(), s.b.end()), c(a.size() + b.size());
  thrust::merge(a.begin(), a.end(), b.begin(), b.end(), c.begin());
  std::vector<int> want(c.size());
  std::merge(s.a.begin(), s.a.end(), s.b.begin(), s.b.end(), want.begin());
  return host(c) == want;
}

bool set_intersection() {
  const Sorted s;
  Device a(s.a.begin(), s.a.end()), b(s.b.begin(), s.b.end()), c(a.size());
  c.erase(thrust::set_intersection(a.begin(), a.end(), b.begin(), b.end(), c.begin()), c.end());
  std::vector<int> want;
  std::set_intersection(s.a.begin(), s.a.end(), s.b.begin(), s.b.end(), std::back_inserter(want));
  return host(c) == want;
}

bool adjacent_difference() {
  std::vector<int> want = random_numbers(10000, 1000);
  Device found(want.begin(), want.end());
  thrust::adjacent_difference(found.begin(), found.end(), found.begin());
  std::adjacent_difference(want.begin(), want.end(), want.begin());
  return host(found) == want;
}

}  // namespace

int main(int count, char** arguments) {
  const Program programs[] = {{"thrust_sort", sort},
                              {"thrust_sort_descending", sort_descending},
                              {"thrust_stable_sort_by_key", stable_sort_by_key},
                              {"thrust_unique", unique},
                              {"thrust_stable_partition", stable_partition},
                              {"thrust_lower_bound", lower_bound},
                              {"thrust_merge", merge},
                              {"thrust_set_intersection", set_intersection},
                              {"thrust_adjacent_difference", adjacent_difference}};
  return run_programs(programs, count, arguments);
}
