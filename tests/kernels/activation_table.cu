// Every function of boltgen/activations.h applied to an array, for test_activations.py.

#include "boltgen/activations.h"

namespace {

enum Op { NEGATE, ABS, SQRT, RSQRT, EXP, LOG, ERF, TANH, RELU, LEAKY_RELU, CLIP, GELU_ERF,
          GELU_TANH, SIGMOID, SILU, HARDSIGMOID, HARDSWISH, SOFTPLUS, MISH, MAXIMUM, MINIMUM };

__device__ float apply(int op, float x, float p, float q) {
  switch (op) {
    case NEGATE: return boltgen::negate(x);
    case ABS: return boltgen::abs(x);
    case SQRT: return boltgen::sqrt(x);
    case RSQRT: return boltgen::rsqrt(x);
    case EXP: return boltgen::exp(x);
    case LOG: return boltgen::log(x);
    case ERF: return boltgen::erf(x);
    case TANH: return boltgen::tanh(x);
    case RELU: return boltgen::relu(x);
    case LEAKY_RELU: return boltgen::leaky_relu(x, p);
    case CLIP: return boltgen::clip(x, p, q);
    case GELU_ERF: return boltgen::gelu_erf(x);
    case GELU_TANH: return boltgen::gelu_tanh(x);
    case SIGMOID: return boltgen::sigmoid(x);
    case SILU: return boltgen::silu(x);
    case HARDSIGMOID: return boltgen::hardsigmoid(x, p, q);
    case HARDSWISH: return boltgen::hardswish(x);
    case SOFTPLUS: return boltgen::softplus(x);
    case MISH: return boltgen::mish(x);
    case MAXIMUM: return boltgen::maximum(x, p);
    case MINIMUM: return boltgen::minimum(x, p);
  }
  return 0.0f;
}

}  // namespace

__global__ void table(int op, float const* x, float* y, int count, float p, float q) {
  int const i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) {
    y[i] = apply(op, x[i], p, q);
  }
}

extern "C" int run_table(int op, float const* x, float* y, int count, float p, float q) {
  table<<<(count + 255) / 256, 256>>>(op, x, y, count, p, q);
  return int(cudaGetLastError());
}
