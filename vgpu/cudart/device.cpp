// Devices, errors, and the way to the driver.
#include <dlfcn.h>

#include <cstring>

#include "core/attributes.h"
#include "core/limits.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/stream.h"
#include "cudart/types.h"

using namespace vgpu;
using vgpu::cudart::alive;
using vgpu::cudart::done;
using vgpu::cudart::refuse_null;

namespace vgpu::cudart {
namespace {
thread_local Code last_error = Code::kSuccess;
}

cudaError_t done(Code code) {
  if (code != Code::kSuccess && code != Code::kNotReady) last_error = code;
  return static_cast<cudaError_t>(code);
}

cudaError_t refuse_null(const char* call) {
  return done(fail(Code::kInvalidValue, std::string(call) + ": a pointer is null"));
}

}  // namespace vgpu::cudart

namespace {

Code only_device(int device) {
  return device == 0 ? Code::kSuccess
                     : fail(Code::kInvalidDevice,
                            "device " + std::to_string(device) + ": there is one device, number 0");
}

}  // namespace

extern "C" {

// --- errors ------------------------------------------------------------------------------------

// Neither waits for anything: the fault of a kernel shows once a call that waits, or the next one
// that uses the device, has reported it.
cudaError_t cudaGetLastError() {
  if (reported_error() != Code::kSuccess) return static_cast<int>(reported_error());
  const Code code = vgpu::cudart::last_error;
  vgpu::cudart::last_error = Code::kSuccess;
  return static_cast<int>(code);
}
cudaError_t cudaPeekAtLastError() {
  const Code fault = reported_error();
  return static_cast<int>(fault != Code::kSuccess ? fault : vgpu::cudart::last_error);
}
const char* cudaGetErrorString(cudaError_t code) { return error_text(code); }
const char* cudaGetErrorName(cudaError_t code) { return error_name(code); }

// --- devices -----------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
  if (!count) return refuse_null("cudaGetDeviceCount");
  *count = 1;
  return 0;
}
cudaError_t cudaGetDevice(int* device) {
  if (!device) return refuse_null("cudaGetDevice");
  *device = 0;
  return 0;
}
cudaError_t cudaSetDevice(int device) { return done(only_device(device)); }
cudaError_t cudaInitDevice(int device, unsigned, unsigned) { return done(only_device(device)); }
cudaError_t cudaSetDeviceFlags(unsigned) { return 0; }
cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  if (!flags) return refuse_null("cudaGetDeviceFlags");
  *flags = 0;
  return 0;
}
cudaError_t cudaDeviceSynchronize() { return done(synchronize_device()); }
cudaError_t cudaDeviceReset() {
  reset_device();
  return 0;
}
cudaError_t cudaDeviceGetAttribute(int* value, int attribute, int device) {
  if (!value) return refuse_null("cudaDeviceGetAttribute");
  const Code code = only_device(device);
  return done(code != Code::kSuccess ? code : device_attribute(attribute, value));
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (!p) return refuse_null("cudaGetDeviceProperties");
  if (const Code code = only_device(device); code != Code::kSuccess) return done(code);
  const DeviceModel& d = options().device;
  const auto attribute = [](int which) {
    int value = 0;
    device_attribute(which, &value);
    return value;
  };
  std::memset(p, 0, sizeof(*p));
  std::strncpy(p->name, d.name, sizeof(p->name) - 1);
  std::memcpy(p->uuid, "vgpu-of-boltgen", 16);
  p->totalGlobalMem = d.memory_bytes;
  p->sharedMemPerBlock = kSharedPerBlock;
  p->regsPerBlock = p->regsPerMultiprocessor = d.registers_per_sm;
  p->warpSize = kWarpSize;
  p->memPitch = 0x7fffffff;
  p->maxThreadsPerBlock = 1024;
  for (int k = 0; k < 3; ++k) {
    p->maxThreadsDim[k] = attribute(2 + k);
    p->maxGridSize[k] = attribute(5 + k);
  }
  p->totalConstMem = 65536;
  p->major = d.capability / 10;
  p->minor = d.capability % 10;
  p->textureAlignment = p->surfaceAlignment = 512;
  p->texturePitchAlignment = 32;
  p->multiProcessorCount = d.multiprocessors;
  p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = 1;
  p->asyncEngineCount = 2;
  p->memoryBusWidth = d.memory_bus_bits;
  p->l2CacheSize = d.l2_bytes;
  p->persistingL2CacheMaxSize = attribute(108);
  p->maxThreadsPerMultiProcessor = d.threads_per_sm;
  p->streamPrioritiesSupported = p->globalL1CacheSupported = p->localL1CacheSupported = 1;
  p->sharedMemPerMultiprocessor = static_cast<size_t>(d.shared_per_sm);
  p->managedMemory = p->computePreemptionSupported = p->cooperativeLaunch = 1;
  p->sharedMemPerBlockOptin = static_cast<size_t>(d.shared_per_block_optin);
  p->maxBlocksPerMultiProcessor = d.blocks_per_sm;
  p->reservedSharedMemPerBlock = static_cast<size_t>(attribute(111));
  return 0;
}
cudaError_t cudaDeviceGetLimit(size_t* value, int limit) { return done(get_limit(limit, value)); }
cudaError_t cudaDeviceSetLimit(int limit, size_t value) { return done(set_limit(limit, value)); }
cudaError_t cudaDeviceSetCacheConfig(int) { return 0; }
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return 0;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return 0;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
// libcudart.so.12 has one of its own.
__attribute__((weak)) cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return 0;
}

// --- the driver's functions by name --------------------------------------------------------------

// CUDA takes the same flags for the runtime's function as for the driver's.
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long flags, int* status) {
  if (!symbol || !function) return refuse_null("cudaGetDriverEntryPoint");
  using GetProcAddress = int (*)(const char*, void**, int, unsigned long long, int*);
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  void* get = driver ? dlsym(driver, "cuGetProcAddress_v2") : nullptr;
  *function = nullptr;
  int found = 1;
  if (get) {
    reinterpret_cast<GetProcAddress>(get)(symbol, function, static_cast<int>(version), flags,
                                          &found);
  }
  if (status) *status = found;
  if (*function || status) return 0;
  return done(fail(Code::kNotFound, std::string("the virtual GPU's driver has no ") + symbol));
}
cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                    int* status) {
  return cudaGetDriverEntryPointByVersion(symbol, function, 13000, flags, status);
}

cudaError_t cudaProfilerStart() { return 0; }
cudaError_t cudaProfilerStop() { return 0; }

}  // extern "C"
