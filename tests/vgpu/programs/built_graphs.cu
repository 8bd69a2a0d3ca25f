// Graphs that are built node by node, changed, and launched. Ends with the number of the line of the
// first check that fails.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <vector>

#define CHECK(condition)                                      \
  do {                                                        \
    if (!(condition)) {                                       \
      std::printf("line %d: %s; %s\n", __LINE__, #condition,  \
                  cudaGetErrorString(cudaPeekAtLastError())); \
      return 1;                                               \
    }                                                         \
  } while (0)
#define OK(call) CHECK((call) == cudaSuccess)
#define REFUSED(call) CHECK((call) == cudaErrorInvalidValue)

constexpr int kCount = 1000;
constexpr size_t kBytes = kCount * sizeof(int);

__global__ void add(int* x, int n, int by) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) x[i] += by;
}
__global__ void multiply(int* x, int n, int by) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) x[i] *= by;
}

void called(void* data) { ++*static_cast<int*>(data); }

struct Arguments {
  int* x;
  int n;
  int by;
  void* pointers[3] = {&x, &n, &by};
};

cudaKernelNodeParams launch_of(void (*kernel)(int*, int, int), Arguments& a) {
  cudaKernelNodeParams p = {};
  p.func = reinterpret_cast<void*>(kernel);
  p.gridDim = dim3(4);
  p.blockDim = dim3(256);
  p.kernelParams = a.pointers;
  return p;
}

int run(cudaGraphExec_t exec) {
  OK(cudaGraphLaunch(exec, nullptr));
  OK(cudaDeviceSynchronize());
  return 0;
}

// fill 3 -> add 2 -> multiply 10 -> copy to the host, and a call of the host behind an empty node.
struct Chain {
  int* x = nullptr;
  int calls = 0;
  std::vector<int> host = std::vector<int>(kCount);
  cudaGraph_t graph = nullptr;
  cudaGraphNode_t fill = nullptr, adds = nullptr, times = nullptr, copy = nullptr, call = nullptr,
                  empty = nullptr;

  int build() {
    OK(cudaMalloc(&x, kBytes));
    OK(cudaGraphCreate(&graph, 0));
    cudaMemsetParams memset = {};
    memset.dst = x;
    memset.value = 3;
    memset.elementSize = 4;
    memset.width = kCount;
    memset.height = 1;
    OK(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &memset));
    Arguments a = {x, kCount, 2};
    cudaKernelNodeParams kernel = launch_of(add, a);
    OK(cudaGraphAddKernelNode(&adds, graph, &fill, 1, &kernel));
    a.by = 99;  // the node has copied its arguments
    Arguments b = {x, kCount, 10};
    kernel = launch_of(multiply, b);
    OK(cudaGraphAddKernelNode(&times, graph, nullptr, 0, &kernel));
    OK(cudaGraphAddDependencies(graph, &adds, &times, nullptr, 1));
    OK(cudaGraphAddMemcpyNode1D(&copy, graph, &times, 1, host.data(), x, kBytes,
                                cudaMemcpyDeviceToHost));
    OK(cudaGraphAddEmptyNode(&empty, graph, &times, 1));
    const cudaHostNodeParams function = {called, &calls};
    OK(cudaGraphAddHostNode(&call, graph, &empty, 1, &function));
    return 0;
  }
};

