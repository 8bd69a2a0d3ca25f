// The table behind device memory: what is allocated, what was freed a short while ago, and ranges
// of the host's that kernels may access.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/memory.h"

namespace vgpu {

struct Block {
  Allocation allocation;
  MemoryKind kind;
  bool owned;
};

class Heap {
 public:
  Code allocate(u64 bytes, MemoryKind kind, void** out);
  Code release(void* base, MemoryKind kind);
  void set_free(const void* base);
  Code revive(const void* base);
  void notice_host_writes();
  void add_range(const void* base, u64 bytes, bool read_only);
  void remove_range(const void* base);
  std::shared_ptr<const AllocationIndex> snapshot();
  void watch_accesses();
  void release_all();
  std::vector<Allocation> live();
  // The block that holds the address, or null.
  const Block* holder(u64 address);
  std::mutex& mutex() { return mutex_; }
  u64 used();
  static void notice_host_writes(const Block& block);
  // The host may store there without a call.
  static bool is_mapped(const Block& block);

 private:
  // Managed memory is freed by the call for device memory.
  static MemoryKind family(MemoryKind kind);
  Block& insert(void* base, u64 bytes, MemoryKind kind, bool owned, bool read_only);
  static void make_fresh(Block& block);
  Code no_memory(u64 bytes);

  std::mutex mutex_;
  std::map<u64, Block> blocks_;
  std::deque<u64> quarantine_;
  u64 quarantined_ = 0;
  u64 used_ = 0;
  u64 last_id_ = 0;
  std::shared_ptr<const AllocationIndex> snapshot_;
};

Heap& heap();

}  // namespace vgpu
