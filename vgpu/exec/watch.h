// What the wrappers share: slots, shadows and addresses.
#pragma once

#include <cstring>

#include "exec/check.h"
#include "exec/cluster.h"

namespace vgpu::watch {

inline SlotShadow& shadow_of(Warp& w, const Ins& i, int operand) {
  return w.check->slots[i.watch->slots[operand]];
}
inline bool absent(const Ins& i, int operand) { return i.ops[operand] == kNoSlot; }
// The shadow register, in 32-bit lanes.
inline u32* bits_of(Warp& w, const Ins& i, int operand) {
  return reinterpret_cast<u32*>(w.registers + w.check->shadow + i.ops[operand]);
}

// The lanes of a result are defined now.
inline void define(Warp& w, const Ins& i, int operand, u32 mask, u32 lane_bytes) {
  SlotShadow& s = shadow_of(w, i, operand);
  const u32 old = s.undefined & mask;
  if (__builtin_expect(old == 0, 1)) return;
  s.undefined &= ~mask;
  s.computed &= ~mask;
  if (!lane_bytes) return;
  u8* at = w.registers + w.check->shadow + i.ops[operand];
  for (u32 left = old; left; left &= left - 1) {
    std::memset(at + static_cast<u32>(__builtin_ctz(left)) * lane_bytes, 0, lane_bytes);
  }
}

// Width of a lane of a result: 0 for a predicate.
inline u32 lane_bytes(const Ins& i, int operand) {
  return i.watch->predicates >> operand & 1 ? 0 : i.watch->wide ? 8 : 4;
}

// Undefined lanes of the sources, and what is known of them.
struct Sources {
  u32 undefined = 0;
  u32 computed = 0;
  u32 origin = 0;
};
Sources undefined_sources(Warp& w, const Ins& i, u32 mask);
// Nothing is undefined, nearly always.
inline Sources sources_of(Warp& w, const Ins& i, u32 mask) {
  u32 undefined = 0;
  for (int k = i.watch->results; k < i.watch->operands; ++k) {
    undefined |= shadow_of(w, i, k).undefined;
  }
  return __builtin_expect((undefined & mask) == 0, 1) ? Sources() : undefined_sources(w, i, mask);
}
// Marks all bits of these lanes of a result as undefined.
void undefine(Warp& w, const Ins& i, int operand, u32 lanes, const Sources& why);

// Reports that an undefined value decides something.
void report_use(Warp& w, SlotShadow& slot, u32 lanes, const char* kind, const char* how);
void check_guarded(Warp& w, const Ins& i);
inline void check_guard(Warp& w, const Ins& i) {
  if (i.guard != kNoSlot) check_guarded(w, i);
}

// The place and offset of a lane's address: generic ones are resolved, and those of shared memory
// lead to a CTA of the cluster, or to none.
struct Target {
  Place place;
  u64 address;
  Cta* cta = nullptr;
};
inline Target target_of(const Warp& w, Place place, u64 address) {
  if (place == Place::kGeneric) {
    const u64 window = address & kWindowMask;
    place = window == kSharedWindow  ? Place::kShared
            : window == kLocalWindow ? Place::kLocal
                                     : Place::kGlobal;
    if (place != Place::kGlobal) address &= ~kWindowMask;
  }
  if (place != Place::kShared) return {place, address};
  return {place, address & (kSharedSpan - 1), cta_at(w, address)};
}
void addresses_of(const Warp& w, const Ins& i, u64* out);  // of all lanes
const Allocation* find_holder(const Warp& w, u64 address, u32 bytes);
inline const Allocation* holder(const Warp& w, u64 address, u32 bytes) {
  for (const Allocation& a : w.cached) {
    if (fits(address, bytes, a.base, a.bytes)) return &a;
  }
  return find_holder(w, address, bytes);
}
// The shadow bytes of initcheck behind an address, or null where everything counts as written.
inline u8* written_at(const Warp& w, Target t, int lane) {
  switch (t.place) {
    case Place::kShared:
      return t.cta ? t.cta->check->shared_written + t.address : nullptr;
    case Place::kLocal:
      return w.check->local_written + static_cast<u32>(lane) * w.local_bytes + t.address;
    case Place::kGlobal:
      if (const Allocation* a = holder(w, t.address, 1)) {
        return a->written ? a->written + (t.address - a->base) : nullptr;
      }
      return nullptr;
    default:
      return nullptr;
  }
}

// The warp ends, though some may be under way (watch_warpgroup.cpp).
void end_wgmmas(Warp& w);
// The CTA ends, though some copies may still come to it (watch_bulk.cpp).
void end_bulk_copies(Warp& w);

// --- racecheck (races.cpp, watch_bulk.cpp)
u32 warpgroup_number(const Warp& w);
bool unordered(const Warp& w, u32 epoch);        // another's, that this warp has not seen
std::string name_of(const Warp& w, u32 number);  // a warp, or the copies of an mbarrier
// With the phases that have ended since brought up to date (async_checks.cpp).
MbarrierCheck& mbarrier_of(Warp& w, const Cta& cta, u32 at);
// The bulk copy under way that uses a byte of shared memory, or null.
const BulkCopy* copy_at(const Warp& w, const Cta& cta, u32 at);
// The same in words: which instruction, and the mbarrier that it completes at.
std::string describe(const Warp& w, const BulkCopy& copy);
void report_race(Warp& w, Target t, u32 bytes, int lane, const char* kind, std::string text,
                 const char* cause = nullptr);
void race(Warp& w, const Ins& i, Target t, u32 bytes, bool write, int lane);
// A bulk copy's access to global memory, when it lands.
void race_global_copy(Warp& w, u64 address, u32 bytes, bool write, bool strong, int lane);
void race_copy(Warp& w, const Ins& i, const AsyncCopy& copy, int lane);  // when it is issued
// What wgmma reads of shared memory: from its issue until the warp has waited for it.
void race_wgmma(Warp& w, u32 address, u32 bytes);
void finish_wgmma(Warp& w, u32 address, u32 bytes, u32 epoch);
void acquire(Warp& w, Target t);
// Global memory is accessed, in a launch that may have started early (watch_dependent.cpp).
void early_access(Warp& w, u64 address, u32 bytes, bool write, int lane);
void end_early_start(Warp& w);  // the CTA ends
// What this lane does from now on comes after all that the warp's lanes have done.
void order_lane(Warp& w, int lane);
void order_lanes(Warp& w);  // the same of all lanes
void release(Warp& w, Target t, bool with_fence);

}  // namespace vgpu::watch
