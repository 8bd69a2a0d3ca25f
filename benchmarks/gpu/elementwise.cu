// An unfused epilogue: out = ACTIVATION(in + bias), FP16, by rows of `columns` elements, of which
// there is a multiple of 8. A thread moves 16 bytes an access, as a compiler's kernel would. SYMBOL
// and ACTIVATION are replaced by names (`wanted.elementwise`).
#include <cuda_fp16.h>

#include <cstdint>
#include <cstdio>

#include "boltgen/abi.h"
#include "boltgen/activations.h"

struct elementwise_args {
  int64_t count;
  int32_t columns;
  void const* in;
  void const* bias;
  void* out;
  void* stream;
};

namespace SYMBOL_kernel {

constexpr int kVector = 8;
constexpr int kThreads = 256;

struct alignas(16) Vector {
  __half x[kVector];
};

__global__ void run(Vector const* in, __half const* bias, Vector* out, int64_t vectors,
                    int columns) {
  int64_t const i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= vectors) {
    return;
  }
  Vector const a = in[i];
  Vector const b = *reinterpret_cast<Vector const*>(bias + i * kVector % columns);
  Vector result;
  for (int j = 0; j < kVector; ++j) {
    float const sum = __half2float(a.x[j]) + __half2float(b.x[j]);
    result.x[j] = __float2half_rn(boltgen::ACTIVATION(sum));
  }
  out[i] = result;
}

extern "C" int SYMBOL(elementwise_args const* args, boltgen_status* status) {
  int64_t const vectors = args->count / kVector;
  unsigned const blocks = unsigned((vectors + kThreads - 1) / kThreads);
  run<<<blocks, kThreads, 0, static_cast<cudaStream_t>(args->stream)>>>(
      static_cast<Vector const*>(args->in), static_cast<__half const*>(args->bias),
      static_cast<Vector*>(args->out), vectors, args->columns);
  cudaError_t const error = cudaGetLastError();
  status->code = error == cudaSuccess ? BOLTGEN_OK : BOLTGEN_CUDA_ERROR;
  std::snprintf(status->message, sizeof(status->message), "%s", cudaGetErrorString(error));
  return status->code;
}

}  // namespace SYMBOL_kernel
