#include "core/device_heap.h"

#include <cstring>
#include <map>
#include <mutex>

#include "core/memory.h"
#include "core/options.h"

namespace vgpu {
namespace {

constexpr u64 kHeapBytes = 8ull << 20;  // CUDA's default (cudaLimitMallocHeapSize)
constexpr u64 kAlignment = 16;

// First fit: kernels that allocate are rare, and small.
struct DeviceHeap {
  std::mutex mutex;
  u64 base = 0;
  std::map<u64, u64> free;  // bytes, by address
  std::map<u64, u64> used;
};

DeviceHeap& heap() {
  static DeviceHeap* const h = new DeviceHeap;  // modules are unloaded late
  return *h;
}

}  // namespace

u64 device_heap() {
  DeviceHeap& h = heap();
  const std::lock_guard lock(h.mutex);
  if (h.base == 0) {
    void* at = nullptr;
    if (allocate(kHeapBytes, MemoryKind::kModule, &at) != Code::kSuccess) return 0;
    h.base = reinterpret_cast<u64>(at);
    h.free[h.base] = kHeapBytes;
  }
  return h.base;
}

u64 device_malloc(u64 bytes) {
  DeviceHeap& h = heap();
  const std::lock_guard lock(h.mutex);
  if (bytes == 0 || bytes > kHeapBytes) return 0;
  const u64 wanted = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  for (auto it = h.free.begin(); it != h.free.end(); ++it) {
    const auto [at, size] = *it;
    if (size < wanted) continue;
    h.free.erase(it);
    if (size > wanted) h.free[at + wanted] = size - wanted;
    h.used[at] = wanted;
    std::memset(reinterpret_cast<void*>(at), options().zero_fresh ? 0 : 0xff, wanted);
    return at;
  }
  return 0;
}

bool device_free(u64 address) {
  if (address == 0) return true;
  DeviceHeap& h = heap();
  const std::lock_guard lock(h.mutex);
  auto it = h.used.find(address);
  if (it == h.used.end()) return false;
  auto [at, size] = *it;
  h.used.erase(it);
  const auto after = h.free.find(at + size);
  if (after != h.free.end()) {
    size += after->second;
    h.free.erase(after);
  }
  const auto next = h.free.lower_bound(at);
  if (next != h.free.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == at) {
      before->second += size;
      return true;
    }
  }
  h.free[at] = size;
  return true;
}

}  // namespace vgpu
