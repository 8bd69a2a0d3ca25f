// What the checks keep beside the state of a launch, and the wrappers that keep it.
//
// A check is on for a kernel when its instructions point to a Watch: then Ins::fn is a wrapper from
// watch.cpp, which looks at the operands and runs the operation. With no check on there is no Watch
// and no wrapper, so checks cost nothing when they are off.
//
// initcheck follows values, as valgrind does: a register or a byte of memory is undefined until it
// is written, copying it moves that along, and only a use that decides something is reported: an
// address, a branch or guard, or a result that the host copies. So padding may be copied, and
// CUTLASS may multiply the rows beyond the end of a matrix that it never stores.
//
// racecheck gives every access a time of its warp (vector clocks): two accesses of one place, one
// of them a write, must be ordered by barriers.
#pragma once

#include <algorithm>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "exec/warp.h"

namespace vgpu {

struct BulkCopy;

enum Check : u32 { kMemcheck = 1, kInitcheck = 2, kRacecheck = 4, kSynccheck = 8, kDeadlock = 16 };
inline constexpr u32 kAllChecks = 31;
// These need wrappers; the others look at what is there anyway.
inline constexpr u32 kWatching = kInitcheck | kRacecheck | kSynccheck;

const char* name_of(Place place);

// Which lanes of a slot hold something undefined. What exactly is in the shadow register, which is
// zero for all other lanes.
struct SlotShadow {
  u32 undefined;
  u32 computed;  // of those: results of arithmetic, not mere copies
  u32 origin;
};

// Where an undefined value came from: the first read of it.
struct Origin {
  s32 pc;
  u32 block[3];
  u32 thread;
  Place place;  // kNone: a register
  u64 address;
  u32 bytes;
  u8 inherited = 0;  // number of the origin that an earlier launch has left with these bytes
};

// Who touched a byte last, among the lanes of a warp.
struct LaneAccess {
  u32 epoch;   // of the lane (WarpCheck::lane_epoch); 0: nobody
  u32 serial;  // of the warp's access: lanes of one instruction
  u16 lane;    // kManyLanes: several did
  u16 warp;
};
inline constexpr u16 kManyLanes = 0xffff;

// Who does something in a cluster is told by a number: its warps from 0 on; then its warpgroups,
// which stand for what wgmma reads; then its mbarriers, for the bulk copies that complete at them.
inline constexpr u32 kNumberBits = 10;
inline constexpr u32 kNumbers = 1u << kNumberBits;
inline constexpr u32 kPendingCopy = 1u << 31;                          // in SharedCell::write
inline constexpr u32 kLatestTime = (kPendingCopy >> kNumberBits) - 1;  // clocks stop there

// A time of one of them: what a cell remembers.
inline u32 epoch_of(u32 time, u32 number) { return time << kNumberBits | number; }
inline u32 number_in(u32 epoch) { return epoch & (kNumbers - 1); }
inline u32 time_in(u32 epoch) { return (epoch & ~kPendingCopy) >> kNumberBits; }

// Up to when somebody has seen each of them.
class Clock {
 public:
  u32 operator[](u32 number) const { return number < times_.size() ? times_[number] : 0; }
  void reset(size_t count, u32 time) { times_.assign(count, time); }
  void join(const Clock& other) {
    if (times_.size() < other.times_.size()) times_.resize(other.times_.size());
    for (size_t k = 0; k < other.times_.size(); ++k)
      times_[k] = std::max(times_[k], other.times_[k]);
  }
  void see(u32 number, u32 time) {
    if (times_.size() <= number) times_.resize(number + 1);
    times_[number] = std::max(times_[number], time);
  }
  void tick(u32 number) { see(number, std::min((*this)[number] + 1, kLatestTime)); }
  u32 latest() const {
    return times_.empty() ? 0 : *std::max_element(times_.begin(), times_.end());
  }

