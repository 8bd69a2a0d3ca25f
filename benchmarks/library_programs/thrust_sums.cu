// Thrust: reductions, scans and moves.
#include <thrust/count.h>
#include <thrust/device_vector.h>
#include <thrust/extrema.h>
#include <thrust/functional.h>
#include <thrust/gather.h>
#include <thrust/host_vector.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/reduce.h>
#include <thrust/remove.h>
#include <thrust/scan.h>
#include <thrust/scatter.h>
#include <thrust/transform_reduce.h>
#include <thrust/transform_scan.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "programs.h"

namespace {

using Device = thrust::device_vector<int>;

std::vector<int> host(const Device& from) {
  std::vector<int> to(from.size());
  thrust::copy(from.begin(), from.end(), to.begin());
  return to;
}

bool reduce() {
  const std::vector<int> numbers = random_numbers(30000, 1000);
  const Device on_device(numbers.begin(), numbers.end());
  return thrust::reduce(on_device.begin(), on_device.end()) ==
         std::accumulate(numbers.begin(), numbers.end(), 0);
}

bool reduce_by_key() {
  std::vector<int> keys = random_numbers(8000, 3), values = random_numbers(8000, 100, 2);
  Device k(keys.begin(), keys.end()), v(values.begin(), values.end());
  Device out_keys(keys.size()), out_values(keys.size());
  const auto ends =
      thrust::reduce_by_key(k.begin(), k.end(), v.begin(), out_keys.begin(), out_values.begin());
  std::vector<int> want_keys, want_values;
  for (std::size_t n = 0; n < keys.size(); ++n) {
    if (n == 0 || keys[n] != keys[n - 1]) {
      want_keys.push_back(keys[n]);
      want_values.push_back(0);
    }
    want_values.back() += values[n];
  }
  out_keys.erase(ends.first, out_keys.end());
  out_values.erase(ends.second, out_values.end());
  return host(out_keys) == want_keys && host(out_values) == want_values;
}

bool inclusive_scan() {
  std::vector<int> want = random_numbers(30000, 100);
  Device found(want.begin(), want.end());
  thrust::inclusive_scan(found.begin(), found.end(), found.begin());
  std::partial_sum(want.begin(), want.end(), want.begin());
  return host(found) == want;
}

bool exclusive_scan_by_key() {
  const std::vector<int> keys = random_numbers(6000, 2), values = random_numbers(6000, 100, 2);
  Device k(keys.begin(), keys.end()), found(values.begin(), values.end());
  thrust::exclusive_scan_by_key(k.begin(), k.end(), found.begin(), found.begin());
  std::vector<int> want(values.size());
  for (std::size_t n = 1; n < keys.size(); ++n)
    want[n] = keys[n] == keys[n - 1] ? want[n - 1] + values[n - 1] : 0;
  return host(found) == want;
}

bool transform_reduce() {
  const std::vector<int> numbers = random_numbers(20000, 100);
  const Device on_device(numbers.begin(), numbers.end());
  const auto square = thrust::square<int>();
  const int found =
      thrust::transform_reduce(on_device.begin(), on_device.end(), square, 0, thrust::plus<int>());
  return found == std::inner_product(numbers.begin(), numbers.end(), numbers.begin(), 0);
}

bool inner_product() {
  const std::vector<int> a = random_numbers(20000, 100), b = random_numbers(20000, 100, 2);
  const Device x(a.begin(), a.end()), y(b.begin(), b.end());
  return thrust::inner_product(x.begin(), x.end(), y.begin(), 0) ==
         std::inner_product(a.begin(), a.end(), b.begin(), 0);
}

bool minmax_element() {
  const std::vector<int> numbers = random_numbers(20000, 1 << 30);
  const Device on_device(numbers.begin(), numbers.end());
  const auto found = thrust::minmax_element(on_device.begin(), on_device.end());
  const auto want = std::minmax_element(numbers.begin(), numbers.end());
  return *found.first == *want.first && *found.second == *want.second;
}

struct Odd {
  __host__ __device__ bool operator()(int a) const { return a % 2 != 0; }
};

bool remove_if() {
  std::vector<int> want = random_numbers(10000, 1000);
  Device found(want.begin(), want.end());
  found.erase(thrust::remove_if(found.begin(), found.end(), Odd()), found.end());
  want.erase(std::remove_if(want.begin(), want.end(), Odd()), want.end());
  return host(found) == want;
}

bool count_if() {
  const std::vector<int> numbers = random_numbers(20000, 1000);
  const Device on_device(numbers.begin(), numbers.end());
  return thrust::count_if(on_device.begin(), on_device.end(), Odd()) ==
         std::count_if(numbers.begin(), numbers.end(), Odd());
}

bool gather_and_scatter() {
  const std::vector<int> numbers = random_numbers(4096, 1000);
  Device map(numbers.size()), from(numbers.begin(), numbers.end()), to(numbers.size());
  thrust::transform(thrust::counting_iterator<int>(0), thrust::counting_iterator<int>(4096),
                    map.begin(), [] __host__ __device__(int k) { return k * 5 % 4096; });
  thrust::scatter(from.begin(), from.end(), map.begin(), to.begin());
  thrust::gather(map.begin(), map.end(), to.begin(), from.begin());
  return host(from) == numbers;
}

}  // namespace

int main(int count, char** arguments) {
  const Program programs[] = {{"thrust_reduce", reduce},
                              {"thrust_reduce_by_key", reduce_by_key},
                              {"thrust_inclusive_scan", inclusive_scan},
                              {"thrust_exclusive_scan_by_key", exclusive_scan_by_key},
                              {"thrust_transform_reduce", transform_reduce},
                              {"thrust_inner_product", inner_product},
                              {"thrust_minmax_element", minmax_element},
                              {"thrust_remove_if", remove_if},
                              {"thrust_count_if", count_if},
                              {"thrust_gather_scatter", gather_and_scatter}};
  return run_programs(programs, count, arguments);
}
