// racecheck between kernels: a launch with programmatic stream serialization may start before the
// kernel ahead of it has ended, so it waits (griddepcontrol.wait) before it touches global memory.
//
// The wait makes the writes of earlier kernels visible to the whole grid (PTX ISA). So a thread may
// also rely on the wait of another thread of its block, if a barrier orders it behind that:
// CUTLASS's kernels wait in the warps that load, and store behind an mbarrier.
#include "exec/watch.h"

namespace vgpu::watch {
namespace {

bool has_waited(Warp& w, int lane) {
  WarpCheck& c = *w.check;
  if (c.waited >> lane & 1) return true;
  for (const u32 wait : w.cta->check->waits) {
    const bool behind = number_in(wait) == c.number ? c.waited && c.lane_epoch[lane] > c.wait_epoch
                                                    : !unordered(w, wait);
    if (!behind) continue;
    c.waited |= 1u << lane;
    return true;
  }
  return false;
}

constexpr char kRemedy[] =
    "; execute griddepcontrol.wait (cudaGridDependencySynchronize) first, or launch without "
    "programmatic stream serialization";

}  // namespace

void early_access(Warp& w, u64 address, u32 bytes, bool write, int lane) {
  if (!w.launch->early_start || has_waited(w, lane)) return;
  if (fits(address, bytes, reinterpret_cast<u64>(w.launch->params), w.launch->param_bytes)) return;
  report_race(w, {Place::kGlobal, address}, bytes, lane, "access before griddepcontrol.wait",
              std::string(write ? "writes " : "reads ") + std::to_string(bytes) +
                  " bytes that the kernel before it may still " + (write ? "use" : "be writing") +
                  kRemedy);
}

Status waits(Warp& w, const Ins& i, u32 mask) {
  WarpCheck& c = *w.check;
  const u32 me = c.number;
  if (!c.waited) {
    c.wait_epoch = *std::max_element(c.lane_epoch, c.lane_epoch + kWarpSize);
    w.cta->check->waits.push_back(epoch_of(c.clock[me], me));
  }
  c.waited |= mask;
  return i.watch->op(w, i, mask);
}

void end_early_start(Warp& w) {
  if (!w.launch->early_start || !w.cta->check->waits.empty()) return;
  Sighting s = {kRacecheck, "no griddepcontrol.wait",
                std::string("the block ends without a wait for the kernel before it, so a kernel "
                            "behind it cannot know that both have ended") +
                    kRemedy};
  w.launch->checks->report(w, s, 0);
}

}  // namespace vgpu::watch
