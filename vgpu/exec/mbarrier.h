// mbarriers: 64-bit words of shared memory. NVIDIA does not document their bits; ours are, from the
// highest: the parity of the phase under way, a mark (2 bits), the arrivals that a phase expects
// (20), those still missing (20), and the bytes still missing (21, signed).
#pragma once

#include <string>

#include "exec/cluster.h"

namespace vgpu {

struct Mbarrier {
  u32 parity;
  u32 expected;
  u32 missing;
  s32 bytes;
};
inline constexpr u32 kMostArrivals = (1u << 20) - 1;
inline constexpr s32 kMostTransactions = (1 << 20) - 1;

bool unpack(u64 word, Mbarrier* out);  // false: it is no mbarrier
u64 pack(const Mbarrier& b);
// The one at an offset of a CTA's shared memory.
bool load(const Cta& cta, u32 at, Mbarrier* out);

// A change to the mbarrier at an offset of a CTA's shared memory, by a lane of `w`; it completes
// the phase when nothing is missing any more. False after recording a fault.
struct Change {
  u32 arrivals = 0;
  s32 bytes = 0;
  u32 dropped = 0;        // of later phases
  u32 joined = 0;         // arrivals that this phase expects beyond its own
  bool completes = true;  // .noComplete must not
};
bool change(Warp& w, Cta& cta, u32 at, const Change& c, int lane, u64* before);

// A fault with a message of its own: kept for the thread that runs the warp.
__attribute__((format(printf, 3, 4))) Status refuse(Warp& w, int lane, const char* format, ...);

// Of a warp that waits: what the mbarrier is still missing, for people.
std::string describe_wait(const Warp& w);

}  // namespace vgpu
