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

namespace {

void start_warp(Warp& w, size_t clocks, u32 latest) {
  WarpCheck& check = *w.check;
  const LaunchState& launch = *w.launch;
  const Program& p = *launch.program;
  check.clock.reset(clocks, latest);
  check.clock.tick(check.number);
  for (u32& epoch : check.lane_epoch) epoch = latest + 1;
  check.serial = 0;
  check.fenced = false;
  check.wgmmas_over = 0;
  check.waited = check.wait_epoch = 0;
  check.early_at = ~0u;
  check.early_run = 0;
  check.written.assign(p.register_bytes / 128 + 1, false);
  if (!launch.checks->has(kInitcheck)) return;
  std::memset(check.local_written, 0, static_cast<size_t>(launch.local_bytes) * kWarpSize);
  std::memset(w.registers + check.shadow, 0, p.register_bytes);
  std::memset(static_cast<void*>(check.slots), 0, p.watched_slots * sizeof(SlotShadow));
  for (const Program::Unset& u : p.unset) {
    check.slots[u.slot].undefined = kFullMask;
    if (u.bytes) std::memset(w.registers + check.shadow + u.offset, 0xff, u.bytes);
  }
}

void start_cta(Cta& cta, const LaunchState& launch) {
  CtaCheck& c = *cta.check;
  if (launch.checks->has(kInitcheck)) std::memset(c.shared_written, 0, cta.shared_bytes);
  for (CtaCheck::BarrierClock& b : c.barriers) b = {};
  c.strong = Clock();
  c.waits.clear();
  c.block = (cta.id[2] * launch.grid[1] + cta.id[1]) * launch.grid[0] + cta.id[0];
  c.clock = 1;
  c.fenced = 0;
  c.seen.clear();
}

}  // namespace

void start_checks(Cluster& cluster, u32 shared_bytes) {
  ClusterCheck& all = *cluster.ctas[0].check->cluster;
  const LaunchState& launch = *cluster.warps[0].launch;
  // Cells of the cluster before hold times that lie before this one's.
  u32 latest = std::max(1u, all.copies.latest());
  for (u32 k = 0; k < cluster.warp_count; ++k) {
    const WarpCheck& check = *cluster.warps[k].check;
    latest = std::max(latest, check.clock.latest());
    for (u32 epoch : check.lane_epoch) latest = std::max(latest, epoch);
  }
  if (latest > kLatestTime / 2) {
    for (u32 k = 0; k < cluster.size; ++k) {
      SharedCell* const cells = cluster.ctas[k].check->cells;
      if (cells) std::memset(static_cast<void*>(cells), 0, shared_bytes * sizeof(SharedCell));
    }
    latest = 1;
  }
  const u32 groups = (cluster.ctas[0].warps + kWarpsOfGroup - 1) / kWarpsOfGroup * cluster.size;
  all.first_place = cluster.warp_count + groups;
  all.start = latest;
  const size_t numbers = all.first_place + all.places.size();
  all.copies.reset(numbers, latest);
  all.proxy.reset(cluster.warp_count, latest);
  all.made.reset(cluster.warp_count, latest);
  all.generation = 0;
  all.arriving = Clock();
  for (auto& [place, b] : all.mbarriers) {
    b.parity = b.made = 0;
    for (Clock* clock : {&b.arriving, &b.opened[0], &b.opened[1]}) clock->reset(0, 0);
  }
  for (u32 k = 0; k < cluster.size; ++k) start_cta(cluster.ctas[k], launch);
  for (u32 k = 0; k < cluster.warp_count; ++k) start_warp(cluster.warps[k], numbers, latest);
}

void end_checks(Warp& w) {
  CheckRun& run = *w.launch->checks;
  watch::end_wgmmas(w);
  if (w.cta->warps_done == w.cta->warps) {
    watch::end_bulk_copies(w);
    watch::end_early_start(w);
  }
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
