#include "core/graph.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "core/memory.h"
#include "core/options.h"

namespace vgpu {

struct GraphMemory {
  void* base = nullptr;
  u64 bytes = 0;
  ~GraphMemory() {
    if (base) release(base, MemoryKind::kGraph);
  }
};

namespace {

constexpr unsigned long long kFreeOnLaunch = 1;  // cudaGraphInstantiateFlagAutoFreeOnLaunch

struct State {
  std::recursive_mutex mutex;
  std::set<std::shared_ptr<Capture>> active;
  std::map<void*, std::unique_ptr<GraphHandle>> handles;
  unsigned long long last_id = 0;
};
State& state() {
  static State* const s = new State;
  return *s;
}

thread_local int thread_mode = 0;

void leave(const std::shared_ptr<Capture>& capture) {
  for (Stream* s : capture->members) {
    s->capture = nullptr;
    s->frontier.clear();
  }
  state().active.erase(capture);
}

void* new_handle(std::shared_ptr<Graph> graph, bool executable, bool free_on_launch = false) {
  auto owned = std::make_unique<GraphHandle>();
  *owned = {std::move(graph), executable, free_on_launch};
  void* handle = owned.get();
  state().handles[handle] = std::move(owned);
  return handle;
}

Code find_handle(void* handle, bool executable, GraphHandle** out) {
  auto it = state().handles.find(handle);
  *out = it == state().handles.end() ? nullptr : it->second.get();
  if (*out && (*out)->executable == executable) return Code::kSuccess;
  return fail(Code::kInvalidValue, std::string(executable ? "the executable graph" : "the graph") +
                                       (handle ? " is none that is alive" : " is null"));
}

// Whether every member's work is before the end of the origin stream.
bool joined(const Capture& c) {
  std::set<size_t> reached = c.origin->frontier;
  for (size_t n = c.graph->nodes.size(); n-- > 0;) {  // a node's dependencies precede it
    if (reached.count(n))
      reached.insert(c.graph->nodes[n].after.begin(), c.graph->nodes[n].after.end());
  }
  return std::all_of(c.members.begin(), c.members.end(), [&](const Stream* s) {
    return std::includes(reached.begin(), reached.end(), s->frontier.begin(), s->frontier.end());
  });
}

}  // namespace

std::recursive_mutex& capture_mutex() { return state().mutex; }

Code spoil(Capture& capture, Code code, const std::string& why) {
  if (capture.broken.empty()) capture.broken = why;
  return fail(code, why + "; the capture is lost");
}

Code begin_capture(void* stream, int mode) {
  Stream* s = nullptr;
  if (const Code code = find_stream(stream, &s); code != Code::kSuccess) return code;
  if (mode < 0 || mode > 2)
    return fail(Code::kInvalidValue, "capture mode " + std::to_string(mode) + " is not defined");
  const std::lock_guard lock(capture_mutex());
  if (is_legacy(stream))
    return fail(Code::kCaptureUnsupported, "the legacy default stream cannot be captured");
  if (s->capture) return fail(Code::kIllegalState, "the stream is capturing already");
  auto capture = std::make_shared<Capture>();
  capture->origin = s;
  capture->members = {s};
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->id = ++state().last_id;
  s->capture = capture;
  s->frontier.clear();
  state().active.insert(std::move(capture));
  return sticky_error();
}

Code end_capture(void* stream, void** graph) {
  Stream* s = nullptr;
  if (const Code code = find_stream(stream, &s); code != Code::kSuccess) return code;
  if (!graph) return fail(Code::kInvalidValue, "a captured graph has nowhere to go");
  *graph = nullptr;
  const std::lock_guard lock(capture_mutex());
  const std::shared_ptr<Capture> capture = s->capture;
  if (!capture) return fail(Code::kIllegalState, "the stream is not capturing");
  if (capture->origin != s && capture->origin) {
    return spoil(*capture, Code::kCaptureUnmatched,
                 "a capture ends on another stream than it began on");
  }
  if (capture->mode != 2 && capture->thread != std::this_thread::get_id()) {
    return spoil(*capture, Code::kCaptureWrongThread,
                 "a capture ends on another host thread than it began on");
  }
  const bool whole = capture->broken.empty() && joined(*capture);
  leave(capture);
  if (!capture->broken.empty()) {
    return fail(Code::kCaptureInvalidated, "the capture was lost earlier: " + capture->broken);
  }
  if (!whole) {
    return fail(Code::kCaptureUnjoined,
                "a stream that joined the capture did work that the capturing stream never waits "
                "for (cudaStreamWaitEvent)");
  }
  *graph = new_handle(capture->graph, false);
  return sticky_error();
}

Code capture_status(void* stream, int* status, unsigned long long* id, void** graph) {
  Stream* s = nullptr;
  if (const Code code = find_stream(stream, &s); code != Code::kSuccess) return code;
  const std::lock_guard lock(capture_mutex());
  *status = !s->capture ? 0 : s->capture->broken.empty() ? 1 : 2;
  if (id) *id = s->capture ? s->capture->id : 0;
  if (graph) *graph = nullptr;  // a graph cannot be changed while it is captured
  return sticky_error();
}

int exchange_capture_mode(int mode) { return std::exchange(thread_mode, mode); }

Code unsafe_while_capturing(const char* call) {
  const std::lock_guard lock(capture_mutex());
  if (thread_mode == 2) return Code::kSuccess;
  for (const std::shared_ptr<Capture>& c : state().active) {
    const bool own = c->thread == std::this_thread::get_id();
    if (own ? c->mode == 2 : thread_mode != 0 || c->mode != 0) continue;
    return spoil(*c, Code::kCaptureUnsupported,
                 std::string(call) + " is not allowed while a stream is capturing");
  }
  return Code::kSuccess;
}

Code admit(void* handle, Stream& stream, bool* capturing) {
  *capturing = stream.capture != nullptr;
  if (*capturing && !stream.capture->broken.empty()) {
    return fail(Code::kCaptureInvalidated,
                "the stream's capture was lost earlier: " + stream.capture->broken);
  }
  if (!is_legacy(handle)) return Code::kSuccess;
  for (const std::shared_ptr<Capture>& c : state().active) {
    const bool blocking = std::any_of(c->members.begin(), c->members.end(),
                                      [](const Stream* s) { return !(s->flags & kNonBlocking); });
    if (blocking) {
      return spoil(*c, Code::kCaptureImplicit,
                   "work on the legacy default stream waits for a stream that is capturing");
    }
  }
  return Code::kSuccess;
}

void add_node(Stream& stream, int kind, std::function<Code()> work) {
  std::vector<Graph::Node>& nodes = stream.capture->graph->nodes;
  nodes.push_back({kind, std::move(work), stream.frontier});
  stream.frontier = {nodes.size() - 1};
}

Code instantiate(void* graph, unsigned long long flags, void** executable) {
  const std::lock_guard lock(capture_mutex());
  GraphHandle* g = nullptr;
  if (const Code code = find_handle(graph, false, &g); code != Code::kSuccess) return code;
  if (!executable) return fail(Code::kInvalidValue, "an executable graph has nowhere to go");
  *executable = new_handle(std::make_shared<Graph>(*g->graph), true, flags & kFreeOnLaunch);
  return sticky_error();
}

Code launch_graph(void* executable, void* stream) {
  std::shared_ptr<Graph> graph;
  bool free_first = false;
  {
    const std::lock_guard lock(capture_mutex());
    GraphHandle* g = nullptr;
    if (const Code code = find_handle(executable, true, &g); code != Code::kSuccess) return code;
    graph = g->graph;
    free_first = g->free_on_launch;
  }
  // A graph that is launched into a capture becomes one node of the other graph.
  constexpr int kGraphNode = 4;
  return submit(stream, kGraphNode, [graph, free_first] {
    for (const auto& memory : graph->memory) {
      if (free_first) set_live(memory->base, false);
    }
    for (const Graph::Node& node : graph->nodes) {
      if (const Code code = node.run(); code != Code::kSuccess) return code;
      // A fault stops the rest, but it is what follows the launch that reports it.
      if (has_fault()) break;
    }
    return Code::kSuccess;
  });
}

Code destroy_graph(void* handle, bool executable) {
  const std::lock_guard lock(capture_mutex());
  GraphHandle* g = nullptr;
  if (const Code code = find_handle(handle, executable, &g); code != Code::kSuccess) return code;
  state().handles.erase(handle);
  return Code::kSuccess;
}

Code list_nodes(void* graph, void** nodes, size_t* count) {
  const std::lock_guard lock(capture_mutex());
  GraphHandle* g = nullptr;
  if (const Code code = find_handle(graph, false, &g); code != Code::kSuccess) return code;
  std::vector<Graph::Node>& all = g->graph->nodes;
  for (size_t k = 0; nodes && k < std::min(*count, all.size()); ++k) nodes[k] = &all[k];
  *count = all.size();
  return Code::kSuccess;
}

Code node_kind(void* node, int* kind) {
  const std::lock_guard lock(capture_mutex());
  for (const auto& [handle, g] : state().handles) {
    for (const Graph::Node& n : g->graph->nodes) {
      if (&n == node) {
        *kind = n.kind;
        return Code::kSuccess;
      }
    }
  }
  return fail(Code::kInvalidValue, "the graph node is none that is alive");
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
  auto memory = std::make_shared<GraphMemory>();
  if (const Code code = allocate(bytes, MemoryKind::kGraph, out); code != Code::kSuccess)
    return code;
  memory->base = *out;
  memory->bytes = bytes;
  set_live(memory->base, false);
  s->capture->graph->memory.push_back(memory);
  return submit(stream, kAllocNode, [base = memory->base, bytes] {
    if (is_device_memory(base)) {
      return fail(Code::kInvalidValue,
                  "a graph is launched again before the memory that it allocated is freed");
    }
    set_live(base, true);
    std::memset(base, options().zero_fresh ? 0 : 0xff, bytes);
    return Code::kSuccess;
  });
}

Code free_async(void* base, void* stream) {
  Stream* s = nullptr;
  if (const Code code = find_stream(stream, &s); code != Code::kSuccess) return code;
  const std::lock_guard lock(capture_mutex());
  if (!s->capture) return release(base, MemoryKind::kDevice);
  return submit(stream, kFreeNode, [base] { return release(base, MemoryKind::kDevice); });
}

}  // namespace vgpu
