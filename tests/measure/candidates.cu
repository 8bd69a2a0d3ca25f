// Candidates for the worker's tests: one right kernel, and one for each way to be wrong.
//
// Naive matrix products, one thread for each element of D, with the C entry of generated kernels.

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "boltgen/abi.h"

enum Way { kRight, kWrongElement, kLastRowMissing, kNan, kIllegal, kHang, kRightOnce };

__device__ unsigned launches_so_far = 0;

template <Way way>
__global__ void product(boltgen_gemm_args args) {
  int const column = blockIdx.x * blockDim.x + threadIdx.x;
  int const row = blockIdx.y;
  if (column >= args.n) {
    return;
  }
  if (way == kLastRowMissing && row == args.m - 1) {
    return;
  }
  auto const* const a = static_cast<half const*>(args.a) + row * args.lda;
  auto const* const b = static_cast<half const*>(args.b) + column;
  float sum = 0.0f;
  for (int k = 0; k < args.k; ++k) {
    sum += __half2float(a[k]) * __half2float(b[k * args.ldb]);
  }
  if (way == kWrongElement && row == 3 && column == 2) {
    sum *= 1.01f;
  }
  if (way == kNan && row == 1 && column == 4) {
    sum = nanf("");
  }
  if (way == kRightOnce && row == 0 && column == 0 && atomicAdd(&launches_so_far, 1u) > 0) {
    sum += 1.0f;
  }
  auto* d = static_cast<half*>(args.d) + row * args.ldd + column;
  if (way == kIllegal && row == args.m - 1) {
    d += 1ull << 40;
  }
  while (way == kHang && static_cast<unsigned volatile&>(launches_so_far) == 0) {
  }
  *d = __float2half_rn(sum);
}

template <Way way>
int run(boltgen_gemm_args const* args, boltgen_status* status) {
  status->code = BOLTGEN_OK;
  auto const stream = static_cast<cudaStream_t>(args->stream);
  dim3 const grid((args->n + 31) / 32, args->m);
  product<way><<<grid, 32, 0, stream>>>(*args);
  if (cudaError_t const error = cudaGetLastError()) {
    status->code = BOLTGEN_CUDA_ERROR;
    std::snprintf(status->message, sizeof(status->message), "%s", cudaGetErrorString(error));
  }
  return status->code;
}

#define CANDIDATE(name, body)                                                \
  extern "C" size_t name##_workspace(boltgen_gemm_args const*) { return 0; } \
  extern "C" int name(boltgen_gemm_args const* args, boltgen_status* status) { body }

CANDIDATE(right, return run<kRight>(args, status);)
CANDIDATE(wrong_element, return run<kWrongElement>(args, status);)
CANDIDATE(last_row_missing, return run<kLastRowMissing>(args, status);)
CANDIDATE(not_a_number, return run<kNan>(args, status);)
CANDIDATE(illegal_access, return run<kIllegal>(args, status);)
CANDIDATE(hangs, return run<kHang>(args, status);)
CANDIDATE(right_once, return run<kRightOnce>(args, status);)
CANDIDATE(crashes, std::abort(); return run<kRight>(args, status);)
CANDIDATE(prints, std::puts("hello from a library"); std::fflush(stdout);
          return run<kRight>(args, status);)
CANDIDATE(refuses, (void)args; status->code = BOLTGEN_MISALIGNED;
          std::strcpy(status->message, "k is 9; this kernel needs a multiple of 8 elements");
          return status->code;)

extern "C" size_t greedy_workspace(boltgen_gemm_args const*) { return size_t(1) << 60; }
extern "C" int greedy(boltgen_gemm_args const* args, boltgen_status* status) {
  return run<kRight>(args, status);
}
