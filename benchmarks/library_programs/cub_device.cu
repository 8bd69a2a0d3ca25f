// CUB: algorithms of a whole device.
#include <cub/cub.cuh>

#include <algorithm>
#include <numeric>

#include "programs.h"

namespace {

// CUB is called twice: for the size of its memory, and to work.
template <class Call>
bool with_storage(Call call) {
  std::size_t bytes = 0;
  if (call(nullptr, bytes) != cudaSuccess) return false;
  const OnDevice<char> storage(bytes);
  return call(storage.get(), bytes) == cudaSuccess;
}

bool radix_sort_pairs() {
  const std::vector<int> keys = random_numbers(30000, 1 << 30);
  std::vector<int> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  const OnDevice<int> in(keys), values(order), out(keys.size()), sorted(keys.size());
  const bool well = with_storage([&](void* storage, std::size_t& bytes) {
    return cub::DeviceRadixSort::SortPairs(storage, bytes, in.get(), out.get(), values.get(),
                                           sorted.get(), static_cast<int>(keys.size()));
  });
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return keys[a] < keys[b]; });
  return well && sorted.read() == order;
}

bool radix_sort_doubles() {
  const std::vector<int> numbers = random_numbers(3000, 1 << 30);
  std::vector<double> want(numbers.begin(), numbers.end());
  for (std::size_t k = 0; k < want.size(); k += 2) want[k] *= -1e-3;
  const OnDevice<double> in(want), out(want.size());
  const bool well = with_storage([&](void* storage, std::size_t& bytes) {
    return cub::DeviceRadixSort::SortKeysDescending(storage, bytes, in.get(), out.get(),
                                                    static_cast<int>(want.size()));
  });
  std::sort(want.begin(), want.end(), std::greater<double>());
  return well && out.read() == want;
}

bool merge_sort() {
  std::vector<int> want = random_numbers(5000, 1 << 30);
  const OnDevice<int> keys(want);
  const bool well = with_storage([&](void* storage, std::size_t& bytes) {
    return cub::DeviceMergeSort::SortKeys(storage, bytes, keys.get(), static_cast<int>(want.size()),
                                          cuda::std::less<>());
  });
  std::sort(want.begin(), want.end());
  return well && keys.read() == want;
}

bool segmented_sort() {
  std::vector<int> want = random_numbers(6000, 1 << 30);
  std::vector<int> offsets = {0, 3, 70, 70, 1500, 6000};
  const OnDevice<int> in(want), out(want.size()), places(offsets);
  const bool well = with_storage([&](void* storage, std::size_t& bytes) {
    return cub::DeviceSegmentedSort::SortKeys(storage, bytes, in.get(), out.get(), 6000, 5,
                                              places.get(), places.get() + 1);
  });
  for (int k = 0; k < 5; ++k) std::sort(&want[offsets[k]], want.data() + offsets[k + 1]);
  return well && out.read() == want;
}

bool exclusive_sum() {
  const std::vector<int> numbers = random_numbers(50000, 100);
  const OnDevice<int> in(numbers), out(numbers.size());
  const bool well = with_storage([&](void* storage, std::size_t& bytes) {
    return cub::DeviceScan::ExclusiveSum(storage, bytes, in.get(), out.get(),
                                         static_cast<int>(numbers.size()));
  });
  std::vector<int> want(numbers.size());
  std::exclusive_scan(numbers.begin(), numbers.end(), want.begin(), 0);
  return well && out.read() == want;
}

bool argmax() {
  const std::vector<int> numbers = random_numbers(20000, 1 << 30);
  const OnDevice<int> in(numbers), value(1);
  const OnDevice<cuda::std::int64_t> place(1);
  const bool well = with_storage([&](void* storage, std::size_t& bytes) {
    return cub::DeviceReduce::ArgMax(storage, bytes, in.get(), value.get(), place.get(),
                                     static_cast<cuda::std::int64_t>(numbers.size()));
  });
  const auto want = std::max_element(numbers.begin(), numbers.end());
  return well && value.read()[0] == *want && place.read()[0] == want - numbers.begin();
}

