// Graphs that are built through the driver, with the structures of CUDA's own header, and events in
// graphs through the runtime. The driver's functions are asked for by name, as TVM does.
#include <cuda.h>

#include <cstdio>
#include <cstring>

namespace {

int failures = 0;

void expect(bool condition, int line, const char* text) {
  if (condition) return;
  ++failures;
  std::printf("line %d: %s; %s\n", line, text, cudaGetErrorString(cudaGetLastError()));
}
#define EXPECT(condition) expect(condition, __LINE__, #condition)

template <class Function>
Function* named(Function*, const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status;
  cudaGetDriverEntryPointByVersion(name, &found, 13000, cudaEnableDefault, &status);
  if (!found) std::printf("the driver has no %s\n", name);
  return reinterpret_cast<Function*>(found);
}
#define TEXT_OF(name) #name
#define NAME(name) TEXT_OF(name)
#define DRIVER(name) named(static_cast<decltype(&name)>(nullptr), NAME(name))

const char kPtx[] = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .entry twice(.param .u64 p0, .param .u32 p1) {
  .reg .b32 %r<4>; .reg .b64 %d<3>;
  ld.param.u64 %d0, [p0]; ld.param.u32 %r3, [p1]; mov.u32 %r0, %tid.x;
  mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1;
  ld.global.u32 %r1, [%d0]; mul.lo.u32 %r1, %r1, 2; add.u32 %r1, %r1, %r3;
  st.global.u32 [%d0], %r1; ret;
}
)";

constexpr size_t kBytes = 1 << 20;  // long enough to fill that it takes some time

void count(void* data) { ++*static_cast<int*>(data); }

CUDA_KERNEL_NODE_PARAMS launch(CUfunction function, void** arguments) {
  CUDA_KERNEL_NODE_PARAMS p = {};
  p.func = function;
  p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimY = p.blockDimZ = 1;
  p.blockDimX = 8;
  p.kernelParams = arguments;
  return p;
}

}  // namespace

