// mbarriers and clusters. Compiled once: nothing here is faster with wider vectors.
#include "exec/access.h"
#include "exec/async.h"
#include "exec/check.h"
#include "exec/mbarrier.h"

namespace vgpu {
namespace {

using namespace generic;

struct Place {
  Cta* cta;
  u32 at;
};

// The mbarrier behind a shared address of a lane; null after a fault.
Place mbarrier_at(Warp& w, u32 address, int lane) {
  Cta* cta = cta_at(w, address);
  const u32 at = address & (kSharedSpan - 1);
  if (!cta || !fits(at, 8, 0, cta->shared_bytes) || cta->warps_done == cta->warps) {
    raise(w, FaultKind::kIllegalAddress, Where::kShared, true, at, 8, lane);
    return {nullptr, 0};
  }
  if (at % 8) {
    raise(w, FaultKind::kMisaligned, Where::kShared, true, at, 8, lane);
    return {nullptr, 0};
  }
  return {cta, at};
}
u32 address_of(Warp& w, const Ins& i, int operand, int lane) {
  return words(w, i, operand)[lane] + static_cast<u32>(i.imm);
}

// Operands: address, count.
Status init(Warp& w, const Ins& i, u32 mask) {
  for (u32 left = mask; left; left &= left - 1) {
    const int l = __builtin_ctz(left);
    const Place p = mbarrier_at(w, address_of(w, i, 0, l), l);
    if (!p.cta) return Status::kFault;
    const u32 count = words(w, i, 1)[l];
    if (count == 0 || count > kMostArrivals) {
      return refuse(w, l,
                    "mbarrier.init at offset %u of shared memory: a count of %u, want 1 to %u",
                    p.at, count, kMostArrivals);
    }
    const u64 word = pack({0, count, count, 0});
    std::memcpy(p.cta->shared + p.at, &word, sizeof(word));
    if (w.launch->checks) watch::mbarrier_made(w, *p.cta, p.at, l);
  }
  return Status::kNext;
}
Status invalidate(Warp& w, const Ins& i, u32 mask) {
  for (u32 left = mask; left; left &= left - 1) {
    const int l = __builtin_ctz(left);
    const Place p = mbarrier_at(w, address_of(w, i, 0, l), l);
    if (!p.cta) return Status::kFault;
    std::memset(p.cta->shared + p.at, 0, 8);
    if (w.launch->checks) watch::mbarrier_made(w, *p.cta, p.at, l);
  }
  return Status::kNext;
}

// Operands: state (or none), address, count of arrivals (or none), bytes (or none). extra has bits.
Status arrive(Warp& w, const Ins& i, u32 mask) {
  for (u32 left = mask; left; left &= left - 1) {
    const int l = __builtin_ctz(left);
    const Place p = mbarrier_at(w, address_of(w, i, 1, l), l);
    if (!p.cta) return Status::kFault;
    Change c;
    if (!(i.extra & kOnlyBytes)) c.arrivals = has(i, 2) ? words(w, i, 2)[l] : 1;
    if (has(i, 3)) c.bytes = static_cast<s32>(words(w, i, 3)[l]);
    if (i.extra & kCompletesBytes) c.bytes = -c.bytes;
    if (i.extra & kDrops) c.dropped = c.arrivals;
    c.completes = !(i.extra & kNoComplete);
    // Expected bytes are added before the arrival, so the phase cannot end between the two.
    if (w.launch->checks) watch::mbarrier_arrives(w, *p.cta, p.at, c.arrivals != 0);
    u64 before = 0;
    if (!change(w, *p.cta, p.at, c, l, &before)) return Status::kFault;
    if (has(i, 0)) doubles(w, i, 0)[l] = before;
  }
  return Status::kNext;
}

constexpr u32 kMostEarly = 8;  // waits in a row, so a warp that looks at phases in turn goes on

// Whether a look of a block whose instructions are counted may fail. Checks are to change no time,
// so a look that a loop repeats may not. Other looks may where no other block makes them.
bool fails_though_counted(const Warp& w, const Ins& i) {
  const LaunchState& l = *w.launch;
  const u64 blocks = static_cast<u64>(l.grid[0]) * l.grid[1] * l.grid[2];
  return !l.counting && blocks <= l.samples &&
         !l.program->counted[static_cast<size_t>(&i - l.code)].retried;
}

// Under checks the first look at a phase fails.
bool fails_at_first(Warp& w, const Ins& i, u32 address, u32 parity) {
  if ((w.sample || w.launch->counting) && !fails_though_counted(w, i)) return false;
  WarpCheck& c = *w.check;
  if (c.early_run == kMostEarly || (c.early_at == address && c.early_parity == parity)) {
    c.early_at = ~0u;
    c.early_run = 0;
    return false;
  }
  c.early_at = address;
  c.early_parity = parity;
  ++c.early_run;
  return true;
}

// With a seed or under checks a wait may return false at its first look, as PTX allows, with no
// copy landed: code that does not ask again shows then. With a seed, by a coin that it repeats.
bool fails_early(Warp& w, const Ins& i, u32 address, u32 parity) {
  if (w.parked || w.gave_up) return false;
  if (!w.launch->seed) return w.launch->checks && fails_at_first(w, i, address, parity);
  u64 x = w.launch->seed ^ w.instructions * 0x9e3779b97f4a7c15ull;
  for (const u32 part : {static_cast<u32>(w.index), w.cta->id[0], w.cta->id[1], w.cta->id[2]})
    x = (x ^ part) * 0xbf58476d1ce4e5b9ull;
  return x >> 63;
}

// Whether the phase is over; whoever asks gets the copies landed, but for an early look. -1 after a
// fault.
int phase_over(Warp& w, u32 address, u32 parity, bool early, int lane) {
  const Place p = mbarrier_at(w, address, lane);
  if (!p.cta) return -1;
  for (bool again = true;; again = false) {
    Mbarrier b;
    if (!load(*p.cta, p.at, &b)) {
      refuse(w, lane, "no mbarrier at offset %u of shared memory: not initialised, or overwritten",
             p.at);
      return -1;
    }
    if (b.parity != parity) {
      if (w.launch->checks) watch::mbarrier_passed(w, *p.cta, p.at, parity);
      return 1;
    }
    if (!again || early) return 0;
    if (!land_for(w, p.cta, p.at)) return -1;
  }
}

// Operands: result, address, parity or state. A wait that fails gives its turn away: try_wait until
// the phase is over, as the hardware suspends the thread, or until nobody else can go on.
template <bool kTry, bool kState>
Status wait(Warp& w, const Ins& i, u32 mask) {
  u32 over = 0;
  u32 waits_at = 0;
  u32 waits_for = 0;
  u32 last_address = 0;
  u32 last_parity = 2;
  bool last = false;
  const auto parity_of = [&](int l) {
    return kState ? static_cast<u32>(doubles(w, i, 2)[l] >> 63) : words(w, i, 2)[l] & 1;
  };
  const int first = __builtin_ctz(mask);
  const bool early = fails_early(w, i, address_of(w, i, 1, first), parity_of(first));
  for (u32 left = mask; left; left &= left - 1) {
    const int l = __builtin_ctz(left);
    const u32 address = address_of(w, i, 1, l);
    const u32 parity = parity_of(l);
    if (address != last_address || parity != last_parity) {
      const int answer = phase_over(w, address, parity, early, l);
      if (answer < 0) return Status::kFault;
      last = answer;
      last_address = address;
      last_parity = parity;
    }
    if (last) {
      over |= 1u << l;
    } else {
      waits_at = address;
      waits_for = parity;
    }
  }
  w.woken = false;
  if (over == mask || w.gave_up) {
    const bool vain = over != mask;
    if (!vain) count_mbarrier_wait(w);
    w.parked = nullptr;
    w.gave_up = false;
    set_predicate(w, i, 0, over, mask);
    w.looked = vain;
    return Status::kNext;
  }
  w.parked_at = waits_at;
  w.parked_parity = waits_for;
  if (!kTry || early) {
    w.looked = true;
    set_predicate(w, i, 0, over, mask);
    return Status::kYield;
  }
  w.parked =
      reinterpret_cast<const u64*>(cta_at(w, waits_at)->shared + (waits_at & (kSharedSpan - 1)));
  return Status::kBlock;
}

// Operands: count, state.
Status pending_count(Warp& w, const Ins& i, u32 mask) {
  for (u32 left = mask; left; left &= left - 1) {
    const int l = __builtin_ctz(left);
    Mbarrier b;
    if (!unpack(doubles(w, i, 1)[l], &b))
      return refuse(w, l, "mbarrier.pending_count of a value that is no state of an mbarrier");
    words(w, i, 0)[l] = b.missing;
  }
  return Status::kNext;
}

// cp.async.mbarrier.arrive: extra is 1 for .noinc.
Status copies_arrive(Warp& w, const Ins& i, u32 mask) {
  for (u32 left = mask; left; left &= left - 1) {
    const int l = __builtin_ctz(left);
    const Place p = mbarrier_at(w, address_of(w, i, 0, l), l);
    if (!p.cta) return Status::kFault;
    if (w.launch->checks) watch::mbarrier_arrives(w, *p.cta, p.at, true);
    if (!i.extra) {
      Change joins;
      joins.joined = 1;
      if (!change(w, *p.cta, p.at, joins, l, nullptr)) return Status::kFault;
    }
    w.cta->cluster->arrivals.push_back({&w, w.copies_issued, 1u << l, p.cta, p.at});
    wake(w, p.cta->shared + p.at);
  }
  return Status::kNext;
}

// --- clusters ------------------------------------------------------------------------------------

// A thread that has ended is not waited for.
bool try_open(Cluster& c) {
  for (u32 k = 0; k < c.warp_count; ++k) {
    const Warp& w = c.warps[k];
    const u32 arrived = w.cluster_generation == c.generation ? w.cluster_arrived : 0;
    if (w.live & ~arrived && !w.done) return false;
  }
  ++c.generation;
  return true;
}

Status cluster_fault(Warp& w, const char* what, u32 mask) {
  w.fault.kind = FaultKind::kBarrier;
  w.fault.detail = what;
  w.fault.lane = __builtin_ctz(mask);
  return Status::kFault;
}

// extra: kAligned, kRelaxed.
Status cluster_arrive(Warp& w, const Ins& i, u32 mask) {
  if ((i.extra & kAligned) && mask != w.live)
    return cluster_fault(w, "barrier.cluster.aligned was reached by a part of the warp's threads",
                         mask);
  if (w.cluster_arrived & mask)
    return cluster_fault(w, "barrier.cluster.arrive again, with no barrier.cluster.wait between",
                         mask);
  Cluster& c = *w.cta->cluster;
  w.cluster_arrived |= mask;
  w.cluster_generation = c.generation;
  if (w.launch->checks) watch::cluster_arrives(w, !(i.extra & kRelaxed));
  try_open(c);
  return Status::kNext;
}
Status cluster_wait(Warp& w, const Ins& i, u32 mask) {
  if ((i.extra & kAligned) && mask != w.live)
    return cluster_fault(w, "barrier.cluster.aligned was reached by a part of the warp's threads",
                         mask);
  if (~w.cluster_arrived & mask)
    return cluster_fault(w, "barrier.cluster.wait without barrier.cluster.arrive before it", mask);
  Cluster& c = *w.cta->cluster;
  if (w.cluster_generation == c.generation && !try_open(c)) {
    w.in_cluster_wait = true;
    return Status::kBlock;
  }
  w.in_cluster_wait = false;
  w.cluster_arrived &= ~mask;
  if (w.launch->checks) watch::cluster_waited(w);
  return Status::kNext;
}

// isspacep.shared: of this CTA (extra 0), or of any in the cluster.
Status is_shared(Warp& w, const Ins& i, u32 mask) {
  const u64* address = doubles(w, i, 1);
  u32 result = 0;
  for (u32 l = 0; l < kWarpSize; ++l) {
    const u64 offset = address[l] - kSharedWindow;
    const bool inside = i.extra ? offset >> kSharedSpanBits < w.cta->cluster->size
                                : offset - w.shared_base < kSharedSpan;
    result |= static_cast<u32>(inside) << l;
  }
  set_predicate(w, i, 0, result, mask);
  return Status::kNext;
}

// fence.proxy.async: what the warp has written, asynchronous copies may read. extra: MadeVisible.
Status fence_async(Warp& w, const Ins& i, u32) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (w.launch->checks) watch::async_fence(w, static_cast<MadeVisible>(i.extra));
  return Status::kNext;
}

// A generic address that an mbarrier operation takes for one of shared memory.
Status shared_of_generic(Warp& w, const Ins& i, u32 mask) {
  for (u32 left = mask; left; left &= left - 1) {
    const int l = __builtin_ctz(left);
    const u64 address = doubles(w, i, 1)[l] + static_cast<u64>(i.imm);
    if ((address & kWindowMask) != kSharedWindow)
      return raise(w, FaultKind::kIllegalAddress, Where::kGeneric, true, address, 8, l);
    words(w, i, 0)[l] = static_cast<u32>(address);
  }
  return Status::kNext;
}

}  // namespace

