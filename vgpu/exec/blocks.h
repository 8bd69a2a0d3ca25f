// Memory of CTAs, kept from one launch to the next: what small launches need is there already.
#pragma once

#include <cstddef>

namespace vgpu {

// Aligned to a page; what it holds is undefined. Throws std::bad_alloc.
void* take_block(std::size_t bytes);
void give_block(void* block);

}  // namespace vgpu