int build_and_launch() {
  Chain c;
  if (c.build()) return 1;
  size_t count = 0;
  OK(cudaGraphGetNodes(c.graph, nullptr, &count));
  CHECK(count == 6);
  cudaGraphNode_t roots[6], from[9], to[9];
  count = 6;
  OK(cudaGraphGetRootNodes(c.graph, roots, &count));
  CHECK(count == 1 && roots[0] == c.fill);
  count = 9;
  OK(cudaGraphGetEdges(c.graph, from, to, nullptr, &count));
  CHECK(count == 5 && from[0] == c.fill && to[0] == c.adds);
  OK(cudaGraphNodeGetDependentNodes(c.times, to, nullptr, &(count = 9)));
  CHECK(count == 2 && to[0] == c.copy && to[1] == c.empty);
  OK(cudaGraphNodeGetDependencies(c.times, from, nullptr, &(count = 9)));
  CHECK(count == 1 && from[0] == c.adds);
  cudaGraphNodeType type;
  OK(cudaGraphNodeGetType(c.empty, &type));
  CHECK(type == cudaGraphNodeTypeEmpty);

  cudaGraphExec_t exec;
  OK(cudaGraphInstantiate(&exec, c.graph, 0));
  for (int k = 1; k <= 2; ++k) {
    c.host.assign(kCount, 0);
    if (run(exec)) return 1;
    CHECK(c.host[0] == 50 && c.host[kCount - 1] == 50 && c.calls == k);
  }

  // The parameters, as they were given.
  cudaKernelNodeParams kernel;
  OK(cudaGraphKernelNodeGetParams(c.times, &kernel));
  CHECK(kernel.func == reinterpret_cast<void*>(multiply) && kernel.blockDim.x == 256);
  CHECK(*static_cast<int*>(kernel.kernelParams[2]) == 10);
  cudaMemsetParams memset;
  OK(cudaGraphMemsetNodeGetParams(c.fill, &memset));
  CHECK(memset.dst == c.x && memset.elementSize == 4 && memset.width == kCount);
  cudaMemcpy3DParms copy;
  OK(cudaGraphMemcpyNodeGetParams(c.copy, &copy));
  CHECK(copy.kind == cudaMemcpyDeviceToHost && copy.extent.width == kBytes &&
        copy.dstPtr.ptr == c.host.data());

  // Changes of the executable graph leave the graph alone.
  Arguments a = {c.x, kCount, 7};
  kernel = launch_of(multiply, a);
  OK(cudaGraphExecKernelNodeSetParams(exec, c.times, &kernel));
  memset.value = 1;
  OK(cudaGraphExecMemsetNodeSetParams(exec, c.fill, &memset));
  std::vector<int> other(kCount);
  OK(cudaGraphExecMemcpyNodeSetParams1D(exec, c.copy, other.data(), c.x, kBytes,
                                        cudaMemcpyDeviceToHost));
  int calls = 0;
  const cudaHostNodeParams function = {called, &calls};
  OK(cudaGraphExecHostNodeSetParams(exec, c.call, &function));
  if (run(exec)) return 1;
  CHECK(other[5] == 21 && c.calls == 2 && calls == 1);
  OK(cudaGraphNodeSetEnabled(exec, c.times, 0));
  unsigned enabled = 1;
  OK(cudaGraphNodeGetEnabled(exec, c.times, &enabled));
  CHECK(!enabled);
  if (run(exec)) return 1;
  CHECK(other[5] == 3);

  // An update gives it the graph's parameters again; another shape is refused.
  OK(cudaGraphKernelNodeSetParams(c.times, &kernel));
  cudaGraphExecUpdateResultInfo info;
  OK(cudaGraphExecUpdate(exec, c.graph, &info));
  CHECK(info.result == cudaGraphExecUpdateSuccess);
  OK(cudaGraphNodeSetEnabled(exec, c.times, 1));
  if (run(exec)) return 1;
  CHECK(c.host[5] == 35 && c.calls == 3);
  OK(cudaGraphRemoveDependencies(c.graph, &c.adds, &c.times, nullptr, 1));
  CHECK(cudaGraphExecUpdate(exec, c.graph, &info) == cudaErrorGraphExecUpdateFailure);
  CHECK(info.result == cudaGraphExecUpdateErrorTopologyChanged && info.errorNode == c.times);
  OK(cudaGraphDestroyNode(c.call));
  CHECK(cudaGraphExecUpdate(exec, c.graph, &info) == cudaErrorGraphExecUpdateFailure);
  CHECK(info.result == cudaGraphExecUpdateErrorTopologyChanged);
  OK(cudaGraphGetNodes(c.graph, nullptr, &count));
  CHECK(count == 5);
  if (run(exec)) return 1;  // has its own copy of everything
  CHECK(c.calls == 4);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(c.graph));
  cudaGetLastError();
  return 0;
}

