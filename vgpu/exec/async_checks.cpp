// What racecheck knows of mbarriers and of the cluster's barrier: whoever arrives is seen by who
// waits for the phase.
#include "exec/async.h"
#include "exec/watch.h"

namespace vgpu::watch {
namespace {

u32 place_of(const Cta& cta, u32 at) { return cta.rank << kSharedSpanBits | at; }

// A phase may have ended since somebody looked: then what has arrived was for it.
void settle(MbarrierCheck& b, const Cta& cta, u32 at) {
  Mbarrier now;
  if (!load(cta, at, &now) || now.parity == b.parity) return;
  b.opened[b.parity] = b.arriving;
  b.arriving.reset(0, 0);
  b.parity = now.parity;
}

void settle(ClusterCheck& all, const Cluster& cluster) {
  if (all.generation == cluster.generation) return;
  all.opened[all.generation & 1] = all.arriving;
  all.arriving.reset(0, 0);
  all.generation = cluster.generation;
}

// An mbarrier is memory like any other: it must be there for all who use it.
void check_made(Warp& w, Cta& cta, u32 at, const MbarrierCheck& b, int lane) {
  if (!unordered(w, b.made)) return;
  report_race(w, {Place::kShared, at, &cta}, 8, lane, "mbarrier not ordered",
              "uses the mbarrier at offset " + std::to_string(at) + " of shared memory, which " +
                  name_of(w, number_in(b.made)) + " initialised, with no barrier between the two",
              "initialisation");
}

// A barrier of the block is not enough for other CTAs, nor for the async proxy.
void check_published(Warp& w, Cta& cta, u32 at, const MbarrierCheck& b, const char* who, int lane) {
  const u32 maker = number_in(b.made);
  if (time_in(b.made) <= w.cta->check->cluster->made[maker] || unordered(w, b.made)) return;
  report_race(w, {Place::kShared, at, &cta}, 8, lane, "missing mbarrier fence",
              std::string(who) + " uses the mbarrier at offset " + std::to_string(at) +
                  " of shared memory, which " + name_of(w, maker) +
                  " initialised with no fence.mbarrier_init after it",
              "initialisation");
}

bool races(const Warp& w) { return w.launch->checks->has(kRacecheck); }

}  // namespace

MbarrierCheck& mbarrier_of(Warp& w, const Cta& cta, u32 at) {
  ClusterCheck& all = *w.cta->check->cluster;
  const u32 place = place_of(cta, at);
  const auto [it, fresh] = all.mbarriers.try_emplace(place);
  if (fresh) {
    if (all.first_place + all.places.size() < kNumbers) all.places.push_back(place);
    it->second.number = all.first_place + static_cast<u32>(all.places.size()) - 1;
  }
  settle(it->second, cta, at);
  return it->second;
}

void mbarrier_made(Warp& w, Cta& cta, u32 at, int) {
  if (w.launch->checks->has(kInitcheck)) std::memset(cta.check->shared_written + at, 1, 8);
  if (!races(w)) return;
  MbarrierCheck& b = mbarrier_of(w, cta, at);
  for (Clock* clock : {&b.arriving, &b.opened[0], &b.opened[1]}) clock->reset(0, 0);
  b.parity = 0;
  const u32 me = w.check->number;
  b.made = epoch_of(w.check->clock[me], me);
  w.check->clock.tick(me);
}

void mbarrier_arrives(Warp& w, Cta& cta, u32 at, bool counts) {
  if (!races(w)) return;
  MbarrierCheck& b = mbarrier_of(w, cta, at);
  const int lane = __builtin_ctz(w.mask);
  check_made(w, cta, at, b, lane);
  if (&cta != w.cta) check_published(w, cta, at, b, "another CTA", lane);
  if (!counts) return;
  if (&cta != w.cta) publish_mbarriers(w, MadeVisible::kSeen);
  b.arriving.join(w.check->clock);
  w.check->clock.tick(w.check->number);
}

void mbarrier_passed(Warp& w, Cta& cta, u32 at, u32 parity) {
  if (!races(w)) return;
  MbarrierCheck& b = mbarrier_of(w, cta, at);
  check_made(w, cta, at, b, __builtin_ctz(w.mask));
  w.check->clock.join(b.opened[parity]);
  order_lanes(w);
}

void mbarrier_completes(Warp& w, Cta& cta, u32 at, bool proxy, int lane) {
  const MbarrierCheck& b = mbarrier_of(w, cta, at);
  if (proxy || &cta != w.cta)
    check_published(w, cta, at, b, proxy ? "a bulk copy" : "another CTA", lane);
}

void publish_mbarriers(Warp& w, MadeVisible made) {
  if (!races(w) || made == MadeVisible::kNone) return;
  Clock& to = w.cta->check->cluster->made;
  const Clock& clock = w.check->clock;
  const u32 me = w.check->number;
  to.see(me, clock[me] - 1);  // an initialisation ticks
  for (u32 k = 0; made == MadeVisible::kSeen && k < w.cta->cluster->warp_count; ++k) {
    if (k != me) to.see(k, clock[k]);
  }
}

// Stores that the warp has seen are visible to the async proxy from now on.
void async_fence(Warp& w, MadeVisible made) {
  if (!races(w)) return;
  publish_mbarriers(w, made);
  Clock& proxy = w.cta->check->cluster->proxy;
  for (u32 k = 0; k < w.cta->cluster->warp_count; ++k) proxy.see(k, w.check->clock[k]);
  w.check->clock.tick(w.check->number);  // later stores are told apart
  CtaCheck& c = *w.cta->check;
  c.fenced = c.clock++;
}

void cluster_arrives(Warp& w, bool releases) {
  if (!races(w)) return;
  if (releases) publish_mbarriers(w, MadeVisible::kSeen);
  ClusterCheck& all = *w.cta->check->cluster;
  settle(all, *w.cta->cluster);
  all.arriving.join(w.check->clock);
  w.check->clock.tick(w.check->number);
}

void cluster_waited(Warp& w) {
  if (!races(w)) return;
  ClusterCheck& all = *w.cta->check->cluster;
  settle(all, *w.cta->cluster);
  w.check->clock.join(all.opened[w.cluster_generation & 1]);
  order_lanes(w);
}

}  // namespace vgpu::watch
