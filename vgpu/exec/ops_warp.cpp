// What involves a whole warp or CTA: shuffles, barriers; and traps and calls out.
#include <ctime>

#include "exec/fragments.h"

namespace vgpu::VGPU_ISA {
namespace {

enum class Shuffle { kIndex, kUp, kDown, kButterfly };

// Operands: result, predicate (or none), value, index, clamp and segment mask, member mask.
template <Shuffle kMode>
Status shuffle(Warp& w, const Ins& i, u32 mask) {
  const u32* value = words(w, i, 2);
  const u32* index = words(w, i, 3);
  const u32* control = words(w, i, 4);
  // Loops of their own, so that the compiler makes vectors of them.
  alignas(64) u32 source[kWarpSize], in_range[kWarpSize], result[kWarpSize];
  for (u32 l = 0; l < kWarpSize; ++l) {
    const u32 bound = control[l] & 31;
    const u32 segment = control[l] >> 8 & 31;
    const u32 n = index[l] & 31;
    const u32 lowest = l & segment;
    const u32 highest = lowest | (bound & ~segment);
    const u32 from = kMode == Shuffle::kIndex  ? lowest | (n & ~segment)
                     : kMode == Shuffle::kUp   ? l - n
                     : kMode == Shuffle::kDown ? l + n
                                               : l ^ n;
    // Below lane 0 a difference is negative.
    const bool good = kMode == Shuffle::kUp ? static_cast<s32>(from) >= static_cast<s32>(highest)
                                            : from <= highest;
    in_range[l] = good ? 1 : 0;
    source[l] = good ? from & 31 : l;
  }
  for (int l = 0; l < kWarpSize; ++l) result[l] = value[source[l]];
  blend(words(w, i, 0), result, mask);
  if (has(i, 1)) set_predicate(w, i, 1, pack_mask(in_range), mask);
  return Status::kNext;
}

void broadcast(u32* to, u32 value, u32 mask) {
  for (int l = 0; l < kWarpSize; ++l) to[l] = (mask >> l & 1u) ? value : to[l];
}

Status active_mask(Warp& w, const Ins& i, u32 mask) {
  broadcast(words(w, i, 0), mask, mask);
  return Status::kNext;
}

// Transposes the 8x8 halves of a warp: lane l has row l / 4, columns 2 (l % 4) and the next.
Status transpose(Warp& w, const Ins& i, u32 mask) {
  const u32* from = words(w, i, 1);
  alignas(64) u32 result[kWarpSize];
  for (int l = 0; l < kWarpSize; ++l) {
    const int row = 2 * (l % 4);
    const int column = l / 4;
    const int shift = 16 * (column % 2);
    result[l] = (from[4 * row + column / 2] >> shift & 0xffff) |
                (from[4 * (row + 1) + column / 2] >> shift & 0xffff) << 16;
  }
  blend(words(w, i, 0), result, mask);
  return Status::kNext;
}
// Before a matrix instruction that becomes several operations.
Status whole_warp(Warp& w, const Ins&, u32 mask) {
  return mask == kFullMask ? Status::kNext : whole_warp_only(w, mask);
}

// --- barriers -----------------------------------------------------------------------------------

Status barrier_fault(Warp& w, const char* what, u32 mask) {
  w.fault.kind = FaultKind::kBarrier;
  w.fault.detail = what;
  w.fault.lane = __builtin_ctz(mask);
  return Status::kFault;
}

// Opens the barrier when all that it waits for have come.
bool try_open(Cta& cta, Barrier& b) {
  const u32 expected = b.all ? (cta.warps - cta.warps_done) * kWarpSize : b.expected;
  if (b.arrived < expected) return false;
  u32* const result = b.result[b.generation & 1];
  result[0] = b.reduce_and;
  result[1] = b.reduce_or;
  result[2] = b.reduce_count;
  b.arrived = 0;
  b.reduce_and = 1;
  b.reduce_or = b.reduce_count = 0;
  ++b.generation;
  return true;
}

// Counts the warp in, once; the count is of threads, in whole warps, as on a GPU.
Barrier* arrive(Warp& w, const Ins& i, int id, int count, u32 mask, u32 votes) {
  const u32 number = words(w, i, id)[__builtin_ctz(mask)];
  if (number >= 16) {
    barrier_fault(w, "a barrier number must be below 16", mask);
    return nullptr;
  }
  if (mask != w.live) {
    barrier_fault(w, "a barrier was reached by a part of the warp's threads", mask);
    return nullptr;
  }
  Barrier& b = w.cta->barriers[number];
  b.all = !has(i, count);
  b.expected = b.all ? 0 : words(w, i, count)[__builtin_ctz(mask)];
  b.arrived += kWarpSize;
  b.reduce_and &= (votes & mask) == mask;
  b.reduce_or |= (votes & mask) != 0;
  b.reduce_count += static_cast<u32>(__builtin_popcount(votes & mask));
  w.barrier_id = number;
  w.barrier_generation = b.generation;
  return &b;
}

// True when the warp has passed. The first call arrives, later ones look again.
bool pass(Warp& w, const Ins& i, int id, int count, u32 mask, u32 votes, Status& status) {
  status = Status::kBlock;
  if (!w.waiting) {
    Barrier* b = arrive(w, i, id, count, mask, votes);
    if (!b) {
      status = Status::kFault;
      return false;
    }
    if (try_open(*w.cta, *b)) return true;
    w.waiting = true;
    return false;
  }
  Barrier& b = w.cta->barriers[w.barrier_id];
  if (b.generation == w.barrier_generation && !try_open(*w.cta, b)) return false;
  w.waiting = false;
  return true;
}

Status barrier_sync(Warp& w, const Ins& i, u32 mask) {
  Status status;
  return pass(w, i, 0, 1, mask, 0, status) ? Status::kNext : status;
}
Status barrier_arrive(Warp& w, const Ins& i, u32 mask) {
  Barrier* b = arrive(w, i, 0, 1, mask, 0);
  if (!b) return Status::kFault;
  try_open(*w.cta, *b);
  return Status::kNext;
}
// kResult: 0 and, 1 or, 2 popc.
template <int kResult>
Status barrier_reduce(Warp& w, const Ins& i, u32 mask) {
  Status status;
  if (!pass(w, i, 1, 2, mask, predicate(w, i, 3), status)) return status;
  const u32 value = w.cta->barriers[w.barrier_id].result[w.barrier_generation & 1][kResult];
  if constexpr (kResult == 2) {
    broadcast(words(w, i, 0), value, mask);
  } else {
    set_predicate(w, i, 0, value ? ~0u : 0, mask);
  }
  return Status::kNext;
}

Status nothing(Warp&, const Ins&, u32) { return Status::kNext; }
Status fence(Warp&, const Ins&, u32) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  return Status::kNext;
}
// After a load that orders: a warp that polls soon gives its turn away.
Status poll_shared(Warp& w, const Ins&, u32) {
  constexpr u64 kCost = 4096;
  w.budget = w.budget > w.instructions + kCost ? w.budget - kCost : w.instructions;
  return Status::kNext;
}
// It may wait for another CTA, too.
Status poll(Warp& w, const Ins& i, u32 mask) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  ++w.polls;
  return poll_shared(w, i, mask);
}
Status sleep(Warp& w, const Ins&, u32) {
  ++w.polls;
  return Status::kYield;
}

