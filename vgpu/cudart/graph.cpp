// Graphs: built node by node, instantiated, launched and changed.
//
// CUDA 13 gave data of edges to six calls. They have the names of CUDA 12's second versions here;
// the Makefile gives libcudart.so.13 the plain names as well, and runtime12.cpp has those of
// CUDA 12.
#include "core/graph.h"
#include "core/graph_conditional.h"

#include "core/capture.h"
#include "cudart/graph_parameters.h"

using namespace vgpu;
using vgpu::cudart::done;
using vgpu::cudart::parameters_of;
using vgpu::cudart::refuse_null;
using vgpu::cudart::work_of;

namespace {

using Nodes = std::vector<Handle>;

cudaMemcpy3DParms linear(void* to, const void* from, size_t bytes, int kind) {
  cudaMemcpy3DParms p = {};
  p.srcPtr = {const_cast<void*>(from), bytes, bytes, 1};
  p.dstPtr = {to, bytes, bytes, 1};
  p.extent = {bytes, 1, 1};
  p.kind = kind;
  return p;
}

// --- what the calls have in common ---------------------------------------------------------------

template <class Parameters>
cudaError_t add(void** node, void* graph, void* const* after, size_t count,
                const Parameters* parameters, const char* call) {
  if (!parameters) return refuse_null(call);
  Work work;
  Code code = work_of(*parameters, &work);
  if (code == Code::kSuccess)
    code = add_graph_node(graph, handles_of(after, count), std::move(work), node);
  return done(code);
}

template <class Parameters>
cudaError_t set(void* node, const Parameters* parameters, const char* call) {
  if (!parameters) return refuse_null(call);
  Work work;
  Code code = work_of(*parameters, &work);
  if (code == Code::kSuccess) code = set_node_work(node, std::move(work));
  return done(code);
}

template <class Parameters>
cudaError_t set_executable(void* executable, void* node, const Parameters* parameters,
                           const char* call) {
  if (!parameters) return refuse_null(call);
  Work work;
  Code code = work_of(*parameters, &work);
  if (code == Code::kSuccess) code = set_executable_work(executable, node, std::move(work));
  return done(code);
}

cudaError_t list(Code code, const Nodes& found, void** nodes, size_t* count, const char* call) {
  if (!count) return refuse_null(call);
  if (code == Code::kSuccess) give(found, nodes, count);
  return done(code);
}

Code change(void* graph, void* const* from, void* const* to, size_t count, bool adding) {
  std::vector<Edge> edges;
  const Code code = edges_of(from, to, count, &edges);
  return code == Code::kSuccess ? change_edges(graph, edges, adding) : code;
}

}  // namespace

