#include "exec/call_stack.h"

#include <algorithm>
#include <cstring>

#include "exec/check.h"

namespace vgpu {
namespace {

struct Region {
  u8* at;
  u32 bytes;
};
struct Saved {
  Region regions[3];
  int count;
  u32 each;  // of a lane
};

// Where a frame begins is a multiple of this, and no call takes less.
constexpr u32 kFrameAlignment = 16;
// Of a thread. Only a stack of many times the default needs more.
constexpr u64 kMostRoom = 1 << 20;

u32 align_up(u32 bytes) {
  return (bytes + kFrameAlignment - 1) / kFrameAlignment * kFrameAlignment;
}

u64 saved_bytes(const LaunchState& launch) {
  const Program& p = *launch.program;
  const u64 registers = p.register_bytes - p.constant_end;
  if (!launch.checks || !launch.checks->has(kInitcheck)) return registers;
  return 2 * registers + p.watched_slots * sizeof(SlotShadow);
}

// What a lane keeps of them.
u32 saved_by_each(const LaunchState& launch) {
  return align_up(static_cast<u32>((saved_bytes(launch) + kWarpSize - 1) / kWarpSize));
}

Saved saved_of(Warp& w) {
  const Program& p = *w.launch->program;
  const u32 bytes = p.register_bytes - p.constant_end;
  Saved saved = {{{w.registers + p.constant_end, bytes}, {}, {}}, 1, saved_by_each(*w.launch)};
  if (w.check && w.launch->checks->has(kInitcheck)) {
    saved.regions[1] = {w.registers + w.check->shadow + p.constant_end, bytes};
    saved.regions[2] = {reinterpret_cast<u8*>(w.check->slots),
                        p.watched_slots * static_cast<u32>(sizeof(SlotShadow))};
    saved.count = 3;
  }
  return saved;
}

void move_registers(Warp& w, const Saved& saved, u32 level, bool restore) {
  const u32 first = w.local_bytes - (level + 1) * saved.each;
  u32 lane = 0;
  u32 at = 0;
  for (int r = 0; r < saved.count; ++r) {
    for (u32 done = 0; done < saved.regions[r].bytes;) {
      const u32 left = saved.regions[r].bytes - done;
      const u32 n = std::min(left, saved.each - at);
      u8* kept = w.local + lane * w.local_bytes + first + at;
      u8* live = saved.regions[r].at + done;
      std::memcpy(restore ? live : kept, restore ? kept : live, n);
      done += n;
      at += n;
      if (at == saved.each) {
        at = 0;
        ++lane;
      }
    }
  }
}

}  // namespace

u32 most_calls(const LaunchState& launch) {
  return launch.program->calls ? launch.stack_bytes / kFrameAlignment : 0;
}

u32 local_bytes_of(const LaunchState& launch) {
  const u32 own = launch.program->local_bytes;
  const u64 calls = most_calls(launch);
  if (!calls) return own;
  const u64 room = launch.stack_bytes + calls * saved_by_each(launch);
  return own + align_up(static_cast<u32>(std::min(room, kMostRoom)));
}

bool fits_stack(const LaunchState& launch, u64 frames_end, u32 calls, u64* bytes) {
  *bytes = std::max<u64>(frames_end - launch.program->local_bytes,
                         static_cast<u64>(calls) * kFrameAlignment);
  return *bytes <= launch.stack_bytes;
}

bool save_registers(Warp& warp, u32 level, u64 frames_end) {
  const Saved saved = saved_of(warp);
  if (frames_end + (level + 1ull) * saved.each > warp.local_bytes) return false;
  move_registers(warp, saved, level, false);
  return true;
}

void restore_registers(Warp& warp, u32 level) { move_registers(warp, saved_of(warp), level, true); }

}  // namespace vgpu