Status trap(Warp& w, const Ins&, u32 mask) {
  w.fault.kind = FaultKind::kTrap;
  w.fault.lane = __builtin_ctz(mask);
  return Status::kFault;
}

// --- clocks: instructions of the warp, so that runs repeat ---------------------------------------

Status clock32(Warp& w, const Ins& i, u32 mask) {
  broadcast(words(w, i, 0), static_cast<u32>(w.instructions), mask);
  return Status::kNext;
}
Status clock64(Warp& w, const Ins& i, u32 mask) {
  u64* to = doubles(w, i, 0);
  for_lanes(mask, [&](int l) { to[l] = w.instructions; });
  return Status::kNext;
}
Status global_timer(Warp& w, const Ins& i, u32 mask) {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  u64* to = doubles(w, i, 0);
  const u64 ns = static_cast<u64>(now.tv_sec) * 1000000000u + static_cast<u64>(now.tv_nsec);
  for_lanes(mask, [&](int l) { to[l] = ns; });
  return Status::kNext;
}

// isspacep: imm is the window that the address must lie in; 0 is global memory.
Status is_space(Warp& w, const Ins& i, u32 mask) {
  const u64* address = doubles(w, i, 1);
  u32 result = 0;
  for (int l = 0; l < kWarpSize; ++l) {
    result |= static_cast<u32>((address[l] & kWindowMask) == static_cast<u64>(i.imm)) << l;
  }
  set_predicate(w, i, 0, result, mask);
  return Status::kNext;
}

