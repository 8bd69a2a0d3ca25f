// The runtime's functions that nothing else here defines.
#include "core/missing.h"

#include "cudart/types.h"

using vgpu::own;

extern "C" {

#define MISSING(name) VGPU_MISSING(name, vgpu::cudart::done)
#define PER_THREAD VGPU_PER_THREAD
#include "cudart/names.h"
// What CUDA's runtime has besides, for nvcc's host code alone: no header declares it.
MISSING(__cudaGetProcAddress)
MISSING(__cudaRegisterHostVar)
MISSING(__cudaRegisterUnifiedTable)

}  // extern "C"
