// The state of a running warp, CTA and launch. Plain data: the same for every instruction set.
#pragma once

#include "exec/program.h"
#include "exec/types.h"
#include "exec/warpgroup.h"

namespace vgpu {

struct Allocation {
  u64 base;
  u64 bytes;
  u64 id;
  bool freed;
  bool read_only;
  u8* written;    // of initcheck, one per byte: 0 never, 1 written, above: undefined; or null
  u64* accesses;  // of racecheck, three per word; or null
  bool is_heap = false;  // only its blocks that are in use may be accessed: device_heap.h
};

// Whether [address, address + bytes) lies in [base, base + size); no sum that could wrap.
constexpr bool fits(u64 address, u64 bytes, u64 base, u64 size) {
  return address - base < size && bytes <= size - (address - base);
}

enum class FaultKind : u8 {
  kNone,
  kIllegalAddress,
  kMisaligned,
  kTrap,
  kStack,
  kAssert,
  kBarrier,
  kAsync,  // of mbarriers, clusters and bulk copies: detail says all
  kDeadlock
};

// What an operation knows when it fails. The message is made later, once, outside the hot path.
struct Fault {
  FaultKind kind = FaultKind::kNone;
  const char* space = "";   // "global", "shared", "local"
  const char* detail = "";  // for the kinds without an address
  bool store = false;
  u64 address = 0;  // of a stack overflow: the bytes that calls need
  u32 bytes = 0;    // of a stack overflow: the calls
  int lane = 0;
};

struct Barrier {
  u32 arrived = 0;  // threads
  u32 generation = 0;
  u32 expected = 0;  // threads, of the arrivals under way
  bool all = false;  // every thread of the CTA is expected: one that exits is not waited for
  u32 reduce_and = 1;
  u32 reduce_or = 0;
  u32 reduce_count = 0;
  u32 result[2][3] =
      {};  // and, or, popc; by generation parity: a slow warp still reads the earlier one
};

struct DivergenceEntry {
  s32 pc;
  s32 reconverge;
  u32 mask;
};

// One cp.async of a warp that has not been performed yet.
struct AsyncCopy {
  u64 source[kWarpSize];
  u32 destination[kWarpSize];
  u32 source_bytes[kWarpSize];
  u32 mask;
  u32 bytes;
  u32 group;
  s32 pc;  // of the instruction
};

struct Cta;
struct Cluster;
struct LaunchState;
struct WarpCheck;
struct CtaCheck;
struct BlockSample;
class CheckRun;

inline constexpr u32 kDivergenceDepth = 256;
inline constexpr int kAllocationCache = 4;

// What a warp waits for, beside barriers 0 to 15.
inline constexpr u32 kWaitsForWarpgroup = 16;
inline constexpr u32 kWaitsForRegisters = 17;

struct Warp {
  u8* registers;
  u8* shared;  // of the CTA
  u32 shared_bytes;
  u32 shared_base;  // address of the CTA's shared memory in its cluster's window
  u32 mask;         // active lanes
  u32 live;         // lanes that have not exited
  s32 pc;
  s32 reconverge;
  u32 depth;
  u8* local;  // lane l has local + l * local_bytes
  u32 local_bytes;
  u32 index;  // in the CTA
  Cta* cta;
  LaunchState* launch;
  u64 instructions;
  u64 budget;    // instructions until the warp must let others run
  u32 polls;     // looks at what another CTA may change: many in one turn, and it waits
  bool waiting;  // in a barrier
  bool done;
  u32 barrier_generation;
  u32 barrier_id;
  // Waiting for an mbarrier's phase: the scheduler looks at its word before it gives a turn.
  const u64* parked;  // or null
  u32 parked_parity;  // of the phase that is waited for
  u32 parked_at;      // shared address of the mbarrier
  bool gave_up;       // the wait returns false now, as one with a time limit may
  bool woken;         // a copy that completes at the mbarrier was issued since
  bool looked;        // the last operation of its turn looked at an mbarrier in vain
  // barrier.cluster: lanes that have arrived and not waited yet.
  u32 cluster_arrived;
  u32 cluster_generation;
  bool in_cluster_wait;
  u32 next_cached;  // round robin over the cache
  Allocation cached[kAllocationCache];
  // cp.async: a ring of copies, oldest first
  AsyncCopy* copies;
  u32 copy_capacity;
  u32 copy_head;
  u32 copy_count;
  u32 group;  // copies issued now belong to this group
  u32 copies_issued;
  u32 bulk_group[kWarpSize];  // the same of each thread's bulk stores
  WgmmaQueue wgmma;
  u32 register_limit;   // of a thread, as setmaxnreg left it
  Counters* counters;   // null when they are off
  BlockSample* sample;  // of the block, where its time is taken from it; or null
  bool* acted;          // where a block is tried: set in place of what others could see; or null
  WarpCheck* check;     // null when nothing is watched
  Fault fault;
  DivergenceEntry* stack;
  u32 stack_room;  // entries
};

struct Cta {
  Cluster* cluster;
  u32 rank;  // in the cluster
  u8* shared;
  u32 shared_bytes;
  u32 id[3];
  u32 warps;
  u32 warps_done;
  u32 free_registers;  // of a thread of each warp, that setmaxnreg has given up
  Barrier barriers[16];
  CtaCheck* check;
};

struct AllocationIndex;

struct LaunchState {
  const Program* program;
  const Program* unchecked;  // the same without checks, for blocks that are only tried
  const Ins* code;
  u32 grid[3];
  u32 block[3];
  u32 cluster[3];
  bool explicit_cluster;  // the launch or the kernel asked for clusters, of one CTA or more
  u32 dynamic_shared;
  u32 register_limit;  // of a thread, as the kernel was compiled; 0: not told
  u32 stack_bytes;     // that frames of calls may take of a thread
  u32 local_bytes;     // of a thread, with room for calls
  const u8* params;
  u32 param_bytes;
  const AllocationIndex* allocations;
  bool late_copies;  // perform cp.async as late as the program allows
  bool counting;
  u32 samples;        // blocks to count for the model of time, spread over the grid; or 0
  bool only_samples;  // and no others are run, unless one of them waits for them
  u32 resident;       // blocks that the device would run at once
  bool early_start;   // it may start before the kernel ahead of it in the stream has ended
  u64 workspace;      // of the grid's barrier; 0 unless the launch is cooperative
  CheckRun* checks;   // null when nothing is watched
  u64 seed;           // of a random order of blocks and warps; 0: in order
  int timeout_s;      // 0: none
  bool find_deadlock;
};

// Finds the allocation that holds [address, address + bytes), or null. Out of the ISA variants.
const Allocation* find_allocation(const AllocationIndex& index, u64 address, u64 bytes);

// The host address behind [address, address + bytes) of the cluster's shared window, or null.
u8* find_cluster_shared(const Warp& w, u64 address, u32 bytes);

// Makes room for one more pending copy (rare: the ring grows by doubling).
void grow_copies(Warp& warp);

// Enters the text of vprintf into the ring of what kernels print (core/print.h).
void device_print(const Warp& warp, int lane, const char* format, const u8* arguments);

}  // namespace vgpu
