// Graphs that run under a condition (conditional nodes): if, while and switch. A condition is a
// word of device memory, whose address is the handle that kernels pass to cudaGraphSetConditional.
#pragma once

#include "core/graph_handles.h"

namespace vgpu {

struct Condition {
  u32* word = nullptr;
  u32 initial = 0;
  bool assigned = false;  // `initial` at every launch of the graph
  ~Condition();
};

struct Conditional {
  std::shared_ptr<Condition> condition;
  int type = 0;
  std::vector<std::shared_ptr<Graph>> bodies;
  std::vector<Handle> handles;  // of the bodies, as programs ask for them

  // The body to run next, or null; `rounds` have been run already.
  const Graph* next(u64 rounds) const;
};

Code create_condition(Handle graph, unsigned initial, unsigned flags, unsigned long long* handle);
// A node's work with new, empty bodies, whose handles *bodies points to while the node lives.
Code conditional_work(unsigned long long condition, int type, unsigned size, Work* work,
                      Handle** bodies);
std::shared_ptr<Conditional> copy_of(const Conditional& from, CopyFor purpose);
// Whether all that the bodies hold may stand there.
Code check_bodies(const Conditional& conditional);
// Gives the conditions of a graph, and of all graphs in it, what they begin a launch with.
void assign_conditions(const Graph& graph);

}  // namespace vgpu
