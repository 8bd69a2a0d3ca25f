#include "core/device_heap.h"

#include <cstring>
#include <map>
#include <mutex>

#include "core/memory.h"
#include "core/options.h"

namespace vgpu {
namespace {

constexpr u64 kAlignment = 16;
constexpr u64 kDefaultBytes = 8ull << 20;  // CUDA's
constexpr u64 kGap = 16;  // between blocks, so that what runs past one meets no other

struct DeviceBlock {
  u64 bytes;  // as they were asked for
  u64 room;   // with the gap
  bool freed;
};

// First fit: kernels that allocate are rare, and small. Freed blocks are not given out again until
// the heap is full, so that a use of one shows.
struct DeviceHeap {
  std::mutex mutex;
  u64 base = 0;
  u64 bytes = kDefaultBytes;
  bool touched = false;
  u8* written = nullptr;    // of initcheck
  std::map<u64, u64> free;  // bytes, by address
  std::map<u64, DeviceBlock> blocks;
};

DeviceHeap& heap() {
  static DeviceHeap* const h = new DeviceHeap;  // modules are unloaded late
  return *h;
}

u64 take_room(DeviceHeap& h, u64 wanted) {
  for (auto it = h.free.begin(); it != h.free.end(); ++it) {
    const auto [at, size] = *it;
    if (size < wanted) continue;
    h.free.erase(it);
    if (size > wanted) h.free[at + wanted] = size - wanted;
    return at;
  }
  return 0;
}

void give_room(DeviceHeap& h, u64 at, u64 size) {
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
      return;
    }
  }
  h.free[at] = size;
}

void forget_freed(DeviceHeap& h) {
  for (auto it = h.blocks.begin(); it != h.blocks.end();) {
    if (!it->second.freed) {
      ++it;
      continue;
    }
    give_room(h, it->first, it->second.room);
    it = h.blocks.erase(it);
  }
}

void empty(DeviceHeap& h) { h.free = {{h.base + kGap, h.bytes - kGap}}; }

u64 create(DeviceHeap& h) {
  if (h.base) return h.base;
  void* at = nullptr;
  if (allocate(h.bytes, MemoryKind::kDeviceHeap, &at) != Code::kSuccess) return 0;
  Allocation a = {};
  is_device_memory(at, &a);
  h.written = a.written;
  h.base = reinterpret_cast<u64>(at);
  empty(h);
  return h.base;
}

// False: no room; the size is as before.
bool resize(DeviceHeap& h, u64 bytes) {
  const bool exists = h.base != 0;
  if (exists) {
    release(reinterpret_cast<void*>(h.base), MemoryKind::kDeviceHeap);
    h.base = 0;
  }
  const u64 before = h.bytes;
  h.bytes = bytes;
  if (!exists || create(h)) return true;
  h.bytes = before;
  create(h);
  return false;
}

// The block that begins at the address or last before it.
std::map<u64, DeviceBlock>::const_iterator block_before(const DeviceHeap& h, u64 address) {
  const auto it = h.blocks.upper_bound(address);
  return it == h.blocks.begin() ? h.blocks.end() : std::prev(it);
}

}  // namespace

u64 device_heap() {
  DeviceHeap& h = heap();
  const std::lock_guard lock(h.mutex);
  return create(h);
}

u64 device_malloc(u64 bytes) {
  DeviceHeap& h = heap();
  const std::lock_guard lock(h.mutex);
  if (bytes == 0 || bytes > h.bytes) return 0;
  const u64 wanted = (bytes + kAlignment - 1) / kAlignment * kAlignment + kGap;
  u64 at = take_room(h, wanted);
  if (!at) {
    forget_freed(h);
    at = take_room(h, wanted);
  }
  if (!at) return 0;
  h.touched = true;
  h.blocks[at] = {bytes, wanted, false};
  std::memset(reinterpret_cast<void*>(at), options().zero_fresh ? 0 : 0xff, wanted);
  if (h.written) std::memset(h.written + (at - h.base), 0, wanted);
  return at;
}

bool device_free(u64 address) {
  if (address == 0) return true;
  DeviceHeap& h = heap();
  const std::lock_guard lock(h.mutex);
  const auto it = h.blocks.find(address);
  if (it == h.blocks.end() || it->second.freed) return false;
  it->second.freed = true;
  return true;
}

bool in_device_block(u64 address, u64 bytes) {
  const DeviceHeap& h = heap();
  const std::lock_guard lock(heap().mutex);
  const auto it = block_before(h, address);
  return it != h.blocks.end() && !it->second.freed &&
         fits(address, bytes, it->first, it->second.bytes);
}

std::string describe_device_block(u64 address, u64 bytes) {
  const DeviceHeap& h = heap();
  const std::lock_guard lock(heap().mutex);
  const auto it = block_before(h, address);
  if (it == h.blocks.end()) return " lies in the heap of malloc, before its first block";
  const auto& [base, block] = *it;
  const std::string named = "the " + std::to_string(block.bytes) + "-byte block that a kernel " +
                            (block.freed ? "freed" : "got from malloc");
  if (fits(address, bytes, base, block.bytes))
    return " lies in " + named + " at byte " + std::to_string(address - base);
  if (address < base + block.bytes) {
    return " starts " + std::to_string(base + block.bytes - address) + " bytes before the end of " +
           named;
  }
  return " is " + std::to_string(address - base - block.bytes) + " bytes past the end of " + named;
}

DeviceBlocks live_device_blocks() {
  const DeviceHeap& h = heap();
  const std::lock_guard lock(heap().mutex);
  DeviceBlocks live;
  for (const auto& [base, block] : h.blocks) {
    if (block.freed) continue;
    if (!live.count++) live.first = base;
    live.bytes += block.bytes;
  }
  return live;
}

void reset_device_heap() {
  DeviceHeap& h = heap();
  const std::lock_guard lock(h.mutex);
  h.blocks.clear();
  h.touched = false;
  if (h.bytes != kDefaultBytes) {
    resize(h, kDefaultBytes);
  } else if (h.base) {
    empty(h);
  }
}

Code resize_device_heap(u64 bytes) {
  DeviceHeap& h = heap();
  const std::lock_guard lock(h.mutex);
  if (h.touched) {
    return fail(Code::kInvalidValue,
                "the size of the heap of malloc (cudaLimitMallocHeapSize) cannot change after a "
                "kernel has allocated: set it before, or reset the device");
  }
  if (bytes <= kGap)
    return fail(Code::kInvalidValue, "a heap of malloc of " + std::to_string(bytes) + " bytes");
  if (resize(h, bytes)) return Code::kSuccess;
  return fail(Code::kOutOfMemory,
              "no room for a heap of malloc of " + std::to_string(bytes) + " bytes");
}

u64 device_heap_bytes() {
  const std::lock_guard lock(heap().mutex);
  return heap().bytes;
}

}  // namespace vgpu
