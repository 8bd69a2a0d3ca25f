// malloc in kernels, misused in the way that the argument names, and its limit.
#include <cstdio>
#include <cstdlib>
#include <cstring>

__device__ int* kept;

__global__ void take(int words) {
  kept = static_cast<int*>(malloc(4 * words));
  for (int k = 0; kept && k < words; ++k) kept[k] = k;
}
__global__ void store(int word) { kept[word] = 1; }
__global__ void load(int* out, int word) { out[0] = kept[word]; }
__global__ void give() { free(kept); }
__global__ void fits(int* out, size_t bytes) {
  void* block = malloc(bytes);
  out[0] = block != nullptr;
  free(block);
}
// Every thread has a block of its own beside the others'.
__global__ void busy(int* out) {
  int* own = static_cast<int*>(malloc(4 * (threadIdx.x % 7 + 1)));
  own[threadIdx.x % 7] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = own[threadIdx.x % 7];
  free(own);
}

int* out;

const char* done() { return cudaGetErrorName(cudaDeviceSynchronize()); }
int read(int word) {
  int host = 0;
  cudaMemcpy(&host, out + word, 4, cudaMemcpyDeviceToHost);
  return host;
}

void limits() {
  size_t bytes = 0;
  std::printf("%s ", cudaGetErrorName(cudaDeviceGetLimit(&bytes, cudaLimitMallocHeapSize)));
  std::printf("%zu\n", bytes);
  fits<<<1, 1>>>(out, 7 << 20);
  const int small = read(0);
  fits<<<1, 1>>>(out, 9 << 20);
  std::printf("7 MiB: %d, 9 MiB: %d\n", small, read(0));
  std::printf("%s\n", cudaGetErrorName(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20)));
  cudaDeviceReset();
  cudaMalloc(&out, 4096);
  std::printf("%s\n", cudaGetErrorName(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20)));
  fits<<<1, 1>>>(out, 9 << 20);
  cudaDeviceGetLimit(&bytes, cudaLimitMallocHeapSize);
  std::printf("9 MiB: %d of %zu\n", read(0), bytes);
  cudaDeviceReset();
  cudaDeviceGetLimit(&bytes, cudaLimitMallocHeapSize);
  std::printf("%zu after a reset\n", bytes);
}

int main(int, char** names) {
  const char* const what = names[1];
  cudaMalloc(&out, 4096);
  cudaMemset(out, 0, 4096);
  if (!std::strcmp(what, "limits")) {
    limits();
    return 0;
  }
  if (!std::strcmp(what, "busy")) {
    busy<<<1, 64>>>(out);
    std::printf("%s %d %d\n", done(), read(6), read(63));
    return 0;
  }
  take<<<1, 1>>>(6);
  if (!std::strcmp(what, "past")) store<<<1, 1>>>(6);
  if (!std::strcmp(what, "before")) store<<<1, 1>>>(-1);
  if (!std::strcmp(what, "freed")) {
    give<<<1, 1>>>();
    load<<<1, 1>>>(out, 2);
  }
  if (!std::strcmp(what, "intact")) {
    store<<<1, 1>>>(5);
    give<<<1, 1>>>();
  }
  std::printf("%s\n", done());
  cudaFree(out);
}
