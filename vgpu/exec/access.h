// Checked access to the memory spaces: every address is looked at before it is used.
#pragma once

#include "exec/device_heap.h"
#include "exec/lanes.h"

namespace vgpu::VGPU_ISA {

enum class Where { kGlobal, kShared, kLocal, kGeneric, kParam };

inline constexpr const char* name_of(Where where) {
  switch (where) {
    case Where::kGlobal:
      return "global";
    case Where::kShared:
      return "shared";
    case Where::kLocal:
      return "local";
    case Where::kGeneric:
      return "global";
    case Where::kParam:
      return "parameter";
  }
  return "";
}

__attribute__((noinline, cold)) inline Status raise(Warp& w, FaultKind kind, Where where,
                                                    bool store, u64 address, u32 bytes, int lane) {
  w.fault.kind = kind;
  w.fault.space = name_of(where);
  w.fault.store = store;
  w.fault.address = address;
  w.fault.bytes = bytes;
  w.fault.lane = lane;
  return Status::kFault;
}

VGPU_INLINE bool inside(const Allocation& a, u64 low, u64 end, bool store) {
  return low >= a.base && end > low && end <= a.base + a.bytes && !(store && a.read_only);
}

// The allocation that holds the access, from the warp's cache or the table.
__attribute__((noinline)) inline bool lookup_global(Warp& w, u64 address, u64 bytes, bool store) {
  for (const Allocation& a : w.cached) {
    if (inside(a, address, address + bytes, store)) return true;
  }
  const Allocation* found = find_allocation(*w.launch->allocations, address, bytes);
  if (!found || found->freed || (store && found->read_only)) return false;
  if (found->is_heap) return in_device_block(address, bytes);
  w.cached[w.next_cached++ % kAllocationCache] = *found;
  return true;
}

// The host address behind one lane's access, or null after recording the fault.
inline u8* resolve(Warp& w, Where where, u64 address, u32 bytes, bool store, int lane) {
  if (address & (bytes - 1)) {
    raise(w, FaultKind::kMisaligned, where, store, address, bytes, lane);
    return nullptr;
  }
  if (where == Where::kGeneric) {
    // A kernel indexes an array among its parameters through their generic address (cvta.param).
    const u64 parameter = address - reinterpret_cast<u64>(w.launch->params);
    const u64 window = address & kWindowMask;
    where = parameter < w.launch->param_bytes && !store ? Where::kParam
            : window == kSharedWindow                   ? Where::kShared
            : window == kLocalWindow                    ? Where::kLocal
                                                        : Where::kGlobal;
    if (where == Where::kShared || where == Where::kLocal) address &= ~kWindowMask;
    if (where == Where::kShared) {
      if ((address ^ w.shared_base) >= kSharedSpan) {
        if (u8* at = find_cluster_shared(w, address, bytes)) return at;
        raise(w, FaultKind::kIllegalAddress, where, store, address, bytes, lane);
        return nullptr;
      }
      address -= w.shared_base;
    }
  }
  switch (where) {
    case Where::kShared:
      if (fits(address, bytes, 0, w.shared_bytes)) return w.shared + address;
      break;
    case Where::kLocal:
      if (fits(address, bytes, 0, w.local_bytes)) return w.local + lane * w.local_bytes + address;
      break;
    case Where::kParam:
      if (fits(address, bytes, reinterpret_cast<u64>(w.launch->params), w.launch->param_bytes)) {
        return reinterpret_cast<u8*>(address);
      }
      [[fallthrough]];  // a constant reached through a parameter-space load
    default:
      if (lookup_global(w, address, bytes, store)) return reinterpret_cast<u8*>(address);
  }
  raise(w, FaultKind::kIllegalAddress, where, store, address, bytes, lane);
  return nullptr;
}

// Lowest and highest address of the active lanes, and all their bits.
struct Range {
  u64 low, high, bits;
};
VGPU_INLINE Range range_of(const u64* address, u64 offset, u32 mask) {
  Range r{~0ull, 0, 0};
  if (mask == kFullMask) {
    for (int l = 0; l < kWarpSize; ++l) {
      const u64 a = address[l] + offset;
      r.low = a < r.low ? a : r.low;
      r.high = a > r.high ? a : r.high;
      r.bits |= a;
    }
  } else {
    const u64 some = address[__builtin_ctz(mask)];
    for (int l = 0; l < kWarpSize; ++l) {
      const u64 a = ((mask >> l & 1u) ? address[l] : some) + offset;
      r.low = a < r.low ? a : r.low;
      r.high = a > r.high ? a : r.high;
      r.bits |= a;
    }
  }
  return r;
}

// The same of other spaces: offsets into local memory, addresses of parameters.
VGPU_INLINE bool local_ok(const Warp& w, const Range& r, u32 bytes) {
  return (r.bits & (bytes - 1)) == 0 && r.high < w.local_bytes && r.high + bytes <= w.local_bytes;
}
VGPU_INLINE bool parameter_ok(const Warp& w, const Range& r, u32 bytes) {
  const u64 base = reinterpret_cast<u64>(w.launch->params);
  const u64 end = base + w.launch->param_bytes;
  return (r.bits & (bytes - 1)) == 0 && r.low >= base && r.high < end && r.high + bytes <= end;
}

// True when every active lane's global access is fine. Otherwise the slow path finds the lane.
VGPU_INLINE bool global_ok(Warp& w, const Range& r, u32 bytes, bool store) {
  if (r.bits & (bytes - 1)) return false;
  for (const Allocation& a : w.cached) {
    if (inside(a, r.low, r.high + bytes, store)) return true;
  }
  return false;
}

// Largest shared offset + bytes stays inside, and all are aligned.
VGPU_INLINE bool shared_ok(const Warp& w, const u32* address, u32 offset, u32 bytes, u32 mask) {
  u32 highest = 0;
  u32 bits = 0;
  if (mask == kFullMask) {
    for (int l = 0; l < kWarpSize; ++l) {
      const u32 a = address[l] + offset;
      highest = a > highest ? a : highest;
      bits |= a;
    }
  } else {
    for (int l = 0; l < kWarpSize; ++l) {
      const u32 a = (mask >> l & 1u) ? address[l] + offset : 0;
      highest = a > highest ? a : highest;
      bits |= a;
    }
  }
  return (bits & (bytes - 1)) == 0 && static_cast<u64>(highest) + bytes <= w.shared_bytes;
}

}  // namespace vgpu::VGPU_ISA
