// Executable graphs: copies of graphs, their launches and what can be changed of them.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>
#include <utility>

#include "core/capture.h"
#include "core/graph_conditional.h"
#include "core/graph_handles.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/timeline.h"

namespace vgpu {

struct GraphMemory {
  void* base = nullptr;
  ~GraphMemory() {
    if (base) release(base, MemoryKind::kGraph);
  }
};

namespace {

using Node = Graph::Node;

constexpr unsigned long long kFreeOnLaunch = 1;  // cudaGraphInstantiateFlagAutoFreeOnLaunch
enum UpdateCode { kTopologyChanged = 2, kKindChanged = 3, kNotUpdatable = 6 };

// The node of an executable graph that was made of this one.
Code find_executable_node(Handle executable, Handle handle, Node** out) {
  HeldGraph* held = nullptr;
  NodePlace place;
  if (const Code code = find_held(executable, true, &held); code != Code::kSuccess) return code;
  if (const Code code = find_node(handle, &place); code != Code::kSuccess) return code;
  for (Node& node : held->graph->nodes) {
    if (node.id != place.node().id) continue;
    *out = &node;
    return Code::kSuccess;
  }
  return fail(Code::kInvalidValue, "the executable graph was not made of the node's graph");
}

// An order that the dependencies allow; shorter than the graph where they form a cycle.
template <class Choose>
std::vector<size_t> ordered(const Graph& g, Choose choose) {
  std::vector<size_t> waits_for(g.nodes.size());
  std::vector<std::vector<size_t>> before(g.nodes.size());
  std::set<size_t> ready;
  for (size_t k : alive(g)) {
    waits_for[k] = g.nodes[k].after.size();
    for (size_t earlier : g.nodes[k].after) before[earlier].push_back(k);
    if (!waits_for[k]) ready.insert(k);
  }
  std::vector<size_t> order;
  while (!ready.empty()) {
    const auto next = std::next(ready.begin(), static_cast<std::ptrdiff_t>(choose(ready.size())));
    order.push_back(*next);
    const size_t done = *next;
    ready.erase(next);
    for (size_t later : before[done]) {
      if (--waits_for[later] == 0) ready.insert(later);
    }
  }
  return order;
}

Code put_in_order(Graph& g) {
  g.order = ordered(g, [](size_t) { return 0; });
  if (g.order.size() < alive(g).size())
    return fail(Code::kInvalidValue, "the graph's dependencies form a cycle");
  for (Node& node : g.nodes) {
    if (const Conditional* conditional = node.work.conditional()) {
      Code code = check_bodies(*conditional);
      for (const std::shared_ptr<Graph>& body : conditional->bodies) {
        if (code == Code::kSuccess) code = put_in_order(*body);
      }
      if (code != Code::kSuccess) return code;
    }
    if (!node.work.child() || node.destroyed) continue;
    if (const Code code = put_in_order(*node.work.child()); code != Code::kSuccess) return code;
  }
  return Code::kSuccess;
}

// A fault stops the rest, but it is what follows the launch that reports it. Every node starts when
// those that it depends on have ended; the graph ends with the last.
Code run_nodes(const Graph& g, std::minstd_rand* random) {
  const InGraph in_graph;
  const u64 begin = work_ns();
  u64 end = begin;
  std::vector<u64> ends(g.nodes.size(), begin);
  const std::vector<size_t> order =
      random ? ordered(g, [&](size_t n) { return (*random)() % n; }) : g.order;
  for (size_t k : order) {
    const Node& node = g.nodes[k];
    work_ns() = begin;
    for (const size_t earlier : node.after) work_ns() = std::max(work_ns(), ends[earlier]);
    Code code = Code::kSuccess;
    if (node.enabled) {
      if (const Graph* child = node.work.child()) code = run_nodes(*child, random);
      if (const Conditional* conditional = node.work.conditional()) {
        u64 rounds = 0;
        while (const Graph* body = conditional->next(rounds++)) {
          code = run_nodes(*body, random);
          if (code != Code::kSuccess || has_fault()) break;
        }
      }
      if (node.work.run) code = node.work.run();
    }
    if (code != Code::kSuccess || has_fault()) return code;
    ends[k] = work_ns();
    end = std::max(end, ends[k]);
  }
  work_ns() = end;
  return Code::kSuccess;
}

}  // namespace

Code instantiate(Handle graph, unsigned long long flags, Handle* executable) {
  const std::lock_guard lock(capture_mutex());
  std::shared_ptr<Graph> g;
  if (const Code code = find_graph(graph, &g); code != Code::kSuccess) return code;
  if (!executable) return fail(Code::kInvalidValue, "an executable graph has nowhere to go");
  const std::shared_ptr<Graph> copy = copy_of(*g, CopyFor::kExecutable);
  if (const Code code = put_in_order(*copy); code != Code::kSuccess) return code;
  *executable = hold({copy, true, flags});
  return sticky_error();
}

Code executable_flags(Handle executable, unsigned long long* flags) {
  const std::lock_guard lock(capture_mutex());
  HeldGraph* held = nullptr;
  if (const Code code = find_held(executable, true, &held); code != Code::kSuccess) return code;
  *flags = held->flags;
  return Code::kSuccess;
}

Code launch_graph(Handle executable, void* stream) {
  static std::atomic<u64> launches{0};
  std::shared_ptr<Graph> graph;
  bool free_first = false;
  {
    const std::lock_guard lock(capture_mutex());
    HeldGraph* held = nullptr;
    if (const Code code = find_held(executable, true, &held); code != Code::kSuccess) return code;
    graph = held->graph;
    free_first = held->flags & kFreeOnLaunch;
  }
  // A graph that is launched into a capture becomes one node of the other graph.
  Work work;
  work.kind = kGraphNode;
  work.run = [graph, free_first] {
    for (const auto& memory : graph->memory) {
      if (free_first) set_free(memory->base);
    }
    assign_conditions(*graph);
    std::minstd_rand random(static_cast<u32>(options().seed + ++launches));
    return run_nodes(*graph, options().seed ? &random : nullptr);
  };
  return submit(stream, std::move(work));
}

Code set_executable_work(Handle executable, Handle node, Work work) {
  const std::lock_guard lock(capture_mutex());
  Node* target = nullptr;
  Code code = find_executable_node(executable, node, &target);
  if (code == Code::kSuccess) code = same_kind(*target, work);
  if (code == Code::kSuccess && work.child()) code = put_in_order(*work.child());
  if (code == Code::kSuccess) target->work = std::move(work);
  return code;
}

Code set_enabled(Handle executable, Handle node, bool enabled) {
  const std::lock_guard lock(capture_mutex());
  Node* target = nullptr;
  if (const Code code = find_executable_node(executable, node, &target); code != Code::kSuccess)
    return code;
  if (target->work.kind > kFillNode) {
    return fail(Code::kInvalidValue,
                "only nodes that launch, copy or fill can be enabled and disabled");
  }
  target->enabled = enabled;
  return Code::kSuccess;
}

Code is_enabled(Handle executable, Handle node, bool* enabled) {
  const std::lock_guard lock(capture_mutex());
  Node* target = nullptr;
  const Code code = find_executable_node(executable, node, &target);
  if (code == Code::kSuccess) *enabled = target->enabled;
  return code;
}

namespace {

// Nodes are paired in the order of their making.
Code update(Graph& to, const Graph& from, UpdateResult* result) {
  const std::vector<size_t> old = alive(to);
  const std::vector<size_t> fresh = alive(from);
  const auto refuse = [&](UpdateCode why, size_t node, const std::string& text) {
    result->result = why;
    result->node = node < from.nodes.size() ? const_cast<Node*>(&from.nodes[node]) : nullptr;
    return fail(Code::kGraphUpdateFailure, "the executable graph cannot be updated: " + text);
  };
  if (old.size() != fresh.size()) {
    return refuse(
        kTopologyChanged, from.nodes.size(),
        std::to_string(fresh.size()) + " nodes in place of " + std::to_string(old.size()));
  }
  const auto ranks = [](const std::set<size_t>& after, const std::vector<size_t>& numbers) {
    std::set<size_t> found;
    for (size_t n : after) {
      found.insert(static_cast<size_t>(std::lower_bound(numbers.begin(), numbers.end(), n) -
                                       numbers.begin()));
    }
    return found;
  };
  for (size_t k = 0; k < old.size(); ++k) {
    const Node& a = to.nodes[old[k]];
    const Node& b = from.nodes[fresh[k]];
    const std::string name = "node " + std::to_string(k);
    if (a.work.kind != b.work.kind)
      return refuse(kKindChanged, fresh[k], name + " is of another kind");
    if (ranks(a.after, old) != ranks(b.after, fresh))
      return refuse(kTopologyChanged, fresh[k], name + " depends on others");
    if ((a.work.kind == kAllocNode || a.work.kind == kFreeNode) && a.id != b.id)
      return refuse(kNotUpdatable, fresh[k], name + " allocates or frees memory");
    if (a.work.kind == kConditionalNode)
      return refuse(kNotUpdatable, fresh[k], name + " is a conditional node");
  }
  for (size_t k = 0; k < old.size(); ++k) {
    Work& work = to.nodes[old[k]].work;
    const Work& wanted = from.nodes[fresh[k]].work;
    if (!work.child() || !wanted.child()) {
      work = wanted;
    } else if (const Code code = update(*work.child(), *wanted.child(), result);
               code != Code::kSuccess) {
      return code;
    }
  }
  return Code::kSuccess;
}

}  // namespace

Code update_executable(Handle executable, Handle graph, UpdateResult* result) {
  const std::lock_guard lock(capture_mutex());
  HeldGraph* held = nullptr;
  std::shared_ptr<Graph> from;
  Code code = find_held(executable, true, &held);
  if (code == Code::kSuccess) code = find_graph(graph, &from);
  return code == Code::kSuccess ? update(*held->graph, *from, result) : code;
}

// --- memory --------------------------------------------------------------------------------------

namespace {

Code allocation_work(Graph& graph, size_t bytes, void** out, Work* work) {
  auto memory = std::make_shared<GraphMemory>();
  if (const Code code = allocate(bytes, MemoryKind::kGraph, out); code != Code::kSuccess)
    return code;
  memory->base = *out;
  set_free(memory->base);
  graph.memory.push_back(memory);
  work->kind = kAllocNode;
  work->made_of = MemoryUse{memory->base, bytes};
  work->run = [base = memory->base] { return revive(base); };
  return Code::kSuccess;
}

}  // namespace

Code allocation_work(Handle graph, size_t bytes, void** out, Work* work) {
  const std::lock_guard lock(capture_mutex());
  std::shared_ptr<Graph> g;
  const Code code = find_graph(graph, &g);
  return code == Code::kSuccess ? allocation_work(*g, bytes, out, work) : code;
}

Work free_work(void* base) {
  Work work;
  work.kind = kFreeNode;
  work.made_of = MemoryUse{base, 0};
  work.run = [base] { return release(base, MemoryKind::kDevice); };
  return work;
}

Code allocate_async(void** out, size_t bytes, void* stream) {
  if (!out) return fail(Code::kInvalidValue, "an allocation has nowhere to go");
  Stream* s = nullptr;
  if (const Code code = find_stream(stream, &s); code != Code::kSuccess) return code;
  const std::lock_guard lock(capture_mutex());
  if (!s->capture) {
    const Code code = sticky_error();
    return code == Code::kSuccess ? allocate(bytes, MemoryKind::kDevice, out) : code;
  }
  Work work;
  const Code code = allocation_work(*s->capture->graph, bytes, out, &work);
  return code == Code::kSuccess ? submit(stream, std::move(work)) : code;
}

Code free_async(void* base, void* stream) {
  Stream* s = nullptr;
  if (const Code code = find_stream(stream, &s); code != Code::kSuccess) return code;
  const std::lock_guard lock(capture_mutex());
  if (!s->capture) return release(base, MemoryKind::kDevice);
  return submit(stream, free_work(base));
}

}  // namespace vgpu
