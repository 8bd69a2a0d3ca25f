// Device memory: allocation, random contents, poison.

#include "elements.cuh"
#include "process.h"

using namespace boltgen::profiler;

namespace {

/// Source: Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014.
__device__ uint64_t splitmix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

template <typename Element>
__global__ void fill_uniform(Element* out, uint64_t count, uint64_t seed, float low, float width) {
  uint64_t const stride = uint64_t(gridDim.x) * blockDim.x;
  for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    uint64_t const bits = splitmix64(seed + (i + 1) * 0x9e3779b97f4a7c15ull);
    float const unit = float(bits >> 40) * 0x1p-24f;
    out[i] = narrowed<Element>(__fmaf_rn(width, unit, low));
  }
}

}  // namespace

int profiler_free_bytes(uint64_t* out, profiler_status* status) {
  size_t free_bytes = 0, total_bytes = 0;
  cudaError_t const error = cudaMemGetInfo(&free_bytes, &total_bytes);
  *out = free_bytes;
  return error == cudaSuccess ? succeed(status) : fail(status, error, "cudaMemGetInfo");
}

int profiler_allocate(uint64_t bytes, void** out, profiler_status* status) {
  cudaError_t const error = cudaMalloc(out, bytes);
  return error == cudaSuccess ? succeed(status) : fail(status, error, "cudaMalloc");
}

int profiler_release(void* pointer, profiler_status* status) {
  cudaError_t const error = cudaFree(pointer);
  return error == cudaSuccess ? succeed(status) : fail(status, error, "cudaFree");
}

int profiler_copy(void* to, void const* from, uint64_t bytes, profiler_status* status) {
  cudaError_t const error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream());
  return error == cudaSuccess ? finish(status, "copy") : fail(status, error, "cudaMemcpyAsync");
}

int profiler_poison(void* pointer, uint64_t bytes, profiler_status* status) {
  cudaError_t const error = cudaMemsetAsync(pointer, 0xff, bytes, stream());
  return error == cudaSuccess ? finish(status, "poison") : fail(status, error, "cudaMemsetAsync");
}

int profiler_fill(void* pointer, int dtype, uint64_t count, uint64_t seed, float low, float high,
                  profiler_status* status) {
  unsigned const threads = 256;
  uint64_t const wanted = (count + threads - 1) / threads;
  unsigned const blocks = unsigned(wanted < 4096 ? wanted : 4096);
  if (count == 0) {
    return succeed(status);
  }
  switch (dtype) {
    case PROFILER_F16:
      fill_uniform<<<blocks, threads, 0, stream()>>>(static_cast<half*>(pointer), count, seed, low,
                                                     high - low);
      break;
    case PROFILER_BF16:
      fill_uniform<<<blocks, threads, 0, stream()>>>(static_cast<__nv_bfloat16*>(pointer), count,
                                                     seed, low, high - low);
      break;
    case PROFILER_F32:
      fill_uniform<<<blocks, threads, 0, stream()>>>(static_cast<float*>(pointer), count, seed, low,
                                                     high - low);
      break;
    case PROFILER_I8:
      fill_uniform<<<blocks, threads, 0, stream()>>>(static_cast<int8_t*>(pointer), count, seed,
                                                     low, high - low);
      break;
    case PROFILER_U8:
      fill_uniform<<<blocks, threads, 0, stream()>>>(static_cast<uint8_t*>(pointer), count, seed,
                                                     low, high - low);
      break;
    case PROFILER_I32:
      fill_uniform<<<blocks, threads, 0, stream()>>>(static_cast<int32_t*>(pointer), count, seed,
                                                     low, high - low);
      break;
    default:
      return refuse(status, "contents of the unknown element type %d", dtype);
  }
  cudaError_t const error = cudaGetLastError();
  return error == cudaSuccess ? finish(status, "fill") : fail(status, error, "launch of fill");
}
