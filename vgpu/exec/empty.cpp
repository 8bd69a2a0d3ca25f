#include "exec/empty.h"

#include <xmmintrin.h>

#include <algorithm>
#include <numeric>

#include "exec/call_stack.h"
#include "exec/cluster.h"
#include "exec/resident.h"

namespace vgpu {
namespace {

// Instructions of a warp, after which its block is not empty. A block of grouped products looks its
// tile up in about 100 for 32 groups (templates/include/boltgen/grouped_gemm.h).
constexpr u64 kSoon = 1024;

// Runs one cluster up to what others could see.
class Trial {
 public:
  Trial(const LaunchState& launch, const Isa& isa, u32 multiprocessors, u32 grid_id)
      : isa_(isa), resident_(launch, multiprocessors, grid_id) {}

  // Counts what the cluster does; of no meaning where it is not empty.
  bool is_empty(u64 number) {
    counters = {};
    instructions = 0;
    resident_.start(number);
    resident_.count_into(counters, {});
    acted_ = false;
    for (Warp& w : resident_.warps()) {
      w.acted = &acted_;
      w.budget = w.instructions + kSoon;
      instructions -= w.instructions;
    }
    while (!resident_.cluster().done()) {
      bool progress = false;
      for (Warp& w : resident_.warps()) {
        if (w.done || parked(w)) continue;
        const u64 before = w.instructions;
        const Status status = isa_.run_counting(w);
        // One that yields waits for another block, or has taken long.
        if (acted_ || status == Status::kFault || status == Status::kYield) return false;
        if (w.done) ++w.cta->warps_done;
        progress |= w.done || w.instructions != before;
      }
      if (!progress) return false;
    }
    for (const Warp& w : resident_.warps()) instructions += w.instructions;
    return true;
  }

  Counters counters;
  u64 instructions = 0;

 private:
  const Isa& isa_;
  Resident resident_;
  bool acted_ = false;
};

// `count` of `total` blocks, evenly, the first and the last among them.
std::vector<u64> spread(u64 count, u64 total) {
  std::vector<u64> blocks;
  for (u64 k = 0; k < count; ++k) blocks.push_back(k * (total - 1) / std::max<u64>(count - 1, 1));
  return blocks;
}

}  // namespace

LiveBlocks live_blocks(const LaunchState& launch, const Isa& isa, u32 multiprocessors, u32 grid_id,
                       u64 total) {
  const std::vector<u64> wanted = spread(std::min<u64>(launch.samples, total), total);
  LiveBlocks all;
  all.count = total;
  all.sampled = wanted;
  if (wanted.size() < 2) return all;
  const u32 callers = _mm_getcsr();  // which a program may have set
  _mm_setcsr(0x1f80);
  LaunchState unchecked = launch;
  unchecked.program = launch.unchecked;
  unchecked.code = launch.unchecked->code.data();
  unchecked.checks = nullptr;
  unchecked.local_bytes = local_bytes_of(unchecked);
  Trial trial(unchecked, isa, multiprocessors, grid_id);
  // A walk around the grid, whose stride is the golden section of it and has no common divisor with
  // it, is even over any number of its rows.
  const u64 tried = std::min(kTried, total);
  u64 stride = static_cast<u64>(0.618033988749895 * static_cast<double>(total));
  while (std::gcd(stride, total) != 1) ++stride;
  std::vector<u64> live;
  LiveBlocks found;
  for (u64 k = 0; k < tried; ++k) {
    const u64 number = static_cast<u64>(static_cast<u128>(k) * stride % total);
    if (!trial.is_empty(number)) {
      live.push_back(number);
      continue;
    }
    found.empty.add(trial.counters);
    found.instructions += trial.instructions;
  }
  const u64 seen = live.size();
  if (tried < total) {
    for (const u64 number : wanted) {
      if (!trial.is_empty(number)) live.push_back(number);
    }
  }
  _mm_setcsr(callers);
  if (!seen) return all;
  std::sort(live.begin(), live.end());
  for (const u64 number : wanted) {  // or the one before it that is not empty
    const auto after = std::upper_bound(live.begin(), live.end(), number);
    found.sampled.push_back(after == live.begin() ? live.front() : *(after - 1));
  }
  found.sampled.erase(std::unique(found.sampled.begin(), found.sampled.end()), found.sampled.end());
  found.count = std::max<u64>((total * seen + tried / 2) / tried, found.sampled.size());
  found.empty.scale(total, tried);
  found.instructions = found.instructions * total / tried;
  return found;
}

}  // namespace vgpu
