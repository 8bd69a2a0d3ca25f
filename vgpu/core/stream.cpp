#include "core/stream.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "core/capture.h"
#include "core/graph.h"
#include "core/limits.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/timeline.h"

namespace vgpu {
namespace {

// What is alive, so that a null, foreign or destroyed handle is told from a good one.
template <class T>
class Handles {
 public:
  void* add(T value) {
    const std::lock_guard lock(mutex_);
    auto owned = std::make_unique<T>(std::move(value));
    void* handle = owned.get();
    live_[handle] = std::move(owned);
    return handle;
  }
  T* find(void* handle) {
    const std::lock_guard lock(mutex_);
    auto it = live_.find(handle);
    return it == live_.end() ? nullptr : it->second.get();
  }
  bool remove(void* handle) {
    const std::lock_guard lock(mutex_);
    return live_.erase(handle) != 0;
  }

 private:
  std::mutex mutex_;
  std::map<void*, std::unique_ptr<T>> live_;
};

Handles<Stream>& streams() {
  static auto* const h = new Handles<Stream>;
  return *h;
}
Handles<Event>& events() {
  static auto* const h = new Handles<Event>;
  return *h;
}

void* const kLegacy = reinterpret_cast<void*>(1);

Code find_event(void* handle, Event** out) {
  *out = handle ? events().find(handle) : nullptr;
  if (*out) return Code::kSuccess;
  return fail(Code::kInvalidHandle,
              handle ? "the event handle is none that is alive" : "an event is null");
}

Code not_in_a_capture(const Event& e) {
  if (!e.capture) return Code::kSuccess;
  return spoil(
      *e.capture, Code::kCapturedEvent,
      "an event that was recorded while its stream was capturing has no time and cannot be "
      "waited for by the host");
}

}  // namespace

bool is_legacy(void* handle) { return handle == nullptr || handle == kLegacy; }

Code create_stream(unsigned flags, int priority, void** out) {
  static std::atomic<unsigned long long> last{2};
  if (!out) return fail(Code::kInvalidValue, "a new stream has nowhere to go");
  if (flags > kNonBlocking)
    return fail(Code::kInvalidValue, "stream flags " + std::to_string(flags) + " are not defined");
  Stream s;
  s.flags = flags;
  s.priority = priority < -5 ? -5 : priority > 0 ? 0 : priority;
  s.id = ++last;
  *out = streams().add(std::move(s));
  return sticky_error();
}

Code destroy_stream(void* handle) {
  if (is_legacy(handle) || handle == kPerThreadStream)
    return fail(Code::kInvalidHandle, "a default stream cannot be destroyed");
  Stream* s = nullptr;
  if (const Code code = find_stream(handle, &s); code != Code::kSuccess) return code;
  const std::lock_guard lock(capture_mutex());
  if (s->capture) {
    s->capture->members.erase(s);
    spoil(*s->capture, Code::kCaptureInvalidated, "a stream was destroyed while it was capturing");
    if (s->capture->origin == s) s->capture->origin = nullptr;
  }
  streams().remove(handle);
  return Code::kSuccess;
}

Code find_stream(void* handle, Stream** out) {
  static Stream* const legacy = new Stream{0, 0, 1, nullptr, {}};
  static thread_local Stream own{0, 0, 2, nullptr, {}};
  *out = is_legacy(handle) ? legacy : handle == kPerThreadStream ? &own : streams().find(handle);
  if (*out) return Code::kSuccess;
  return fail(Code::kInvalidHandle, "the stream handle is none that is alive");
}

Code create_event(unsigned flags, void** out) {
  if (!out) return fail(Code::kInvalidValue, "a new event has nowhere to go");
  Event e;
  e.flags = flags;
  *out = events().add(std::move(e));
  return sticky_error();
}

Code destroy_event(void* handle) {
  Event* e = nullptr;
  if (const Code code = find_event(handle, &e); code != Code::kSuccess) return code;
  events().remove(handle);
  return Code::kSuccess;
}

Code record_event(void* event, void* stream) {
  Event* e = nullptr;
  Stream* s = nullptr;
  Code code = find_event(event, &e);
  if (code == Code::kSuccess) code = find_stream(stream, &s);
  if (code != Code::kSuccess) return code;
  const std::lock_guard lock(capture_mutex());
  bool capturing = false;
  if (code = admit(stream, *s, &capturing); code != Code::kSuccess) return code;
  e->capture = capturing ? s->capture : nullptr;
  e->frontier = capturing ? s->frontier : std::set<size_t>();
  e->recorded = true;
  e->when = std::chrono::steady_clock::now();
  if (!(e->flags & kDisableTiming)) want_times();
  e->at_ns = ready_ns(*s, is_legacy(stream));
  return sticky_error();
}

Code wait_event(void* stream, void* event) {
  Event* e = nullptr;
  Stream* s = nullptr;
  Code code = find_event(event, &e);
  if (code == Code::kSuccess) code = find_stream(stream, &s);
  if (code != Code::kSuccess) return code;
  const std::lock_guard lock(capture_mutex());
  if (s->capture && e->capture != s->capture) {
    return spoil(*s->capture, e->capture ? Code::kCaptureMerge : Code::kCaptureIsolation,
                 e->capture ? "a wait would join two captures"
                            : "a capturing stream waits for an event from outside of its capture");
  }
  if (e->capture) {  // the stream joins the capture, or learns of work in it
    if (is_legacy(stream)) {
      return spoil(*e->capture, Code::kCaptureImplicit,
                   "the legacy default stream waits for an event of a capture");
    }
    s->capture = e->capture;
    s->capture->members.insert(s);
    s->frontier.insert(e->frontier.begin(), e->frontier.end());
  } else if (e->recorded) {
    finish_at(*s, is_legacy(stream), std::max(s->end_ns, e->at_ns));
  }
  return sticky_error();
}

Code check_event(void* event) {
  Event* e = nullptr;
  return find_event(event, &e);
}

Code record_in_graph(void* event) {
  Event* e = nullptr;
  if (const Code code = find_event(event, &e); code != Code::kSuccess) return code;
  e->capture = nullptr;
  e->recorded = true;
  e->when = std::chrono::steady_clock::now();
  if (!(e->flags & kDisableTiming)) want_times();
  e->at_ns = work_ns();
  return Code::kSuccess;
}

Code wait_in_graph(void* event) {
  Event* e = nullptr;
  if (const Code code = find_event(event, &e); code != Code::kSuccess) return code;
  if (e->recorded) work_ns() = std::max(work_ns(), e->at_ns);
  return Code::kSuccess;
}

Code elapsed(void* begin, void* end, float* ms) {
  Event* a = nullptr;
  Event* b = nullptr;
  Code code = find_event(begin, &a);
  if (code == Code::kSuccess) code = find_event(end, &b);
  for (const Event* e : {a, b}) {
    if (code == Code::kSuccess) code = not_in_a_capture(*e);
  }
  if (code != Code::kSuccess) return code;
  if (!ms) return fail(Code::kInvalidValue, "the time between two events has nowhere to go");
  if ((a->flags | b->flags) & kDisableTiming)
    return fail(Code::kInvalidHandle, "an event was created with timing disabled");
  if (!a->recorded || !b->recorded) {
    return fail(Code::kInvalidHandle, "the time between two events needs both to be recorded");
  }
  *ms = options().model_times
            ? static_cast<float>(static_cast<double>(static_cast<s64>(b->at_ns - a->at_ns)) * 1e-6)
            : std::chrono::duration<float, std::milli>(b->when - a->when).count();
  return sticky_error();
}

Code synchronize_stream(void* stream) {
  Stream* s = nullptr;
  if (const Code code = find_stream(stream, &s); code != Code::kSuccess) return code;
  const std::lock_guard lock(capture_mutex());
  if (s->capture) {
    return spoil(*s->capture, Code::kCaptureUnsupported,
                 "the host waits for a stream that is capturing");
  }
  host_reaches(ready_ns(*s, is_legacy(stream)));
  return sticky_error();
}

Code synchronize_event(void* event) {
  Event* e = nullptr;
  Code code = find_event(event, &e);
  if (code == Code::kSuccess) code = not_in_a_capture(*e);
  if (code != Code::kSuccess) return code;
  host_reaches(e->at_ns);
  return sticky_error();
}

Code synchronize_device() {
  const Code code = unsafe_while_capturing("a wait for the whole device");
  if (code != Code::kSuccess) return code;
  host_reaches(last_ns());
  return sticky_error();
}

void reset_device() {
  clear_sticky_error();
  reset_memory();
  reset_limits();
}

Code submit(void* stream, Work work) {
  Stream* s = nullptr;
  if (const Code code = sticky_error(); code != Code::kSuccess) return code;
  if (const Code code = find_stream(stream, &s); code != Code::kSuccess) return code;
  {
    const std::lock_guard lock(capture_mutex());
    bool capturing = false;
    if (const Code code = admit(stream, *s, &capturing); code != Code::kSuccess) return code;
    if (capturing) {
      add_captured(*s, std::move(work));
      return Code::kSuccess;
    }
  }
  work_ns() = ready_ns(*s, is_legacy(stream));
  const Code code = work.run();
  finish_at(*s, is_legacy(stream), work_ns());
  return code;
}

}  // namespace vgpu
