// Streams, events, capture and graphs, as a program sees them. Ends with the number of the line of
// the first check that fails.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <thread>
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

__global__ void add(int* x, int n, int by) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) x[i] += by;
}

constexpr int kCount = 1000;
constexpr size_t kBytes = kCount * sizeof(int);

void called(void* data) { ++*static_cast<int*>(data); }

int first(const int* device) {
  int value = -1;
  cudaMemcpy(&value, device, sizeof(value), cudaMemcpyDeviceToHost);
  return value;
}

int capture_and_replay() {
  cudaStream_t stream, other;
  cudaEvent_t fork, join;
  OK(cudaStreamCreate(&stream));
  OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  OK(cudaEventCreate(&fork));
  OK(cudaEventCreate(&join));
  int *x, *y, calls = 0;
  std::vector<int> host(kCount, 5), back(kCount, 0);
  OK(cudaMalloc(&x, kBytes));
  OK(cudaMalloc(&y, kBytes));
  OK(cudaMemset(x, 0, kBytes));

  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  cudaStreamCaptureStatus status;
  OK(cudaStreamIsCapturing(stream, &status));
  CHECK(status == cudaStreamCaptureStatusActive);
  add<<<4, 256, 0, stream>>>(x, kCount, 1);
  OK(cudaGetLastError());
  OK(cudaEventRecord(fork, stream));
  OK(cudaStreamWaitEvent(other, fork, 0));  // `other` joins the capture
  OK(cudaStreamIsCapturing(other, &status));
  CHECK(status == cudaStreamCaptureStatusActive);
  OK(cudaMemcpyAsync(y, host.data(), kBytes, cudaMemcpyHostToDevice, other));
  add<<<4, 256, 0, other>>>(y, kCount, 2);
  OK(cudaEventRecord(join, other));
  OK(cudaStreamWaitEvent(stream, join, 0));
  OK(cudaMemcpyAsync(back.data(), y, kBytes, cudaMemcpyDeviceToHost, stream));
  OK(cudaMemsetAsync(y, 0, kBytes, stream));
  OK(cudaLaunchHostFunc(stream, called, &calls));
  cudaGraph_t graph;
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaStreamIsCapturing(other, &status));
  CHECK(status == cudaStreamCaptureStatusNone);
  CHECK(calls == 0 && back[0] == 0 && first(x) == 0);  // nothing ran

  size_t count = 0;
  OK(cudaGraphGetNodes(graph, nullptr, &count));
  CHECK(count == 6);
  cudaGraphNode_t nodes[6];
  OK(cudaGraphGetNodes(graph, nodes, &count));
  cudaGraphNodeType type;
  OK(cudaGraphNodeGetType(nodes[4], &type));
  CHECK(type == cudaGraphNodeTypeMemset);

  cudaGraphExec_t exec;
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphDestroy(graph));
  for (int k = 1; k <= 3; ++k) {
    host.assign(kCount, 10 * k);  // read when the graph runs
    OK(cudaGraphLaunch(exec, k == 2 ? nullptr : stream));
    OK(cudaStreamSynchronize(stream));
    CHECK(first(x) == k && back[999] == 10 * k + 2 && calls == k && first(y) == 0);
  }
  OK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphLaunch(exec, stream) == cudaErrorInvalidValue);
  OK(cudaFree(x));
  OK(cudaFree(y));
  OK(cudaStreamDestroy(stream));
  CHECK(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
  OK(cudaStreamDestroy(other));
  OK(cudaEventDestroy(fork));
  OK(cudaEventDestroy(join));
  cudaGetLastError();
  return 0;
}

int what_a_capture_forbids() {
  cudaStream_t stream, other;
  cudaEvent_t event;
  cudaGraph_t graph;
  int* x;
  void* late;
  OK(cudaStreamCreate(&stream));
  OK(cudaStreamCreate(&other));
  OK(cudaEventCreate(&event));
  OK(cudaMalloc(&x, kBytes));
  const auto lost = [&] {
    return cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated && !graph;
  };
  const auto begin = [&](cudaStreamCaptureMode mode) {
    return cudaStreamBeginCapture(stream, mode);
  };

  CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal) ==
        cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorIllegalState);
  OK(begin(cudaStreamCaptureModeGlobal));
  CHECK(begin(cudaStreamCaptureModeGlobal) == cudaErrorIllegalState);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
  CHECK(lost());
  OK(begin(cudaStreamCaptureModeGlobal));
  CHECK(cudaMalloc(&late, 4) == cudaErrorStreamCaptureUnsupported);
  CHECK(lost());
  OK(begin(cudaStreamCaptureModeRelaxed));
  OK(cudaMalloc(&late, 4));
  add<<<1, 1>>>(x, 1, 1);  // in the legacy stream, which would wait for the capture
  CHECK(cudaGetLastError() == cudaErrorStreamCaptureImplicit);
  CHECK(lost());
  OK(begin(cudaStreamCaptureModeGlobal));
  add<<<1, 2000, 0, stream>>>(x, 1, 1);
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphDestroy(graph));
  OK(begin(cudaStreamCaptureModeGlobal));
  OK(cudaEventRecord(event, stream));
  CHECK(cudaEventQuery(event) == cudaErrorCapturedEvent);
  CHECK(lost());
  OK(begin(cudaStreamCaptureModeGlobal));
  OK(cudaEventRecord(event, stream));
  OK(cudaStreamWaitEvent(other, event, 0));
  add<<<1, 1, 0, other>>>(x, 1, 1);
  CHECK(cudaStreamEndCapture(other, &graph) == cudaErrorStreamCaptureUnmatched);
  CHECK(lost());
  OK(begin(cudaStreamCaptureModeGlobal));
  OK(cudaEventRecord(event, stream));
  OK(cudaStreamWaitEvent(other, event, 0));
  add<<<1, 1, 0, other>>>(x, 1, 1);
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureUnjoined);
  cudaError_t elsewhere = cudaSuccess;
  OK(begin(cudaStreamCaptureModeGlobal));
  std::thread([&] { elsewhere = cudaStreamEndCapture(stream, &graph); }).join();
  CHECK(elsewhere == cudaErrorStreamCaptureWrongThread);
  CHECK(lost());
  OK(cudaEventRecord(event, other));
  OK(begin(cudaStreamCaptureModeGlobal));
  CHECK(cudaStreamWaitEvent(stream, event, 0) == cudaErrorStreamCaptureIsolation);
  CHECK(lost());
  cudaGetLastError();
  return 0;
}

