// Device attributes by CUDA's numbers, which the runtime and the driver share.
#pragma once

#include "core/device.h"
#include "core/error.h"

namespace vgpu {

Code device_attribute(int attribute, int* value);

}  // namespace vgpu
