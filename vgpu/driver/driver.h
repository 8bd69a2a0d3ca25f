// Types of the CUDA driver interface, as CUDA 13 lays them out (cuda.h).
#pragma once

#include <cstddef>

#include "core/error.h"
#include "core/module.h"

extern "C" {
typedef int CUresult;
typedef unsigned long long CUdeviceptr;

struct CUlaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    unsigned cluster[3];
    int cooperative;
    int early_start;
  } value;
};

struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  void* hStream;
  CUlaunchAttribute* attrs;
  unsigned numAttrs;
};
}

namespace vgpu::driver {

inline constexpr int kCooperative = 2;       // CU_LAUNCH_ATTRIBUTE_COOPERATIVE
inline constexpr int kClusterDimension = 4;  // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
inline constexpr int kEarlyStart = 6;

CUresult result(Code code);
CUresult refuse_null(const char* call);
// A function of this library by the name that its versions have in common, or null. The newest one
// that is implemented; where none is, one that says so.
void* function_named(const std::string& name, bool per_thread);
// A function of a module that is loaded; `call` is for the message.
Code find_function(void* function, const char* call, Kernel** kernel);

}  // namespace vgpu::driver
