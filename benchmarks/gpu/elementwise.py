"""What stands behind an unfused product: a kernel that adds the bias and computes an activation.

It moves 16 bytes a thread and an access, as a compiler's kernel would. The functions are those of
fused epilogues (`templates/include/boltgen/activations.h`).
"""

from __future__ import annotations

import ctypes

from boltgen.families.move import MoveSource
from boltgen.ir.functions import UnaryOp

_TEXT = """\
// An unfused epilogue: out = {name}(in + bias), FP16, by rows of `columns` elements.
#include <cuda_fp16.h>

#include <cstdint>
#include <cstdio>

#include "boltgen/abi.h"
#include "boltgen/activations.h"

struct elementwise_args {{
  int64_t count;
  int32_t columns;
  void const* in;
  void const* bias;
  void* out;
  void* stream;
}};

namespace {symbol}_kernel {{

constexpr int kVector = 8;
constexpr int kThreads = 256;

struct alignas(16) Vector {{
  __half x[kVector];
}};

__global__ void run(Vector const* in, __half const* bias, Vector* out, int64_t vectors,
                    int columns) {{
  int64_t const i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= vectors) {{
    return;
  }}
  Vector const a = in[i];
  Vector const b = *reinterpret_cast<Vector const*>(bias + i * kVector % columns);
  Vector result;
  for (int j = 0; j < kVector; ++j) {{
    float const sum = __half2float(a.x[j]) + __half2float(b.x[j]);
    result.x[j] = __float2half_rn(boltgen::{name}(sum));
  }}
  out[i] = result;
}}

extern "C" int {symbol}(elementwise_args const* args, boltgen_status* status) {{
  int64_t const vectors = args->count / kVector;
  unsigned const blocks = unsigned((vectors + kThreads - 1) / kThreads);
  run<<<blocks, kThreads, 0, static_cast<cudaStream_t>(args->stream)>>>(
      static_cast<Vector const*>(args->in), static_cast<__half const*>(args->bias),
      static_cast<Vector*>(args->out), vectors, args->columns);
  cudaError_t const error = cudaGetLastError();
  status->code = error == cudaSuccess ? BOLTGEN_OK : BOLTGEN_CUDA_ERROR;
  std::snprintf(status->message, sizeof(status->message), "%s", cudaGetErrorString(error));
  return status->code;
}}

}}  // namespace {symbol}_kernel
"""


class ElementwiseArgs(ctypes.Structure):
    """`elementwise_args`; `columns` is a multiple of 8."""

    _fields_ = (
        ("count", ctypes.c_int64),
        ("columns", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("input", "bias", "output", "stream")),
    )


def elementwise_symbol(op: UnaryOp) -> str:
    """The kernel's C entry, which takes `ElementwiseArgs` and a status."""
    return f"boltgen_suite_bias_{op.value}"


def elementwise_source(op: UnaryOp, arch: str) -> MoveSource:
    """The kernel's `.cu`."""
    symbol = elementwise_symbol(op)
    return MoveSource(
        arch=arch, symbol=symbol, symbols=(symbol,), text=_TEXT.format(symbol=symbol, name=op.value)
    )