int memory_of_a_graph() {
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  int *inside, *result;
  OK(cudaStreamCreate(&stream));
  OK(cudaMalloc(&result, kBytes));
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  OK(cudaMallocAsync(&inside, kBytes, stream));
  OK(cudaMemsetAsync(inside, 0, kBytes, stream));
  add<<<4, 256, 0, stream>>>(inside, kCount, 7);
  OK(cudaMemcpyAsync(result, inside, kBytes, cudaMemcpyDeviceToDevice, stream));
  OK(cudaFreeAsync(inside, stream));
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
  for (int k = 0; k < 2; ++k) {
    OK(cudaMemset(result, 0, kBytes));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    CHECK(first(result) == 7);
  }
  int value;
  CHECK(cudaMemcpy(&value, inside, 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
  cudaGetLastError();
  return 0;
}

int events() {
  cudaEvent_t a, b, c;
  int* x;
  float first_ms = -1, second_ms = -1, ms;
  OK(cudaMalloc(&x, kBytes));
  OK(cudaEventCreate(&a));
  OK(cudaEventCreate(&b));
  OK(cudaEventCreateWithFlags(&c, cudaEventDisableTiming));
  CHECK(cudaEventElapsedTime(&ms, a, b) == cudaErrorInvalidResourceHandle);
  OK(cudaEventRecord(a));
  add<<<4, 256>>>(x, kCount, 1);
  OK(cudaEventRecord(b));
  OK(cudaEventRecord(c));
  OK(cudaEventElapsedTime(&first_ms, a, b));
  for (int k = 0; k < 200; ++k) add<<<4, 256>>>(x, kCount, 1);
  OK(cudaEventRecord(b));
  OK(cudaEventSynchronize(b));
  OK(cudaEventElapsedTime(&second_ms, a, b));
  CHECK(0 < first_ms && first_ms < second_ms && second_ms < 60000);
  CHECK(cudaEventElapsedTime(&ms, a, c) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventRecord(nullptr) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventRecord(reinterpret_cast<cudaEvent_t>(&ms)) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
  return 0;
}

// Each of several host threads has a stream, memory and a graph of its own.
int threads() {
  constexpr int kThreads = 4;
  int failed[kThreads] = {};
  std::vector<std::thread> all;
  for (int t = 0; t < kThreads; ++t) {
    all.emplace_back([t, &failed] {
      failed[t] = [t] {
        cudaStream_t stream;
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        int* x;
        int value = 0;
        OK(cudaMalloc(&x, kBytes));
        OK(cudaMemset(x, 0, kBytes));
        OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        for (int k = 0; k < 5; ++k) add<<<4, 256, 0, stream>>>(x, kCount, t + 1);
        OK(cudaStreamEndCapture(stream, &graph));
        OK(cudaGraphInstantiate(&exec, graph, 0));
        for (int k = 0; k < 4; ++k) OK(cudaGraphLaunch(exec, stream));
        OK(cudaMemcpyAsync(&value, x + kCount - 1, 4, cudaMemcpyDefault, stream));
        OK(cudaStreamSynchronize(stream));
        CHECK(value == 20 * (t + 1));
        // An error of this thread is not another's.
        if (t == 0) cudaMemcpy(x, &value, 1 << 20, cudaMemcpyHostToDevice);
        CHECK((cudaGetLastError() == cudaSuccess) == (t != 0));
        return 0;
      }();
    });
  }
  for (std::thread& t : all) t.join();
  for (int f : failed) CHECK(f == 0);
  return 0;
}

int main() {
  if (capture_and_replay()) return 1;
  if (what_a_capture_forbids()) return 2;
  if (memory_of_a_graph()) return 3;
  if (events()) return 4;
  if (threads()) return 5;
  std::puts("passed");
  return 0;
}
