// Device memory: host memory with a table of what belongs to whom.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/findings.h"
#include "exec/warp.h"

namespace vgpu {

struct AllocationIndex {
  std::vector<Allocation> sorted;  // by base
};

// kManaged is the host's and the device's; kGraph belongs to a graph, which says when it is live;
// kDeviceHeap is the heap of malloc in kernels (device_heap.h).
enum class MemoryKind { kDevice, kHost, kModule, kManaged, kGraph, kDeviceHeap };

// Fresh memory holds 0xff bytes: NaN in every float type, so a read of what was never written
// shows. The option fresh=zero says otherwise.
Code allocate(u64 bytes, MemoryKind kind, void** out);
// Memory that the caller owns (a launch's parameters, a registered host buffer).
void register_memory_range(const void* base, u64 bytes, bool read_only);
void unregister_memory_range(const void* base);
// Freed blocks are kept for a while, so that a use of one is recognised.
Code release(void* base, MemoryKind kind);

// A graph's memory keeps its place: it is free between launches, and fresh when it is allocated.
void set_free(const void* base);
Code revive(const void* base);

// The table as it is now; a launch keeps its own reference.
std::shared_ptr<const AllocationIndex> allocations();

// For initcheck. The host stores to pinned and managed memory unseen: what no longer holds what
// fresh memory was filled with, it has written. To be called before a kernel reads there.
void notice_host_writes();
// The host has filled, or copied, these bytes. What was never written stays so at
// the other end; when the host gets what was computed from it, that is a finding.
void follow_fill(const void* to, u64 bytes);
void follow_copy(const void* to, const void* from, u64 bytes);
// A number, 2 to 255, for bytes that were computed from what nothing wrote.
u8 remember_undefined(const Finding& finding);
// From now on all device memory remembers who accessed it, for racecheck.
void watch_accesses();

// memcheck reports leaks, and what the program allocated is free.
void reset_memory();

// What was allocated by cudaMalloc and its like and has not been freed.
std::vector<Allocation> live_allocations();

// A host-side copy or fill may touch host memory freely, but not cross the end of an allocation.
Code check_range(const void* base, u64 bytes, const char* what);
// Whether kernels can access it: it lies in a live allocation or a registered range.
bool is_device_memory(const void* address, Allocation* found = nullptr);
MemoryKind kind_of(const void* address);

// "4 bytes past the end of the 4096-byte allocation #12", for messages.
std::string describe_address(const AllocationIndex& index, u64 address, u64 bytes);
// The number of the allocation that holds the address or lies nearest; 0: none is near.
u64 nearest_allocation(const AllocationIndex& index, u64 address);

u64 allocated_bytes();

}  // namespace vgpu
