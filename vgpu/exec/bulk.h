// Bulk copies, of the async proxy: what they are while under way, and how they land.
#pragma once

#include <algorithm>
#include <type_traits>

#include "exec/tensor_map.h"
#include "exec/warp.h"

namespace vgpu {

enum class Reduce : u8 { kNone, kAdd, kMin, kMax, kInc, kDec, kAnd, kOr, kXor };

enum class BoxMode : u8 { kTile, kIm2col, kIm2colNoOffsets };

// Where a box lies in its tensor: coordinates, and for im2col offsets of the filter's tap.
struct Box {
  TensorMap map;  // as it was when the copy was issued
  BoxMode mode;
  s32 coordinates[5];
  u16 offsets[3];
};

struct BulkCopy {
  enum class Kind : u8 { kLoad, kBetween, kStore, kValue };
  Kind kind;
  bool tensor;
  Reduce reduce;
  TensorType type;  // of reduce
  u32 bytes;
  Cta* cta;  // of the shared memory that is written, or read by a store
  u32 at;    // offset in it
  u64 global;
  Cta* source;  // of kBetween
  u32 source_at;
  u16 byte_mask;  // of each 16 bytes that a store writes
  u8 value[16];   // of kValue
  u8 marks[16];   // of initcheck: what is defined of the value
  Cta* barrier_cta;
  u32 barrier_at;
  u32 phase;  // parity of the mbarrier's phase in which the copy was issued
  Box box;
  Warp* issuer;
  s32 pc;
  int lane;
  u32 group;  // of the issuing thread's bulk groups
};

// cp.async.mbarrier.arrive: its lanes arrive when the warp's copies up to then have landed.
struct CopyArrival {
  Warp* warp;
  u32 copies;  // of the warp, as Warp::copies_issued counts them
  u32 lanes;
  Cta* cta;
  u32 at;
};

// One row of a box: bytes that lie side by side in both memories, but for the swizzle. Null where
// the tensor has nothing there.
struct BoxRow {
  u32 shared;  // from the start of the box, not swizzled
  u8* global;
  u32 bytes;
};
// Calls `each(context, row)` for all rows in order; false when `each` was.
using RowFn = bool (*)(void* context, const BoxRow& row);
bool walk_box(const Box& box, RowFn each, void* context);
// Bytes of a box that the mbarrier is told of, and bytes of shared memory that it spans.
u32 box_bytes(const Box& box);
u32 box_span(const Box& box);
// Where the swizzle puts the byte at an offset of shared memory.
inline u32 swizzled(u32 at, u32 swizzle) {
  return swizzle ? at ^ (at >> 3 & ((16u << swizzle) - 16)) : at;
}
// Calls f(offset in shared memory, offset in the row, bytes) for the pieces of a row that a swizzle
// leaves together: chunks of 16 bytes, mostly, whose number is a constant then.
template <class F>
void pieces_of(const BulkCopy& copy, const BoxRow& row, F f) {
  const u32 swizzle = copy.box.map.swizzle;
  u32 at = copy.at + row.shared;
  if (!swizzle) {
    f(at, 0, row.bytes);
    return;
  }
  for (u32 done = 0; done < row.bytes;) {
    // The same for 128 bytes.
    const u32 pattern = swizzled(at, swizzle) ^ at;
    const u32 end = std::min(row.bytes, done + 128 - (at & 127));
    while (done < end) {
      const u32 bytes = std::min(16 - (at & 15), end - done);
      bytes == 16 ? f(at ^ pattern, done, std::integral_constant<u32, 16>())
                  : f(at ^ pattern, done, bytes);
      at += bytes;
      done += bytes;
    }
  }
}

// Moves the bytes.
void land(const BulkCopy& copy);
// And tells the mbarrier of them. False after recording a fault of `w`.
bool complete(Warp& w, const BulkCopy& copy);
// Combines `count` values of a type, as a reduction does.
void combine(Reduce op, TensorType type, u8* to, const u8* from, u32 bytes);

// What completes at an mbarrier is done now, for a warp waits for it. False after a fault.
bool land_for(Warp& waiting, const Cta* cta, u32 at);
// Stores of these lanes, but for their last `leave` groups.
void land_stores(Warp& w, u32 lanes, u32 leave);
// What is left of them when a warp ends.
void finish_stores(Warp& w);

}  // namespace vgpu
