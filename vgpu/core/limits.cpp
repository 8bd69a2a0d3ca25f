#include "core/limits.h"

#include <array>
#include <mutex>
#include <string>

#include "core/device_heap.h"
#include "core/print.h"

namespace vgpu {
namespace {

enum Limit { kStack = 0, kPrint = 1, kHeap = 2, kCount = 7 };  // cudaLimit

// Of a thread, what local memory can be at most. Source: CUDA C++ Programming Guide, compute
// capabilities.
constexpr u64 kMostStack = 512 << 10;

// CUDA's defaults. Those of the heap and of printf are their owners'. From the fourth on they are
// remembered: they belong to dynamic parallelism and to how L2 is used.
constexpr std::array<u64, kCount> kDefaults = {1024, 0, 0, 2, 2048, 128, 0};

std::mutex mutex;
std::array<u64, kCount> values = kDefaults;

u64 value_of(int limit) {
  const std::lock_guard lock(mutex);
  return values[static_cast<size_t>(limit)];
}

Code check(int limit) {
  if (limit >= 0 && limit < kCount) return Code::kSuccess;
  return fail(Code::kUnsupportedLimit, "there is no limit of number " + std::to_string(limit));
}

}  // namespace

Code set_limit(int limit, u64 value) {
  if (const Code code = check(limit); code != Code::kSuccess) return code;
  if (limit == kHeap) return resize_device_heap(value);
  if (limit == kPrint) return resize_print_ring(value);
  if (limit == kStack && value > kMostStack) {
    return fail(Code::kInvalidValue, "a stack of " + std::to_string(value) +
                                         " bytes a thread; local memory has at most " +
                                         std::to_string(kMostStack));
  }
  const std::lock_guard lock(mutex);
  values[static_cast<size_t>(limit)] = value;
  return Code::kSuccess;
}

Code get_limit(int limit, size_t* value) {
  if (const Code code = check(limit); code != Code::kSuccess) return code;
  if (!value) return fail(Code::kInvalidValue, "a limit has nowhere to go");
  *value = limit == kHeap    ? device_heap_bytes()
           : limit == kPrint ? print_ring_bytes()
                             : value_of(limit);
  return Code::kSuccess;
}

void reset_limits() {
  reset_print_ring();
  const std::lock_guard lock(mutex);
  values = kDefaults;
}

u32 stack_bytes() { return static_cast<u32>(value_of(kStack)); }

}  // namespace vgpu
