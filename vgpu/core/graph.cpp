#include "core/graph.h"

#include <map>
#include <mutex>
#include <utility>

#include "core/capture.h"
#include "core/graph_conditional.h"
#include "core/graph_handles.h"

namespace vgpu {
namespace {

using Node = Graph::Node;

struct State {
  std::map<Handle, std::unique_ptr<HeldGraph>> handles;
  u64 last_node = 0;
};
State& state() {
  static State* const s = new State;
  return *s;
}

Code find_node_in(const std::shared_ptr<Graph>& graph, Handle handle, size_t* index) {
  NodePlace place;
  if (const Code code = find_node(handle, &place); code != Code::kSuccess) return code;
  if (place.graph != graph) return fail(Code::kInvalidValue, "the node belongs to another graph");
  *index = place.index;
  return Code::kSuccess;
}

}  // namespace

// --- handles -------------------------------------------------------------------------------------

Handle hold(HeldGraph graph) {
  auto owned = std::make_unique<HeldGraph>(std::move(graph));
  const Handle handle = owned.get();
  state().handles[handle] = std::move(owned);
  return handle;
}

Code find_held(Handle handle, bool executable, HeldGraph** out) {
  auto it = state().handles.find(handle);
  *out = it == state().handles.end() ? nullptr : it->second.get();
  if (*out && (*out)->executable == executable) return Code::kSuccess;
  return fail(Code::kInvalidValue, std::string(executable ? "the executable graph" : "the graph") +
                                       (handle ? " is none that is alive" : " is null"));
}
Code find_graph(Handle handle, std::shared_ptr<Graph>* out) {
  HeldGraph* held = nullptr;
  if (const Code code = find_held(handle, false, &held); code != Code::kSuccess) return code;
  *out = held->graph;
  return Code::kSuccess;
}

Code find_node(Handle handle, NodePlace* out) {
  for (const auto& [key, held] : state().handles) {
    if (held->executable) continue;
    std::deque<Node>& nodes = held->graph->nodes;
    for (size_t k = 0; k < nodes.size(); ++k) {
      if (&nodes[k] != handle || nodes[k].destroyed) continue;
      *out = {held->graph, k};
      return Code::kSuccess;
    }
  }
  return fail(Code::kInvalidValue,
              handle ? "the graph node is none that is alive" : "the graph node is null");
}

Code same_kind(const Node& node, const Work& work) {
  if (node.work.kind == work.kind) return Code::kSuccess;
  return fail(Code::kInvalidValue, "parameters of kind " + std::to_string(work.kind) +
                                       " for a graph node of kind " +
                                       std::to_string(node.work.kind));
}

std::vector<size_t> alive(const Graph& g) {
  std::vector<size_t> found;
  for (size_t k = 0; k < g.nodes.size(); ++k) {
    if (!g.nodes[k].destroyed) found.push_back(k);
  }
  return found;
}

std::shared_ptr<Graph> copy_of(const Graph& from, CopyFor purpose) {
  auto to = std::make_shared<Graph>(from);
  for (Node& node : to->nodes) {
    if (purpose == CopyFor::kClone) {
      node.original = node.id;
      node.id = ++state().last_node;
    }
    if (const Graph* child = node.work.child()) node.work.made_of = copy_of(*child, purpose);
    if (const Conditional* c = node.work.conditional()) node.work.made_of = copy_of(*c, purpose);
  }
  return to;
}

size_t Graph::add(Work work, std::set<size_t> after) {
  const std::lock_guard lock(capture_mutex());
  nodes.push_back({++state().last_node, std::move(work), std::move(after)});
  return nodes.size() - 1;
}

// --- graphs --------------------------------------------------------------------------------------

Handle new_graph(std::shared_ptr<Graph> graph) {
  const std::lock_guard lock(capture_mutex());
  return hold({std::move(graph), false, 0});
}

Code create_graph(Handle* graph) {
  if (!graph) return fail(Code::kInvalidValue, "a new graph has nowhere to go");
  *graph = new_graph(std::make_shared<Graph>());
  return sticky_error();
}

Code destroy_graph(Handle handle, bool executable) {
  const std::lock_guard lock(capture_mutex());
  HeldGraph* held = nullptr;
  if (const Code code = find_held(handle, executable, &held); code != Code::kSuccess) return code;
  state().handles.erase(handle);
  return Code::kSuccess;
}

Code clone_graph(Handle graph, Handle* clone) {
  const std::lock_guard lock(capture_mutex());
  std::shared_ptr<Graph> from;
  if (const Code code = find_graph(graph, &from); code != Code::kSuccess) return code;
  if (!clone) return fail(Code::kInvalidValue, "a graph's clone has nowhere to go");
  if (!from->memory.empty())
    return fail(Code::kNotSupported, "a graph that allocates memory cannot be cloned");
  if (!from->conditions.empty())
    return fail(Code::kNotSupported, "a graph with conditions cannot be cloned");
  *clone = new_graph(copy_of(*from, CopyFor::kClone));
  return Code::kSuccess;
}

Code find_in_clone(Handle node, Handle clone, Handle* found) {
  const std::lock_guard lock(capture_mutex());
  NodePlace place;
  std::shared_ptr<Graph> graph;
  Code code = find_node(node, &place);
  if (code == Code::kSuccess) code = find_graph(clone, &graph);
  if (code != Code::kSuccess) return code;
  for (Node& candidate : graph->nodes) {
    if (candidate.original != place.node().id) continue;
    *found = &candidate;
    return Code::kSuccess;
  }
  return fail(Code::kInvalidValue, "the graph is no clone of the node's graph");
}

// --- nodes ---------------------------------------------------------------------------------------

Work host_work(HostCall call) {
  Work work;
  work.kind = kHostNode;
  work.run = [call] {
    call.function(call.data);
    return Code::kSuccess;
  };
  work.made_of = call;
  return work;
}

Code event_work(int kind, void* event, Work* work) {
  if (const Code code = check_event(event); code != Code::kSuccess) return code;
  work->kind = kind;
  work->run = [kind, event] {
    return kind == kRecordNode ? record_in_graph(event) : wait_in_graph(event);
  };
  work->made_of = EventUse{event};
  return Code::kSuccess;
}

namespace {
Code use_event(int kind, void* event, void* stream) {
  Work work;
  const Code code = event_work(kind, event, &work);
  return code == Code::kSuccess ? submit(stream, std::move(work)) : code;
}
}  // namespace

Code record_event_with(unsigned flags, void* event, void* stream) {
  return flags & kExternal ? use_event(kRecordNode, event, stream) : record_event(event, stream);
}

Code wait_event_with(unsigned flags, void* stream, void* event) {
  return flags & kExternal ? use_event(kWaitNode, event, stream) : wait_event(stream, event);
}

Code refuse_node(int kind) {
  static const std::map<int, const char*> kNames = {{8, "signals of external semaphores"},
                                                    {9, "waits for external semaphores"},
                                                    {12, "batches of memory operations"}};
  const auto name = kNames.find(kind);
  return fail(Code::kNotSupported,
              name == kNames.end()
                  ? "graph nodes of kind " + std::to_string(kind) + " are not modelled"
                  : std::string(name->second) + " in graphs are not modelled");
}

Code add_graph_node(Handle graph, const std::vector<Handle>& after, Work work, Handle* node) {
  const std::lock_guard lock(capture_mutex());
  std::shared_ptr<Graph> g;
  if (const Code code = find_graph(graph, &g); code != Code::kSuccess) return code;
  if (!node) return fail(Code::kInvalidValue, "a new graph node has nowhere to go");
  std::set<size_t> numbers;
  for (const Handle handle : after) {
    size_t number = 0;
    if (const Code code = find_node_in(g, handle, &number); code != Code::kSuccess) return code;
    if (!numbers.insert(number).second)
      return fail(Code::kInvalidValue, "a graph node is named twice among the dependencies");
  }
  *node = &g->nodes[g->add(std::move(work), std::move(numbers))];
  return Code::kSuccess;
}

Code destroy_node(Handle node) {
  const std::lock_guard lock(capture_mutex());
  NodePlace place;
  if (const Code code = find_node(node, &place); code != Code::kSuccess) return code;
  const int kind = place.node().work.kind;
  if (kind == kAllocNode || kind == kFreeNode)
    return fail(Code::kNotSupported, "nodes that allocate or free memory cannot be destroyed");
  for (Node& other : place.graph->nodes) other.after.erase(place.index);
  place.node().after.clear();
  place.node().destroyed = true;
  place.node().work = {};
  return Code::kSuccess;
}

Code node_kind(Handle node, int* kind) {
  const std::lock_guard lock(capture_mutex());
  NodePlace place;
  if (const Code code = find_node(node, &place); code != Code::kSuccess) return code;
  *kind = place.node().work.kind;
  return Code::kSuccess;
}

Code node_work(Handle node, int kind, Work* work) {
  const std::lock_guard lock(capture_mutex());
  NodePlace place;
  if (const Code code = find_node(node, &place); code != Code::kSuccess) return code;
  *work = place.node().work;
  Work wanted;
  wanted.kind = kind;
  return same_kind(place.node(), wanted);
}

Code set_node_work(Handle node, Work work) {
  const std::lock_guard lock(capture_mutex());
  NodePlace place;
  Code code = find_node(node, &place);
  if (code == Code::kSuccess) code = same_kind(place.node(), work);
  if (code == Code::kSuccess) place.node().work = std::move(work);
  return code;
}

Code child_work(Handle graph, Work* work) {
  const std::lock_guard lock(capture_mutex());
  std::shared_ptr<Graph> child;
  if (const Code code = find_graph(graph, &child); code != Code::kSuccess) return code;
  if (!child->memory.empty())
    return fail(Code::kNotSupported, "a graph that allocates memory cannot be a node of another");
  if (!child->conditions.empty())
    return fail(Code::kNotSupported, "a graph with conditions cannot be a node of another");
  work->kind = kGraphNode;
  work->made_of = copy_of(*child, CopyFor::kClone);
  return Code::kSuccess;
}

Code child_graph(Handle node, Handle* graph) {
  const std::lock_guard lock(capture_mutex());
  Work work;
  if (const Code code = node_work(node, kGraphNode, &work); code != Code::kSuccess) return code;
  for (const auto& [handle, held] : state().handles) {
    if (held->graph.get() != work.child()) continue;
    *graph = handle;
    return Code::kSuccess;
  }
  *graph = new_graph(std::get<std::shared_ptr<Graph>>(work.made_of));
  return Code::kSuccess;
}

Code list_nodes(Handle graph, bool roots_only, std::vector<Handle>* nodes) {
  const std::lock_guard lock(capture_mutex());
  std::shared_ptr<Graph> g;
  if (const Code code = find_graph(graph, &g); code != Code::kSuccess) return code;
  for (size_t k : alive(*g)) {
    if (!roots_only || g->nodes[k].after.empty()) nodes->push_back(&g->nodes[k]);
  }
  return Code::kSuccess;
}

// --- dependencies --------------------------------------------------------------------------------

Code edges_of(void* const* from, void* const* to, size_t count, std::vector<Edge>* edges) {
  if (count && (!from || !to)) return fail(Code::kInvalidValue, "a list of graph nodes is null");
  for (size_t k = 0; k < count; ++k) edges->push_back({from[k], to[k]});
  return Code::kSuccess;
}

Code change_edges(Handle graph, const std::vector<Edge>& edges, bool add) {
  const std::lock_guard lock(capture_mutex());
  std::shared_ptr<Graph> g;
  if (const Code code = find_graph(graph, &g); code != Code::kSuccess) return code;
  for (const auto& [from, to] : edges) {
    size_t earlier = 0, later = 0;
    Code code = find_node_in(g, from, &earlier);
    if (code == Code::kSuccess) code = find_node_in(g, to, &later);
    if (code != Code::kSuccess) return code;
    std::set<size_t>& after = g->nodes[later].after;
    if (earlier == later) return fail(Code::kInvalidValue, "a graph node depends on itself");
    if (add != !after.count(earlier)) {
      return fail(Code::kInvalidValue, add ? "the dependency is in the graph already"
                                           : "the dependency is not in the graph");
    }
    if (add) {
      after.insert(earlier);
    } else {
      after.erase(earlier);
    }
  }
  return Code::kSuccess;
}

Code list_edges(Handle graph, std::vector<Edge>* edges) {
  const std::lock_guard lock(capture_mutex());
  std::shared_ptr<Graph> g;
  if (const Code code = find_graph(graph, &g); code != Code::kSuccess) return code;
  for (size_t k : alive(*g)) {
    for (size_t earlier : g->nodes[k].after) edges->push_back({&g->nodes[earlier], &g->nodes[k]});
  }
  return Code::kSuccess;
}

Code neighbours(Handle node, bool dependents, std::vector<Handle>* nodes) {
  const std::lock_guard lock(capture_mutex());
  NodePlace place;
  if (const Code code = find_node(node, &place); code != Code::kSuccess) return code;
  std::deque<Node>& all = place.graph->nodes;
  for (size_t k : alive(*place.graph)) {
    const bool wanted = dependents ? all[k].after.count(place.index) : place.node().after.count(k);
    if (wanted) nodes->push_back(&all[k]);
  }
  return Code::kSuccess;
}

}  // namespace vgpu
