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

Saved saved_of(Warp& w) {
  const Program& p = *w.launch->program;
  const u32 bytes = p.register_bytes - p.constant_end;
  Saved saved = {{{w.registers + p.constant_end, bytes}, {}, {}}, 1, 0};
  u32 total = bytes;
  if (w.check && w.launch->checks->has(kInitcheck)) {
    saved.regions[1] = {w.registers + w.check->shadow + p.constant_end, bytes};
    saved.regions[2] = {reinterpret_cast<u8*>(w.check->slots),
                        p.watched_slots * static_cast<u32>(sizeof(SlotShadow))};
    saved.count = 3;
    total += bytes + saved.regions[2].bytes;
  }
  saved.each = ((total + kWarpSize - 1) / kWarpSize + 15) / 16 * 16;
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

bool save_registers(Warp& warp, u32 level, u64 frames_end) {
  const Saved saved = saved_of(warp);
  if (frames_end + (level + 1ull) * saved.each > warp.local_bytes) return false;
  move_registers(warp, saved, level, false);
  return true;
}

void restore_registers(Warp& warp, u32 level) { move_registers(warp, saved_of(warp), level, true); }

}  // namespace vgpu
