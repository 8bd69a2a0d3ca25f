// Memory that the host stores to without a call, and what becomes of it; one thing per run.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

__global__ void add_one(int* to, const int* from) { to[threadIdx.x] = from[threadIdx.x] + 1; }

constexpr size_t kBytes = 32 * sizeof(int);

int main(int, char** argv) {
  int *device, *out, *managed, *pinned, host[32];
  cudaMalloc(&device, kBytes);
  cudaMalloc(&out, kBytes);
  cudaMallocManaged(&managed, kBytes);
  cudaMallocHost(&pinned, kBytes);
  const auto is = [&](const char* name) { return std::strcmp(argv[1], name) == 0; };
  const auto through = [&](const int* from, int* to) {
    add_one<<<1, 32>>>(out, from);
    cudaMemcpy(to, out, kBytes, cudaMemcpyDeviceToHost);
  };
  if (is("managed")) {
    for (int k = 0; k < 32; ++k) managed[k] = k;
    through(managed, host);
  } else if (is("managed, minus one")) {
    std::memset(managed, 0xff, kBytes);
    through(managed, host);
  } else if (is("managed, half of it")) {
    std::memset(managed, 1, kBytes / 2);
    through(managed, host);
  } else if (is("pinned")) {
    std::memset(pinned, 1, kBytes);
    cudaMemcpy(device, pinned, kBytes, cudaMemcpyHostToDevice);
    through(device, pinned);
    cudaMemcpy(device, pinned, kBytes, cudaMemcpyHostToDevice);
    through(device, host);
  } else if (is("pinned, nothing of it")) {
    cudaMemcpy(device, pinned, kBytes, cudaMemcpyHostToDevice);
    through(device, host);
  } else if (is("device, to pinned")) {
    through(device, pinned);
  } else if (is("in place")) {
    through(pinned, host);
  } else if (is("reset")) {
    cudaFree(device);
    cudaFreeHost(pinned);
    std::printf("%s\n", cudaGetErrorName(cudaDeviceReset()));
    std::printf("%s\n", cudaGetErrorName(cudaMemcpy(host, out, 4, cudaMemcpyDeviceToHost)));
    return 0;
  }
  cudaFree(device);
  cudaFree(out);
  cudaFree(managed);
  cudaFreeHost(pinned);
  return 0;
}
