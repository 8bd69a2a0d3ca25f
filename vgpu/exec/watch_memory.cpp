// Loads, stores, atomics and asynchronous copies under initcheck and racecheck.
#include "exec/watch.h"

namespace vgpu::watch {

const Allocation* find_holder(const Warp& w, u64 address, u32 bytes) {
  const Allocation* found = find_allocation(*w.launch->allocations, address, bytes);
  return found && !found->freed ? found : nullptr;
}

void addresses_of(const Warp& w, const Ins& i, u64* out) {
  const u8* from = w.registers + i.ops[i.watch->address];
  for (int l = 0; l < kWarpSize; ++l) {
    out[l] = i.watch->place == Place::kShared
                 ? reinterpret_cast<const u32*>(from)[l] + static_cast<u32>(i.imm)
                 : reinterpret_cast<const u64*>(from)[l] + static_cast<u64>(i.imm);
  }
}

namespace {

inline bool all_written(const u8* at, u32 bytes) {
  constexpr u64 kOnes = 0x0101010101010101ull;
  u64 word = 0;
  switch (bytes) {
    case 16: {
      u64 high;
      std::memcpy(&word, at, 8);
      std::memcpy(&high, at + 8, 8);
      return word == kOnes && high == kOnes;
    }
    case 8:
      std::memcpy(&word, at, 8);
      return word == kOnes;
    case 4:
      std::memcpy(&word, at, 4);
      return word == (kOnes & 0xffffffffu);
    case 2:
      std::memcpy(&word, at, 2);
      return word == (kOnes & 0xffffu);
    default:
      for (u32 k = 0; k < bytes; ++k) {
        if (at[k] != 1) return false;
      }
      return true;
  }
}

void check_address(Warp& w, const Ins& i, u32 mask) {
  SlotShadow& s = w.check->slots[i.watch->slots[i.watch->address]];
  if (const u32 bad = s.undefined & mask) {
    report_use(w, s, bad, "uninitialised address",
               "an address is computed from a value that was never written");
  }
}

// What initcheck knows of bytes in memory: undefined bits, and whether they were computed.
struct Content {
  bool undefined = false;
  bool computed = false;
  u32 origin = 0;
};
Content read_shadow(const u8* from, u32 bytes, u8* bits) {
  Content c;
  for (u32 k = 0; k < bytes; ++k) {
    bits[k] = from[k] == 1 ? 0 : 0xff;
    c.undefined |= from[k] != 1;
    if (from[k] > 1) {
      c.computed = true;
      c.origin = from[k];
    }
  }
  return c;
}

void note(SlotShadow& s, u32 lane, const Content& c) {
  s.undefined |= 1u << lane;
  s.computed = (s.computed & ~(1u << lane)) | static_cast<u32>(c.computed) << lane;
  s.origin = c.origin;
}

void load(Warp& w, const Ins& i, u32 mask, const u64* address) {
  const Watch& watch = *i.watch;
  const u32 bytes = static_cast<u32>(watch.bytes) * watch.count;
  for (int r = 0; r < watch.count; ++r) {
    if (!absent(i, r)) define(w, i, r, mask, lane_bytes(i, r));
  }
  if (watch.place == Place::kParam) return;  // the host wrote them
  for (u32 left = mask; left; left &= left - 1) {
    const u32 l = static_cast<u32>(__builtin_ctz(left));
    const Target t = target_of(w, watch.place, address[l]);
    const u8* from = written_at(w, t, static_cast<int>(l));
    if (!from || all_written(from, bytes)) continue;
    u8 bits[32];
    Content c = read_shadow(from, bytes, bits);
    // A copy of what nothing wrote starts here; what was computed knows its origin.
    if (!c.computed || t.place == Place::kGlobal) {
      c.origin = w.launch->checks->origin(w, t.place, t.address, bytes, static_cast<int>(l),
                                          c.computed ? static_cast<u8>(c.origin) : 0);
    }
    for (u32 r = 0; r < watch.count; ++r) {
      if (absent(i, static_cast<int>(r))) continue;
      u64 lane = 0;
      std::memcpy(&lane, bits + r * watch.bytes, watch.bytes);
      if (!lane) continue;
      const u32 width = lane_bytes(i, static_cast<int>(r));
      std::memcpy(w.registers + w.check->shadow + i.ops[r] + l * width, &lane, width);
      note(shadow_of(w, i, static_cast<int>(r)), l, c);
    }
  }
}

// The bytes that a lane stores: 1 where they are defined.
void store_lane(Warp& w, const Ins& i, u32 l, u8* to, bool global) {
  const Watch& watch = *i.watch;
  for (u32 r = 0; r < watch.count; ++r) {
    const int k = static_cast<int>(r) + watch.address + 1;
    const SlotShadow& s = shadow_of(w, i, k);
    u8* at = to + r * watch.bytes;
    if ((s.undefined >> l & 1) == 0) {
      std::memset(at, 1, watch.bytes);
      continue;
    }
    const u32 width = watch.bytes == 8 ? 8 : 4;
    const u8* bits = w.registers + w.check->shadow + i.ops[k] + l * width;
    u8 mark = 0;  // a copy of what nothing wrote
    if (s.computed >> l & 1) {
      mark = global ? w.launch->checks->lasting(s.origin)
                    : static_cast<u8>(s.origin < 2 || s.origin > 255 ? 255 : s.origin);
    }
    for (u32 b = 0; b < watch.bytes; ++b) at[b] = bits[b] ? mark : 1;
  }
}

void store(Warp& w, const Ins& i, u32 mask, const u64* address) {
  const Watch& watch = *i.watch;
  const u32 bytes = static_cast<u32>(watch.bytes) * watch.count;
  u32 undefined = 0;
  for (int k = watch.address + 1; k < watch.operands; ++k)
    undefined |= shadow_of(w, i, k).undefined;
  for (u32 left = mask; left; left &= left - 1) {
    const u32 l = static_cast<u32>(__builtin_ctz(left));
    const Target t = target_of(w, watch.place, address[l]);
    u8* to = written_at(w, t, static_cast<int>(l));
    if (!to) continue;
    if (undefined >> l & 1) {
      store_lane(w, i, l, to, t.place == Place::kGlobal);
    } else if (bytes == 4) {
      const u32 ones = 0x01010101u;
      std::memcpy(to, &ones, 4);
    } else {
      std::memset(to, 1, bytes);
    }
  }
}

// Reads the old value, and makes the new one from it: exchanges alone do not look at it.
void exchange_memory(Warp& w, const Ins& i, u32 mask, const u64* address) {
  const Watch& watch = *i.watch;
  u32 undefined = 0;
  for (int k = watch.address + 1; k < watch.operands; ++k)
    undefined |= shadow_of(w, i, k).undefined;
  for (u32 left = mask; left; left &= left - 1) {
    const u32 l = static_cast<u32>(__builtin_ctz(left));
    const Target t = target_of(w, watch.place, address[l]);
    u8* at = written_at(w, t, static_cast<int>(l));
    const bool was = at && !all_written(at, watch.bytes);
    u32 origin = 0;
    if (was)
      origin = w.launch->checks->origin(w, t.place, t.address, watch.bytes, static_cast<int>(l));
    if (!absent(i, 0)) {
      define(w, i, 0, 1u << l, lane_bytes(i, 0));
      if (was) undefine(w, i, 0, 1u << l, {1u << l, 1u << l, origin});
    }
    if (!at) continue;
    const bool bad = (undefined >> l & 1) || (was && watch.decisive != 'x');
    const u8 mark = !bad                        ? 1
                    : t.place == Place::kGlobal ? w.launch->checks->lasting(origin)
                                                : static_cast<u8>(255);
    std::memset(at, mark, watch.bytes);
  }
}

}  // namespace

Status access(Warp& w, const Ins& i, u32 mask) {
  const Watch& watch = *i.watch;
  const CheckRun& run = *w.launch->checks;
  const u32 bytes = static_cast<u32>(watch.bytes) * watch.count;
  u64 address[kWarpSize];
  addresses_of(w, i, address);
  if (run.has(kInitcheck)) {
    check_guard(w, i);
    check_address(w, i, mask);
  }
  if (run.has(kRacecheck)) {
    ++w.check->serial;
    for (u32 left = mask; left; left &= left - 1) {
      const int l = __builtin_ctz(left);
      const Target t = target_of(w, watch.place, address[l]);
      if (watch.strong && !(watch.store && !watch.atomic)) {
        acquire(w, t);
        order_lane(w, l);
      }
      race(w, i, t, bytes, watch.store, l);
      if (t.place == Place::kGlobal && !watch.constant)
        early_access(w, t.address, bytes, watch.store, l);
      if (watch.strong && watch.store) release(w, t, watch.release);
    }
  }
  const Status status = watch.op(w, i, mask);
  if (status != Status::kNext) return status;
  if (run.has(kInitcheck)) {
    if (watch.atomic) {
      exchange_memory(w, i, mask, address);
    } else if (watch.store) {
      store(w, i, mask, address);
    } else {
      load(w, i, mask, address);
    }
  }
  return status;
}

Status matrix_load(Warp& w, const Ins& i, u32 mask) {
  const Watch& watch = *i.watch;
  const CheckRun& run = *w.launch->checks;
  const u32 rows = 8u * watch.count;
  const u32 reading = rows == 32 ? kFullMask : (1u << rows) - 1;
  u64 address[kWarpSize];
  addresses_of(w, i, address);
  if (run.has(kInitcheck)) {
    check_guard(w, i);
    check_address(w, i, reading);
  }
  const Status status = watch.op(w, i, mask);
  if (status != Status::kNext) return status;
  ++w.check->serial;
  for (u32 r = 0; run.has(kRacecheck) && r < rows; ++r) {
    race(w, i, target_of(w, Place::kShared, address[r]), 16, false, static_cast<int>(r));
  }
  if (!run.has(kInitcheck)) return status;
  const u8* const written = w.cta->check->shared_written - w.shared_base;
  for (u32 n = 0; n < watch.count; ++n) {
    define(w, i, static_cast<int>(n), mask, 4);
    u32 bad = 0;
    for (u32 r = 0; r < 8; ++r) {
      bad |= static_cast<u32>(!all_written(written + address[8 * n + r], 16)) << r;
    }
    if (!bad) continue;
    for (u32 l = 0; l < kWarpSize; ++l) {
      u32 bits = 0;
      Content c;
      u32 row = 0;
      for (u32 k = 0; k < 4; ++k) {
        const u32 source = watch.transpose ? 2 * (l % 4) + k / 2 : l / 4;
        const u32 column = watch.transpose ? 2 * (l / 4) + k % 2 : 4 * (l % 4) + k;
        const u8 mark = written[address[8 * n + source] + column];
        if (mark == 1) continue;
        bits |= 0xffu << (8 * k);
        row = source;
        c.computed |= mark > 1;
        if (mark > 1) c.origin = mark;
      }
      if (!bits || (mask >> l & 1) == 0) continue;
      if (!c.computed) {
        c.origin = w.launch->checks->origin(w, Place::kShared, address[8 * n + row] - w.shared_base,
                                            16, static_cast<int>(8 * n + row));
      }
      bits_of(w, i, static_cast<int>(n))[l] = bits;
      note(shadow_of(w, i, static_cast<int>(n)), l, c);
    }
  }
  return status;
}

Status async_copy(Warp& w, const Ins& i, u32 mask) {
  const CheckRun& run = *w.launch->checks;
  if (run.has(kInitcheck)) {
    check_guard(w, i);
    for (int k = 0; k < i.watch->operands; ++k) {
      SlotShadow& s = shadow_of(w, i, k);
      if (const u32 bad = s.undefined & mask) {
        report_use(w, s, bad, "uninitialised address",
                   "a copy's address or size is computed from a value that was never written");
      }
    }
  }
  const Status status = i.watch->op(w, i, mask);
  if (status != Status::kNext) return status;
  const u32 last =
      (w.copy_head + w.copy_count - (w.launch->late_copies ? 1 : 0)) & (w.copy_capacity - 1);
  const AsyncCopy& copy = w.copies[last];
  for (u32 left = mask; run.has(kRacecheck) && left; left &= left - 1) {
    race_copy(w, i, copy, __builtin_ctz(left));
  }
  if (!w.launch->late_copies) finish_copy(w, copy);
  return status;
}

// Copies that the operation is going to perform change the shadows with it.
Status async_wait(Warp& w, const Ins& i, u32 mask) {
  ++w.check->serial;
  const u32 head = w.copy_head;
  const u32 before = w.copy_count;
  const Status status = i.watch->op(w, i, mask);
  for (u32 k = 0; k < before - w.copy_count; ++k) {
    finish_copy(w, w.copies[(head + k) & (w.copy_capacity - 1)]);
  }
  return status;
}

void finish_copy(Warp& w, const AsyncCopy& copy) {
  const CheckRun& run = *w.launch->checks;
  const u32 me = w.check->number;
  const u32 epoch = epoch_of(w.check->clock[me], me);
  for (u32 left = copy.mask; left; left &= left - 1) {
    const int l = __builtin_ctz(left);
    if (run.has(kInitcheck)) {
      u8* to = w.cta->check->shared_written + copy.destination[l];
      const u32 read = copy.source_bytes[l];
      const u8* from = read ? written_at(w, {Place::kGlobal, copy.source[l]}, l) : nullptr;
      std::memset(to, 1, copy.bytes);
      if (from && !all_written(from, read)) {
        for (u32 k = 0; k < read; ++k) to[k] = from[k] > 1 ? 255 : from[k];
      }
    }
    if (run.has(kRacecheck)) {
      for (u32 k = 0; k < copy.bytes; ++k) {
        SharedCell& cell = w.cta->check->cells[copy.destination[l] + k];
        cell.write = epoch;
        cell.stored = false;
        cell.last_write = {w.check->lane_epoch[l], w.check->serial, static_cast<u16>(l),
                           static_cast<u16>(me)};
      }
    }
  }
}

}  // namespace vgpu::watch