u8* find_cluster_shared(const Warp& w, u64 address, u32 bytes) {
  const Cta* cta = cta_at(w, address);
  const u32 at = static_cast<u32>(address) & (kSharedSpan - 1);
  if (!cta || cta->warps_done == cta->warps || !fits(at, bytes, 0, cta->shared_bytes))
    return nullptr;
  return cta->shared + at;
}

void wake(Warp& w, const u8* mbarrier) {
  Cluster& c = *w.cta->cluster;
  for (u32 k = 0; k < c.warp_count; ++k) {
    if (reinterpret_cast<const u8*>(c.warps[k].parked) == mbarrier) c.warps[k].woken = true;
  }
}

void register_cluster(OpTable& t) {
  add_function(t, "mbarrier.init", &init, "", "ww");
  add_function(t, "mbarrier.inval", &invalidate, "", "w");
  add_function(t, "mbarrier.arrive", &arrive, "d", "www");
  add_function(t, "mbarrier.try_wait.parity", &wait<true, false>, "p", "ww");
  add_function(t, "mbarrier.try_wait", &wait<true, true>, "p", "wd");
  add_function(t, "mbarrier.test_wait.parity", &wait<false, false>, "p", "ww");
  add_function(t, "mbarrier.test_wait", &wait<false, true>, "p", "wd");
  add_function(t, "mbarrier.pending_count", &pending_count, "w", "d");
  add_function(t, "cp.async.mbarrier.arrive", &copies_arrive, "", "w");
  add_function(t, "barrier.cluster.arrive", &cluster_arrive, "", "");
  add_function(t, "barrier.cluster.wait", &cluster_wait, "", "");
  add_function(t, "fence.async", &fence_async, "", "");
  add_function(t, "isspacep.shared", &is_shared, "p", "d");
  add_function(t, "shared_of_generic", &shared_of_generic, "w", "d");
}

}  // namespace vgpu
