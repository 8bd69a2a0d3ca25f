#include "core/capture.h"

#include <algorithm>
#include <utility>

#include "core/graph_handles.h"

namespace vgpu {
namespace {

struct State {
  std::recursive_mutex mutex;
  std::set<std::shared_ptr<Capture>> active;
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

namespace {

// Numbers of nodes in the graph of a capture.
Code numbers_in(const std::shared_ptr<Graph>& graph, const std::vector<Handle>& nodes,
                std::set<size_t>* numbers) {
  for (const Handle node : nodes) {
    NodePlace place;
    if (const Code code = find_node(node, &place); code != Code::kSuccess) return code;
    if (place.graph != graph) return fail(Code::kInvalidValue, "the node belongs to another graph");
    numbers->insert(place.index);
  }
  return Code::kSuccess;
}

}  // namespace

Code begin_capture_to(void* stream, Handle graph, const std::vector<Handle>& after, int mode) {
  const std::lock_guard lock(capture_mutex());
  std::shared_ptr<Graph> g;
  std::set<size_t> frontier;
  Code code = find_graph(graph, &g);
  if (code == Code::kSuccess) code = numbers_in(g, after, &frontier);
  if (code == Code::kSuccess) code = begin_capture(stream, mode);
  Stream* s = nullptr;
  if (code == Code::kSuccess) code = find_stream(stream, &s);
  if (code != Code::kSuccess) return code;
  s->capture->graph = std::move(g);
  s->capture->handle = graph;
  s->capture->borrowed = true;
  s->frontier = std::move(frontier);
  return Code::kSuccess;
}

Code capture_dependencies(void* stream, std::vector<Handle>* nodes) {
  Stream* s = nullptr;
  if (const Code code = find_stream(stream, &s); code != Code::kSuccess) return code;
  const std::lock_guard lock(capture_mutex());
  for (const size_t k : s->frontier) nodes->push_back(&s->capture->graph->nodes[k]);
  return Code::kSuccess;
}

Code set_capture_dependencies(void* stream, const std::vector<Handle>& nodes, bool further) {
  Stream* s = nullptr;
  if (const Code code = find_stream(stream, &s); code != Code::kSuccess) return code;
  const std::lock_guard lock(capture_mutex());
  if (!s->capture) return fail(Code::kIllegalState, "the stream is not capturing");
  std::set<size_t> numbers = further ? s->frontier : std::set<size_t>();
  const Code code = numbers_in(s->capture->graph, nodes, &numbers);
  if (code == Code::kSuccess) s->frontier = std::move(numbers);
  return code;
}

Code end_capture(void* stream, Handle* graph) {
  Stream* s = nullptr;
  if (const Code code = find_stream(stream, &s); code != Code::kSuccess) return code;
  if (graph) *graph = nullptr;
  const std::lock_guard lock(capture_mutex());
  const std::shared_ptr<Capture> capture = s->capture;
  if (!capture) return fail(Code::kIllegalState, "the stream is not capturing");
  // A graph that was there before need not be told.
  if (!graph && !capture->borrowed)
    return fail(Code::kInvalidValue, "a captured graph has nowhere to go");
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
  if (capture->handle && !capture->borrowed && !whole) destroy_graph(capture->handle, false);
  if (!capture->broken.empty()) {
    return fail(Code::kCaptureInvalidated, "the capture was lost earlier: " + capture->broken);
  }
  if (!whole) {
    return fail(Code::kCaptureUnjoined,
                "a stream that joined the capture did work that the capturing stream never waits "
                "for (cudaStreamWaitEvent)");
  }
  if (graph) *graph = capture->handle ? capture->handle : new_graph(capture->graph);
  return sticky_error();
}

Code capture_status(void* stream, int* status, unsigned long long* id, void** graph) {
  Stream* s = nullptr;
  if (const Code code = find_stream(stream, &s); code != Code::kSuccess) return code;
  const std::lock_guard lock(capture_mutex());
  *status = !s->capture ? 0 : s->capture->broken.empty() ? 1 : 2;
  if (id) *id = s->capture ? s->capture->id : 0;
  if (graph) {
    if (s->capture && !s->capture->handle) s->capture->handle = new_graph(s->capture->graph);
    *graph = s->capture ? s->capture->handle : nullptr;
  }
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

void add_captured(Stream& stream, Work work) {
  const size_t node = stream.capture->graph->add(std::move(work), stream.frontier);
  stream.frontier = {node};
}

}  // namespace vgpu
