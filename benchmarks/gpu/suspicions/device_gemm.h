// Runs one of CUTLASS's own device-level GEMMs behind the C interface of boltgen's kernels.

#pragma once

#include <cstdio>

#include "boltgen/abi.h"
#include "cutlass/gemm/device/gemm.h"

namespace suspicion {

using Half = cutlass::half_t;
using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;

inline int told(boltgen_status* status, cutlass::Status code) {
  status->code = code == cutlass::Status::kSuccess ? BOLTGEN_OK : BOLTGEN_INVALID_ARGUMENT;
  std::snprintf(status->message, sizeof(status->message), "%s", cutlassGetStatusString(code));
  return status->code;
}

template <typename Gemm>
typename Gemm::Arguments arguments(boltgen_gemm_args const& args) {
  return {{args.m, args.n, args.k},
          {static_cast<Half const*>(args.a), args.lda},
          {static_cast<Half const*>(args.b), args.ldb},
          {static_cast<Half const*>(args.d), args.ldd},
          {static_cast<Half*>(args.d), args.ldd},
          {1.0f, 0.0f},
          args.split_k};
}

template <typename Gemm>
int run(boltgen_gemm_args const* args, boltgen_status* status) {
  auto const stream = static_cast<cudaStream_t>(args->stream);
  Gemm gemm;
  auto code = gemm.initialize(arguments<Gemm>(*args), args->workspace, stream);
  if (code == cutlass::Status::kSuccess) {
    code = gemm.run(stream);
  }
  return told(status, code);
}

}  // namespace suspicion
