// Every host thread takes CTAs in order (clusters of them, where a launch asks for such). It runs
// one CTA at a time, its warps in turn, until each blocks or ends. A CTA that spins (on a semaphore
// of another CTA, say) is set aside and the next one started beside it, so a kernel makes progress
// whenever it would with its CTAs resident on a GPU.
#include "exec/scheduler.h"

#include <xmmintrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <vector>

#include "exec/cpu_clock.h"
#include "exec/empty.h"
#include "exec/resident.h"
#include "exec/thread_pool.h"

namespace vgpu {
namespace {

constexpr u64 kSlice = 1 << 18;         // instructions of a warp before others get a turn
constexpr int kLongSlices = 64;         // turns that a CTA may have before others get one
constexpr u64 kPollCost = kSlice / 64;  // of a look at memory around a barrier
constexpr int kStill = 3;               // turns without any change, then a CTA is stuck
constexpr u64 kVainLook = 256;          // instructions at most between two looks at an mbarrier
constexpr int kIdleRounds = 1000;       // of nothing but such looks, then no phase will ever end
// Clusters that run at once in a random order. GPUs start blocks in order, so a slice of a serial
// split-K waits for those before it; in another order these may be yet to start.
constexpr u32 kInAnyOrder = 256;

class Grid {
 public:
  Grid(const LaunchState& launch, const Isa& isa, u32 multiprocessors, u32 grid_id)
      : launch_(launch),
        isa_(isa),
        multiprocessors_(multiprocessors),
        grid_id_(grid_id),
        cluster_(launch.cluster[0] * launch.cluster[1] * launch.cluster[2]),
        total_(static_cast<u64>(launch.grid[0]) * launch.grid[1] * launch.grid[2] / cluster_),
        most_running_(std::max(launch.resident / cluster_, launch.seed ? kInAnyOrder : 1u)),
        random_(launch.seed ? std::make_unique<std::mt19937_64>(launch.seed) : nullptr) {
    if (launch.timeout_s) deadline_ = Clock::now() + std::chrono::seconds(launch.timeout_s);
    // A random order of blocks is a walk around the grid with a stride of no common divisor.
    stride_ = launch.seed ? (*random_)() % total_ : 1;
    while (std::gcd(stride_, total_) != 1) ++stride_;
    offset_ = launch.seed ? (*random_)() % total_ : 0;
    live_ = live_blocks(launch, isa, multiprocessors, grid_id, total_);
    limit_ = launch.only_samples ? live_.sampled.size() : total_;
  }

  // What one host thread does until no CTA is left.
  void work() {
    // The program may have set flushing or a rounding mode on its own thread.
    const u32 callers = _mm_getcsr();
    _mm_setcsr(0x1f80);
    CpuClock clock;
    run_ctas(clock);
    cpu_ns_ += clock.elapsed_ns();
    _mm_setcsr(callers);
  }

  u64 total() const { return total_; }
  GridResult result() {
    GridResult r;
    r.instructions = instructions_;
    r.cpu_seconds = static_cast<double>(cpu_ns_) * 1e-9;
    r.counters = counters_;
    std::sort(samples_.begin(), samples_.end(),
              [](const BlockSample& a, const BlockSample& b) { return a.block < b.block; });
    r.samples = std::move(samples_);
    r.live_blocks = live_.count * cluster_;
    if (stop_) r.fault = report_;
    if (limit_ < total_) {
      r.instructions = static_cast<u64>(static_cast<u128>(r.instructions) * live_.count / limit_) +
                       live_.instructions;
      r.counters.scale(live_.count, limit_);
      r.counters.add(live_.empty);
    }
    return r;
  }

 private:
  enum class Turn { kDone, kSpinning, kFault };
  using Clock = std::chrono::steady_clock;

  void run_ctas(CpuClock& clock) {
    Counters counters;  // of this host thread
    std::vector<std::unique_ptr<Resident>> running;
    std::vector<std::unique_ptr<Resident>> idle;
    size_t current = 0;
    bool want_another = true;
    bool stuck = false;
    ++working_;
    while (!stop_) {
      if (want_another && running.size() < most_running_) {
        if (const std::optional<u64> block = next_block()) {
          if (idle.empty())
            idle.push_back(std::make_unique<Resident>(launch_, multiprocessors_, grid_id_));
          running.push_back(std::move(idle.back()));
          idle.pop_back();
          running.back()->start(*block);
          running.back()->count_into(counters, new_samples(*block, running.back()->cluster()));
          current = running.size() - 1;
        }
      }
      if (running.empty()) break;
      const Turn turn = take_turns(*running[current]);
      clock.tick();
      if (turn == Turn::kFault) break;
      if (turn == Turn::kDone) {
        for (auto& sample : running[current]->samples()) keep(std::move(sample), counters);
        idle.push_back(std::move(running[current]));
        running.erase(running.begin() + static_cast<std::ptrdiff_t>(current));
        current = 0;
        want_another = running.empty();
      } else {
        // It spins, or is long: let another CTA run, a waiting one or a new one.
        want_another = true;
        limit_ = total_;
        if (launch_.find_deadlock) running[current]->stands_still();
        const bool out_of_time = launch_.timeout_s && Clock::now() > deadline_;
        if (out_of_time || (launch_.find_deadlock && all_stuck(running, stuck))) {
          stop_waiting(running, out_of_time);
          break;
        }
        current = launch_.seed ? (*random_)() % running.size() : (current + 1) % running.size();
      }
    }
    if (launch_.counting) {
      const std::lock_guard lock(mutex_);
      counters_.add(counters);
    }
    if (stuck) --stuck_;
    --working_;
    for (auto* list : {&running, &idle}) {
      for (auto& r : *list) {
        for (Warp& w : r->warps()) instructions_ += w.instructions;
      }
    }
  }

