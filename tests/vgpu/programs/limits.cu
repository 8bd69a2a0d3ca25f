// The limits of the stack and of what printf keeps. Prints what CUDA answers.
#include <cstdio>
#include <cstdlib>
#include <cstring>

// Each call has 64 bytes of its own.
__device__ __noinline__ int sum(int n, const int* from) {
  int own[16];
  for (int k = 0; k < 16; ++k) own[k] = from[k] + n;
  const int below = n ? sum(n - 1, own) : 0;
  return below + own[n & 15];
}
__global__ void recurse(int* out, int depth) {
  int start[16] = {};
  out[threadIdx.x] = sum(depth, start);
}
__global__ void count(int lines) {
  for (int k = 0; k < lines; ++k) printf("line %d\n", k);
}

void answer(const char* what, cudaError_t error) {
  std::printf("%s: %s\n", what, cudaGetErrorName(error));
  std::fflush(stdout);
}
size_t limit(cudaLimit which) {
  size_t bytes = 0;
  cudaDeviceGetLimit(&bytes, which);
  return bytes;
}

void stack() {
  int* out;
  cudaMalloc(&out, 4096);
  recurse<<<1, 2>>>(out, 4);
  answer("4 calls", cudaDeviceSynchronize());
  recurse<<<1, 2>>>(out, 40);
  answer("40 calls", cudaDeviceSynchronize());
  cudaDeviceReset();
  cudaMalloc(&out, 4096);
  answer("larger", cudaDeviceSetLimit(cudaLimitStackSize, 256 << 10));
  recurse<<<1, 2>>>(out, 1000);
  answer("1000 calls", cudaDeviceSynchronize());
  int found[2] = {};
  cudaMemcpy(found, out, sizeof(found), cudaMemcpyDeviceToHost);
  // The values of a call's array are the sum of n over it and its callers.
  int wanted = 0;
  for (int n = 1000, value = 0; n >= 0; --n) wanted += value += n;
  std::printf("right: %d\n", found[0] == wanted && found[1] == wanted);
  cudaDeviceReset();
  std::printf("after a reset: %zu\n", limit(cudaLimitStackSize));
  answer("too large", cudaDeviceSetLimit(cudaLimitStackSize, 1 << 20));
  answer("no limit", cudaDeviceSetLimit(static_cast<cudaLimit>(99), 1));
}

void prints() {
  answer("size", cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 240));
  count<<<1, 1>>>(10);
  answer("that many", cudaDeviceSynchronize());
  count<<<1, 1>>>(100);
  answer("more", cudaDeviceSynchronize());
  answer("later", cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 4096));
  std::printf("kept: %zu\n", limit(cudaLimitPrintfFifoSize));
  cudaDeviceReset();
  std::printf("after a reset: %zu\n", limit(cudaLimitPrintfFifoSize));
  answer("then", cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 4096));
}

int main(int, char** names) {
  if (!std::strcmp(names[1], "stack")) stack();
  if (!std::strcmp(names[1], "prints")) prints();
}
