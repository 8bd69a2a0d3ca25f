// initcheck: how undefined values move through registers.
#include "exec/watch.h"

namespace vgpu::watch {

Sources undefined_sources(Warp& w, const Ins& i, u32 mask) {
  const Watch& watch = *i.watch;
  Sources found;
  for (int k = watch.results; k < watch.operands; ++k) {
    const SlotShadow& s = w.check->slots[watch.slots[k]];
    if ((s.undefined & mask) == 0) continue;
    found.undefined |= s.undefined & mask;
    found.computed |= s.computed & mask;
    if (s.origin) found.origin = s.origin;
  }
  return found;
}

void undefine(Warp& w, const Ins& i, int operand, u32 lanes, const Sources& why) {
  SlotShadow& s = shadow_of(w, i, operand);
  if (&s == w.check->slots) return;
  s.undefined |= lanes;
  s.computed |= lanes;
  s.origin = why.origin;
  const u32 bytes = lane_bytes(i, operand);
  u8* at = w.registers + w.check->shadow + i.ops[operand];
  for (u32 left = lanes; bytes && left; left &= left - 1) {
    std::memset(at + static_cast<u32>(__builtin_ctz(left)) * bytes, 0xff, bytes);
  }
}

void report_use(Warp& w, SlotShadow& slot, u32 lanes, const char* kind, const char* how) {
  CheckRun& run = *w.launch->checks;
  const int lane = __builtin_ctz(lanes);
  Sighting s = {kInitcheck, kind, how};
  const Origin o = run.origin_at(slot.origin);
  if (o.pc >= 0) {
    s.place = o.place;
    s.address = o.address;
    s.bytes = o.bytes;
    s.origin = o.pc;
  }
  run.report(w, s, lane);
  slot.undefined &= ~lanes;  // once is enough
}

// Lanes beyond the end of a reduction compare registers that nothing wrote, and drop the result:
// TVM's argmax does. So a condition is reported when it comes from memory.
static bool from_memory(Warp& w, const SlotShadow& s) {
  return s.origin && w.launch->checks->origin_at(s.origin).place != Place::kNone;
}

void check_guarded(Warp& w, const Ins& i) {
  SlotShadow& s = w.check->slots[i.watch->guard];
  if (const u32 bad = s.undefined & w.mask; bad && from_memory(w, s)) {
    report_use(w, s, bad, "uninitialised condition",
               "whether the instruction runs depends on a value that was never written");
  }
}

Status guard(Warp& w, const Ins& i, u32 mask) {
  SlotShadow& s = shadow_of(w, i, 0);
  if (const u32 bad = s.undefined & mask; bad && from_memory(w, s)) {
    report_use(w, s, bad, "uninitialised branch",
               "a branch depends on a value that was never written");
  }
  return Status::kNext;
}

// What is undefined of each lane's two 16-bit results: of packed halves each depends on its own
// half of the sources, and where two values are packed each on one source.
static void halves_of(Warp& w, const Ins& i, u32* half) {
  const Watch& watch = *i.watch;
  for (int l = 0; l < kWarpSize; ++l) {
    u32 high = 0;
    u32 low = 0;
    for (int k = watch.results; k < watch.operands; ++k) {
      if (!watch.slots[k]) continue;
      const u32 bits = bits_of(w, i, k)[l];
      if (watch.packs) {
        (k == watch.results ? high : low) |= bits;
      } else {
        high |= bits >> 16;
        low |= bits & 0xffff;
      }
    }
    half[l] = (low ? 0xffff : 0) | (high ? 0xffff0000u : 0);
  }
}

Status values(Warp& w, const Ins& i, u32 mask) {
  check_guard(w, i);
  Sources from = sources_of(w, i, mask);
  const Watch& watch = *i.watch;
  const bool parts = watch.halves || watch.packs;
  u32 half[kWarpSize];
  if (__builtin_expect(from.undefined != 0, 0)) {
    if (!from.origin) {
      from.origin = w.launch->checks->origin(w, Place::kNone, 0, 0, __builtin_ctz(from.undefined));
    }
    if (parts) halves_of(w, i, half);
  }
  const Status status = watch.op(w, i, mask);
  for (int r = 0; r < watch.results; ++r) {
    if (absent(i, r)) continue;
    define(w, i, r, mask & ~from.undefined, lane_bytes(i, r));
    if (__builtin_expect(from.undefined == 0, 1)) continue;
    undefine(w, i, r, from.undefined, from);
    for (u32 left = from.undefined; parts && left; left &= left - 1) {
      const int l = __builtin_ctz(left);
      bits_of(w, i, r)[l] = half[l];
    }
  }
  return status;
}

namespace {

// After a shadow register was computed: which lanes hold something undefined.
void settle(Warp& w, const Ins& i, int r, u32 mask, const Sources& from) {
  SlotShadow& s = shadow_of(w, i, r);
  const u32 words = lane_bytes(i, r) / 4;
  u32 undefined = 0;
  for (int l = 0; l < kWarpSize; ++l) {
    for (u32 k = 0; k < words; ++k) {
      undefined |= static_cast<u32>(bits_of(w, i, r)[static_cast<u32>(l) * words + k] != 0) << l;
    }
  }
  undefined &= mask;
  s.undefined = (s.undefined & ~mask) | undefined;
  s.computed = (s.computed & ~mask) | (from.computed ? undefined : 0);
  s.origin = from.origin;
}

}  // namespace

// The same operation, run on the shadows: a shift shifts what is undefined.
Status move(Warp& w, const Ins& i, u32 mask) {
  check_guard(w, i);
  const Sources from = sources_of(w, i, kFullMask);
  const Watch& watch = *i.watch;
  if (__builtin_expect(from.undefined == 0, 1)) {
    const Status status = watch.op(w, i, mask);
    for (int r = 0; r < watch.results; ++r) {
      if (!absent(i, r)) define(w, i, r, mask, lane_bytes(i, r));
    }
    return status;
  }
  Sources control;
  for (int k = watch.results; k < watch.operands; ++k) {
    const SlotShadow& s = w.check->slots[watch.slots[k]];
    if (watch.shadows[k] != i.ops[k] || (s.undefined & mask) == 0) continue;
    control = {s.undefined & mask, s.computed & mask, s.origin};
  }
  Ins on_shadows = i;
  on_shadows.ops = watch.shadows;
  // The shadow first: the operation may overwrite the sources that control it.
  watch.op(w, on_shadows, mask);
  const Status status = watch.op(w, i, mask);
  for (int r = 0; r < watch.results; ++r) {
    if (absent(i, r)) continue;
    if (lane_bytes(i, r)) {
      settle(w, i, r, mask, from);
    } else {
      define(w, i, r, mask, 0);
    }
    if (control.undefined) undefine(w, i, r, control.undefined, control);
  }
  return status;
}

Status bits(Warp& w, const Ins& i, u32 mask) {
  check_guard(w, i);
  const Sources from = sources_of(w, i, mask);
  const Watch& watch = *i.watch;
  if (__builtin_expect(from.undefined == 0, 1)) {
    const Status status = watch.op(w, i, mask);
    define(w, i, 0, mask, lane_bytes(i, 0));
    return status;
  }
  // A defined 0 decides an `and`, a defined 1 an `or`.
  const u32 words = kWarpSize * lane_bytes(i, 0) / 4;
  u32 result[2 * kWarpSize];
  const auto value = [&](int k, u32 n) {
    return reinterpret_cast<const u32*>(w.registers + i.ops[k])[n];
  };
  const auto unknown = [&](int k, u32 n) { return watch.slots[k] ? bits_of(w, i, k)[n] : 0; };
  for (u32 n = 0; n < words; ++n) {
    u32 open = 0;
    for (int k = 1; k < watch.operands; ++k) open |= unknown(k, n);
    for (int k = 1; watch.decisive && k < watch.operands; ++k) {
      const u32 v = watch.decisive == '&' ? value(k, n) : ~value(k, n);
      open &= v | unknown(k, n);
    }
    result[n] = open;
  }
  const Status status = watch.op(w, i, mask);
  for (u32 n = 0; n < words; ++n) {
    if (mask >> (n * kWarpSize / words) & 1) bits_of(w, i, 0)[n] = result[n];
  }
  settle(w, i, 0, mask, from);
  return status;
}

Status predicates(Warp& w, const Ins& i, u32 mask) {
  check_guard(w, i);
  const Sources from = sources_of(w, i, mask);
  u32 open = from.undefined;
  for (int k = 1; open && k < i.watch->operands; ++k) {
    const u32 v = *reinterpret_cast<const u32*>(w.registers + i.ops[k]);
    open &= (i.watch->decisive == '&' ? v : ~v) | shadow_of(w, i, k).undefined;
  }
  const Status status = i.watch->op(w, i, mask);
  define(w, i, 0, mask & ~open, 0);
  if (open) undefine(w, i, 0, open, from);
  return status;
}

Status exchange(Warp& w, const Ins& i, u32 mask) {
  const Sources from = sources_of(w, i, mask);
  const Status status = i.watch->op(w, i, mask);
  for (int r = 0; r < i.watch->results; ++r) {
    if (absent(i, r)) continue;
    define(w, i, r, mask, lane_bytes(i, r));
    if (from.undefined) undefine(w, i, r, mask, from);
  }
  return status;
}

Status collective(Warp& w, const Ins& i, u32 mask) {
  CheckRun& run = *w.launch->checks;
  const Watch& watch = *i.watch;
  if (run.has(kSynccheck)) {
    const u32 first = static_cast<u32>(__builtin_ctz(mask));
    const u32* named = reinterpret_cast<const u32*>(w.registers + i.ops[watch.members]);
    u32 members = 0;  // of any lane: they need not name the same ones
    for (u32 left = mask; left; left &= left - 1) members |= named[__builtin_ctz(left)];
    if (const u32 away = members & w.live & ~mask) {
      run.report(w,
                 {kSynccheck, "missing lanes",
                  "the member mask names lane " + std::to_string(__builtin_ctz(away)) +
                      ", which has not come to the instruction"},
                 static_cast<int>(first));
    }
  }
  if (!run.has(kInitcheck)) return watch.op(w, i, mask);
  return watch.shadows ? move(w, i, mask) : exchange(w, i, mask);
}

}  // namespace vgpu::watch