  // One for each CTA of a cluster that is looked at.
  std::vector<std::unique_ptr<BlockSample>> new_samples(u64 number, const Cluster& cluster) const {
    std::vector<std::unique_ptr<BlockSample>> samples;
    const std::vector<u64>& sampled = live_.sampled;
    if (!std::binary_search(sampled.begin(), sampled.end(), number)) return samples;
    for (u32 k = 0; k < cluster.size; ++k) {
      const u32* id = cluster.ctas[k].id;
      samples.push_back(std::make_unique<BlockSample>());
      samples.back()->block =
          (static_cast<u64>(id[2]) * launch_.grid[1] + id[1]) * launch_.grid[0] + id[0];
    }
    return samples;
  }

  void keep(std::unique_ptr<BlockSample> sample, Counters& counters) {
    if (!sample) return;
    counters.add(sample->counters);
    counters.add(sample->waiting);
    const std::lock_guard lock(mutex_);
    samples_.push_back(std::move(*sample));
  }

  // The next one to start, if there is one.
  std::optional<u64> next_block() {
    u64 k = next_;
    while (k < limit_) {
      if (next_.compare_exchange_weak(k, k + 1)) return block_at(k);
    }
    return std::nullopt;
  }

  u64 block_at(u64 k) const {
    if (launch_.only_samples) {
      if (k < live_.sampled.size()) return live_.sampled[k];
      k -= live_.sampled.size();
      for (const u64 sampled : live_.sampled) k += k >= sampled;
      return k;
    }
    return static_cast<u64>((static_cast<u128>(k) * stride_ + offset_) % total_);
  }

  // True when no CTA on any host thread can change anything any more, and none can be started.
  bool all_stuck(const std::vector<std::unique_ptr<Resident>>& running, bool& stuck) {
    const bool no_more = next_ >= total_ || running.size() >= most_running_;
    const bool now = no_more && std::all_of(running.begin(), running.end(),
                                            [](const auto& r) { return r->still >= kStill; });
    if (now != stuck) stuck_ += now ? 1 : -1;
    stuck = now;
    // Another host thread may have changed memory just now: all must stay so for some turns.
    agreed_ = stuck_ == working_ ? agreed_ + 1 : 0;
    return agreed_ > 2 * static_cast<int>(running.size());
  }

  void stop_waiting(std::vector<std::unique_ptr<Resident>>& running, bool out_of_time) {
    constexpr size_t kShown = 4;
    std::string text = out_of_time
                           ? "the time limit of " + std::to_string(launch_.timeout_s) + " s is over"
                           : "deadlock: no block can go on";
    for (size_t k = 0; k < running.size() && k < kShown; ++k) {
      const u32* id = running[k]->cluster().ctas[0].id;
      text += (k ? "; block (" : ": block (") + std::to_string(id[0]) + "," +
              std::to_string(id[1]) + "," + std::to_string(id[2]) + "): " + running[k]->where();
    }
    if (running.size() > kShown)
      text += "; and " + std::to_string(running.size() - kShown) + " blocks more";
    if (next_ < total_)
      text += "; " + std::to_string((total_ - next_) * cluster_) + " blocks have not been started";
    Resident& r = *running.front();
    Warp* first = &r.warps().front();
    for (Warp& w : r.warps()) {
      if (first->done && !w.done) first = &w;
    }
    Fault fault;
    fault.kind = FaultKind::kDeadlock;
    fault.lane = __builtin_ctz(first->mask | 1u << 31);
    stop(fault, *first, std::move(text));
  }

