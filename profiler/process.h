// What the profiler's parts share: the process's stream, and how failures are told.

#pragma once

#include <cuda_runtime_api.h>

#include "profiler.h"

namespace boltgen::profiler {

/// The stream of this process; null before profiler_open.
cudaStream_t stream();

int succeed(profiler_status* status);

/// A failed call of the runtime; clears it, so that no later call is blamed for it.
int fail(profiler_status* status, cudaError_t error, char const* what);

int refuse(profiler_status* status, char const* format, ...);

/// Whether `dtype` is one of the element types of profiler.h.
bool is_element_type(int dtype);

/// Whether an operand of an epilogue may have a type: integers may be loaded too.
bool is_loaded_type(int dtype);

/// Waits for the stream and tells what went wrong on it.
int finish(profiler_status* status, char const* what);

}  // namespace boltgen::profiler
