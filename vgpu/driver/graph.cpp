// The CUDA driver: graphs, captured or built node by node.
#include "core/graph.h"
#include "core/graph_conditional.h"

#include <cstring>

#include "driver/driver.h"

using namespace vgpu;
using vgpu::driver::find_function;
using vgpu::driver::refuse_null;
using vgpu::driver::result;

// Parameters of nodes as CUDA 12 and 13 lay them out (cuda.h).
extern "C" {

struct CUDA_KERNEL_NODE_PARAMS {
  void* func;
  unsigned grid[3];
  unsigned block[3];
  unsigned sharedMemBytes;
  void** kernelParams;
  void** extra;
  void* kern;
  void* ctx;
};

struct CUDA_MEMCPY3D {
  struct End {
    size_t x_bytes, y, z, lod;
    int type;  // CUmemorytype
    void* host;
    CUdeviceptr device;
    void* array;
    void* reserved;
    size_t pitch, height;
  };
  End source, target;
  size_t width_bytes, height, depth;
};

struct CUDA_MEMSET_NODE_PARAMS {
  CUdeviceptr dst;
  size_t pitch;
  unsigned value;
  unsigned elementSize;
  size_t width;
  size_t height;
};

struct CUDA_HOST_NODE_PARAMS {
  void (*fn)(void*);
  void* userData;
};

struct CUgraphNodeParams {
  int type;
  int reserved0[3];
  union {
    long long reserved1[29];
    CUDA_KERNEL_NODE_PARAMS kernel;
    struct {
      int flags, reserved;
      void* context;
      CUDA_MEMCPY3D copy;
    } memcpy;
    CUDA_MEMSET_NODE_PARAMS memset;
    CUDA_HOST_NODE_PARAMS host;
    void* graph;
    void* event;
    struct {
      unsigned long long handle;
      int type;
      unsigned size;
      void** graphs;
      void* context;
    } conditional;
  };
  long long reserved2;
};

struct CUgraphExecUpdateResultInfo {
  int result;
  void* errorNode;
  void* errorFromNode;
};

static_assert(sizeof(CUDA_KERNEL_NODE_PARAMS) == 72 && sizeof(CUDA_MEMCPY3D) == 200);
static_assert(sizeof(CUDA_MEMSET_NODE_PARAMS) == 40 && sizeof(CUgraphNodeParams) == 256);
}

