#include "core/limits.h"

#include <atomic>
#include <string>

#include "core/device_heap.h"

namespace vgpu {
namespace {

enum Limit { kStack = 0, kHeap = 2, kCount = 7 };  // cudaLimit

// Of a thread, what local memory can be at most. Source: CUDA C++ Programming Guide, compute
// capabilities.
constexpr u64 kMostStack = 512 << 10;

// CUDA's defaults. The heap's is its owner's. The others are remembered: calls have a stack of the
// virtual GPU's own (exec/call_stack.h), output is printed at once and never fills a buffer, and
// the rest belongs to dynamic parallelism and to how L2 is used.
std::atomic<u64> values[kCount] = {1024, 1 << 20, 0, 2, 2048, 128, 0};

Code check(int limit) {
  if (limit >= 0 && limit < kCount) return Code::kSuccess;
  return fail(Code::kUnsupportedLimit, "there is no limit of number " + std::to_string(limit));
}

}  // namespace

Code set_limit(int limit, u64 value) {
  if (const Code code = check(limit); code != Code::kSuccess) return code;
  if (limit == kHeap) return resize_device_heap(value);
  if (limit == kStack && value > kMostStack) {
    return fail(Code::kInvalidValue, "a stack of " + std::to_string(value) +
                                         " bytes a thread; local memory has at most " +
                                         std::to_string(kMostStack));
  }
  values[limit] = value;
  return Code::kSuccess;
}

Code get_limit(int limit, u64* value) {
  if (const Code code = check(limit); code != Code::kSuccess) return code;
  if (!value) return fail(Code::kInvalidValue, "a limit has nowhere to go");
  *value = limit == kHeap ? device_heap_bytes() : values[limit].load();
  return Code::kSuccess;
}

}  // namespace vgpu
