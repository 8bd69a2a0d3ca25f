// What kernels print: as on a GPU it goes to a ring of bytes, whose oldest entries give way where
// it is full, and from there to stdout.
#pragma once

#include <string>

#include "core/error.h"
#include "exec/types.h"

namespace vgpu {

// A launch of a kernel that has calls of printf; from then on the ring keeps its size.
void begin_printing();
// The ring's entries to stdout, and to stderr how many were lost.
void flush_prints(const std::string& kernel);

Code resize_print_ring(u64 bytes);  // cudaLimitPrintfFifoSize
u64 print_ring_bytes();
void reset_print_ring();

}  // namespace vgpu
