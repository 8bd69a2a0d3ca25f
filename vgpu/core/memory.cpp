#include "core/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <sstream>

#include "core/options.h"
#include "exec/check.h"

namespace vgpu {
namespace {

constexpr u64 kQuarantineBytes = 64ull << 20;
constexpr u64 kAlignment = 512;            // cudaMalloc promises 256
constexpr u64 kAddressSpace = 1ull << 47;  // of a process; what a host allocation can be at most
// What fresh pinned and managed memory holds under initcheck: no program stores these by chance,
// and as FP16, BF16, FP32 and FP64 each is NaN.
constexpr u64 kUntouched = 0x7ffdffc17ffbffe5ull;

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
    const u64 most = kind == MemoryKind::kHost ? kAddressSpace : options().device->memory_bytes;
    const u64 room = most - std::min(used_, most);
    const u64 slack = kind == MemoryKind::kDevice ? options().slack_bytes : 0;
    if (bytes > room || slack > room - bytes) return no_memory(bytes);
    bytes += slack;
    void* base = nullptr;
    if (posix_memalign(&base, kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment) !=
        0) {
      return no_memory(bytes);
    }
    Block& block = insert(base, bytes, kind, true, false);
    // calloc gets untouched pages: memory that no kernel reads costs nothing.
    if (kind != MemoryKind::kModule && (options().checks & kInitcheck))
      block.allocation.written = static_cast<u8*>(std::calloc(bytes, 1));
    make_fresh(block);
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
      std::free(oldest->second.allocation.written);
      std::free(oldest->second.allocation.accesses);
      blocks_.erase(oldest);
    }
    return Code::kSuccess;
  }

  void set_free(const void* base) {
    const std::lock_guard lock(mutex_);
    auto it = blocks_.find(reinterpret_cast<u64>(base));
    if (it == blocks_.end()) return;
    it->second.allocation.freed = true;
    snapshot_.reset();
  }

  Code revive(const void* base) {
    const std::lock_guard lock(mutex_);
    auto it = blocks_.find(reinterpret_cast<u64>(base));
    if (it == blocks_.end() || !it->second.allocation.freed) {
      return fail(Code::kInvalidValue,
                  "a graph is launched again before the memory that it allocated is freed");
    }
    it->second.allocation.freed = false;
    make_fresh(it->second);
    snapshot_.reset();
    return Code::kSuccess;
  }

  void notice_host_writes() {
    const std::lock_guard lock(mutex_);
    for (auto& [base, block] : blocks_) notice_host_writes(block);
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

  void watch_accesses() {
    const std::lock_guard lock(mutex_);
    for (auto& [base, block] : blocks_) {
      Allocation& a = block.allocation;
      if (a.accesses || a.freed || !block.owned || block.kind == MemoryKind::kModule) continue;
      a.accesses = static_cast<u64*>(std::calloc((a.bytes + 3) / 4 * 3, sizeof(u64)));
      snapshot_.reset();
    }
  }

  void release_all() {
    std::vector<std::pair<void*, MemoryKind>> held;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [base, block] : blocks_) {
        const bool programs = family(block.kind) == MemoryKind::kDevice ||
                              (block.kind == MemoryKind::kHost && block.owned);
        if (programs && !block.allocation.freed)
          held.push_back({reinterpret_cast<void*>(base), block.kind});
      }
    }
    for (const auto& [base, kind] : held) release(base, kind);
  }

  std::vector<Allocation> live() {
    const std::lock_guard lock(mutex_);
    std::vector<Allocation> found;
    for (const auto& [base, block] : blocks_) {
      if (family(block.kind) == MemoryKind::kDevice && !block.allocation.freed)
        found.push_back(block.allocation);
    }
    return found;
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

  static void notice_host_writes(const Block& block) {
    const Allocation& a = block.allocation;
    if (!a.written || a.freed || !is_mapped(block)) return;
    for (u64 at = 0; at < a.bytes; at += sizeof(kUntouched)) {
      const u64 bytes = std::min<u64>(sizeof(kUntouched), a.bytes - at);
      if (std::memcmp(reinterpret_cast<const void*>(a.base + at), &kUntouched, bytes) == 0)
        continue;
      for (u64 k = at; k < at + bytes; ++k) a.written[k] = std::max<u8>(a.written[k], 1);
    }
  }
  // The host may store there without a call.
  static bool is_mapped(const Block& block) {
    return block.kind == MemoryKind::kHost || block.kind == MemoryKind::kManaged;
  }

 private:
  // Managed memory is freed by the call for device memory.
  static MemoryKind family(MemoryKind kind) {
    return kind == MemoryKind::kManaged ? MemoryKind::kDevice : kind;
  }
  Block& insert(void* base, u64 bytes, MemoryKind kind, bool owned, bool read_only) {
    const u64 key = reinterpret_cast<u64>(base);
    blocks_[key] = {{key, bytes, ++last_id_, false, read_only, nullptr, nullptr}, kind, owned};
    snapshot_.reset();
    return blocks_[key];
  }
  static void make_fresh(Block& block) {
    const Allocation& a = block.allocation;
    if (a.written) std::memset(a.written, 0, a.bytes);
    if (a.written && is_mapped(block)) {
      for (u64 at = 0; at < a.bytes; at += sizeof(kUntouched)) {
        std::memcpy(reinterpret_cast<void*>(a.base + at), &kUntouched,
                    std::min<u64>(sizeof(kUntouched), a.bytes - at));
      }
      return;
    }
    std::memset(reinterpret_cast<void*>(a.base), options().zero_fresh ? 0 : 0xff, a.bytes);
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

void report_leaks();

Heap& heap() {
  static Heap* const h = [] {
    std::atexit(report_leaks);
    return new Heap;  // frees come as late as static destructors
  }();
  return *h;
}

void report_leaks() {
  if (!(options().checks & kMemcheck)) return;
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

void reset_memory() {
  report_leaks();
  heap().release_all();
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

namespace {

// The shadow bytes behind an address, or null.
u8* written_behind(const void* address, u64 bytes) {
  const std::lock_guard lock(heap().mutex());
  const u64 at = reinterpret_cast<u64>(address);
  const Block* b = heap().holder(at);
  if (!b || !b->allocation.written || !fits(at, bytes, b->allocation.base, b->allocation.bytes))
    return nullptr;
  Heap::notice_host_writes(*b);
  return b->allocation.written + (at - b->allocation.base);
}

// By number, from 2 on.
std::mutex undefined_mutex;
std::vector<Finding> undefined_origins;

void report_undefined(const u8* marks, u64 bytes) {
  for (u64 k = 0; k < bytes; ++k) {
    if (marks[k] < 2) continue;
    Finding f;
    {
      const std::lock_guard lock(undefined_mutex);
      const size_t n = marks[k] - 2u;
      if (n < undefined_origins.size()) f = undefined_origins[n];
    }
    if (f.check.empty()) {
      f.check = "initcheck";
      f.kind = "uninitialised result";
      f.message = "a result is computed from memory that nothing wrote";
    }
    f.message += "; the host copies it, from byte " + std::to_string(k) + " of its copy on";
    add_finding(std::move(f));
    return;
  }
}

}  // namespace

u8 remember_undefined(const Finding& finding) {
  const std::lock_guard lock(undefined_mutex);
  for (size_t n = 0; n < undefined_origins.size(); ++n) {
    const Finding& f = undefined_origins[n];
    if (f.kernel == finding.kernel && f.ptx_line == finding.ptx_line) return static_cast<u8>(n + 2);
  }
  if (undefined_origins.size() >= 253) return 255;
  undefined_origins.push_back(finding);
  return static_cast<u8>(undefined_origins.size() + 1);
}

void follow_fill(const void* to, u64 bytes) {
  if (u8* marks = written_behind(to, bytes)) std::memset(marks, 1, bytes);
}

void follow_copy(const void* to, const void* from, u64 bytes) {
  u8* source = written_behind(from, bytes);
  u8* target = written_behind(to, bytes);
  if (!source && !target) return;
  const bool to_host = !is_device_memory(to) || kind_of(to) == MemoryKind::kHost;
  if (source && to_host) report_undefined(source, bytes);
  if (!target) return;
  if (source && !to_host) {
    std::memmove(target, source, bytes);
  } else {
    std::memset(target, 1, bytes);
  }
}

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
