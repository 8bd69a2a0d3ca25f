// The state of the checks over a launch, and of a CTA at its start and end.
#include <algorithm>
#include <cstring>

#include "exec/watch.h"

namespace vgpu {

const char* name_of(Place place) {
  switch (place) {
    case Place::kShared:
      return "shared";
    case Place::kLocal:
      return "local";
    case Place::kParam:
      return "parameter";
    case Place::kGlobal:
    case Place::kGeneric:
      return "global";
    case Place::kNone:
      return "";
  }
  return "";
}

void CheckRun::report(const Warp& w, Sighting s, int lane) {
  if (!has(s.check)) return;
  {
    const std::lock_guard lock(mutex_);
    const std::pair key(s.kind, w.pc);
    if (std::find(reported_.begin(), reported_.end(), key) != reported_.end()) return;
    reported_.push_back(key);
  }
  if (s.pc == 0) s.pc = w.pc;
  std::memcpy(s.block, w.cta->id, sizeof(s.block));
  s.thread = w.index * kWarpSize + static_cast<u32>(lane);
  report_(s);
}

u32 CheckRun::origin(const Warp& w, Place place, u64 address, u32 bytes, int lane, u8 inherited) {
  const std::lock_guard lock(mutex_);
  const auto it = by_pc_.find(w.pc);
  if (it != by_pc_.end()) return it->second;
  if (origins_.size() >= 254) return 255;
  Origin o = {w.pc,  {},       w.index * kWarpSize + static_cast<u32>(lane), place, address,
              bytes, inherited};
  std::memcpy(o.block, w.cta->id, sizeof(o.block));
  origins_.push_back(o);
  return by_pc_[w.pc] = static_cast<u32>(origins_.size());
}

Origin CheckRun::origin_at(u32 number) {
  const std::lock_guard lock(mutex_);
  if (number == 0 || number > origins_.size()) return Origin{-1, {}, 0, Place::kNone, 0, 0};
  return origins_[number - 1];
}

u8 CheckRun::lasting(u32 origin) {
  const Origin o = origin_at(origin);
  return o.inherited ? o.inherited : remember_(o);
}

void start_checks(Cta& cta, Warp* warps, u32 shared_bytes) {
  CtaCheck& c = *cta.check;
  const LaunchState& launch = *warps[0].launch;
  const Program& p = *launch.program;
  if (launch.checks->has(kInitcheck)) std::memset(c.shared_written, 0, shared_bytes);
  // Cells of the CTA before hold times that lie before this one's.
  u32 latest = 1;
  for (u32 k = 0; k < cta.warps; ++k) {
    const WarpCheck& check = *warps[k].check;
    latest = std::max(latest, check.clock[k]);
    for (u32 epoch : check.lane_epoch) latest = std::max(latest, epoch);
  }
  if (latest > 1u << 25) {
    if (c.cells) std::memset(static_cast<void*>(c.cells), 0, shared_bytes * sizeof(SharedCell));
    latest = 1;
  }
  for (u32 k = 0; k < cta.warps; ++k) {
    WarpCheck& check = *warps[k].check;
    for (u32& clock : check.clock) clock = latest;
    check.clock[k] = latest + 1;
    for (u32& epoch : check.lane_epoch) epoch = latest + 1;
    check.serial = 0;
    check.fenced = false;
    check.written.assign(p.register_bytes / 128 + 1, false);
    if (!launch.checks->has(kInitcheck)) continue;
    std::memset(check.local_written, 0, static_cast<size_t>(launch.local_bytes) * kWarpSize);
    std::memset(warps[k].registers + check.shadow, 0, p.register_bytes);
    std::memset(static_cast<void*>(check.slots), 0, p.watched_slots * sizeof(SlotShadow));
    for (const Program::Unset& u : p.unset) {
      check.slots[u.slot].undefined = kFullMask;
      if (u.bytes) std::memset(warps[k].registers + check.shadow + u.offset, 0xff, u.bytes);
    }
  }
  std::memset(c.barriers, 0, sizeof(c.barriers));
  std::memset(c.strong, 0, sizeof(c.strong));
  std::fill_n(c.proxy, kWarpSize, latest);
  c.block = (cta.id[2] * launch.grid[1] + cta.id[1]) * launch.grid[0] + cta.id[0];
  c.clock = 1;
  c.fenced = 0;
  c.seen.clear();
}

void end_checks(Warp& w) {
  CheckRun& run = *w.launch->checks;
  watch::end_wgmmas(w);
  if (!w.copy_count || !run.has(kSynccheck)) return;
  const AsyncCopy& copy = w.copies[w.copy_head];
  const int lane = __builtin_ctz(copy.mask);
  Sighting s = {kSynccheck,
                "copies never waited for",
                "the warp ends while " + std::to_string(w.copy_count) +
                    " of its cp.async copies have not been waited for",
                Place::kShared,
                copy.destination[lane],
                copy.bytes};
  s.pc = copy.pc;
  run.report(w, s, lane);
}

}  // namespace vgpu
