// Behind the handles of graphs and nodes; for graph*.cpp. Guarded by capture_mutex().
#pragma once

#include <memory>

#include "core/graph.h"

namespace vgpu {

struct HeldGraph {  // what a handle stands for
  std::shared_ptr<Graph> graph;
  bool executable;
  unsigned long long flags;
};
// A node of a graph that is not executable.
struct NodePlace {
  std::shared_ptr<Graph> graph;
  size_t index = 0;
  Graph::Node& node() const { return graph->nodes[index]; }
};

Handle hold(HeldGraph graph);
// Each fails with a message where the handle is none.
Code find_held(Handle handle, bool executable, HeldGraph** out);
Code find_graph(Handle handle, std::shared_ptr<Graph>* out);
Code find_node(Handle handle, NodePlace* out);
// Work can only take the place of work of the same kind.
Code same_kind(const Graph::Node& node, const Work& work);

// Numbers of the nodes that have not been destroyed.
std::vector<size_t> alive(const Graph& graph);

enum class CopyFor { kClone, kExecutable };
std::shared_ptr<Graph> copy_of(const Graph& graph, CopyFor purpose);

}  // namespace vgpu
