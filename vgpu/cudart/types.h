// CUDA's structures as CUDA 13 lays them out (driver_types.h, vector_types.h). Ours need no CUDA
// headers to build; tests compare the layouts with the real ones.
#pragma once

#include <cstddef>

#include "core/error.h"

extern "C" {

typedef int cudaError_t;
struct vgpu_dim3 {
  unsigned x, y, z;
};

// How cudaDeviceProp begins in CUDA 12 and in 13.
struct vgpu_device_prop_start {
  char name[256];
  char uuid[16];
  char luid[8];
  unsigned luidDeviceNodeMask;
  size_t totalGlobalMem;
  size_t sharedMemPerBlock;
  int regsPerBlock;
  int warpSize;
  size_t memPitch;
  int maxThreadsPerBlock;
  int maxThreadsDim[3];
};

struct cudaDeviceProp : vgpu_device_prop_start {
  int maxGridSize[3];
  size_t totalConstMem;
  int major;
  int minor;
  size_t textureAlignment;
  size_t texturePitchAlignment;
  int multiProcessorCount;
  int integrated;
  int canMapHostMemory;
  int texture_limits[39];  // maxTexture1D to maxSurfaceCubemapLayered
  size_t surfaceAlignment;
  int concurrentKernels;
  int ECCEnabled;
  int pciBusID;
  int pciDeviceID;
  int pciDomainID;
  int tccDriver;
  int asyncEngineCount;
  int unifiedAddressing;
  int memoryBusWidth;
  int l2CacheSize;
  int persistingL2CacheMaxSize;
  int maxThreadsPerMultiProcessor;
  int streamPrioritiesSupported;
  int globalL1CacheSupported;
  int localL1CacheSupported;
  size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor;
  int managedMemory;
  int isMultiGpuBoard;
  int multiGpuBoardGroupID;
  int hostNativeAtomicSupported;
  int pageableMemoryAccess;
  int concurrentManagedAccess;
  int computePreemptionSupported;
  int canUseHostPointerForRegisteredMem;
  int cooperativeLaunch;
  size_t sharedMemPerBlockOptin;
  int pageableMemoryAccessUsesHostPageTables;
  int directManagedMemAccessFromHost;
  int maxBlocksPerMultiProcessor;
  int accessPolicyMaxWindowSize;
  size_t reservedSharedMemPerBlock;
  int rest[20];  // hostRegisterSupported to hostNumaMultinodeIpcSupported
  int reserved[56];
};

struct cudaFuncAttributes {
  size_t sharedSizeBytes;
  size_t constSizeBytes;
  size_t localSizeBytes;
  int maxThreadsPerBlock;
  int numRegs;
  int ptxVersion;
  int binaryVersion;
  int cacheModeCA;
  int maxDynamicSharedSizeBytes;
  int preferredShmemCarveout;
  int clusterDimMustBeSet;
  int requiredClusterWidth;
  int requiredClusterHeight;
  int requiredClusterDepth;
  int clusterSchedulingPolicyPreference;
  int nonPortableClusterSizeAllowed;
  int reserved[16];
};

struct cudaPointerAttributes {
  int type;  // 0 unregistered, 1 host, 2 device, 3 managed
  int device;
  void* devicePointer;
  void* hostPointer;
  long reserved[8];
};

struct vgpu_launch_attribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    unsigned cluster[3];
    int cooperative;
    int early_start;
  } value;
};

struct cudaLaunchConfig_t {
  vgpu_dim3 grid;
  vgpu_dim3 block;
  size_t dynamic_shared;
  void* stream;
  vgpu_launch_attribute* attributes;
  unsigned count;
};
static_assert(sizeof(cudaDeviceProp) == 1008 && sizeof(cudaFuncAttributes) == 144);
static_assert(sizeof(cudaPointerAttributes) == 88 && sizeof(cudaLaunchConfig_t) == 56);
}

namespace vgpu::cudart {

inline constexpr int kCooperative = 2;       // cudaLaunchAttributeCooperative
inline constexpr int kClusterDimension = 4;  // cudaLaunchAttributeClusterDimension
inline constexpr int kEarlyStart = 6;        // cudaLaunchAttributeProgrammaticStreamSerialization

// Remembers a failure for cudaGetLastError, which belongs to the calling thread.
cudaError_t done(Code code);
// A call got a null pointer where it needs one.
cudaError_t refuse_null(const char* call);
// The error that makes every later call fail, or success.
inline Code alive() { return sticky_error(); }

}  // namespace vgpu::cudart
