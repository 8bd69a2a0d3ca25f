// Conditional nodes: a loop whose body was captured, an if with an else, a switch.
#include <cuda_runtime.h>

#include <cstdio>

#define CHECK(call)                                                               \
  if (const cudaError_t error = (call); error != cudaSuccess) {                   \
    std::printf("line %d: %s: %s\n", __LINE__, #call, cudaGetErrorString(error)); \
    return 1;                                                                     \
  }

__global__ void count_down(int* left, cudaGraphConditionalHandle condition) {
  *left -= 1;
  cudaGraphSetConditional(condition, *left > 0);
}
__global__ void add(int* to, int value) { *to += value; }

static cudaGraphNodeParams conditional(cudaGraphConditionalHandle condition,
                                       cudaGraphConditionalNodeType type, unsigned size) {
  cudaGraphNodeParams p = {};
  p.type = cudaGraphNodeTypeConditional;
  p.conditional.handle = condition;
  p.conditional.type = type;
  p.conditional.size = size;
  return p;
}

int main() {
  int* data;
  CHECK(cudaMalloc(&data, 3 * sizeof(int)));
  const int start[3] = {5, 0, 0};
  CHECK(cudaMemcpy(data, start, sizeof(start), cudaMemcpyHostToDevice));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));

  cudaGraphConditionalHandle loop, choice, number;
  CHECK(cudaGraphConditionalHandleCreate(&loop, graph, 1, cudaGraphCondAssignDefault));
  CHECK(cudaGraphConditionalHandleCreate(&choice, graph, 0, cudaGraphCondAssignDefault));
  CHECK(cudaGraphConditionalHandleCreate(&number, graph, 2, cudaGraphCondAssignDefault));
  cudaGraphNode_t repeat, either, one_of, node;
  cudaGraphNodeParams p = conditional(loop, cudaGraphCondTypeWhile, 1);
  CHECK(cudaGraphAddNode(&repeat, graph, nullptr, nullptr, 0, &p));
  CHECK(cudaStreamBeginCaptureToGraph(stream, p.conditional.phGraph_out[0], nullptr, nullptr, 0,
                                      cudaStreamCaptureModeRelaxed));
  count_down<<<1, 1, 0, stream>>>(data, loop);
  add<<<1, 1, 0, stream>>>(data + 1, 10);
  CHECK(cudaStreamEndCapture(stream, nullptr));

  int value = 1;
  int* target = data + 2;
  void* arguments[] = {&target, &value};
  cudaKernelNodeParams kernel = {};
  kernel.func = reinterpret_cast<void*>(add);
  kernel.gridDim = kernel.blockDim = dim3(1);
  kernel.kernelParams = arguments;
  p = conditional(choice, cudaGraphCondTypeIf, 2);
  CHECK(cudaGraphAddNode(&either, graph, &repeat, nullptr, 1, &p));
  CHECK(cudaGraphAddKernelNode(&node, p.conditional.phGraph_out[0], nullptr, 0, &kernel));
  value = 100;
  CHECK(cudaGraphAddKernelNode(&node, p.conditional.phGraph_out[1], nullptr, 0, &kernel));
  p = conditional(number, cudaGraphCondTypeSwitch, 3);
  CHECK(cudaGraphAddNode(&one_of, graph, &either, nullptr, 1, &p));
  for (value = 1000; value <= 3000; value += 1000) {
    cudaGraph_t body = p.conditional.phGraph_out[value / 1000 - 1];
    CHECK(cudaGraphAddKernelNode(&node, body, nullptr, 0, &kernel));
  }

  cudaGraphExec_t executable;
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  CHECK(cudaGraphLaunch(executable, stream));
  CHECK(cudaStreamSynchronize(stream));
  int found[3];
  CHECK(cudaMemcpy(found, data, sizeof(found), cudaMemcpyDeviceToHost));
  const bool right = found[0] == 0 && found[1] == 50 && found[2] == 3100;
  // A graph with conditions is none that can be copied.
  cudaGraph_t clone;
  const bool refused = cudaGraphClone(&clone, graph) == cudaErrorNotSupported;
  if (!right) std::printf("%d %d %d\n", found[0], found[1], found[2]);
  std::puts(right && refused ? "passed" : "failed");
}
