#include "core/timeline.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <limits>
#include <mutex>

#include "core/timing.h"

namespace vgpu {
namespace {

// CUDA C++ Programming Guide, technical specifications: resident grids of a device.
constexpr size_t kGridsAtOnce = 128;

struct Running {
  u64 begin, end;
  double share;
};

struct State {
  std::mutex mutex;
  u64 host = 0;
  u64 legacy = 0;    // end of the legacy default stream's work
  u64 blocking = 0;  // of all streams that it waits for
  u64 last = 0;
  std::atomic<bool> wanted{false};
  std::deque<Running> running;  // the latest, as they were issued
};
State& state() {
  static State* const s = new State;
  return *s;
}

thread_local u64 work = 0;
thread_local int graphs = 0;

}  // namespace

void want_times() { state().wanted = true; }
bool times_are_wanted() { return state().wanted; }

u64 ready_ns(const Stream& stream, bool legacy) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  u64 at = std::max(stream.end_ns, s.host);
  if (legacy) return std::max(at, s.blocking);
  return stream.flags & kNonBlocking ? at : std::max(at, s.legacy);
}

void finish_at(Stream& stream, bool legacy, u64 ns) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  stream.end_ns = ns;
  s.last = std::max(s.last, ns);
  if (legacy) {
    s.legacy = std::max(s.legacy, ns);
  } else if (!(stream.flags & kNonBlocking)) {
    s.blocking = std::max(s.blocking, ns);
  }
}

void host_reaches(u64 ns) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.host = std::max(s.host, ns);
}

u64 last_ns() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.last;
}

u64& work_ns() { return work; }

void pass_ns(u64 ns, double share) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  constexpr double kAll = 1 + 1e-9;
  for (;;) {
    double used = share;
    u64 next = std::numeric_limits<u64>::max();
    for (const Running& r : s.running) {
      if (work < r.begin || work >= r.end) continue;
      used += r.share;
      next = std::min(next, r.end);
    }
    if (used <= kAll || next == std::numeric_limits<u64>::max()) break;
    work = next;
  }
  if (share > 0) s.running.push_back({work, work + ns, share});
  if (s.running.size() > kGridsAtOnce) s.running.pop_front();
  work += ns;
}

InGraph::InGraph() { ++graphs; }
InGraph::~InGraph() { --graphs; }
u64 launch_gap_ns() { return graphs ? kNodeNs : kLaunchNs; }

}  // namespace vgpu