  // Runs the warps of a cluster in turn until all are done, or one has used up its slice.
  Turn take_turns(Resident& r) {
    bool spinning = false;
    int slices = 0;
    std::vector<u32> order(r.warps().size());
    std::iota(order.begin(), order.end(), 0u);
    // Warps that spin around a barrier together never use up a slice each.
    u64 left = launch_.find_deadlock ? kSlice / 16 : kSlice;
    while (!r.cluster().done()) {
      bool progress = false;
      bool useful = false;
      if (launch_.seed) std::shuffle(order.begin(), order.end(), *random_);
      for (const u32 index : order) {
        Warp& w = r.warps()[index];
        if (w.done || parked(w)) continue;
        const u64 before = w.instructions;
        w.looked = false;
        const u32 polls = w.polls;
        w.budget = before + (launch_.seed ? (*random_)() % 1024 : kSlice);
        const Status status = w.sample || launch_.counting ? isa_.run_counting(w) : isa_.run(w);
        const bool moved = w.instructions != before || w.done;
        progress |= moved;
        useful |= moved && !((w.looked || w.parked) && w.instructions - before < kVainLook &&
                             w.polls == polls);
        left -= std::min(left, launch_.find_deadlock ? w.instructions - before
                               : w.polls != polls    ? kPollCost
                                                     : 0);
        if (w.done) {
          ++w.cta->warps_done;
          if (!r.cluster().stores.empty()) finish_stores(w);
          if (launch_.checks) end_checks(w);
        }
        // Nobody waits without looking at memory in order; but what is long lets others run, too.
        if (status == Status::kYield && !w.looked)
          spinning |= launch_.seed || w.polls != polls || ++slices >= kLongSlices;
        if (status == Status::kFault) {
          stop(w.fault, w, "");
          return Turn::kFault;
        }
        if (stop_) return Turn::kFault;
      }
      r.idle = useful ? 0 : r.idle + 1;
      if (!progress && wait_in_vain(r)) progress = true;
      if (!progress || r.idle > kIdleRounds) return stop_at_barriers(r);
      if (spinning || left == 0) return Turn::kSpinning;
    }
    return Turn::kDone;
  }

  // Nobody can go on: waits for an mbarrier end as if their time were over. False when there are
  // none.
  static bool wait_in_vain(Resident& r) {
    bool any = false;
    for (Warp& w : r.warps()) {
      if (w.done || !w.parked) continue;
      w.gave_up = true;
      any = true;
    }
    return any;
  }

  Turn stop_at_barriers(Resident& r) {
    for (const Warp& w : r.warps()) {
      if (w.done) continue;
      Fault fault;
      fault.kind = FaultKind::kDeadlock;
      stop(fault, w,
           "deadlock: every remaining warp of the block waits at a barrier that cannot open: " +
               r.where());
      break;
    }
    return Turn::kFault;
  }

  void stop(const Fault& fault, const Warp& w, std::string waits) {
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    report_ = {fault, {w.cta->id[0], w.cta->id[1], w.cta->id[2]}, w.index, w.pc, std::move(waits)};
    stop_ = true;
  }

  const LaunchState& launch_;
  const Isa& isa_;
  u32 multiprocessors_;
  u32 grid_id_;
  u32 cluster_;  // blocks of one
  u64 total_;    // clusters
  u32 most_running_;
  std::atomic<u64> next_{0};
  std::atomic<u64> limit_{0};  // of those that are started, as far as is known
  std::atomic<u64> instructions_{0};
  std::atomic<u64> cpu_ns_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  Counters counters_;
  LiveBlocks live_;  // with those that are looked at for the model of time
  std::vector<BlockSample> samples_;
  FaultReport report_ = {};
  std::unique_ptr<std::mt19937_64> random_;  // of a seed: there is one host thread then
  u64 stride_ = 1;
  u64 offset_ = 0;
  Clock::time_point deadline_;
  std::atomic<int> working_{0};  // host threads
  std::atomic<int> stuck_{0};    // of those, the ones whose CTAs all stand still
  std::atomic<int> agreed_{0};   // turns in a row that all of them were
};

}  // namespace

void grow_copies(Warp& w) {
  const u32 capacity = w.copy_capacity ? 2 * w.copy_capacity : 64;
  auto* ring = static_cast<AsyncCopy*>(std::malloc(capacity * sizeof(AsyncCopy)));
  if (!ring) std::abort();
  for (u32 k = 0; k < w.copy_count; ++k)
    ring[k] = w.copies[(w.copy_head + k) & (w.copy_capacity - 1)];
  std::free(w.copies);
  w.copies = ring;
  w.copy_capacity = capacity;
  w.copy_head = 0;
}

void grow_wgmmas(WgmmaQueue& q) {
  const u32 capacity = q.capacity ? 2 * q.capacity : 16;
  auto* ring = static_cast<WgmmaIssue*>(std::malloc(capacity * sizeof(WgmmaIssue)));
  if (!ring) std::abort();
  for (u64 n = q.waited; n < q.issued; ++n) ring[n & (capacity - 1)] = q.at(n);
  std::free(q.ring);
  q.ring = ring;
  q.capacity = capacity;
}

GridResult run_grid(const LaunchState& launch, const Isa& isa, int threads, u32 multiprocessors,
                    u32 grid_id) {
  Grid grid(launch, isa, multiprocessors, grid_id);
  const u64 wanted = std::min<u64>(grid.total(), static_cast<u64>(threads));
  if (wanted <= 1) {
    grid.work();
  } else {
    run_on_threads(static_cast<int>(wanted), [&] { grid.work(); });
  }
  return grid.result();
}

}  // namespace vgpu
