// Built with --default-stream per-thread: the null stream is the thread's own. Ends with the number
// of the line of the first check that fails.
#include <cuda_runtime.h>

#include <cstdio>
#include <thread>

#define CHECK(condition)                                      \
  do {                                                        \
    if (!(condition)) {                                       \
      std::printf("line %d: %s; %s\n", __LINE__, #condition,  \
                  cudaGetErrorString(cudaPeekAtLastError())); \
      return 1;                                               \
    }                                                         \
  } while (0)
#define OK(call) CHECK((call) == cudaSuccess)

__device__ int variable;
__global__ void add(int* x, int by) { x[threadIdx.x] += by + variable; }

int of_a_thread(int number) {
  int *x, *y, value = 0;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaEvent_t event;
  cudaStreamCaptureStatus status;
  unsigned long long id = 0;
  OK(cudaMallocAsync(&x, 64 * sizeof(int), 0));
  OK(cudaMemset(x, 0, 64 * sizeof(int)));
  OK(cudaEventCreate(&event));
  OK(cudaStreamBeginCapture(0, cudaStreamCaptureModeThreadLocal));  // the legacy one cannot
  OK(cudaStreamIsCapturing(0, &status));
  CHECK(status == cudaStreamCaptureStatusActive);
  OK(cudaStreamGetCaptureInfo(0, &status, &id));
  CHECK(id != 0);
  OK(cudaMallocAsync(&y, 64 * sizeof(int), 0));
  OK(cudaMemcpyAsync(y, x, 64 * sizeof(int), cudaMemcpyDeviceToDevice, 0));
  add<<<1, 64>>>(y, number);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1);
  config.blockDim = dim3(64);
  OK(cudaLaunchKernelEx(&config, add, y, number));
  OK(cudaEventRecord(event, 0));
  OK(cudaStreamWaitEvent(0, event, 0));
  OK(cudaMemcpyAsync(x, y, 64 * sizeof(int), cudaMemcpyDeviceToDevice, 0));
  OK(cudaFreeAsync(y, 0));
  OK(cudaStreamEndCapture(0, &graph));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  for (int k = 0; k < 3; ++k) OK(cudaGraphLaunch(exec, 0));
  OK(cudaStreamSynchronize(0));
  OK(cudaMemcpy(&value, x + 63, sizeof(int), cudaMemcpyDeviceToHost));
  CHECK(value == 6 * (number + 100));
  OK(cudaFreeAsync(x, 0));
  OK(cudaStreamQuery(0));
  return 0;
}

int main() {
  const int hundred = 100;
  OK(cudaMemcpyToSymbol(variable, &hundred, sizeof(int)));
  unsigned long long here = 0, there = 0, legacy = 0;
  OK(cudaStreamGetId(0, &here));
  OK(cudaStreamGetId(cudaStreamPerThread, &there));
  OK(cudaStreamGetId(cudaStreamLegacy, &legacy));
  CHECK(here == there && here != legacy);
  int failed[3] = {};
  std::thread threads[3];
  for (int t = 0; t < 3; ++t) threads[t] = std::thread([&failed, t] { failed[t] = of_a_thread(t); });
  for (std::thread& t : threads) t.join();
  for (int f : failed) CHECK(!f);
  std::puts("passed");
  return 0;
}
