#include "core/capture.h"

#include <algorithm>
#include <utility>

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

Code end_capture(void* stream, Handle* graph) {
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
  *graph = new_graph(capture->graph);
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

void add_captured(Stream& stream, Work work) {
  const size_t node = stream.capture->graph->add(std::move(work), stream.frontier);
  stream.frontier = {node};
}

}  // namespace vgpu
