// Graphs, which are made by capturing streams, and their replay.
//
// Nodes run in the order in which they were issued, which is one that their dependencies allow.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/stream.h"

namespace vgpu {

enum NodeKind { kKernelNode = 0, kCopyNode, kFillNode, kHostNode, kAllocNode = 10, kFreeNode = 11 };

// Memory that cudaMallocAsync took while capturing: its address belongs to the graph, and it is
// live from its allocation node to its free node, or to cudaFree.
struct GraphMemory;

struct Graph {
  struct Node {
    int kind;
    std::function<Code()> run;
    std::set<size_t> after;  // nodes that it depends on
  };
  std::vector<Node> nodes;
  std::vector<std::shared_ptr<GraphMemory>> memory;
};

struct Capture {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  Stream* origin = nullptr;
  std::set<Stream*> members;
  int mode = 0;  // 0 global, 1 thread-local, 2 relaxed
  std::thread::id thread;
  unsigned long long id = 0;
  std::string broken;  // why it came to nothing; empty while it is well
};

// A handle that programs hold of a graph, or of its executable form (whose graph is a copy).
struct GraphHandle {
  std::shared_ptr<Graph> graph;
  bool executable = false;
  bool free_on_launch = false;
};

Code begin_capture(void* stream, int mode);
Code end_capture(void* stream, void** graph);
// 0 none, 1 active, 2 invalidated; the id tells captures apart.
Code capture_status(void* stream, int* status, unsigned long long* id, void** graph);
int exchange_capture_mode(int mode);

// Refuses a call that may wait for, or disturb, a stream that is capturing (cudaMalloc, say), and
// spoils that capture, as CUDA does.
Code unsafe_while_capturing(const char* call);

// For submit: refuses work that a capture forbids; `capturing` tells whether it is to be recorded.
Code admit(void* handle, Stream& stream, bool* capturing);
void add_node(Stream& stream, int kind, std::function<Code()> work);
Code spoil(Capture& capture, Code code, const std::string& why);
// Serialises what reads or changes captures.
std::recursive_mutex& capture_mutex();

Code instantiate(void* graph, unsigned long long flags, void** executable);
Code launch_graph(void* executable, void* stream);
Code destroy_graph(void* handle, bool executable);
Code node_kind(void* node, int* kind);
// Up to *count nodes; *count becomes the number there is.
Code list_nodes(void* graph, void** nodes, size_t* count);

// In stream order, or as nodes of a graph.
Code allocate_async(void** out, size_t bytes, void* stream);
Code free_async(void* base, void* stream);

}  // namespace vgpu
