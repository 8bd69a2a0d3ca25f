// initcheck on the host's side: copies and fills carry on what was never written.
#include <cstring>
#include <mutex>
#include <vector>

#include "core/heap.h"

namespace vgpu {
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
    // Another module may have a kernel of the same name.
    if (f.kernel == finding.kernel && f.ptx_line == finding.ptx_line && f.ptx == finding.ptx)
      return static_cast<u8>(n + 2);
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

}  // namespace vgpu
