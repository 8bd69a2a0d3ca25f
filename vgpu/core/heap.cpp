#include "core/heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "core/options.h"
#include "exec/check.h"

namespace vgpu {
namespace {

constexpr u64 kQuarantineBytes = 64ull << 20;
constexpr u64 kAlignment = 512;  // cudaMalloc promises 256
// Rows of a large tensor lie on pages of their own: with small ones, finding them takes longer than
// reading them.
constexpr u64 kHugePage = 2ull << 20;
constexpr u64 kAddressSpace = 1ull << 47;  // of a process; what a host allocation can be at most
// What fresh pinned and managed memory holds under initcheck: no program stores these by chance,
// and as FP16, BF16, FP32 and FP64 each is NaN.
constexpr u64 kUntouched = 0x7ffdffc17ffbffe5ull;

}  // namespace

Code Heap::allocate(u64 bytes, MemoryKind kind, void** out) {
  if (bytes == 0) {
    *out = nullptr;
    return Code::kSuccess;
  }
  const std::lock_guard lock(mutex_);
  const u64 most = kind == MemoryKind::kHost ? kAddressSpace : options().device.memory_bytes;
  const u64 room = most - std::min(used_, most);
  const u64 slack = kind == MemoryKind::kDevice ? options().slack_bytes : 0;
  if (bytes > room || slack > room - bytes) return no_memory(bytes);
  bytes += slack;
  void* base = nullptr;
  const u64 whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const bool huge = whole >= kHugePage;
  if (posix_memalign(&base, huge ? kHugePage : kAlignment, whole) != 0) return no_memory(bytes);
  if (huge) madvise(base, whole, MADV_HUGEPAGE);  // where the system has them to give
  Block& block = insert(base, bytes, kind, true, false);
  // calloc gets untouched pages: memory that no kernel reads costs nothing.
  if (kind != MemoryKind::kModule && (options().checks & kInitcheck))
    block.allocation.written = static_cast<u8*>(std::calloc(bytes, 1));
  make_fresh(block);
  used_ += bytes;
  *out = base;
  return Code::kSuccess;
}

Code Heap::release(void* base, MemoryKind kind) {
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

void Heap::set_free(const void* base) {
  const std::lock_guard lock(mutex_);
  auto it = blocks_.find(reinterpret_cast<u64>(base));
  if (it == blocks_.end()) return;
  it->second.allocation.freed = true;
  snapshot_.reset();
}

Code Heap::revive(const void* base) {
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

void Heap::notice_host_writes() {
  const std::lock_guard lock(mutex_);
  for (auto& [base, block] : blocks_) notice_host_writes(block);
}

void Heap::add_range(const void* base, u64 bytes, bool read_only) {
  const std::lock_guard lock(mutex_);
  insert(const_cast<void*>(base), bytes, MemoryKind::kHost, false, read_only);
}

void Heap::remove_range(const void* base) {
  const std::lock_guard lock(mutex_);
  auto it = blocks_.find(reinterpret_cast<u64>(base));
  if (it == blocks_.end() || it->second.owned) return;
  blocks_.erase(it);
  snapshot_.reset();
}

std::shared_ptr<const AllocationIndex> Heap::snapshot() {
  const std::lock_guard lock(mutex_);
  if (!snapshot_) {
    auto fresh = std::make_shared<AllocationIndex>();
    fresh->sorted.reserve(blocks_.size());
    for (const auto& [base, block] : blocks_) fresh->sorted.push_back(block.allocation);
    snapshot_ = std::move(fresh);
  }
  return snapshot_;
}

void Heap::watch_accesses() {
  const std::lock_guard lock(mutex_);
  for (auto& [base, block] : blocks_) {
    Allocation& a = block.allocation;
    if (a.accesses || a.freed || !block.owned || block.kind == MemoryKind::kModule ||
        block.kind == MemoryKind::kDeviceHeap)
      continue;
    a.accesses = static_cast<u64*>(std::calloc((a.bytes + 3) / 4 * 3, sizeof(u64)));
    snapshot_.reset();
  }
}

void Heap::release_all() {
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

std::vector<Allocation> Heap::live() {
  const std::lock_guard lock(mutex_);
  std::vector<Allocation> found;
  for (const auto& [base, block] : blocks_) {
    if (family(block.kind) == MemoryKind::kDevice && !block.allocation.freed)
      found.push_back(block.allocation);
  }
  return found;
}

const Block* Heap::holder(u64 address) {
  auto it = blocks_.upper_bound(address);
  if (it == blocks_.begin()) return nullptr;
  --it;
  const Allocation& a = it->second.allocation;
  return address < a.base + std::max<u64>(a.bytes, 1) ? &it->second : nullptr;
}

u64 Heap::used() {
  const std::lock_guard lock(mutex_);
  return used_;
}

void Heap::notice_host_writes(const Block& block) {
  const Allocation& a = block.allocation;
  if (!a.written || a.freed || !is_mapped(block)) return;
  for (u64 at = 0; at < a.bytes; at += sizeof(kUntouched)) {
    const u64 bytes = std::min<u64>(sizeof(kUntouched), a.bytes - at);
    if (std::memcmp(reinterpret_cast<const void*>(a.base + at), &kUntouched, bytes) == 0) continue;
    for (u64 k = at; k < at + bytes; ++k) a.written[k] = std::max<u8>(a.written[k], 1);
  }
}

bool Heap::is_mapped(const Block& block) {
  return block.kind == MemoryKind::kHost || block.kind == MemoryKind::kManaged;
}

MemoryKind Heap::family(MemoryKind kind) {
  return kind == MemoryKind::kManaged ? MemoryKind::kDevice : kind;
}

Block& Heap::insert(void* base, u64 bytes, MemoryKind kind, bool owned, bool read_only) {
  const u64 key = reinterpret_cast<u64>(base);
  blocks_[key] = {
      {key, bytes, ++last_id_, false, read_only, nullptr, nullptr, kind == MemoryKind::kDeviceHeap},
      kind,
      owned};
  snapshot_.reset();
  return blocks_[key];
}

void Heap::make_fresh(Block& block) {
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

Code Heap::no_memory(u64 bytes) {
  return fail(Code::kOutOfMemory, "no room for " + std::to_string(bytes) + " bytes beside the " +
                                      std::to_string(used_) + " in use on " +
                                      options().device.name);
}

}  // namespace vgpu
