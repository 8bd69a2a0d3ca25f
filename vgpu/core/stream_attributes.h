// Attributes of streams: remembered and told, for none of them changes a result.
#pragma once

#include <array>

#include "core/error.h"

namespace vgpu {

using StreamAttribute = std::array<char, 64>;  // cudaLaunchAttributeValue

Code set_stream_attribute(void* stream, int which, const void* value);
Code get_stream_attribute(void* stream, int which, void* value);
Code copy_stream_attributes(void* to, void* from);

}  // namespace vgpu