// vprintf: result, format, pointer to the arguments in local memory.
Status print(Warp& w, const Ins& i, u32 mask) {
  for_lanes(mask, [&](int l) {
    const u64 arguments = doubles(w, i, 2)[l] & ~kWindowMask;
    const u64 format = doubles(w, i, 1)[l];
    const bool readable = lookup_global(w, format, 1, false);
    device_print(w, l, readable ? reinterpret_cast<const char*>(format) : "(bad format)\n",
                 arguments < w.local_bytes ? w.local + l * w.local_bytes + arguments : nullptr);
    words(w, i, 0)[l] = 0;
  });
  return Status::kNext;
}
// __assertfail: message, file, line, function.
Status assertion(Warp& w, const Ins& i, u32 mask) {
  w.fault.kind = FaultKind::kAssert;
  w.fault.lane = __builtin_ctz(mask);
  const u64 text = doubles(w, i, 0)[w.fault.lane];
  w.fault.detail = lookup_global(w, text, 1, false) ? reinterpret_cast<const char*>(text) : "";
  w.fault.address = doubles(w, i, 1)[w.fault.lane];
  w.fault.bytes = words(w, i, 2)[w.fault.lane];
  if (!lookup_global(w, w.fault.address, 1, false)) w.fault.address = 0;
  return Status::kFault;
}

}  // namespace

void register_warp(OpTable& t) {
  add_function(t, "shfl.idx", &shuffle<Shuffle::kIndex>, "wp", "wwww");
  add_function(t, "shfl.up", &shuffle<Shuffle::kUp>, "wp", "wwww");
  add_function(t, "shfl.down", &shuffle<Shuffle::kDown>, "wp", "wwww");
  add_function(t, "shfl.bfly", &shuffle<Shuffle::kButterfly>, "wp", "wwww");
  add_function(t, "activemask", &active_mask, "w", "");
  add_function(t, "movmatrix", &transpose, "w", "w");
  add_function(t, "whole_warp", &whole_warp, "", "");
  add_function(t, "bar.sync", &barrier_sync, "", "ww");
  add_function(t, "bar.arrive", &barrier_arrive, "", "ww");
  add_function(t, "bar.red.and", &barrier_reduce<0>, "p", "wwp");
  add_function(t, "bar.red.or", &barrier_reduce<1>, "p", "wwp");
  add_function(t, "bar.red.popc", &barrier_reduce<2>, "w", "wwp");
  add_function(t, "nothing", &nothing, "", "");
  add_function(t, "check.guard", &nothing, "", "p");
  add_function(t, "check.lanes", &nothing, "", "w");
  add_function(t, "check.registers", &nothing, "", "");
  add_function(t, "check.waits", &nothing, "", "");
  add_function(t, "fence", &fence, "", "");
  add_function(t, "poll", &poll, "", "");
  add_function(t, "poll.shared", &poll_shared, "", "");
  add_function(t, "nanosleep", &sleep, "", "");
  add_function(t, "trap", &trap, "", "");
  add_function(t, "clock", &clock32, "w", "");
  add_function(t, "clock64", &clock64, "d", "");
  add_function(t, "globaltimer", &global_timer, "d", "");
  add_function(t, "isspacep", &is_space, "p", "d");
  add_function(t, "vprintf", &print, "w", "dd");
  add_function(t, "assertfail", &assertion, "", "ddwd");
}

}  // namespace vgpu::VGPU_ISA
