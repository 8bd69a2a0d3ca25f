#include "core/graph_conditional.h"

#include <map>
#include <mutex>
#include <utility>

#include "core/capture.h"
#include "core/memory.h"

namespace vgpu {
namespace {

enum Type { kIf = 0, kWhile = 1, kSwitch = 2 };  // cudaGraphConditionalNodeType
constexpr unsigned kAssignDefault = 1;           // cudaGraphCondAssignDefault

// Guarded by capture_mutex(). Conditions live as long as the graphs that name them.
std::map<unsigned long long, std::weak_ptr<Condition>>& conditions() {
  static auto* const all = new std::map<unsigned long long, std::weak_ptr<Condition>>;
  return *all;
}

bool right_size(int type, unsigned size) {
  return type == kIf ? size == 1 || size == 2 : type == kWhile ? size == 1 : size > 0;
}

}  // namespace

Condition::~Condition() {
  if (word) release(word, MemoryKind::kModule);
}

const Graph* Conditional::next(u64 rounds) const {
  const u32 value = *condition->word;
  if (type == kWhile) return value ? bodies[0].get() : nullptr;
  const size_t chosen = type == kSwitch ? value : value ? 0 : 1;
  return rounds == 0 && chosen < bodies.size() ? bodies[chosen].get() : nullptr;
}

Code create_condition(Handle graph, unsigned initial, unsigned flags, unsigned long long* handle) {
  const std::lock_guard lock(capture_mutex());
  std::shared_ptr<Graph> g;
  if (const Code code = find_graph(graph, &g); code != Code::kSuccess) return code;
  if (!handle || (flags & ~kAssignDefault))
    return fail(Code::kInvalidValue, "a condition has nowhere to go, or unknown flags");
  auto made = std::make_shared<Condition>();
  void* word = nullptr;
  if (const Code code = allocate(sizeof(u32), MemoryKind::kModule, &word); code != Code::kSuccess)
    return code;
  made->word = static_cast<u32*>(word);
  made->initial = *made->word = initial;
  made->assigned = flags & kAssignDefault;
  *handle = reinterpret_cast<unsigned long long>(word);
  conditions()[*handle] = made;
  g->conditions.push_back(std::move(made));
  return Code::kSuccess;
}

Code conditional_work(unsigned long long condition, int type, unsigned size, Work* work,
                      Handle** bodies) {
  const std::lock_guard lock(capture_mutex());
  const auto found = conditions().find(condition);
  auto made = std::make_shared<Conditional>();
  if (found != conditions().end()) made->condition = found->second.lock();
  if (!made->condition) return fail(Code::kInvalidValue, "the condition is none that is alive");
  if (type < kIf || type > kSwitch || !right_size(type, size) || size > 1 << 16)
    return fail(Code::kInvalidValue, "a conditional node has a type or size that is not defined");
  made->type = type;
  for (unsigned k = 0; k < size; ++k) {
    made->bodies.push_back(std::make_shared<Graph>());
    made->handles.push_back(new_graph(made->bodies.back()));
  }
  *bodies = made->handles.data();
  work->kind = kConditionalNode;
  work->made_of = std::move(made);
  return Code::kSuccess;
}

std::shared_ptr<Conditional> copy_of(const Conditional& from, CopyFor purpose) {
  auto to = std::make_shared<Conditional>(from);
  for (std::shared_ptr<Graph>& body : to->bodies) body = copy_of(*body, purpose);
  return to;
}

Code check_bodies(const Conditional& conditional) {
  for (const std::shared_ptr<Graph>& body : conditional.bodies) {
    for (const size_t k : alive(*body)) {
      const int kind = body->nodes[k].work.kind;
      const bool allowed =
          kind <= kFillNode || kind == kGraphNode || kind == kEmptyNode || kind == kConditionalNode;
      if (allowed) continue;
      return fail(Code::kNotSupported, "a graph node of kind " + std::to_string(kind) +
                                           " in the body of a conditional node");
    }
  }
  return Code::kSuccess;
}

void assign_conditions(const Graph& graph) {
  for (const std::shared_ptr<Condition>& condition : graph.conditions) {
    if (condition->assigned) *condition->word = condition->initial;
  }
  for (const Graph::Node& node : graph.nodes) {
    if (const Graph* child = node.work.child()) assign_conditions(*child);
    if (const Conditional* conditional = node.work.conditional()) {
      for (const std::shared_ptr<Graph>& body : conditional->bodies) assign_conditions(*body);
    }
  }
}

}  // namespace vgpu
