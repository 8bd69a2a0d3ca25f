// What a program does wrong, one thing per run, and what CUDA tells it.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

__global__ void store(int* x, int at) { x[at] = 1; }
__global__ void __launch_bounds__(64) bounded(int* x) { x[threadIdx.x] = 1; }
__global__ void with_shared(int* x) {
  extern __shared__ int s[];
  s[threadIdx.x] = 1;
  __syncthreads();
  x[threadIdx.x] = s[0];
}
// 100 accumulators that are alive at once.
__global__ void hungry(float* x) {
  float a[100];
  for (int i = 0; i < 100; ++i) a[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
  for (int i = 0; i < 100; ++i) x[i * 1024 + threadIdx.x] = a[i] * a[(i * 37 + 11) % 100];
}
__device__ int variable[4];

void say(const char* what, cudaError_t code) {
  std::printf("%s: %s\n", what, cudaGetErrorName(code));
  if (code != cudaSuccess) std::printf("  %s\n", cudaGetErrorString(code));
}

int main(int, char** argv) {
  int *x, host[4] = {};
  cudaMalloc(&x, 4096);
  const auto is = [&](const char* name) { return std::strcmp(argv[1], name) == 0; };
  if (is("fault")) {
    store<<<1, 1>>>(x, 1 << 20);
    say("after the launch", cudaGetLastError());
    say("once more", cudaPeekAtLastError());
    say("synchronised", cudaDeviceSynchronize());
    say("last", cudaGetLastError());
    say("sticky", cudaGetLastError());
    say("malloc", cudaMalloc(&x, 4));
    store<<<1, 1>>>(x, 0);
    say("launch", cudaGetLastError());
    say("reset", cudaDeviceReset());
    say("free", cudaFree(nullptr));
  } else if (is("driver's reset")) {
    void* reset = nullptr;
    cudaDriverEntryPointQueryResult status;
    cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxReset", &reset, 13000, cudaEnableDefault,
                                     &status);
    say("limit", cudaDeviceSetLimit(cudaLimitStackSize, 4096));
    store<<<1, 1>>>(x, 1 << 20);
    say("synchronised", cudaDeviceSynchronize());
    say("reset", static_cast<cudaError_t>(reinterpret_cast<int (*)(int)>(reset)(0)));
    size_t stack = 0;
    say("ask", cudaDeviceGetLimit(&stack, cudaLimitStackSize));
    std::printf("stack: %zu\n", stack);
    say("what was allocated", cudaMemset(x, 0, 4));
    say("malloc", cudaMalloc(&x, 4096));
    store<<<1, 1>>>(x, 0);
    say("again", cudaDeviceSynchronize());
  } else if (is("host pointer")) {
    store<<<1, 1>>>(host, 0);
    say("synchronised", cudaDeviceSynchronize());
  } else if (is("null pointer")) {
    store<<<1, 1>>>(nullptr, 0);
    say("synchronised", cudaDeviceSynchronize());
  } else if (is("freed")) {
    cudaFree(x);
    say("free", cudaFree(x));
    say("copy", cudaMemcpy(host, x, 4, cudaMemcpyDeviceToHost));
    store<<<1, 1>>>(x, 0);
    say("synchronised", cudaDeviceSynchronize());
  } else if (is("copies")) {
    say("host as device", cudaMemcpy(host, host + 1, 4, cudaMemcpyHostToDevice));
    say("device as host", cudaMemcpy(x, x + 1, 4, cudaMemcpyHostToDevice));
    say("too long", cudaMemcpy(x, host, 8192, cudaMemcpyHostToDevice));
    say("null", cudaMemcpy(nullptr, host, 4, cudaMemcpyHostToDevice));
    say("wild", cudaMemcpy(x, reinterpret_cast<void*>(64), 4, cudaMemcpyHostToDevice));
    say("direction", cudaMemcpy(x, host, 4, static_cast<cudaMemcpyKind>(9)));
    say("pitch", cudaMemcpy2D(x, 4, host, 8, 8, 2, cudaMemcpyHostToDevice));
    say("memset of the host's", cudaMemset(host, 0, 4));
    say("foreign free", cudaFree(host));
    say("inside free", cudaFree(x + 1));
    say("symbol", cudaMemcpyToSymbol(variable, host, 16, 4));
    say("no symbol", cudaMemcpyToSymbol(host, host, 4));
    say("fine", cudaMemcpyToSymbol(variable, host, 12, 4));
  } else if (is("launches")) {
    store<<<1, 2048>>>(x, 0);
    say("block", cudaGetLastError());
    store<<<0, 1>>>(x, 0);
    say("empty", cudaGetLastError());
    store<<<dim3(1, 70000), 1>>>(x, 0);
    say("grid", cudaGetLastError());
    bounded<<<1, 128>>>(x);
    say("bounds", cudaGetLastError());
    with_shared<<<1, 32, 64 << 10>>>(x);
    say("shared", cudaGetLastError());
    say("opt in",
        cudaFuncSetAttribute(with_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10));
    with_shared<<<1, 32, 400 << 10>>>(x);
    say("too much shared", cudaGetLastError());
    float* f;
    cudaMalloc(&f, 100 * 1024 * sizeof(float));
    hungry<<<1, 1024>>>(f);
    say("registers", cudaGetLastError());
    hungry<<<1, 512>>>(f);
    say("fewer", cudaGetLastError());
    store<<<1, 1, 0, reinterpret_cast<cudaStream_t>(host)>>>(x, 0);
    say("stream", cudaGetLastError());
    say("function", cudaLaunchKernel(reinterpret_cast<void*>(host), 1, 1, nullptr, 0, nullptr));
    say("device", cudaSetDevice(3));
    say("memory", cudaMalloc(&x, 1ull << 50));
    say("still alive", cudaDeviceSynchronize());
  }
  return 0;
}
