// Graphs: nodes that record events and wait for them, and what is refused by name.
#include "core/graph.h"
#include "core/graph_conditional.h"

#include "cudart/types.h"

using namespace vgpu;
using vgpu::cudart::done;
using vgpu::cudart::refuse_null;

namespace {

cudaError_t add_event(void** node, void* graph, void* const* after, size_t count, int kind,
                      void* event) {
  Work work;
  Code code = event_work(kind, event, &work);
  if (code == Code::kSuccess)
    code = add_graph_node(graph, handles_of(after, count), std::move(work), node);
  return done(code);
}

cudaError_t event_of(void* node, int kind, void** event, const char* call) {
  if (!event) return refuse_null(call);
  Work work;
  const Code code = node_work(node, kind, &work);
  if (code == Code::kSuccess) *event = std::get<EventUse>(work.made_of).event;
  return done(code);
}

// Of a node, or of its like in an executable graph.
cudaError_t set_event(void* const* executable, void* node, int kind, void* event) {
  Work work;
  Code code = event_work(kind, event, &work);
  if (code == Code::kSuccess) {
    code = executable ? set_executable_work(*executable, node, std::move(work))
                      : set_node_work(node, std::move(work));
  }
  return done(code);
}

}  // namespace

extern "C" {

cudaError_t cudaGraphAddEventRecordNode(void** node, void* graph, void* const* after, size_t count,
                                        void* event) {
  return add_event(node, graph, after, count, kRecordNode, event);
}
cudaError_t cudaGraphAddEventWaitNode(void** node, void* graph, void* const* after, size_t count,
                                      void* event) {
  return add_event(node, graph, after, count, kWaitNode, event);
}
cudaError_t cudaGraphEventRecordNodeGetEvent(void* node, void** event) {
  return event_of(node, kRecordNode, event, "cudaGraphEventRecordNodeGetEvent");
}
cudaError_t cudaGraphEventWaitNodeGetEvent(void* node, void** event) {
  return event_of(node, kWaitNode, event, "cudaGraphEventWaitNodeGetEvent");
}
cudaError_t cudaGraphEventRecordNodeSetEvent(void* node, void* event) {
  return set_event(nullptr, node, kRecordNode, event);
}
cudaError_t cudaGraphEventWaitNodeSetEvent(void* node, void* event) {
  return set_event(nullptr, node, kWaitNode, event);
}
cudaError_t cudaGraphExecEventRecordNodeSetEvent(void* executable, void* node, void* event) {
  return set_event(&executable, node, kRecordNode, event);
}
cudaError_t cudaGraphExecEventWaitNodeSetEvent(void* executable, void* node, void* event) {
  return set_event(&executable, node, kWaitNode, event);
}
cudaError_t cudaGraphConditionalHandleCreate(unsigned long long* handle, void* graph,
                                             unsigned initial, unsigned flags) {
  return done(create_condition(graph, initial, flags, handle));
}

}  // extern "C"
