// Streams that capture: what would be done becomes nodes of a graph.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/graph.h"
#include "core/stream.h"

namespace vgpu {

struct Capture {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  Stream* origin = nullptr;
  std::set<Stream*> members;
  int mode = 0;  // 0 global, 1 thread-local, 2 relaxed
  std::thread::id thread;
  unsigned long long id = 0;
  Handle handle = nullptr;  // of the graph, where the program knows it already
  bool borrowed = false;    // the graph was there before
  std::string broken;       // why it came to nothing; empty while it is well
};

Code begin_capture(void* stream, int mode);
// Adds to a graph that is there, behind these of its nodes.
Code begin_capture_to(void* stream, Handle graph, const std::vector<Handle>& after, int mode);
Code end_capture(void* stream, Handle* graph);
// 0 none, 1 active, 2 invalidated; the id tells captures apart.
Code capture_status(void* stream, int* status, unsigned long long* id, void** graph);
// The nodes that the stream's next one depends on; none where it is not capturing.
Code capture_dependencies(void* stream, std::vector<Handle>* nodes);
// Others in their place, or further ones.
Code set_capture_dependencies(void* stream, const std::vector<Handle>& nodes, bool further);
int exchange_capture_mode(int mode);

// Refuses a call that may wait for, or disturb, a stream that is capturing (cudaMalloc, say), and
// spoils that capture, as CUDA does.
Code unsafe_while_capturing(const char* call);

// For submit: refuses work that a capture forbids; `capturing` tells whether it is to be recorded.
Code admit(void* handle, Stream& stream, bool* capturing);
void add_captured(Stream& stream, Work work);
Code spoil(Capture& capture, Code code, const std::string& why);
// Serialises what reads or changes captures and graphs.
std::recursive_mutex& capture_mutex();

}  // namespace vgpu