int children_and_clones() {
  Chain c;
  if (c.build()) return 1;
  cudaGraph_t parent, clone;
  cudaGraphNode_t child, again, more;
  cudaGraphExec_t exec;
  OK(cudaGraphCreate(&parent, 0));
  OK(cudaGraphAddChildGraphNode(&child, parent, nullptr, 0, c.graph));
  OK(cudaGraphAddChildGraphNode(&again, parent, &child, 1, c.graph));
  Arguments a = {c.x, kCount, 1};
  cudaKernelNodeParams kernel = launch_of(add, a);
  OK(cudaGraphAddKernelNode(&more, parent, &again, 1, &kernel));
  OK(cudaGraphInstantiateWithFlags(&exec, parent, 0));
  if (run(exec)) return 1;
  int first = 0;
  OK(cudaMemcpy(&first, c.x, 4, cudaMemcpyDeviceToHost));
  CHECK(first == 51 && c.calls == 2);
  cudaGraph_t inside;
  OK(cudaGraphChildGraphNodeGetGraph(again, &inside));
  size_t count = 0;
  OK(cudaGraphGetNodes(inside, nullptr, &count));
  CHECK(count == 6 && inside != c.graph);

  // A child of the same shape in place of another.
  Arguments b = {c.x, kCount, 2};
  kernel = launch_of(multiply, b);
  OK(cudaGraphKernelNodeSetParams(c.times, &kernel));
  OK(cudaGraphExecChildGraphNodeSetParams(exec, again, c.graph));
  if (run(exec)) return 1;
  OK(cudaMemcpy(&first, c.x, 4, cudaMemcpyDeviceToHost));
  CHECK(first == 11);

  cudaGraphNode_t found;
  OK(cudaGraphClone(&clone, c.graph));
  OK(cudaGraphNodeFindInClone(&found, c.times, clone));
  CHECK(found != c.times);
  REFUSED(cudaGraphNodeFindInClone(&found, more, clone));
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphInstantiate(&exec, clone, 0));
  OK(cudaGraphDestroy(clone));
  if (run(exec)) return 1;
  CHECK(c.host[0] == 10);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(parent));
  OK(cudaGraphDestroy(c.graph));
  cudaGetLastError();
  return 0;
}

