// racecheck and synccheck: what barriers, fences and atomics order.
//
// Shared memory: every warp has a vector clock, and every byte remembers its last writer and two
// readers. Lanes of one warp move together here, but not on a GPU: each has an epoch that
// __syncwarp and barriers advance, and every byte remembers the lane that wrote it last and one
// that read it. Global memory: every word remembers the same of blocks; blocks are ordered only by
// strong accesses (atomics, volatile, relaxed, acquire, release) that follow a fence or release.
#include <algorithm>

#include "exec/watch.h"

namespace vgpu::watch {
namespace {

// Whether another lane of the warp made the access, in an instruction of its own, with nothing that
// orders the two since.
bool unordered_lanes(const Warp& w, const LaneAccess& a, int lane) {
  return a.epoch && a.warp == w.check->number && a.lane != lane && a.serial != w.check->serial &&
         a.epoch >= w.check->lane_epoch[lane];
}
std::string lane_name(const LaneAccess& a) {
  return a.lane == kManyLanes ? "other lanes" : "lane " + std::to_string(a.lane);
}
void note_lane(const Warp& w, LaneAccess& a, int lane) {
  const u32 epoch = w.check->lane_epoch[lane];
  const u32 me = w.check->number;
  const bool together = a.epoch == epoch && a.warp == me && a.lane != lane;
  a = {epoch, w.check->serial, together ? kManyLanes : static_cast<u16>(lane),
       static_cast<u16>(me)};
}

// A store of what is there already decides nothing, whoever comes first.
bool stores_the_same(const Warp& w, const Ins* ins, Target t, int lane) {
  if (!ins) return false;
  const Ins& i = *ins;
  const Watch& watch = *i.watch;
  if (watch.atomic || !watch.store) return false;
  const u8* start = t.place == Place::kShared ? t.cta->shared + t.address
                                              : reinterpret_cast<const u8*>(t.address);
  for (u32 n = 0; n < watch.count; ++n) {
    const u32 width = watch.bytes == 8 ? 8 : 4;
    const u8* value = w.registers + i.ops[n + 1] + static_cast<u32>(lane) * width;
    const u8* there = start + n * watch.bytes;
    if (std::memcmp(value, there, watch.bytes) != 0) return false;
  }
  return true;
}

// Between lanes of one warp.
void race_in_warp(Warp& w, const Ins* i, Target t, u32 bytes, bool write, int lane) {
  const auto same = [&] { return write && stores_the_same(w, i, t, lane); };
  for (u32 k = 0; k < bytes; ++k) {
    SharedCell& cell = t.cta->check->cells[t.address + k];
    if (unordered_lanes(w, cell.last_write, lane) && !same()) {
      report_race(w, t, bytes, lane, write ? "write after write" : "read after write",
                  std::string(write ? "writes" : "reads") + " what " + lane_name(cell.last_write) +
                      " of its own warp wrote, with no __syncwarp between the two");
      return;
    }
    if (write && unordered_lanes(w, cell.last_read, lane) && !same()) {
      report_race(w, t, bytes, lane, "write after read",
                  "overwrites what " + lane_name(cell.last_read) +
                      " of its own warp read, with no __syncwarp between the two");
      return;
    }
    if (write) {
      note_lane(w, cell.last_write, lane);
      cell.last_read.epoch = 0;
    } else {
      note_lane(w, cell.last_read, lane);
    }
  }
}

// What is said of an access to what another one wrote last.
void report_written(Warp& w, Target t, u32 bytes, bool write, u32 writer, int lane) {
  const bool copied = number_in(writer) >= w.cta->check->cluster->first_place;
  report_race(w, t, bytes, lane, write ? "write after write" : "read after write",
              std::string(write ? "writes" : "reads") + " what " + name_of(w, number_in(writer)) +
                  (copied ? " brought, whose phase it has not waited for"
                          : " wrote, with no barrier between the two"));
}
void report_pending(Warp& w, Target t, u32 bytes, bool write, u32 writer, int lane) {
  const BulkCopy* copy = copy_at(w, *t.cta, static_cast<u32>(t.address));
  const bool own = number_in(writer) == w.check->number;
  report_race(
      w, t, bytes, lane, "access to a copy under way",
      std::string(write ? "writes" : "reads") + " shared memory that " +
          (copy ? describe(w, *copy)
                : "a cp.async of " + (own ? "the warp itself" : name_of(w, number_in(writer)))) +
          " is still filling: a wait is missing");
}

// `i` is null for a cp.async.
void race_shared(Warp& w, const Ins* i, Target t, u32 bytes, bool write, bool strong, int lane) {
  if (!t.cta || !fits(t.address, bytes, 0, w.shared_bytes)) return;
  const auto same = [&] { return write && stores_the_same(w, i, t, lane); };
  const u32 me = w.check->number;
  const u32 epoch = epoch_of(w.check->clock[me], me);
  for (u32 k = 0; k < bytes; ++k) {
    SharedCell& cell = t.cta->check->cells[t.address + k];
    const u32 writer = cell.write;
    if (__builtin_expect(writer & kPendingCopy, 0))
      return report_pending(w, t, bytes, write, writer, lane);
    if (!strong && unordered(w, writer) && !same())
      return report_written(w, t, bytes, write, writer, lane);
    if (write && cell.reading) {
      const BulkCopy* copy = copy_at(w, *t.cta, static_cast<u32>(t.address + k));
      report_race(w, t, bytes, lane, copy ? "write under a copy" : "write into what wgmma reads",
                  "writes shared memory that " +
                      (copy ? describe(w, *copy) : std::string("a wgmma under way")) +
                      " reads: a wait is missing");
      return;
    }
    if (write) {
      for (u32& reader : cell.read) {
        if (!strong && unordered(w, reader) && !same()) {
          report_race(w, t, bytes, lane, "write after read",
                      "overwrites what " + name_of(w, number_in(reader)) +
                          " read, with no barrier between the two");
          return;
        }
        reader = 0;
      }
      cell.write = epoch;
      cell.stored = true;
    } else if (!strong) {
      // Two readers are kept; one that is ordered before this one need not be.
      const bool second = number_in(cell.read[0]) != me && unordered(w, cell.read[0]);
      cell.read[second] = epoch;
    }
  }
  if (!strong) race_in_warp(w, i, t, bytes, write, lane);
}

// Three 64-bit words for each four bytes: writer and two readers, as
// launch (16 bits), time (12), bytes (4), block (32).
u64 stamp(const CheckRun& run, const CtaCheck& c, u32 lanes) {
  return static_cast<u64>(run.launch) << 48 | static_cast<u64>(std::min(c.clock, 0xfffu)) << 36 |
         static_cast<u64>(lanes) << 32 | c.block;
}

// `i` is null for a bulk copy.
void race_global(Warp& w, const Ins* i, Target t, u32 bytes, bool write, bool strong, int lane) {
  const Allocation* a = holder(w, t.address, bytes);
  if (!a || !a->accesses) return;
  const CheckRun& run = *w.launch->checks;
  CtaCheck& c = *w.cta->check;
  const auto unordered = [&](u64 other, u32 touched) {
    const u32 block = static_cast<u32>(other);
    if (other >> 48 != run.launch || block == c.block || !(other >> 32 & touched)) return false;
    const auto it = c.seen.find(block);
    return it == c.seen.end() || (other >> 36 & 0xfff) > it->second;
  };
  const u64 end = t.address + bytes;
  for (u64 at = t.address & ~3ull; at < end; at += 4) {
    u32 touched = 15;
    if (at < t.address) touched &= 15u << (t.address - at);
    if (at + 4 > end) touched &= 15u >> (at + 4 - end);
    u64* cell = a->accesses + (at - a->base) / 4 * 3;
    const auto block = [](u64 other) { return "block " + std::to_string(static_cast<u32>(other)); };
    if (!strong && unordered(cell[0], touched) && !(write && stores_the_same(w, i, t, lane))) {
      report_race(w, t, bytes, lane, write ? "write after write" : "read after write",
                  std::string(write ? "writes" : "reads") + " what " + block(cell[0]) +
                      " of the grid wrote, and nothing orders the two");
      return;
    }
    const u64 now = stamp(run, c, touched);
    if (!write) {
      if (strong) continue;
      cell[unordered(cell[1], 15) ? 2 : 1] = now;
      continue;
    }
    for (int r = 1; r < 3; ++r) {
      if (!strong && unordered(cell[r], touched) && !stores_the_same(w, i, t, lane)) {
        report_race(
            w, t, bytes, lane, "write after read",
            "overwrites what " + block(cell[r]) + " of the grid read, and nothing orders the two");
        return;
      }
    }
    if (!strong) cell[0] = now;
  }
}

// A barrier that threads of several kinds wait at must mean the same to all.
void check_counts(Warp& w, const Barrier& b, u32 number, bool all, u32 count, int lane) {
  CheckRun& run = *w.launch->checks;
  const auto say = [&](const std::string& text) {
    run.report(w, {kSynccheck, "barrier count", "barrier " + std::to_string(number) + " " + text},
               lane);
  };
  const u32* block = w.launch->block;
  const u32 threads = (block[0] * block[1] * block[2] + kWarpSize - 1) / kWarpSize * kWarpSize;
  if (!all && (count == 0 || count % kWarpSize)) {
    say("waits for " + std::to_string(count) + " threads, which is no multiple of a warp");
  } else if (!all && count > threads) {
    say("waits for " + std::to_string(count) + " threads, and the block has " +
        std::to_string(threads));
  } else if (b.arrived && (b.all != all || (!all && b.expected != count))) {
    const auto words = [](bool a, u32 n) { return a ? "all" : std::to_string(n); };
    say("is reached with " + words(all, count) + " threads to wait for while others wait for " +
        words(b.all, b.expected));
  }
}

}  // namespace

void report_race(Warp& w, Target t, u32 bytes, int lane, const char* kind, std::string text,
                 const char* cause) {
  if (t.cta && t.cta != w.cta)
    text += ", in CTA " + std::to_string(t.cta->rank) + " of the cluster";
  Sighting s = {kRacecheck, kind, std::move(text), t.place, t.address, bytes};
  s.cause = cause;
  w.launch->checks->report(w, s, lane);
}

u32 warpgroup_number(const Warp& w) {
  const u32 of_cta = (w.cta->warps + kWarpsOfGroup - 1) / kWarpsOfGroup;
  return w.cta->cluster->warp_count + w.cta->rank * of_cta + w.index / kWarpsOfGroup;
}

bool unordered(const Warp& w, u32 epoch) {
  return epoch && number_in(epoch) != w.check->number &&
         time_in(epoch) > w.check->clock[number_in(epoch)];
}

std::string name_of(const Warp& w, u32 number) {
  const Cluster& c = *w.cta->cluster;
  if (number >= c.warp_count) {
    const ClusterCheck& all = *w.cta->check->cluster;
    if (number < all.first_place) return "a wgmma";
    const u32 place = all.places[number - all.first_place];
    return "a bulk copy to the mbarrier at offset " + std::to_string(place & (kSharedSpan - 1)) +
           " of shared memory";
  }
  const Warp& other = c.warps[number];
  return "warp " + std::to_string(other.index) +
         (other.cta == w.cta ? "" : " of CTA " + std::to_string(other.cta->rank));
}

void race(Warp& w, const Ins& i, Target t, u32 bytes, bool write, int lane) {
  const bool strong = i.watch->strong;
  if (t.place == Place::kShared) race_shared(w, &i, t, bytes, write, strong, lane);
  if (t.place == Place::kGlobal) race_global(w, &i, t, bytes, write, strong, lane);
}

void race_global_copy(Warp& w, u64 address, u32 bytes, bool write, bool strong, int lane) {
  race_global(w, nullptr, {Place::kGlobal, address}, bytes, write, strong, lane);
}

void race_copy(Warp& w, const Ins&, const AsyncCopy& copy, int lane) {
  const Target to = {Place::kShared, copy.destination[lane], w.cta};
  race_shared(w, nullptr, to, copy.bytes, true, false, lane);
  const u32 me = w.check->number;
  for (u32 k = 0; k < copy.bytes; ++k) {
    SharedCell& cell = w.cta->check->cells[to.address + k];
    cell.write = kPendingCopy | epoch_of(w.check->clock[me], me);
    cell.stored = false;
  }
  if (copy.source_bytes[lane]) {
    race_global(w, nullptr, {Place::kGlobal, copy.source[lane]}, copy.source_bytes[lane], false,
                false, lane);
    early_access(w, copy.source[lane], copy.source_bytes[lane], false, lane);
  }
}

// wgmma reads through the async proxy, to which stores are visible after fence.proxy.async only.
void race_wgmma(Warp& w, u32 address, u32 bytes) {
  const Target t = {Place::kShared, address, w.cta};
  const Clock& proxy = w.cta->check->cluster->proxy;
  for (u32 k = 0; k < bytes; ++k) {
    SharedCell& cell = w.cta->check->cells[address + k];
    ++cell.reading;
    if (!cell.write) continue;
    const u32 writer = number_in(cell.write);
    if (cell.write & kPendingCopy) {
      report_pending(w, t, bytes, false, cell.write, 0);
    } else if (unordered(w, cell.write)) {
      report_written(w, t, bytes, false, cell.write, 0);
    } else if (cell.stored && time_in(cell.write) > proxy[writer]) {
      report_race(w, t, bytes, 0, "missing proxy fence",
                  "wgmma reads what " + name_of(w, writer) +
                      " stored, with no fence.proxy.async between the two",
                  "before wgmma");
    }
  }
}

void finish_wgmma(Warp& w, u32 address, u32 bytes, u32 epoch) {
  for (u32 k = 0; k < bytes; ++k) {
    SharedCell& cell = w.cta->check->cells[address + k];
    if (cell.reading) --cell.reading;
    cell.read[number_in(cell.read[0]) != number_in(epoch) && unordered(w, cell.read[0])] = epoch;
  }
}

void acquire(Warp& w, Target t) {
  CtaCheck& c = *w.cta->check;
  if (t.place == Place::kShared && t.cta) w.check->clock.join(t.cta->check->strong);
  if (t.place != Place::kGlobal) return;
  auto& released = w.launch->checks->released;
  const auto it = released.find(t.address);
  if (it == released.end()) return;
  for (const auto& [block, clock] : it->second) {
    u32& seen = c.seen[block];
    seen = std::max(seen, clock);
  }
}

void release(Warp& w, Target t, bool with_fence) {
  CtaCheck& c = *w.cta->check;
  if (t.place == Place::kShared && t.cta) {
    t.cta->check->strong.join(w.check->clock);
    w.check->clock.tick(w.check->number);
  }
  if (with_fence) publish_mbarriers(w, MadeVisible::kSeen);
  if (t.place != Place::kGlobal) return;
  if (with_fence) c.fenced = c.clock++;
  auto& to = w.launch->checks->released[t.address];
  u32& mine = to[c.block];
  mine = std::max(mine, c.fenced);
  for (const auto& [block, clock] : c.seen) {
    u32& theirs = to[block];
    theirs = std::max(theirs, clock);
  }
}

Status fence(Warp& w, const Ins& i, u32 mask) {
  CtaCheck& c = *w.cta->check;
  c.fenced = c.clock++;
  publish_mbarriers(w, static_cast<MadeVisible>(i.extra));
  return i.watch->op(w, i, mask);
}

void order_lanes(Warp& w) {
  u32* const epochs = w.check->lane_epoch;
  std::fill_n(epochs, kWarpSize, *std::max_element(epochs, epochs + kWarpSize) + 1);
}

void order_lane(Warp& w, int lane) {
  const u32* epochs = w.check->lane_epoch;
  w.check->lane_epoch[lane] = *std::max_element(epochs, epochs + kWarpSize) + 1;
}

Status lanes(Warp& w, const Ins& i, u32 mask) {
  const u32* members = reinterpret_cast<const u32*>(w.registers + i.ops[0]);
  u32 latest = 0;
  for (u32 left = mask; left; left &= left - 1)
    latest = std::max(latest, w.check->lane_epoch[__builtin_ctz(left)]);
  for (u32 left = mask; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    if (members[lane] >> lane & 1) w.check->lane_epoch[lane] = latest + 1;
  }
  return i.watch->op(w, i, mask);
}

// No lane writes before all have come to stmatrix, with what they have read.
Status together(Warp& w, const Ins& i, u32 mask) {
  if (i.extra) order_lanes(w);
  return i.watch->op(w, i, mask);
}

Status barrier(Warp& w, const Ins& i, u32 mask) {
  const Watch& watch = *i.watch;
  Cta& cta = *w.cta;
  const int lane = __builtin_ctz(mask);
  const auto number_of = [&](int k) {
    return reinterpret_cast<const u32*>(w.registers + i.ops[k])[lane];
  };
  const u32 number = w.waiting ? w.barrier_id : number_of(watch.address) & 15;
  Barrier& b = cta.barriers[number];
  CtaCheck::BarrierClock& clocks = cta.check->barriers[number];
  if (w.launch->checks->has(kInitcheck) && !w.waiting) {
    check_guard(w, i);
    SlotShadow& s = shadow_of(w, i, watch.address);
    if (const u32 bad = s.undefined & mask) {
      report_use(w, s, bad, "uninitialised barrier",
                 "the number of a barrier is a value that was never written");
    }
  }
  if (!w.waiting) {
    const int count = watch.address + 1;
    const bool all = absent(i, count);
    check_counts(w, b, number, all, all ? 0 : number_of(count), lane);
    clocks.arriving.join(w.check->clock);
    w.check->clock.tick(w.check->number);
  }
  const u32 generation = b.generation;
  const Status status = watch.results && w.launch->checks->has(kInitcheck) ? exchange(w, i, mask)
                                                                           : watch.op(w, i, mask);
  if (b.generation != generation) {
    clocks.opened[generation & 1] = clocks.arriving;
    clocks.arriving.reset(0, 0);
  }
  // bar.arrive goes on without having seen the others.
  if (status == Status::kNext && !watch.store) {
    w.check->clock.join(clocks.opened[w.barrier_generation & 1]);
    order_lanes(w);
  }
  return status;
}

}  // namespace vgpu::watch