namespace {

enum MemoryType { kHost = 1, kDevice = 2, kArray = 3, kUnified = 4 };  // CUmemorytype

Code work_of(const CUDA_KERNEL_NODE_PARAMS& p, Work* work) {
  Kernel* kernel = nullptr;
  if (const Code code = find_function(p.func, "a kernel node", &kernel); code != Code::kSuccess)
    return code;
  if (p.extra) {
    return fail(Code::kNotSupported,
                "a kernel node with its parameters in one buffer (extra); pass kernelParams");
  }
  LaunchShape shape;
  std::memcpy(shape.grid, p.grid, sizeof(shape.grid));
  std::memcpy(shape.block, p.block, sizeof(shape.block));
  shape.dynamic_shared = p.sharedMemBytes;
  return kernel_work(p.func, *kernel, shape, p.kernelParams, work);
}

// Where plane `z` of a copy begins.
char* corner(const CUDA_MEMCPY3D::End& end, size_t z) {
  char* const base =
      end.type == kHost ? static_cast<char*>(end.host) : reinterpret_cast<char*>(end.device);
  return base + ((end.z + z) * end.height + end.y) * end.pitch + end.x_bytes;
}

Code side_of(const CUDA_MEMCPY3D::End& end, Side* side) {
  if (end.type == kArray) return fail(Code::kNotSupported, "copies of CUDA arrays");
  if (end.type < kHost || end.type > kUnified) {
    return fail(Code::kInvalidValue,
                "memory type " + std::to_string(end.type) + " of a copy is not defined");
  }
  *side = end.type == kHost ? Side::kHost : end.type == kDevice ? Side::kDevice : Side::kAny;
  return Code::kSuccess;
}

Code work_of(const CUDA_MEMCPY3D& p, Work* work) {
  Copy2d slice = {nullptr, p.target.pitch, nullptr, p.source.pitch, p.width_bytes, p.height};
  Code code = side_of(p.source, &slice.from_side);
  if (code == Code::kSuccess) code = side_of(p.target, &slice.to_side);
  if (code != Code::kSuccess) return code;
  // A copy of one row may leave its pitches 0.
  if (p.height <= 1 && !slice.to_pitch) slice.to_pitch = p.width_bytes;
  if (p.height <= 1 && !slice.from_pitch) slice.from_pitch = p.width_bytes;
  std::vector<Copy2d> slices;
  for (size_t z = 0; z < p.depth; ++z) {
    slice.to = corner(p.target, z);
    slice.from = corner(p.source, z);
    slices.push_back(slice);
  }
  return copy_work(std::move(slices), work);
}

Code work_of(const CUDA_MEMSET_NODE_PARAMS& p, Work* work) {
  return fill_work(
      {reinterpret_cast<void*>(p.dst), p.pitch, p.value, p.elementSize, p.width, p.height}, work);
}

Code work_of(const CUDA_HOST_NODE_PARAMS& p, Work* work) {
  if (!p.fn) return fail(Code::kInvalidValue, "a graph node's host function is null");
  *work = host_work({p.fn, p.userData});
  return Code::kSuccess;
}

Code work_of(const CUgraphNodeParams& p, Work* work) {
  switch (p.type) {
    case kKernelNode:
      return work_of(p.kernel, work);
    case kCopyNode:
      return work_of(p.memcpy.copy, work);
    case kFillNode:
      return work_of(p.memset, work);
    case kHostNode:
      return work_of(p.host, work);
    case kGraphNode:
      return child_work(p.graph, work);
    case kEmptyNode:
      return Code::kSuccess;
    case kWaitNode:
    case kRecordNode:
      return event_work(p.type, p.event, work);
    default:
      return refuse_node(p.type);
  }
}

CUresult add(void** node, void* graph, void* const* after, size_t count, Code made, Work work) {
  if (made != Code::kSuccess) return result(made);
  return result(add_graph_node(graph, handles_of(after, count), std::move(work), node));
}

template <class Parameters>
CUresult add_made_of(void** node, void* graph, void* const* after, size_t count,
                     const Parameters* parameters, const char* call) {
  if (!parameters) return refuse_null(call);
  Work work;
  const Code code = work_of(*parameters, &work);
  return add(node, graph, after, count, code, std::move(work));
}

CUresult list(Code code, const std::vector<Handle>& found, void** nodes, size_t* count,
              const char* call) {
  if (!count) return refuse_null(call);
  if (code == Code::kSuccess) give(found, nodes, count);
  return result(code);
}

CUresult change(void* graph, void* const* from, void* const* to, size_t count, bool adding) {
  std::vector<Edge> edges;
  const Code code = edges_of(from, to, count, &edges);
  return result(code == Code::kSuccess ? change_edges(graph, edges, adding) : code);
}

}  // namespace

