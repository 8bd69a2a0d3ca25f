// What a launch costs that does nothing: in a stream, as a node of a graph, and as a graph of three
// nodes (its sum set to zero, the kernel, the sum copied) that the host launches and waits for,
// again and again. Prints microseconds of each, as JSON.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

__global__ void nothing() {}

template <class Work>
static double microseconds(int launches, Work work) {
  double best = 1e30;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    cudaDeviceSynchronize();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count() / launches);
  }
  return best;
}

int main() {
  constexpr int kLaunches = 10000;
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  nothing<<<1, 32, 0, stream>>>();  // reads the PTX
  const auto launch = [&](int blocks, int threads) {
    for (int k = 0; k < kLaunches; ++k) nothing<<<blocks, threads, 0, stream>>>();
  };
  const double one = microseconds(kLaunches, [&] { launch(1, 32); });
  const double wide = microseconds(kLaunches, [&] { launch(1, 256); });
  const double four = microseconds(kLaunches, [&] { launch(4, 256); });
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  launch(1, 32);
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&executable, graph, 0);
  const double node = microseconds(kLaunches, [&] { cudaGraphLaunch(executable, stream); });
  double* sum;
  double copied;
  cudaMalloc(&sum, sizeof(double));
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  cudaMemsetAsync(sum, 0, sizeof(double), stream);
  nothing<<<1, 32, 0, stream>>>();
  cudaMemcpyAsync(&copied, sum, sizeof(double), cudaMemcpyDeviceToHost, stream);
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&executable, graph, 0);
  const double iteration = microseconds(kLaunches, [&] {
    for (int k = 0; k < kLaunches; ++k) {
      cudaGraphLaunch(executable, stream);
      cudaStreamSynchronize(stream);
    }
  });
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    std::puts(cudaGetErrorString(error));
    return 1;
  }
  std::printf(
      "{\"one_warp_us\": %.2f, \"eight_warps_us\": %.2f, \"four_blocks_us\": %.2f, "
      "\"graph_node_us\": %.2f, \"graph_of_three_us\": %.2f}\n",
      one, wide, four, node, iteration);
}
