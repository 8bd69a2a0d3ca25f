// What some blocks of a launch did, in as much detail as the model of its time wants
// (core/timing.h).
#pragma once

#include <vector>

#include "exec/counters.h"
#include "exec/types.h"

namespace vgpu {

struct Program;

inline constexpr u64 kSectorBytes = 32;

// A set of sectors of global memory, each by its address over 32.
class Sectors {
 public:
  void add(const u64* numbers, int count);
  // In order, each once.
  const std::vector<u64>& sorted();

 private:
  std::vector<u64> numbers_;
  size_t limit_ = 1 << 16;  // then duplicates are thrown out
};

struct BlockSample {
  u64 block = 0;      // its place in the grid
  Counters counters;  // but for loops that wait
  Counters waiting;   // those
  Sectors read, written;
};

// Finds the loops that only look at memory until another block has written it. How often they run
// depends on the host's threads: they are left out, so that equal launches have equal samples.
// Marks the looks at mbarriers that a loop repeats, too.
void mark_waits(Program& program);

}  // namespace vgpu
