// What differs in CUDA 12, in libcudart.so.12 only: cudaDeviceProp (driver_types.h of 12.x; CUDA 13
// took the fields away that are marked), and graphs without data of edges.
#include <cstring>

#include "cudart/types.h"

extern "C" cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);

namespace {

struct DeviceProp12 : vgpu_device_prop_start {
  int maxGridSize[3];
  int clockRate;  // gone in 13
  size_t totalConstMem;
  int major;
  int minor;
  size_t textureAlignment;
  size_t texturePitchAlignment;
  int deviceOverlap;  // gone in 13
  int multiProcessorCount;
  int kernelExecTimeoutEnabled;  // gone in 13
  int integrated;
  int canMapHostMemory;
  int computeMode;         // gone in 13
  int texture_limits[40];  // maxTexture1D to maxSurfaceCubemapLayered
  size_t surfaceAlignment;
  int concurrentKernels;
  int ECCEnabled;
  int pciBusID;
  int pciDeviceID;
  int pciDomainID;
  int tccDriver;
  int asyncEngineCount;
  int unifiedAddressing;
  int memoryClockRate;  // gone in 13
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
  int singleToDoublePrecisionPerfRatio;  // gone in 13
  int pageableMemoryAccess;
  int concurrentManagedAccess;
  int computePreemptionSupported;
  int canUseHostPointerForRegisteredMem;
  int cooperativeLaunch;
  int cooperativeMultiDeviceLaunch;  // gone in 13
  size_t sharedMemPerBlockOptin;
  int pageableMemoryAccessUsesHostPageTables;
  int directManagedMemAccessFromHost;
  int maxBlocksPerMultiProcessor;
  int accessPolicyMaxWindowSize;
  size_t reservedSharedMemPerBlock;
  int rest[13];  // hostRegisterSupported to unifiedFunctionPointers
  int reserved[63];
};

// GPUs of this kind run at about that many kHz; nothing here depends on it.
constexpr int kClockKhz = 1410000;
constexpr int kMemoryClockKhz = 1215000;

}  // namespace

// The name that CUDA 12's headers give to cudaGetDeviceProperties.
extern "C" cudaError_t cudaGetDeviceProperties_v2(DeviceProp12* p, int device) {
  cudaDeviceProp from;
  if (const cudaError_t error = cudaGetDeviceProperties(&from, device); error != 0) return error;
  std::memset(p, 0, sizeof(*p));
  static_cast<vgpu_device_prop_start&>(*p) = from;
  std::memcpy(p->maxGridSize, from.maxGridSize, sizeof(p->maxGridSize));
  p->clockRate = kClockKhz;
  p->totalConstMem = from.totalConstMem;
  p->major = from.major;
  p->minor = from.minor;
  p->textureAlignment = from.textureAlignment;
  p->texturePitchAlignment = from.texturePitchAlignment;
  p->deviceOverlap = 1;
  p->multiProcessorCount = from.multiProcessorCount;
  p->canMapHostMemory = from.canMapHostMemory;
  p->surfaceAlignment = from.surfaceAlignment;
  p->concurrentKernels = from.concurrentKernels;
  p->asyncEngineCount = from.asyncEngineCount;
  p->unifiedAddressing = from.unifiedAddressing;
  p->memoryClockRate = kMemoryClockKhz;
  p->memoryBusWidth = from.memoryBusWidth;
  p->l2CacheSize = from.l2CacheSize;
  p->persistingL2CacheMaxSize = from.persistingL2CacheMaxSize;
  p->maxThreadsPerMultiProcessor = from.maxThreadsPerMultiProcessor;
  p->streamPrioritiesSupported = from.streamPrioritiesSupported;
  p->globalL1CacheSupported = from.globalL1CacheSupported;
  p->localL1CacheSupported = from.localL1CacheSupported;
  p->sharedMemPerMultiprocessor = from.sharedMemPerMultiprocessor;
  p->regsPerMultiprocessor = from.regsPerMultiprocessor;
  p->managedMemory = from.managedMemory;
  p->computePreemptionSupported = from.computePreemptionSupported;
  p->cooperativeLaunch = from.cooperativeLaunch;
  p->sharedMemPerBlockOptin = from.sharedMemPerBlockOptin;
  p->maxBlocksPerMultiProcessor = from.maxBlocksPerMultiProcessor;
  p->reservedSharedMemPerBlock = from.reservedSharedMemPerBlock;
  return 0;
}

extern "C" cudaError_t cudaRuntimeGetVersion(int* version) {
  if (!version)
    return vgpu::cudart::done(vgpu::fail(vgpu::Code::kInvalidValue,
                                         "cudaRuntimeGetVersion: the result has nowhere to go"));
  *version = 12080;
  return 0;
}

// --- graphs: CUDA 12.3 added second versions with data of edges
// -----------------------------------

extern "C" {

struct cudaGraphNodeParams;
cudaError_t cudaGraphAddNode_v2(void** node, void* graph, void* const* after, const void* edges,
                                size_t count, cudaGraphNodeParams* parameters);
cudaError_t cudaGraphAddDependencies_v2(void* graph, void* const* from, void* const* to,
                                        const void* edges, size_t count);
cudaError_t cudaGraphRemoveDependencies_v2(void* graph, void* const* from, void* const* to,
                                           const void* edges, size_t count);
cudaError_t cudaGraphGetEdges_v2(void* graph, void** from, void** to, void* edges, size_t* count);
cudaError_t cudaGraphNodeGetDependencies_v2(void* node, void** nodes, void* edges, size_t* count);
cudaError_t cudaGraphNodeGetDependentNodes_v2(void* node, void** nodes, void* edges, size_t* count);

cudaError_t cudaGraphAddNode(void** node, void* graph, void* const* after, size_t count,
                             cudaGraphNodeParams* parameters) {
  return cudaGraphAddNode_v2(node, graph, after, nullptr, count, parameters);
}
cudaError_t cudaGraphAddDependencies(void* graph, void* const* from, void* const* to,
                                     size_t count) {
  return cudaGraphAddDependencies_v2(graph, from, to, nullptr, count);
}
cudaError_t cudaGraphRemoveDependencies(void* graph, void* const* from, void* const* to,
                                        size_t count) {
  return cudaGraphRemoveDependencies_v2(graph, from, to, nullptr, count);
}
cudaError_t cudaStreamUpdateCaptureDependencies_v2(void* stream, void* const* nodes,
                                                   const void* edges, size_t count, unsigned flags);
cudaError_t cudaStreamUpdateCaptureDependencies(void* stream, void* const* nodes, size_t count,
                                                unsigned flags) {
  return cudaStreamUpdateCaptureDependencies_v2(stream, nodes, nullptr, count, flags);
}
cudaError_t cudaGraphGetEdges(void* graph, void** from, void** to, size_t* count) {
  return cudaGraphGetEdges_v2(graph, from, to, nullptr, count);
}
cudaError_t cudaGraphNodeGetDependencies(void* node, void** nodes, size_t* count) {
  return cudaGraphNodeGetDependencies_v2(node, nodes, nullptr, count);
}
cudaError_t cudaGraphNodeGetDependentNodes(void* node, void** nodes, size_t* count) {
  return cudaGraphNodeGetDependentNodes_v2(node, nodes, nullptr, count);
}

}  // extern "C"
