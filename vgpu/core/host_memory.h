// Memory of the program's own, which may not be there at all.
#pragma once

#include <string>

#include "core/error.h"
#include "exec/types.h"

namespace vgpu {

// Copies as far as there is memory on both sides, and returns how many bytes that was. A plain copy
// would end the process.
u64 copy_mapped(void* to, const void* from, u64 bytes);

// As many bytes as were asked for, or fewer where memory ends.
std::string read_mapped(const void* from, u64 bytes);
// Up to a zero byte, or to where memory ends.
std::string read_text(const char* from);

}  // namespace vgpu
