// Streams and events. Work is done when it is issued, in order, unless the stream is capturing:
// then it becomes a node of a graph. An event has the time of its stream (timeline.h), and the
// host's.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <set>

#include "core/error.h"
#include "core/stream_attributes.h"
#include "exec/types.h"

namespace vgpu {

struct Capture;

struct Stream {
  unsigned flags = 0;
  int priority = 0;
  unsigned long long id = 0;
  std::shared_ptr<Capture> capture;
  std::set<size_t> frontier;  // of the capture's graph: the nodes that the next one depends on
  u64 end_ns = 0;             // of its last work, modelled
  std::map<int, StreamAttribute> attributes = {};  // those that were set
};

struct Event {
  unsigned flags = 0;
  bool recorded = false;
  std::chrono::steady_clock::time_point when;
  u64 at_ns = 0;                     // modelled
  std::shared_ptr<Capture> capture;  // recorded in a stream that was capturing
  std::set<size_t> frontier;
};

// The calling thread's own default stream (cudaStreamPerThread).
inline void* const kPerThreadStream = reinterpret_cast<void*>(2);

inline constexpr unsigned kNonBlocking = 1;    // cudaStreamNonBlocking
inline constexpr unsigned kDisableTiming = 2;  // cudaEventDisableTiming

Code create_stream(unsigned flags, int priority, void** out);
Code destroy_stream(void* handle);
// Also takes the handles of the default streams: null, 1 (legacy) and 2 (the thread's own).
Code find_stream(void* handle, Stream** out);
bool is_legacy(void* handle);

Code create_event(unsigned flags, void** out);
Code destroy_event(void* handle);
Code record_event(void* event, void* stream);
Code wait_event(void* stream, void* event);
// The event is alive.
Code check_event(void* event);
// As nodes of a graph that runs.
Code record_in_graph(void* event);
Code wait_in_graph(void* event);
Code elapsed(void* begin, void* end, float* ms);

// Each returns the error of an earlier fault, if there was one: work is finished by then.
Code synchronize_stream(void* stream);
Code synchronize_event(void* event);
Code synchronize_device();
// cudaDeviceReset, cuDevicePrimaryCtxReset: no fault, no memory allocated, limits as at first.
void reset_device();

// Does the work now, or adds it to the graph that the stream is capturing.
struct Work;
Code submit(void* stream, Work work);

}  // namespace vgpu
