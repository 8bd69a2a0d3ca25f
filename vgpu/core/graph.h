// Graphs: nodes of work with dependencies, built by calls or by capturing streams, and their
// executable copies.
//
// A launch runs the nodes one by one, in an order that the dependencies allow: that of their
// making, or with the option `seed` a random one, which shows where a dependency is missing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/copy.h"
#include "core/error.h"
#include "core/launch.h"

namespace vgpu {

enum NodeKind {  // CUDA's numbers (cudaGraphNodeType)
  kKernelNode = 0,
  kCopyNode = 1,
  kFillNode = 2,
  kHostNode = 3,
  kGraphNode = 4,
  kEmptyNode = 5,
  kWaitNode = 6,    // for an event
  kRecordNode = 7,  // of an event
  kAllocNode = 10,
  kFreeNode = 11,
  kConditionalNode = 13,
};

struct Graph;
struct Condition;
struct Conditional;

// A launch as a node keeps it.
struct KernelCall {
  const void* function;  // what the caller knows the kernel by
  Kernel* kernel;
  LaunchShape shape;
  std::vector<u8> parameters;
  std::vector<const void*> arguments;  // where each lies in `parameters`
};

struct HostCall {
  void (*function)(void*);
  void* data;
};

struct EventUse {
  void* event;
};

// What an allocation node allocates, or a free node frees: of that the length is 0.
struct MemoryUse {
  void* base = nullptr;
  size_t bytes = 0;
};

// What a node does.
struct Work {
  int kind = kEmptyNode;
  std::function<Code()> run;  // empty: nothing, or the graph below
  // What it was made of, for the calls that ask. A copy has a slice for each of its planes.
  std::variant<std::monostate, std::shared_ptr<const KernelCall>, std::vector<Copy2d>, Fill2d,
               HostCall, EventUse, MemoryUse, std::shared_ptr<Graph>, std::shared_ptr<Conditional>>
      made_of;

  Graph* child() const {
    const auto* graph = std::get_if<std::shared_ptr<Graph>>(&made_of);
    return graph ? graph->get() : nullptr;
  }
  Conditional* conditional() const {
    const auto* made = std::get_if<std::shared_ptr<Conditional>>(&made_of);
    return made ? made->get() : nullptr;
  }
};
Work host_work(HostCall call);
// `kind` is kWaitNode or kRecordNode.
Code event_work(int kind, void* event, Work* work);
// Why a node of this kind is not to be had.
Code refuse_node(int kind);

// Memory that belongs to a graph: it is live from its allocation node to its free node, or to
// cudaFree.
struct GraphMemory;

struct Graph {
  struct Node {
    u64 id;  // an executable copy's node has that of the node it was made of
    Work work;
    std::set<size_t> after;  // nodes that it depends on
    bool destroyed = false;  // its place stays, so that numbers do
    bool enabled = true;
    u64 original = 0;  // in a clone: the node that it was made of
  };
  std::deque<Node> nodes;  // whose addresses are the handles that programs hold
  std::vector<std::shared_ptr<GraphMemory>> memory;
  std::vector<std::shared_ptr<Condition>> conditions;
  std::vector<size_t> order;  // of an executable graph

  size_t add(Work work, std::set<size_t> after);
};

using Handle = void*;
using Edge = std::pair<Handle, Handle>;  // from, to

// Handles as CUDA's calls get them; null ones where there is no list.
inline std::vector<Handle> handles_of(void* const* handles, size_t count) {
  return handles ? std::vector<Handle>(handles, handles + count)
                 : std::vector<Handle>(count, nullptr);
}

// Handles as CUDA's calls return them: as many as there is room for, or none; then *count is their
// number.
inline void give(const std::vector<Handle>& from, Handle* to, size_t* count) {
  for (size_t k = 0; to && k < std::min(*count, from.size()); ++k) to[k] = from[k];
  *count = from.size();
}

// Handles of graphs. Every function takes handles that may be null, foreign or destroyed.
Code create_graph(Handle* graph);
Handle new_graph(std::shared_ptr<Graph> graph);
Code destroy_graph(Handle handle, bool executable);
Code clone_graph(Handle graph, Handle* clone);
Code find_in_clone(Handle node, Handle clone, Handle* found);

// Nodes.
Code add_graph_node(Handle graph, const std::vector<Handle>& after, Work work, Handle* node);
Code destroy_node(Handle node);
Code node_work(Handle node, int kind, Work* work);
Code set_node_work(Handle node, Work work);
Code node_kind(Handle node, int* kind);
Code child_work(Handle graph, Work* work);  // a copy of the graph, as work of a node
Code child_graph(Handle node, Handle* graph);
Code list_nodes(Handle graph, bool roots_only, std::vector<Handle>* nodes);

// Dependencies.
// `from` and `to` have `count` nodes each.
Code edges_of(void* const* from, void* const* to, size_t count, std::vector<Edge>* edges);
Code change_edges(Handle graph, const std::vector<Edge>& edges, bool add);
Code list_edges(Handle graph, std::vector<Edge>* edges);
Code neighbours(Handle node, bool dependents, std::vector<Handle>* nodes);

// Executable graphs. What is changed of one does not touch the graph that it was made of.
Code instantiate(Handle graph, unsigned long long flags, Handle* executable);
Code executable_flags(Handle executable, unsigned long long* flags);
Code launch_graph(Handle executable, void* stream);
Code set_executable_work(Handle executable, Handle node, Work work);
Code set_enabled(Handle executable, Handle node, bool enabled);
Code is_enabled(Handle executable, Handle node, bool* enabled);

struct UpdateResult {
  int result = 0;  // cudaGraphExecUpdateResult
  Handle node = nullptr;
};
// Gives the executable graph the work of another of the same shape.
Code update_executable(Handle executable, Handle graph, UpdateResult* result);

// With kExternal (cudaEventRecordExternal, cudaEventWaitExternal and the driver's, one number all),
// a stream that captures gets a node for it.
inline constexpr unsigned kExternal = 1;
Code record_event_with(unsigned flags, void* event, void* stream);
Code wait_event_with(unsigned flags, void* stream, void* event);

// In stream order, or as nodes of the graph that the stream is capturing.
Code allocate_async(void** out, size_t bytes, void* stream);
Code free_async(void* base, void* stream);
// The same as work of a node, in a graph that is built by calls.
Code allocation_work(Handle graph, size_t bytes, void** out, Work* work);
Work free_work(void* base);

}  // namespace vgpu
