// Basic blocks of a function, and the registers of asynchronous products on its paths.
#pragma once

#include "ptx/builder.h"

namespace vgpu::ptx {

struct Block {
  int first = 0;
  int last = 0;  // inclusive
  std::vector<int> next;
  std::vector<int> previous;
};

struct Graph {
  std::vector<Block> blocks;
  std::vector<int> block_of;  // by instruction
};

// Targets of branches must be known.
Graph build_graph(const std::vector<Draft>& code);

// On some path a wgmma that was not waited for reads or writes these registers.
struct InFlight {
  struct Span {
    int slot;
    int first, last;  // instructions
  };
  std::vector<Span> spans;
  // Instructions that touch such a register, in a way that needs a wait.
  std::vector<int> touching;
};
InFlight find_in_flight(const std::vector<Draft>& code);

}  // namespace vgpu::ptx