extern "C" {

// --- graphs --------------------------------------------------------------------------------------

CUresult cuGraphCreate(void** graph, unsigned) { return result(create_graph(graph)); }
CUresult cuGraphDestroy(void* graph) { return result(destroy_graph(graph, false)); }
CUresult cuGraphClone(void** clone, void* graph) { return result(clone_graph(graph, clone)); }
CUresult cuGraphGetNodes(void* graph, void** nodes, size_t* count) {
  std::vector<Handle> found;
  return list(list_nodes(graph, false, &found), found, nodes, count, "cuGraphGetNodes");
}
CUresult cuGraphGetRootNodes(void* graph, void** nodes, size_t* count) {
  std::vector<Handle> found;
  return list(list_nodes(graph, true, &found), found, nodes, count, "cuGraphGetRootNodes");
}

// --- nodes ---------------------------------------------------------------------------------------

CUresult cuGraphAddEmptyNode(void** node, void* graph, void* const* after, size_t count) {
  return add(node, graph, after, count, Code::kSuccess, Work());
}
CUresult cuGraphAddKernelNode_v2(void** node, void* graph, void* const* after, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS* p) {
  return add_made_of(node, graph, after, count, p, "cuGraphAddKernelNode");
}
CUresult cuGraphAddMemcpyNode(void** node, void* graph, void* const* after, size_t count,
                              const CUDA_MEMCPY3D* p, void*) {
  return add_made_of(node, graph, after, count, p, "cuGraphAddMemcpyNode");
}
CUresult cuGraphAddMemsetNode(void** node, void* graph, void* const* after, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS* p, void*) {
  return add_made_of(node, graph, after, count, p, "cuGraphAddMemsetNode");
}
CUresult cuGraphAddHostNode(void** node, void* graph, void* const* after, size_t count,
                            const CUDA_HOST_NODE_PARAMS* p) {
  return add_made_of(node, graph, after, count, p, "cuGraphAddHostNode");
}
CUresult cuGraphAddChildGraphNode(void** node, void* graph, void* const* after, size_t count,
                                  void* child) {
  Work work;
  const Code code = child_work(child, &work);
  return add(node, graph, after, count, code, std::move(work));
}
CUresult cuGraphAddEventRecordNode(void** node, void* graph, void* const* after, size_t count,
                                   void* event) {
  Work work;
  const Code code = event_work(kRecordNode, event, &work);
  return add(node, graph, after, count, code, std::move(work));
}
CUresult cuGraphAddEventWaitNode(void** node, void* graph, void* const* after, size_t count,
                                 void* event) {
  Work work;
  const Code code = event_work(kWaitNode, event, &work);
  return add(node, graph, after, count, code, std::move(work));
}
CUresult cuGraphAddNode_v2(void** node, void* graph, void* const* after, const void*, size_t count,
                           CUgraphNodeParams* p) {
  if (p && p->type == kConditionalNode) {
    Work work;
    auto& c = p->conditional;
    const Code code = conditional_work(c.handle, c.type, c.size, &work, &c.graphs);
    return add(node, graph, after, count, code, std::move(work));
  }
  return add_made_of(node, graph, after, count, p, "cuGraphAddNode");
}
CUresult cuGraphConditionalHandleCreate(unsigned long long* handle, void* graph, void*,
                                        unsigned initial, unsigned flags) {
  return result(create_condition(graph, initial, flags, handle));
}
CUresult cuGraphNodeGetType(void* node, int* kind) {
  return kind ? result(node_kind(node, kind)) : refuse_null("cuGraphNodeGetType");
}
CUresult cuGraphDestroyNode(void* node) { return result(destroy_node(node)); }

// --- dependencies --------------------------------------------------------------------------------

CUresult cuGraphAddDependencies_v2(void* graph, void* const* from, void* const* to, const void*,
                                   size_t count) {
  return change(graph, from, to, count, true);
}
CUresult cuGraphRemoveDependencies_v2(void* graph, void* const* from, void* const* to, const void*,
                                      size_t count) {
  return change(graph, from, to, count, false);
}
CUresult cuGraphNodeGetDependencies_v2(void* node, void** nodes, void*, size_t* count) {
  std::vector<Handle> found;
  return list(neighbours(node, false, &found), found, nodes, count, "cuGraphNodeGetDependencies");
}
CUresult cuGraphNodeGetDependentNodes_v2(void* node, void** nodes, void*, size_t* count) {
  std::vector<Handle> found;
  return list(neighbours(node, true, &found), found, nodes, count, "cuGraphNodeGetDependentNodes");
}

// --- executable graphs ---------------------------------------------------------------------------

CUresult cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long flags) {
  return result(instantiate(graph, flags, executable));
}
CUresult cuGraphExecDestroy(void* executable) { return result(destroy_graph(executable, true)); }
CUresult cuGraphExecKernelNodeSetParams_v2(void* executable, void* node,
                                           const CUDA_KERNEL_NODE_PARAMS* p) {
  if (!p) return refuse_null("cuGraphExecKernelNodeSetParams");
  Work work;
  Code code = work_of(*p, &work);
  if (code == Code::kSuccess) code = set_executable_work(executable, node, std::move(work));
  return result(code);
}
CUresult cuGraphExecUpdate_v2(void* executable, void* graph, CUgraphExecUpdateResultInfo* info) {
  UpdateResult seen;
  const Code code = update_executable(executable, graph, &seen);
  constexpr int kError = 1;
  const bool other = code != Code::kSuccess && !seen.result;
  if (info) *info = {other ? kError : seen.result, seen.node, nullptr};
  return result(code);
}
CUresult cuGraphLaunch(void* executable, void* stream) {
  return result(launch_graph(executable, stream));
}

}  // extern "C"
