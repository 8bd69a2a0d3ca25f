// wgmma: products that four consecutive warps, a warpgroup, make together. Plain data: the same for
// every instruction set.
//
// A warp that issues one only notes it. It is performed when a warp waits for it (or at once, with
// copies=eager), for all four warps together, for they share B.
#pragma once

#include "exec/types.h"

namespace vgpu {

struct Ins;
struct Warp;

inline constexpr u32 kWarpsOfGroup = 4;
inline constexpr u32 kRowsOfWarp = 16;  // of A and of the sums
inline constexpr u32 kStepBytes = 32;   // of a row of A, stored
inline constexpr u32 kChunkBytes = 16;  // of a row of a core matrix, which has 8 rows
inline constexpr u32 kMostColumns = 256;

// One form of the instruction, told by its name and its immediates.
struct WgmmaForm {
  enum class Element : u8 { kF16, kBf16, kTf32, kE4m3, kE5m2, kS8, kU8, kB1 };
  enum class Sum : u8 { kF32, kF16, kS32, kClamped };  // kClamped: s32 with .satfinite

  Element a, b;
  Sum sum;
  u32 columns;          // N
  bool a_in_registers;  // four of each thread; else a descriptor
  bool sparse;
  u8 selector;        // of the threads that hold the metadata
  bool a_by_columns;  // M runs fastest in memory: "MN-major"
  bool b_by_rows;     // N does
  bool negated;       // A or B, not both

  bool operator==(const WgmmaForm&) const = default;

  u32 sums() const { return columns / (sum == Sum::kF16 ? 4 : 2); }  // registers of a thread
  // Operands: sums, the same again as sources, A, B, metadata, scale-d.
  u32 a_operand() const { return 2 * sums(); }
  u32 a_registers() const { return a_in_registers ? 4 : 0; }
  u32 b_operand() const { return a_operand() + (a_in_registers ? 4 : 1); }
  u32 metadata_operand() const { return b_operand() + 1; }
  u32 scale_operand() const { return b_operand() + (sparse ? 2 : 1); }
  u32 b_chunks() const { return sparse ? 4 : 2; }  // along K, 16 bytes each
};

// One instruction that a warp has issued and not yet waited for.
struct WgmmaIssue {
  const Ins* ins;
  u64 a, b;   // descriptors
  u32 group;  // as counted by the warp
  s32 pc;
  bool accumulate;  // scale-d
};

// Those of a warp: a ring, in the order of issue. Numbers count from the block's start.
struct WgmmaQueue {
  WgmmaIssue* ring;
  u32 capacity;  // a power of two
  u32 group;     // wgmmas issued now belong to this one
  u64 issued;
  u64 performed;
  u64 waited;  // for all before

  WgmmaIssue& at(u64 number) const { return ring[number & (capacity - 1)]; }
};

// Makes room for one more (rare: the ring grows by doubling).
void grow_wgmmas(WgmmaQueue& queue);

}  // namespace vgpu