// Of a capture too, nodes can be asked and their launches changed.
int a_captured_graph() {
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  int* x;
  int first = 0;
  OK(cudaMalloc(&x, kBytes));
  OK(cudaStreamCreate(&stream));
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  OK(cudaMemsetAsync(x, 0, kBytes, stream));
  add<<<4, 256, 0, stream>>>(x, kCount, 5);
  OK(cudaStreamEndCapture(stream, &graph));
  cudaGraphNode_t nodes[2];
  size_t count = 2;
  OK(cudaGraphGetNodes(graph, nodes, &count));
  cudaKernelNodeParams kernel;
  OK(cudaGraphKernelNodeGetParams(nodes[1], &kernel));
  CHECK(kernel.func == reinterpret_cast<void*>(add));
  CHECK(*static_cast<int*>(kernel.kernelParams[2]) == 5);
  OK(cudaGraphInstantiate(&exec, graph, 0));
  Arguments a = {x, kCount, 8};
  kernel.kernelParams = a.pointers;
  OK(cudaGraphExecKernelNodeSetParams(exec, nodes[1], &kernel));
  OK(cudaGraphLaunch(exec, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaMemcpy(&first, x, 4, cudaMemcpyDeviceToHost));
  CHECK(first == 8);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
  OK(cudaFree(x));
  return 0;
}

int planes_and_any_node() {
  constexpr size_t kWidth = 12, kHeight = 3, kDepth = 2;
  std::vector<char> from(64 * 5 * 4), back(kWidth * kHeight * kDepth);
  for (size_t k = 0; k < from.size(); ++k) from[k] = static_cast<char>(k % 251);
  char* x;
  cudaGraph_t graph;
  cudaGraphNode_t in, out, node;
  OK(cudaMalloc(&x, 64 * 4 * kDepth));
  OK(cudaGraphCreate(&graph, 0));
  cudaGraphNodeParams p = {};
  p.type = cudaGraphNodeTypeMemcpy;
  p.memcpy.copyParams.srcPtr = make_cudaPitchedPtr(from.data(), 64, 64, 5);
  p.memcpy.copyParams.srcPos = make_cudaPos(2, 1, 1);
  p.memcpy.copyParams.dstPtr = make_cudaPitchedPtr(x, 64, 64, 4);
  p.memcpy.copyParams.extent = make_cudaExtent(kWidth, kHeight, kDepth);
  p.memcpy.copyParams.kind = cudaMemcpyHostToDevice;
  OK(cudaGraphAddNode(&in, graph, nullptr, nullptr, 0, &p));
  cudaMemcpy3DParms given = {};
  OK(cudaGraphMemcpyNodeGetParams(in, &given));
  CHECK(given.srcPtr.ysize == 5 && given.extent.depth == kDepth);
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(x, 64, 64, 4);
  copy.dstPtr = make_cudaPitchedPtr(back.data(), kWidth, kWidth, kHeight);
  copy.extent = p.memcpy.copyParams.extent;
  copy.kind = cudaMemcpyDeviceToHost;
  OK(cudaGraphAddMemcpyNode(&out, graph, &in, 1, &copy));
  cudaGraphExec_t exec;
  OK(cudaGraphInstantiate(&exec, graph, 0));
  if (run(exec)) return 1;
  for (size_t z = 0; z < kDepth; ++z) {
    for (size_t y = 0; y < kHeight; ++y) {
      CHECK(!std::memcmp(&back[(z * kHeight + y) * kWidth],
                         &from[((z + 1) * 5 + y + 1) * 64 + 2], kWidth));
    }
  }
  OK(cudaGraphExecDestroy(exec));

  // Memory of the graph's own.
  int* inside;
  p = {};
  p.type = cudaGraphNodeTypeMemAlloc;
  p.alloc.poolProps.allocType = cudaMemAllocationTypePinned;
  p.alloc.poolProps.location = {cudaMemLocationTypeDevice, 0};
  p.alloc.bytesize = kBytes;
  OK(cudaGraphAddNode(&node, graph, &out, nullptr, 1, &p));
  inside = static_cast<int*>(p.alloc.dptr);
  cudaMemsetParams memset = {};
  memset.dst = inside;
  memset.value = 9;
  memset.elementSize = 4;
  memset.width = kCount;
  memset.height = 1;
  cudaGraphNode_t fill, read, freed;
  int value = 0;
  OK(cudaGraphAddMemsetNode(&fill, graph, &node, 1, &memset));
  OK(cudaGraphAddMemcpyNode1D(&read, graph, &fill, 1, &value, inside + kCount - 1, 4,
                              cudaMemcpyDeviceToHost));
  OK(cudaGraphAddMemFreeNode(&freed, graph, &read, 1, inside));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  for (int k = 0; k < 2; ++k) {
    value = 0;
    if (run(exec)) return 1;
    CHECK(value == 9);
  }
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
  return 0;
}

int what_is_refused() {
  Chain c, d;
  if (c.build() || d.build()) return 1;
  cudaGraphNode_t node;
  cudaGraphExec_t exec;
  Arguments a = {c.x, kCount, 1};
  cudaKernelNodeParams kernel = launch_of(add, a);
  REFUSED(cudaGraphAddKernelNode(&node, c.graph, &d.fill, 1, &kernel));
  REFUSED(cudaGraphAddKernelNode(&node, nullptr, nullptr, 0, &kernel));
  REFUSED(cudaGraphAddKernelNode(&node, c.graph, nullptr, 0, nullptr));
  REFUSED(cudaGraphAddKernelNode(nullptr, c.graph, nullptr, 0, &kernel));
  cudaGraphNode_t twice[] = {c.fill, c.fill};
  REFUSED(cudaGraphAddEmptyNode(&node, c.graph, twice, 2));
  kernel.blockDim = dim3(2000);
  CHECK(cudaGraphAddKernelNode(&node, c.graph, nullptr, 0, &kernel) ==
        cudaErrorInvalidConfiguration);
  kernel = launch_of(add, a);
  kernel.func = &a;
  CHECK(cudaGraphAddKernelNode(&node, c.graph, nullptr, 0, &kernel) ==
        cudaErrorInvalidDeviceFunction);
  kernel = launch_of(add, a);
  REFUSED(cudaGraphKernelNodeSetParams(c.fill, &kernel));
  REFUSED(cudaGraphKernelNodeGetParams(c.fill, &kernel));
  REFUSED(cudaGraphNodeGetType(reinterpret_cast<cudaGraphNode_t>(&a), nullptr));
  REFUSED(cudaGraphDestroyNode(reinterpret_cast<cudaGraphNode_t>(&a)));
  REFUSED(cudaGraphAddDependencies(c.graph, &c.fill, &c.adds, nullptr, 1));
  REFUSED(cudaGraphRemoveDependencies(c.graph, &c.adds, &c.fill, nullptr, 1));
  OK(cudaGraphInstantiate(&exec, c.graph, 0));
  REFUSED(cudaGraphExecKernelNodeSetParams(exec, d.times, &kernel));
  REFUSED(cudaGraphNodeSetEnabled(exec, c.call, 0));
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphAddDependencies(c.graph, &c.copy, &c.fill, nullptr, 1));  // a cycle
  REFUSED(cudaGraphInstantiate(&exec, c.graph, 0));
  CHECK(std::strstr(cudaGetErrorString(cudaGetLastError()), "dependencies form a cycle"));
  OK(cudaGraphDestroy(c.graph));
  REFUSED(cudaGraphDestroy(c.graph));
  REFUSED(cudaGraphInstantiate(&exec, c.graph, 0));
  REFUSED(cudaGraphKernelNodeSetParams(c.times, &kernel));
  cudaGetLastError();
  return 0;
}

// Whether a node that does not wait for another one runs behind it in every random order.
int missing_dependency() {
  int* x;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaGraphNode_t fill, adds;
  OK(cudaMalloc(&x, kBytes));
  OK(cudaGraphCreate(&graph, 0));
  cudaMemsetParams memset = {};
  memset.dst = x;
  memset.elementSize = 4;
  memset.width = kCount;
  memset.height = 1;
  OK(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &memset));
  Arguments a = {x, kCount, 1};
  const cudaKernelNodeParams kernel = launch_of(add, a);
  OK(cudaGraphAddKernelNode(&adds, graph, nullptr, 0, &kernel));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  int right = 0;
  for (int k = 0; k < 32; ++k) {
    if (run(exec)) return 1;
    int first = -1;
    OK(cudaMemcpy(&first, x, 4, cudaMemcpyDeviceToHost));
    right += first == 1;
  }
  std::printf("%d of 32 right\n", right);
  return 0;
}

int main(int count, char**) {
  if (count > 1) return missing_dependency();
  if (build_and_launch()) return 1;
  if (children_and_clones()) return 2;
  if (a_captured_graph()) return 3;
  if (planes_and_any_node()) return 4;
  if (what_is_refused()) return 5;
  std::puts("passed");
  return 0;
}