extern "C" {

// --- graphs --------------------------------------------------------------------------------------

cudaError_t cudaGraphCreate(void** graph, unsigned) { return done(create_graph(graph)); }
cudaError_t cudaGraphDestroy(void* graph) { return done(destroy_graph(graph, false)); }
cudaError_t cudaGraphClone(void** clone, void* graph) { return done(clone_graph(graph, clone)); }
cudaError_t cudaGraphNodeFindInClone(void** found, void* node, void* clone) {
  return found ? done(find_in_clone(node, clone, found)) : refuse_null("cudaGraphNodeFindInClone");
}
cudaError_t cudaGraphGetNodes(void* graph, void** nodes, size_t* count) {
  Nodes found;
  return list(list_nodes(graph, false, &found), found, nodes, count, "cudaGraphGetNodes");
}
cudaError_t cudaGraphGetRootNodes(void* graph, void** nodes, size_t* count) {
  Nodes found;
  return list(list_nodes(graph, true, &found), found, nodes, count, "cudaGraphGetRootNodes");
}

// --- nodes ---------------------------------------------------------------------------------------

cudaError_t cudaGraphNodeGetType(void* node, int* kind) {
  return kind ? done(node_kind(node, kind)) : refuse_null("cudaGraphNodeGetType");
}
cudaError_t cudaGraphDestroyNode(void* node) { return done(destroy_node(node)); }

cudaError_t cudaGraphAddEmptyNode(void** node, void* graph, void* const* after, size_t count) {
  return done(add_graph_node(graph, handles_of(after, count), Work(), node));
}

cudaError_t cudaGraphAddKernelNode(void** node, void* graph, void* const* after, size_t count,
                                   const cudaKernelNodeParams* p) {
  return add(node, graph, after, count, p, "cudaGraphAddKernelNode");
}
cudaError_t cudaGraphKernelNodeSetParams(void* node, const cudaKernelNodeParams* p) {
  return set(node, p, "cudaGraphKernelNodeSetParams");
}
cudaError_t cudaGraphExecKernelNodeSetParams(void* executable, void* node,
                                             const cudaKernelNodeParams* p) {
  return set_executable(executable, node, p, "cudaGraphExecKernelNodeSetParams");
}
// The pointers to the arguments stay good as long as the node keeps its parameters.
cudaError_t cudaGraphKernelNodeGetParams(void* node, cudaKernelNodeParams* p) {
  if (!p) return refuse_null("cudaGraphKernelNodeGetParams");
  Work work;
  if (const Code code = node_work(node, kKernelNode, &work); code != Code::kSuccess)
    return done(code);
  const KernelCall& call = *std::get<std::shared_ptr<const KernelCall>>(work.made_of);
  const u32* g = call.shape.grid;
  const u32* b = call.shape.block;
  *p = {const_cast<void*>(call.function),
        {g[0], g[1], g[2]},
        {b[0], b[1], b[2]},
        static_cast<unsigned>(call.shape.dynamic_shared),
        const_cast<void**>(call.arguments.data()),
        nullptr};
  return 0;
}

cudaError_t cudaGraphAddMemcpyNode(void** node, void* graph, void* const* after, size_t count,
                                   const cudaMemcpy3DParms* p) {
  return add(node, graph, after, count, p, "cudaGraphAddMemcpyNode");
}
cudaError_t cudaGraphMemcpyNodeSetParams(void* node, const cudaMemcpy3DParms* p) {
  return set(node, p, "cudaGraphMemcpyNodeSetParams");
}
cudaError_t cudaGraphExecMemcpyNodeSetParams(void* executable, void* node,
                                             const cudaMemcpy3DParms* p) {
  return set_executable(executable, node, p, "cudaGraphExecMemcpyNodeSetParams");
}
cudaError_t cudaGraphAddMemcpyNode1D(void** node, void* graph, void* const* after, size_t count,
                                     void* to, const void* from, size_t bytes, int kind) {
  const cudaMemcpy3DParms p = linear(to, from, bytes, kind);
  return add(node, graph, after, count, &p, "cudaGraphAddMemcpyNode1D");
}
cudaError_t cudaGraphMemcpyNodeSetParams1D(void* node, void* to, const void* from, size_t bytes,
                                           int kind) {
  const cudaMemcpy3DParms p = linear(to, from, bytes, kind);
  return set(node, &p, "cudaGraphMemcpyNodeSetParams1D");
}
cudaError_t cudaGraphExecMemcpyNodeSetParams1D(void* executable, void* node, void* to,
                                               const void* from, size_t bytes, int kind) {
  const cudaMemcpy3DParms p = linear(to, from, bytes, kind);
  return set_executable(executable, node, &p, "cudaGraphExecMemcpyNodeSetParams1D");
}
cudaError_t cudaGraphMemcpyNodeGetParams(void* node, cudaMemcpy3DParms* p) {
  if (!p) return refuse_null("cudaGraphMemcpyNodeGetParams");
  Work work;
  const Code code = node_work(node, kCopyNode, &work);
  if (code == Code::kSuccess) *p = parameters_of(std::get<std::vector<Copy2d>>(work.made_of));
  return done(code);
}

cudaError_t cudaGraphAddMemsetNode(void** node, void* graph, void* const* after, size_t count,
                                   const cudaMemsetParams* p) {
  return add(node, graph, after, count, p, "cudaGraphAddMemsetNode");
}
cudaError_t cudaGraphMemsetNodeSetParams(void* node, const cudaMemsetParams* p) {
  return set(node, p, "cudaGraphMemsetNodeSetParams");
}
cudaError_t cudaGraphExecMemsetNodeSetParams(void* executable, void* node,
                                             const cudaMemsetParams* p) {
  return set_executable(executable, node, p, "cudaGraphExecMemsetNodeSetParams");
}
cudaError_t cudaGraphMemsetNodeGetParams(void* node, cudaMemsetParams* p) {
  if (!p) return refuse_null("cudaGraphMemsetNodeGetParams");
  Work work;
  if (const Code code = node_work(node, kFillNode, &work); code != Code::kSuccess)
    return done(code);
  const Fill2d& f = std::get<Fill2d>(work.made_of);
  *p = {f.to, f.pitch, f.value, f.element, f.width, f.height};
  return 0;
}

cudaError_t cudaGraphAddHostNode(void** node, void* graph, void* const* after, size_t count,
                                 const cudaHostNodeParams* p) {
  return add(node, graph, after, count, p, "cudaGraphAddHostNode");
}
cudaError_t cudaGraphHostNodeSetParams(void* node, const cudaHostNodeParams* p) {
  return set(node, p, "cudaGraphHostNodeSetParams");
}
cudaError_t cudaGraphExecHostNodeSetParams(void* executable, void* node,
                                           const cudaHostNodeParams* p) {
  return set_executable(executable, node, p, "cudaGraphExecHostNodeSetParams");
}
cudaError_t cudaGraphHostNodeGetParams(void* node, cudaHostNodeParams* p) {
  if (!p) return refuse_null("cudaGraphHostNodeGetParams");
  Work work;
  if (const Code code = node_work(node, kHostNode, &work); code != Code::kSuccess)
    return done(code);
  const HostCall& call = std::get<HostCall>(work.made_of);
  *p = {call.function, call.data};
  return 0;
}

cudaError_t cudaGraphAddChildGraphNode(void** node, void* graph, void* const* after, size_t count,
                                       void* child) {
  Work work;
  Code code = child_work(child, &work);
  if (code == Code::kSuccess)
    code = add_graph_node(graph, handles_of(after, count), std::move(work), node);
  return done(code);
}
cudaError_t cudaGraphChildGraphNodeGetGraph(void* node, void** graph) {
  return graph ? done(child_graph(node, graph)) : refuse_null("cudaGraphChildGraphNodeGetGraph");
}
cudaError_t cudaGraphExecChildGraphNodeSetParams(void* executable, void* node, void* child) {
  Work work;
  Code code = child_work(child, &work);
  if (code == Code::kSuccess) code = set_executable_work(executable, node, std::move(work));
  return done(code);
}

cudaError_t cudaGraphAddMemAllocNode(void** node, void* graph, void* const* after, size_t count,
                                     cudaMemAllocNodeParams* p) {
  if (!p) return refuse_null("cudaGraphAddMemAllocNode");
  Work work;
  Code code = allocation_work(graph, p->bytesize, &p->dptr, &work);
  if (code == Code::kSuccess)
    code = add_graph_node(graph, handles_of(after, count), std::move(work), node);
  return done(code);
}
cudaError_t cudaGraphAddMemFreeNode(void** node, void* graph, void* const* after, size_t count,
                                    void* pointer) {
  return done(add_graph_node(graph, handles_of(after, count), free_work(pointer), node));
}

cudaError_t cudaGraphMemAllocNodeGetParams(void* node, cudaMemAllocNodeParams* p) {
  if (!p) return refuse_null("cudaGraphMemAllocNodeGetParams");
  Work work;
  if (const Code code = node_work(node, kAllocNode, &work); code != Code::kSuccess)
    return done(code);
  const MemoryUse use = std::get<MemoryUse>(work.made_of);
  *p = {};
  p->poolProps.allocType = 1;      // pinned
  p->poolProps.location.type = 1;  // device 0
  p->bytesize = use.bytes;
  p->dptr = use.base;
  return 0;
}
cudaError_t cudaGraphMemFreeNodeGetParams(void* node, void** pointer) {
  if (!pointer) return refuse_null("cudaGraphMemFreeNodeGetParams");
  Work work;
  if (const Code code = node_work(node, kFreeNode, &work); code != Code::kSuccess)
    return done(code);
  *pointer = std::get<MemoryUse>(work.made_of).base;
  return 0;
}

// graph_events.cpp
cudaError_t cudaGraphAddEventRecordNode(void** node, void* graph, void* const* after, size_t count,
                                        void* event);
cudaError_t cudaGraphAddEventWaitNode(void** node, void* graph, void* const* after, size_t count,
                                      void* event);

// A node of any kind.
cudaError_t cudaGraphAddNode_v2(void** node, void* graph, void* const* after, const void*,
                                size_t count, cudaGraphNodeParams* p) {
  if (!p) return refuse_null("cudaGraphAddNode");
  switch (p->type) {
    case kKernelNode:
      return cudaGraphAddKernelNode(node, graph, after, count, &p->kernel);
    case kCopyNode:
      return cudaGraphAddMemcpyNode(node, graph, after, count, &p->memcpy.copyParams);
    case kFillNode:
      return cudaGraphAddMemsetNode(node, graph, after, count, &p->memset);
    case kHostNode:
      return cudaGraphAddHostNode(node, graph, after, count, &p->host);
    case kGraphNode:
      return cudaGraphAddChildGraphNode(node, graph, after, count, p->child.graph);
    case kEmptyNode:
      return cudaGraphAddEmptyNode(node, graph, after, count);
    case kAllocNode:
      return cudaGraphAddMemAllocNode(node, graph, after, count, &p->alloc);
    case kFreeNode:
      return cudaGraphAddMemFreeNode(node, graph, after, count, p->free.dptr);
    case kWaitNode:
      return cudaGraphAddEventWaitNode(node, graph, after, count, p->event.event);
    case kRecordNode:
      return cudaGraphAddEventRecordNode(node, graph, after, count, p->event.event);
    case kConditionalNode: {
      Work work;
      const Code code = conditional_work(p->conditional.handle, p->conditional.type,
                                         p->conditional.size, &work, &p->conditional.graphs);
      return done(code == Code::kSuccess
                      ? add_graph_node(graph, handles_of(after, count), std::move(work), node)
                      : code);
    }
    default:
      return done(refuse_node(p->type));
  }
}

// --- dependencies --------------------------------------------------------------------------------

cudaError_t cudaGraphAddDependencies_v2(void* graph, void* const* from, void* const* to,
                                        const void*, size_t count) {
  return done(change(graph, from, to, count, true));
}
cudaError_t cudaGraphRemoveDependencies_v2(void* graph, void* const* from, void* const* to,
                                           const void*, size_t count) {
  return done(change(graph, from, to, count, false));
}
cudaError_t cudaGraphGetEdges_v2(void* graph, void** from, void** to, void*, size_t* count) {
  if (!count) return refuse_null("cudaGraphGetEdges");
  std::vector<Edge> edges;
  if (const Code code = list_edges(graph, &edges); code != Code::kSuccess) return done(code);
  for (size_t k = 0; from && to && k < std::min(*count, edges.size()); ++k) {
    from[k] = edges[k].first;
    to[k] = edges[k].second;
  }
  *count = edges.size();
  return 0;
}
cudaError_t cudaGraphNodeGetDependencies_v2(void* node, void** nodes, void*, size_t* count) {
  Nodes found;
  return list(neighbours(node, false, &found), found, nodes, count, "cudaGraphNodeGetDependencies");
}
cudaError_t cudaGraphNodeGetDependentNodes_v2(void* node, void** nodes, void*, size_t* count) {
  Nodes found;
  return list(neighbours(node, true, &found), found, nodes, count,
              "cudaGraphNodeGetDependentNodes");
}

// --- executable graphs ---------------------------------------------------------------------------

cudaError_t cudaGraphInstantiate(void** executable, void* graph, unsigned long long flags) {
  return done(instantiate(graph, flags, executable));
}
cudaError_t cudaGraphInstantiateWithFlags(void** executable, void* graph,
                                          unsigned long long flags) {
  return done(instantiate(graph, flags, executable));
}
cudaError_t cudaGraphInstantiateWithParams(void** executable, void* graph,
                                           cudaGraphInstantiateParams* p) {
  if (!p) return refuse_null("cudaGraphInstantiateWithParams");
  const Code code = instantiate(graph, p->flags, executable);
  p->errNode_out = nullptr;
  p->result_out = code == Code::kSuccess ? 0 : 1;  // success, error
  return done(code);
}
cudaError_t cudaGraphExecGetFlags(void* executable, unsigned long long* flags) {
  return flags ? done(executable_flags(executable, flags)) : refuse_null("cudaGraphExecGetFlags");
}
cudaError_t cudaGraphUpload(void*, void* stream) {
  Stream* s = nullptr;
  return done(find_stream(stream, &s));
}
cudaError_t cudaGraphLaunch(void* executable, void* stream) {
  return done(launch_graph(executable, stream));
}
cudaError_t cudaGraphExecDestroy(void* executable) { return done(destroy_graph(executable, true)); }
cudaError_t cudaGraphExecUpdate(void* executable, void* graph,
                                cudaGraphExecUpdateResultInfo* info) {
  UpdateResult result;
  const Code code = update_executable(executable, graph, &result);
  constexpr int kError = 1;
  const bool other = code != Code::kSuccess && !result.result;
  if (info) *info = {other ? kError : result.result, result.node, nullptr};
  return done(code);
}
cudaError_t cudaGraphNodeSetEnabled(void* executable, void* node, unsigned enabled) {
  return done(set_enabled(executable, node, enabled != 0));
}
cudaError_t cudaGraphNodeGetEnabled(void* executable, void* node, unsigned* enabled) {
  if (!enabled) return refuse_null("cudaGraphNodeGetEnabled");
  bool is = false;
  const Code code = is_enabled(executable, node, &is);
  *enabled = is;
  return done(code);
}

}  // extern "C"