bool segmented_sum() {
  const std::vector<int> numbers = random_numbers(6000, 100);
  const std::vector<int> offsets = {0, 1, 70, 70, 1500, 6000};
  const OnDevice<int> in(numbers), out(5), places(offsets);
  const bool well = with_storage([&](void* storage, std::size_t& bytes) {
    return cub::DeviceSegmentedReduce::Sum(storage, bytes, in.get(), out.get(), 5, places.get(),
                                           places.get() + 1);
  });
  std::vector<int> want(5);
  for (int k = 0; k < 5; ++k)
    want[k] = std::accumulate(&numbers[offsets[k]], numbers.data() + offsets[k + 1], 0);
  return well && out.read() == want;
}

struct Small {
  __host__ __device__ bool operator()(int a) const { return a < 300; }
};

bool select_if() {
  const std::vector<int> numbers = random_numbers(20000, 1000);
  const OnDevice<int> in(numbers), out(numbers.size()), number(1);
  const bool well = with_storage([&](void* storage, std::size_t& bytes) {
    return cub::DeviceSelect::If(storage, bytes, in.get(), out.get(), number.get(),
                                 static_cast<int>(numbers.size()), Small());
  });
  std::vector<int> want, found = out.read();
  std::copy_if(numbers.begin(), numbers.end(), std::back_inserter(want), Small());
  found.resize(number.read()[0]);
  return well && found == want;
}

bool partition() {
  std::vector<int> numbers = random_numbers(10000, 1000);
  const OnDevice<int> in(numbers), out(numbers.size()), number(1);
  const bool well = with_storage([&](void* storage, std::size_t& bytes) {
    return cub::DevicePartition::If(storage, bytes, in.get(), out.get(), number.get(),
                                    static_cast<int>(numbers.size()), Small());
  });
  std::vector<int> want;
  std::copy_if(numbers.begin(), numbers.end(), std::back_inserter(want), Small());
  const bool right = number.read()[0] == static_cast<int>(want.size());
  // The other elements follow from the end backwards.
  for (std::size_t k = numbers.size(); k-- > 0;) {
    if (!Small()(numbers[k])) want.push_back(numbers[k]);
  }
  return well && right && out.read() == want;
}

bool run_length_encode() {
  const std::vector<int> numbers = random_numbers(10000, 3);
  const OnDevice<int> in(numbers), values(numbers.size()), lengths(numbers.size()), number(1);
  const bool well = with_storage([&](void* storage, std::size_t& bytes) {
    return cub::DeviceRunLengthEncode::Encode(storage, bytes, in.get(), values.get(), lengths.get(),
                                              number.get(), static_cast<int>(numbers.size()));
  });
  std::vector<int> found, v = values.read(), l = lengths.read();
  for (int k = 0; k < number.read()[0]; ++k) found.insert(found.end(), l[k], v[k]);
  return well && found == numbers;
}

bool histogram() {
  const std::vector<int> numbers = random_numbers(30000, 640);
  const OnDevice<int> in(numbers), out(64);
  const bool well = with_storage([&](void* storage, std::size_t& bytes) {
    return cub::DeviceHistogram::HistogramEven(storage, bytes, in.get(), out.get(), 65, 0, 640,
                                               static_cast<int>(numbers.size()));
  });
  std::vector<int> want(64);
  for (int n : numbers) ++want[n / 10];
  return well && out.read() == want;
}

}  // namespace

int main(int count, char** arguments) {
  const Program programs[] = {{"cub_radix_sort_pairs", radix_sort_pairs},
                              {"cub_radix_sort_doubles", radix_sort_doubles},
                              {"cub_merge_sort", merge_sort},
                              {"cub_segmented_sort", segmented_sort},
                              {"cub_exclusive_sum", exclusive_sum},
                              {"cub_argmax", argmax},
                              {"cub_segmented_sum", segmented_sum},
                              {"cub_select_if", select_if},
                              {"cub_partition", partition},
                              {"cub_run_length_encode", run_length_encode},
                              {"cub_histogram", histogram}};
  return run_programs(programs, count, arguments);
}