int main() {
  cudaFree(nullptr);
  const auto load = DRIVER(cuModuleLoadData);
  const auto get_function = DRIVER(cuModuleGetFunction);
  const auto create = DRIVER(cuGraphCreate);
  const auto add_kernel = DRIVER(cuGraphAddKernelNode);
  const auto add_copy = DRIVER(cuGraphAddMemcpyNode);
  const auto add_fill = DRIVER(cuGraphAddMemsetNode);
  const auto add_host = DRIVER(cuGraphAddHostNode);
  const auto add_empty = DRIVER(cuGraphAddEmptyNode);
  const auto add_child = DRIVER(cuGraphAddChildGraphNode);
  const auto add_record = DRIVER(cuGraphAddEventRecordNode);
  const auto add_wait = DRIVER(cuGraphAddEventWaitNode);
  const auto add_any = DRIVER(cuGraphAddNode);
  const auto kind_of = DRIVER(cuGraphNodeGetType);
  const auto roots = DRIVER(cuGraphGetRootNodes);
  const auto depend = DRIVER(cuGraphAddDependencies);
  const auto instantiate = DRIVER(cuGraphInstantiate);
  const auto launch_graph = DRIVER(cuGraphLaunch);
  const auto set_kernel = DRIVER(cuGraphExecKernelNodeSetParams);

  CUmodule module;
  CUfunction twice;
  EXPECT(load(&module, kPtx) == CUDA_SUCCESS);
  EXPECT(get_function(&twice, module, "twice") == CUDA_SUCCESS);

  unsigned* data;
  cudaMalloc(&data, kBytes);
  CUdeviceptr address = reinterpret_cast<CUdeviceptr>(data);
  unsigned three = 3;
  void* arguments[] = {&address, &three};
  unsigned result[8] = {};
  int calls = 0;

  // Fill, kernel, copy to the host; a host function beside them.
  CUgraph graph;
  CUgraphNode fill, kernel, copy, host, empty;
  EXPECT(create(&graph, 0) == CUDA_SUCCESS);
  CUDA_MEMSET_NODE_PARAMS filled = {address, 32, 5, 4, 8, 1};
  EXPECT(add_fill(&fill, graph, nullptr, 0, &filled, nullptr) == CUDA_SUCCESS);
  CUDA_KERNEL_NODE_PARAMS launched = launch(twice, arguments);
  EXPECT(add_kernel(&kernel, graph, &fill, 1, &launched) == CUDA_SUCCESS);
  CUDA_MEMCPY3D copied = {};
  copied.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copied.srcDevice = address;
  copied.dstMemoryType = CU_MEMORYTYPE_HOST;
  copied.dstHost = result;
  copied.WidthInBytes = 32;
  copied.Height = copied.Depth = 1;
  EXPECT(add_copy(&copy, graph, nullptr, 0, &copied, nullptr) == CUDA_SUCCESS);
  EXPECT(depend(graph, &kernel, &copy, nullptr, 1) == CUDA_SUCCESS);
  CUDA_HOST_NODE_PARAMS called = {count, &calls};
  EXPECT(add_host(&host, graph, nullptr, 0, &called) == CUDA_SUCCESS);
  CUgraphNode both[] = {copy, host};
  EXPECT(add_empty(&empty, graph, both, 2) == CUDA_SUCCESS);
  CUgraphNodeType kind;
  EXPECT(kind_of(copy, &kind) == CUDA_SUCCESS && kind == CU_GRAPH_NODE_TYPE_MEMCPY);
  size_t root_count = 0;
  EXPECT(roots(graph, nullptr, &root_count) == CUDA_SUCCESS && root_count == 2);
  CUgraphExec executable;
  EXPECT(instantiate(&executable, graph, 0) == CUDA_SUCCESS);
  EXPECT(launch_graph(executable, nullptr) == CUDA_SUCCESS);
  EXPECT(cudaDeviceSynchronize() == cudaSuccess && calls == 1);
  for (unsigned x : result) EXPECT(x == 13);
  three = 4;
  EXPECT(set_kernel(executable, kernel, &launched) == CUDA_SUCCESS);
  EXPECT(launch_graph(executable, nullptr) == CUDA_SUCCESS);
  for (unsigned x : result) EXPECT(x == 14);

  // The graph as a node of another, between two events.
  CUevent begin, end;
  cudaEventCreate(reinterpret_cast<cudaEvent_t*>(&begin));
  cudaEventCreate(reinterpret_cast<cudaEvent_t*>(&end));
  CUgraph outer;
  CUgraphNode waited, started, child, ended;
  EXPECT(create(&outer, 0) == CUDA_SUCCESS);
  EXPECT(add_wait(&waited, outer, nullptr, 0, end) == CUDA_SUCCESS);
  EXPECT(add_record(&started, outer, &waited, 1, begin) == CUDA_SUCCESS);
  EXPECT(add_child(&child, outer, &started, 1, graph) == CUDA_SUCCESS);
  CUgraphNodeParams any = {};
  any.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  any.eventRecord.event = end;
  EXPECT(add_any(&ended, outer, &child, nullptr, 1, &any) == CUDA_SUCCESS);
  EXPECT(kind_of(ended, &kind) == CUDA_SUCCESS && kind == CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  EXPECT(instantiate(&executable, outer, 0) == CUDA_SUCCESS);
  EXPECT(launch_graph(executable, nullptr) == CUDA_SUCCESS);
  float ms = -1;
  EXPECT(cudaEventSynchronize(reinterpret_cast<cudaEvent_t>(end)) == cudaSuccess);
  EXPECT(cudaEventElapsedTime(&ms, reinterpret_cast<cudaEvent_t>(begin),
                              reinterpret_cast<cudaEvent_t>(end)) == cudaSuccess);
  EXPECT(ms > 0 && calls == 3);

  // A node of every kind at once, then what is refused.
  any = {};
  any.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  any.memcpy.copyParams = copied;
  EXPECT(add_any(&copy, outer, nullptr, nullptr, 0, &any) == CUDA_SUCCESS);
  any = {};
  any.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  EXPECT(add_any(&copy, outer, nullptr, nullptr, 0, &any) == CUDA_ERROR_INVALID_VALUE);
  any.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL;
  EXPECT(add_any(&copy, outer, nullptr, nullptr, 0, &any) == CUDA_ERROR_NOT_SUPPORTED);
  EXPECT(std::strstr(cudaGetErrorString(cudaErrorNotSupported), "signals of external semaphores"));
  EXPECT(add_kernel(&kernel, nullptr, nullptr, 0, &launched) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(add_record(&started, outer, nullptr, 0, nullptr) == CUDA_ERROR_INVALID_HANDLE);
  copied.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  EXPECT(add_copy(&copy, outer, nullptr, 0, &copied, nullptr) == CUDA_ERROR_NOT_SUPPORTED);

  // Through the runtime: events as nodes, built and captured.
  cudaEvent_t first, second;
  cudaEventCreate(&first);
  cudaEventCreate(&second);
  cudaGraph_t built;
  cudaGraphNode_t record, wait;
  cudaGraphExec_t ready;
  EXPECT(cudaGraphCreate(&built, 0) == cudaSuccess);
  EXPECT(cudaGraphAddEventRecordNode(&record, built, nullptr, 0, first) == cudaSuccess);
  EXPECT(cudaGraphAddEventWaitNode(&wait, built, &record, 1, second) == cudaSuccess);
  cudaEvent_t seen = nullptr;
  EXPECT(cudaGraphEventRecordNodeGetEvent(record, &seen) == cudaSuccess && seen == first);
  EXPECT(cudaGraphEventWaitNodeGetEvent(wait, &seen) == cudaSuccess && seen == second);
  EXPECT(cudaGraphEventWaitNodeSetEvent(wait, first) == cudaSuccess);
  EXPECT(cudaGraphEventWaitNodeSetEvent(record, first) == cudaErrorInvalidValue);
  EXPECT(cudaGraphInstantiate(&ready, built, 0) == cudaSuccess);
  EXPECT(cudaGraphExecEventRecordNodeSetEvent(ready, record, second) == cudaSuccess);
  EXPECT(cudaGraphLaunch(ready, nullptr) == cudaSuccess);
  EXPECT(cudaEventElapsedTime(&ms, first, second) == cudaErrorInvalidResourceHandle);
  EXPECT(cudaEventRecord(first, nullptr) == cudaSuccess);
  EXPECT(cudaEventElapsedTime(&ms, second, first) == cudaSuccess && ms >= 0);

  cudaStream_t stream;
  cudaStreamCreate(&stream);
  cudaGraph_t captured;
  EXPECT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  EXPECT(cudaStreamWaitEvent(stream, second, cudaEventWaitExternal) == cudaSuccess);
  EXPECT(cudaMemsetAsync(data, 1, kBytes, stream) == cudaSuccess);
  EXPECT(cudaEventRecordWithFlags(first, stream, cudaEventRecordExternal) == cudaSuccess);
  EXPECT(cudaStreamEndCapture(stream, &captured) == cudaSuccess);
  size_t nodes = 0;
  EXPECT(cudaGraphGetNodes(captured, nullptr, &nodes) == cudaSuccess && nodes == 3);
  EXPECT(cudaGraphInstantiate(&ready, captured, 0) == cudaSuccess);
  EXPECT(cudaGraphLaunch(ready, stream) == cudaSuccess);
  EXPECT(cudaStreamSynchronize(stream) == cudaSuccess);
  EXPECT(cudaEventElapsedTime(&ms, second, first) == cudaSuccess && ms > 0);
  cudaEventDestroy(first);
  EXPECT(cudaGraphLaunch(ready, stream) == cudaErrorInvalidResourceHandle);

  if (!failures) std::printf("passed\n");
  return failures != 0;
}