 private:
  std::vector<u32> times_;
};

struct SharedCell {  // one byte of shared memory: epochs
  u32 write;
  u32 read[2];
  LaneAccess last_write, last_read;
  u16 reading;  // wgmmas under way, one for each warp, and bulk copies
  bool stored;  // the last write was a store: of the generic proxy
};

// What arrives at an mbarrier is seen by who waits for the phase that it completes.
struct MbarrierCheck {
  u32 number;
  u32 parity;  // of the phase that `arriving` belongs to
  u32 made;    // epoch of its initialisation
  Clock arriving;
  Clock opened[2];  // by the parity of the phase
};

// Of all CTAs of a cluster.
struct ClusterCheck {
  std::unordered_map<u32, MbarrierCheck> mbarriers;  // by their address in the cluster's window
  std::vector<u32> places;                           // those addresses, by number
  u32 first_place;                                   // number of the first mbarrier
  u32 start;                                         // the time at which the cluster started
  Clock copies;                                      // times of the mbarriers
  Clock proxy;  // up to when stores of a warp are visible to the async proxy
  Clock made;   // and its mbarriers, to that proxy and to the other CTAs
  // barrier.cluster
  u32 generation;
  Clock arriving;
  Clock opened[2];  // by the parity of the generation
};

struct WarpCheck {
  SlotShadow* slots;
  u32 shadow;         // from a register to its shadow, bytes
  u8* local_written;  // like Warp::local
  u32 number;         // of the warp in its cluster
  Clock clock;
  // Two lanes of the warp are ordered when __syncwarp or a barrier came between: then the epoch of
  // the second one is later.
  u32 lane_epoch[kWarpSize];
  u32 serial;
  // Of wgmma: whether the first one was fenced, and the registers, by their offset over 128, that
  // something else has written since the last wgmma.fence.
  bool fenced;
  std::vector<bool> written;
  u64 wgmmas_over;  // of a warpgroup's first warp: those that some warp has waited for
  // The phase that a wait last returned false for at its first look, and how often in a row waits
  // have.
  u32 early_at;
  u32 early_parity;
  u32 early_run;
  // Of griddepcontrol.wait: lanes that have waited, or come after one that has; and the warp's
  // latest lane_epoch when its first lane waited.
  u32 waited;
  u32 wait_epoch;
};

struct CtaCheck {
  u8* shared_written;
  SharedCell* cells;
  struct BarrierClock {
    Clock arriving;
    Clock opened[2];  // by generation parity
  } barriers[16];
  Clock strong;            // what strong accesses to shared memory have ordered
  std::vector<u32> waits;  // epochs of griddepcontrol.wait, one for each warp
  ClusterCheck* cluster;
  // Between blocks: the times of this block, and up to when it has seen others.
  u32 block;
  u32 clock;
  u32 fenced;
  std::unordered_map<u32, u32> seen;
};

// What a check saw, before it is put into words.
struct Sighting {
  Check check;
  const char* kind;
  std::string text;
  Place place = Place::kNone;
  u64 address = 0;
  u32 bytes = 0;
  s32 pc = 0;
  s32 origin = -1;              // where the undefined value was first read
  const char* cause = nullptr;  // one mistake that many instructions meet; null: this one's own
  u32 block[3] = {};
  u32 thread = 0;
};

// One launch under checks.
class CheckRun {
 public:
  CheckRun(u32 set, u16 launch, std::function<void(const Sighting&)> report,
           std::function<u8(const Origin&)> remember)
      : set(set), launch(launch), report_(std::move(report)), remember_(std::move(remember)) {}

  bool has(Check c) const { return set & c; }
  // Reports each instruction and kind once.
  void report(const Warp& w, Sighting s, int lane);
  // The number of an origin, 1 to 254; one for each instruction. 255 when there are too many.
  u32 origin(const Warp& w, Place place, u64 address, u32 bytes, int lane, u8 inherited = 0);
  Origin origin_at(u32 number);
  // A number that outlives the launch, for bytes of global memory: 2 to 255.
  u8 lasting(u32 origin);

  const u32 set;
  const u16 launch;  // tells this launch's accesses from older ones

  // What strong accesses to a place in global memory have made visible: times of blocks.
  std::unordered_map<u64, std::unordered_map<u32, u32>> released;

 private:
  std::mutex mutex_;
  std::function<void(const Sighting&)> report_;
  std::function<u8(const Origin&)> remember_;
  std::vector<std::pair<const char*, s32>> reported_;
  std::vector<Origin> origins_;
  std::unordered_map<s32, u32> by_pc_;
};

// The wrappers, by what they watch.
namespace watch {
Status values(Warp&, const Ins&, u32);         // each lane of a result depends on its own sources
Status move(Warp&, const Ins&, u32);           // bits of the sources are rearranged
Status bits(Warp&, const Ins&, u32);           // and, or, xor, not
Status predicates(Warp&, const Ins&, u32);     // and.pred, or.pred
Status exchange(Warp&, const Ins&, u32);       // votes and reductions over lanes
Status collective(Warp&, const Ins&, u32);     // those and shuffles, with their member masks
Status matrix(Warp&, const Ins&, u32);         // mma
Status sparse_matrix(Warp&, const Ins&, u32);  // mma.sp
Status guard(Warp&, const Ins&, u32);          // before a conditional branch
Status access(Warp&, const Ins&, u32);         // loads, stores and atomics
Status matrix_load(Warp&, const Ins&, u32);
Status async_copy(Warp&, const Ins&, u32);
Status async_wait(Warp&, const Ins&, u32);
Status barrier(Warp&, const Ins&, u32);
Status lanes(Warp&, const Ins&, u32);     // __syncwarp
Status together(Warp&, const Ins&, u32);  // before the parts of stmatrix
Status operands(Warp&, const Ins&, u32);  // none may be undefined
Status fence(Warp&, const Ins&, u32);
Status waits(Warp&, const Ins&, u32);  // for the kernels before this one
Status wgmma(Warp&, const Ins&, u32);
Status wgmma_fence(Warp&, const Ins&, u32);
Status wgmma_wait(Warp&, const Ins&, u32);
Status registers(Warp&, const Ins&, u32);  // before those of a wgmma are read or written

// What the asynchronous operations tell the checks themselves.
void publish_mbarriers(Warp& w, MadeVisible made);
void finish_copy(Warp& w, const AsyncCopy& copy);  // when it has been waited for
void bulk_issued(Warp& w, BulkCopy& copy);
void bulk_landed(Warp& w, const BulkCopy& copy);
void bulk_never_waited_for(Warp& w, const BulkCopy& copy);
}  // namespace watch

// At the start of a cluster, and when a warp has ended.
void start_checks(Cluster& cluster, u32 shared_bytes);
void end_checks(Warp& w);

}  // namespace vgpu
