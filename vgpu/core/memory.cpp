#include "core/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <sstream>

#include "core/options.h"

namespace vgpu {
namespace {

constexpr u64 kQuarantineBytes = 64ull << 20;
constexpr u64 kAlignment = 512;  // cudaMalloc promises 256

struct Block {
  Allocation allocation;
  MemoryKind kind;
  bool owned;
};

class Heap {
 public:
  Code allocate(u64 bytes, MemoryKind kind, void** out) {
    if (bytes == 0) {
      *out = nullptr;
      return Code::kSuccess;
    }
    const std::lock_guard lock(mutex_);
    if (kind != MemoryKind::kHost && used_ + bytes > options().device->memory_bytes)
      return no_memory(bytes);
    void* base = nullptr;
    if (posix_memalign(&base, kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment) !=
        0) {
      return no_memory(bytes);
    }
    std::memset(base, options().zero_fresh ? 0 : 0xff, bytes);
    insert(base, bytes, kind, true, false);
    used_ += bytes;
    *out = base;
    return Code::kSuccess;
  }

  Code release(void* base, MemoryKind kind) {
    if (!base) return Code::kSuccess;
    const std::lock_guard lock(mutex_);
    auto it = blocks_.find(reinterpret_cast<u64>(base));
    const bool live = it != blocks_.end() && !it->second.allocation.freed && it->second.owned;
    if (live && kind == MemoryKind::kDevice && it->second.kind == MemoryKind::kGraph) {
      it->second.allocation.freed = true;  // its graph may allocate it again
      snapshot_.reset();
      return Code::kSuccess;
    }
    if (kind == MemoryKind::kGraph && it != blocks_.end()) {
      it->second.allocation.freed = false;
    } else if (!live || family(it->second.kind) != family(kind)) {
      std::ostringstream text;
      text << "free of " << base << ", which is "
           << (it != blocks_.end() && it->second.allocation.freed ? "freed already"
               : live ? "memory of another kind (host, device, or a module's)"
                      : "no start of an allocation");
      return fail(Code::kInvalidValue, text.str());
    }
    Allocation& a = it->second.allocation;
    a.freed = true;
    used_ -= a.bytes;
    quarantine_.push_back(a.base);
    quarantined_ += a.bytes;
    snapshot_.reset();
    while (quarantined_ > kQuarantineBytes) {
      auto oldest = blocks_.find(quarantine_.front());
      quarantine_.pop_front();
      quarantined_ -= oldest->second.allocation.bytes;
      std::free(reinterpret_cast<void*>(oldest->first));
      blocks_.erase(oldest);
    }
    return Code::kSuccess;
  }

  void set_live(const void* base, bool live) {
    const std::lock_guard lock(mutex_);
    auto it = blocks_.find(reinterpret_cast<u64>(base));
    if (it == blocks_.end()) return;
    it->second.allocation.freed = !live;
    snapshot_.reset();
  }

  void add_range(const void* base, u64 bytes, bool read_only) {
    const std::lock_guard lock(mutex_);
    insert(const_cast<void*>(base), bytes, MemoryKind::kHost, false, read_only);
  }

  void remove_range(const void* base) {
    const std::lock_guard lock(mutex_);
    auto it = blocks_.find(reinterpret_cast<u64>(base));
    if (it == blocks_.end() || it->second.owned) return;
    blocks_.erase(it);
    snapshot_.reset();
  }

  std::shared_ptr<const AllocationIndex> snapshot() {
    const std::lock_guard lock(mutex_);
    if (!snapshot_) {
      auto fresh = std::make_shared<AllocationIndex>();
      fresh->sorted.reserve(blocks_.size());
      for (const auto& [base, block] : blocks_) fresh->sorted.push_back(block.allocation);
      snapshot_ = std::move(fresh);
    }
    return snapshot_;
  }

  // The block that holds the address, or null.
  const Block* holder(u64 address) {
    auto it = blocks_.upper_bound(address);
    if (it == blocks_.begin()) return nullptr;
    --it;
    const Allocation& a = it->second.allocation;
    return address < a.base + std::max<u64>(a.bytes, 1) ? &it->second : nullptr;
  }

  std::mutex& mutex() { return mutex_; }
  u64 used() {
    const std::lock_guard lock(mutex_);
    return used_;
  }

 private:
  // Managed memory is freed by the call for device memory.
  static MemoryKind family(MemoryKind kind) {
    return kind == MemoryKind::kManaged ? MemoryKind::kDevice : kind;
  }
  void insert(void* base, u64 bytes, MemoryKind kind, bool owned, bool read_only) {
    const u64 key = reinterpret_cast<u64>(base);
    blocks_[key] = {{key, bytes, ++last_id_, false, read_only}, kind, owned};
    snapshot_.reset();
  }
  Code no_memory(u64 bytes) {
    return fail(Code::kOutOfMemory, "no room for " + std::to_string(bytes) + " bytes beside the " +
                                        std::to_string(used_) + " in use on " +
                                        options().device->name);
  }

  std::mutex mutex_;
  std::map<u64, Block> blocks_;
  std::deque<u64> quarantine_;
  u64 quarantined_ = 0;
  u64 used_ = 0;
  u64 last_id_ = 0;
  std::shared_ptr<const AllocationIndex> snapshot_;
};

Heap& heap() {
  static Heap* const h = new Heap;  // frees come as late as static destructors
  return *h;
}

}  // namespace

Code allocate(u64 bytes, MemoryKind kind, void** out) { return heap().allocate(bytes, kind, out); }
Code release(void* base, MemoryKind kind) { return heap().release(base, kind); }
void register_memory_range(const void* base, u64 bytes, bool read_only) {
  heap().add_range(base, bytes, read_only);
}
void set_live(const void* base, bool live) { heap().set_live(base, live); }
void unregister_memory_range(const void* base) { heap().remove_range(base); }
std::shared_ptr<const AllocationIndex> allocations() { return heap().snapshot(); }
u64 allocated_bytes() { return heap().used(); }

const Allocation* find_allocation(const AllocationIndex& index, u64 address, u64 bytes) {
  auto it = std::upper_bound(index.sorted.begin(), index.sorted.end(), address,
                             [](u64 a, const Allocation& b) { return a < b.base; });
  if (it == index.sorted.begin()) return nullptr;
  --it;
  return address + bytes <= it->base + it->bytes ? &*it : nullptr;
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
    if (!a.freed && address + bytes <= a.base + a.bytes) return Code::kSuccess;
  }
  return fail(Code::kInvalidValue, std::string(what) + " of " + std::to_string(bytes) + " bytes: " +
                                       describe_address(*allocations(), address, bytes));
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
  const auto named = [](const Allocation& a) {
    return "the " + std::to_string(a.bytes) + "-byte " + (a.freed ? "freed " : "") +
           "allocation #" + std::to_string(a.id);
  };
  constexpr u64 kNear = 1ull << 30;
  if (before && address < before->base + before->bytes) {
    if (address + bytes > before->base + before->bytes) {
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
