#include "core/memory.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "core/device_heap.h"
#include "core/heap.h"
#include "core/options.h"
#include "exec/check.h"

namespace vgpu {
namespace {

// Of malloc in kernels.
void report_device_leaks() {
  const DeviceBlocks live = live_device_blocks();
  if (!live.count) return;
  Finding f;
  f.check = "memcheck";
  f.kind = "leak";
  f.space = "global";
  f.address = live.first;
  f.message = "leak: at the end " + std::to_string(live.bytes) + " bytes in " +
              std::to_string(live.count) + " of the blocks that kernels got from malloc " +
              "have not been freed";
  add_finding(std::move(f));
}

void report_leaks() {
  if (!(options().checks & kMemcheck)) return;
  report_device_leaks();
  const std::vector<Allocation> live = heap().live();
  if (live.empty()) return;
  Finding f;
  f.check = "memcheck";
  f.kind = "leak";
  f.space = "global";
  f.address = live[0].base;
  f.allocation = live[0].id;
  f.message = "leak: at the end the " + std::to_string(live[0].bytes) + "-byte allocation #" +
              std::to_string(live[0].id) + " has not been freed";
  if (live.size() > 1) f.message += ", nor have " + std::to_string(live.size() - 1) + " others";
  add_finding(std::move(f));
}

}  // namespace

Heap& heap() {
  static Heap* const h = [] {
    std::atexit(report_leaks);
    return new Heap;  // frees come as late as static destructors
  }();
  return *h;
}

void reset_memory() {
  report_leaks();
  heap().release_all();
  reset_device_heap();
}

Code allocate(u64 bytes, MemoryKind kind, void** out) { return heap().allocate(bytes, kind, out); }
Code release(void* base, MemoryKind kind) { return heap().release(base, kind); }
void register_memory_range(const void* base, u64 bytes, bool read_only) {
  heap().add_range(base, bytes, read_only);
}
void set_free(const void* base) { heap().set_free(base); }
Code revive(const void* base) { return heap().revive(base); }
void notice_host_writes() { heap().notice_host_writes(); }
void unregister_memory_range(const void* base) { heap().remove_range(base); }
std::shared_ptr<const AllocationIndex> allocations() { return heap().snapshot(); }
u64 allocated_bytes() { return heap().used(); }

void watch_accesses() { heap().watch_accesses(); }
std::vector<Allocation> live_allocations() { return heap().live(); }

const Allocation* find_allocation(const AllocationIndex& index, u64 address, u64 bytes) {
  auto it = std::upper_bound(index.sorted.begin(), index.sorted.end(), address,
                             [](u64 a, const Allocation& b) { return a < b.base; });
  if (it == index.sorted.begin()) return nullptr;
  --it;
  return fits(address, bytes, it->base, it->bytes) ? &*it : nullptr;
}

bool is_device_memory(const void* address, Allocation* found) {
  const std::lock_guard lock(heap().mutex());
  const Block* b = heap().holder(reinterpret_cast<u64>(address));
  if (!b || b->allocation.freed) return false;
  if (found) *found = b->allocation;
  return true;
}

MemoryKind kind_of(const void* address) {
  const std::lock_guard lock(heap().mutex());
  const Block* b = heap().holder(reinterpret_cast<u64>(address));
  return b ? b->kind : MemoryKind::kHost;
}

Code check_range(const void* base, u64 bytes, const char* what) {
  if (bytes == 0) return Code::kSuccess;
  const u64 address = reinterpret_cast<u64>(base);
  if (!address) return fail(Code::kInvalidValue, std::string(what) + ": null pointer");
  {
    const std::lock_guard lock(heap().mutex());
    const Block* b = heap().holder(address);
    if (!b) return Code::kSuccess;  // ordinary host memory
    const Allocation& a = b->allocation;
    if (!a.freed && fits(address, bytes, a.base, a.bytes)) return Code::kSuccess;
  }
  return fail(Code::kInvalidValue, std::string(what) + " of " + std::to_string(bytes) + " bytes: " +
                                       describe_address(*allocations(), address, bytes));
}

u64 nearest_allocation(const AllocationIndex& index, u64 address) {
  constexpr u64 kNear = 1ull << 30;
  u64 best = kNear;
  u64 number = 0;
  for (const Allocation& a : index.sorted) {
    const u64 distance = address < a.base             ? a.base - address
                         : address < a.base + a.bytes ? 0
                                                      : address - (a.base + a.bytes);
    if (distance >= best) continue;
    best = distance;
    number = a.id;
  }
  return number;
}

std::string describe_address(const AllocationIndex& index, u64 address, u64 bytes) {
  std::ostringstream text;
  text << "the address 0x" << std::hex << address << std::dec;
  const Allocation* before = nullptr;
  const Allocation* after = nullptr;
  for (const Allocation& a : index.sorted) {
    if (a.base <= address) before = &a;
    if (a.base > address && !after) after = &a;
  }
  if (before && before->is_heap && address - before->base < before->bytes)
    return text.str() + describe_device_block(address, bytes);
  const auto named = [](const Allocation& a) {
    return "the " + std::to_string(a.bytes) + "-byte " + (a.freed ? "freed " : "") +
           "allocation #" + std::to_string(a.id);
  };
  constexpr u64 kNear = 1ull << 30;
  if (before && address < before->base + before->bytes) {
    if (!fits(address, bytes, before->base, before->bytes)) {
      text << " starts " << before->base + before->bytes - address << " bytes before the end of "
           << named(*before);
    } else {
      text << " lies in " << named(*before) << " at byte " << address - before->base;
      if (before->read_only) text << ", which is read-only";
    }
    return text.str();
  }
  const u64 past = before ? address - (before->base + before->bytes) : ~0ull;
  const u64 ahead = after ? after->base - address : ~0ull;
  if (past <= ahead && past < kNear) {
    text << " is " << past << " bytes past the end of " << named(*before);
  } else if (ahead < kNear) {
    text << " is " << ahead << " bytes before the start of " << named(*after);
  } else {
    text
        << " is in no allocation (host memory that is not registered is not accessible to kernels)";
  }
  return text.str();
}

}  // namespace vgpu
