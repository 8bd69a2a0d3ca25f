// Devices, errors, streams, events, and the way to the driver.
#include <dlfcn.h>

#include <cstring>

#include "core/attributes.h"
#include "core/options.h"
#include "core/stream.h"
#include "cudart/types.h"

using namespace vgpu;
using vgpu::cudart::alive;
using vgpu::cudart::done;

namespace vgpu::cudart {
namespace {
thread_local Code last_error = Code::kSuccess;
}

cudaError_t done(Code code) {
  if (code != Code::kSuccess && code != Code::kNotReady) last_error = code;
  return static_cast<cudaError_t>(code);
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

cudaError_t cudaGetLastError() {
  if (alive() != Code::kSuccess) return static_cast<int>(alive());
  const Code code = vgpu::cudart::last_error;
  vgpu::cudart::last_error = Code::kSuccess;
  return static_cast<int>(code);
}
cudaError_t cudaPeekAtLastError() {
  return static_cast<int>(alive() != Code::kSuccess ? alive() : vgpu::cudart::last_error);
}
const char* cudaGetErrorString(cudaError_t code) { return error_text(code); }
const char* cudaGetErrorName(cudaError_t code) { return error_name(code); }

// --- devices -----------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return 0;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return 0;
}
cudaError_t cudaSetDevice(int device) { return done(only_device(device)); }
cudaError_t cudaInitDevice(int device, unsigned, unsigned) { return done(only_device(device)); }
cudaError_t cudaSetDeviceFlags(unsigned) { return 0; }
cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  *flags = 0;
  return 0;
}
cudaError_t cudaDeviceSynchronize() { return done(alive()); }
cudaError_t cudaDeviceReset() {
  clear_sticky_error();
  return 0;
}
cudaError_t cudaDeviceGetAttribute(int* value, int attribute, int device) {
  const Code code = only_device(device);
  return done(code != Code::kSuccess ? code : device_attribute(attribute, value));
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (const Code code = only_device(device); code != Code::kSuccess) return done(code);
  const DeviceModel& d = *options().device;
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
cudaError_t cudaDeviceGetLimit(size_t* value, int) {
  *value = 0;
  return 0;
}
cudaError_t cudaDeviceSetLimit(int, size_t) { return 0; }
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
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return 0;
}

// --- streams -----------------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  *stream = new Stream{flags, priority};
  return done(alive());
}
cudaError_t cudaStreamCreate(void** stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
cudaError_t cudaStreamCreateWithFlags(void** stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamDestroy(void* stream) {
  delete static_cast<Stream*>(stream);
  return 0;
}
cudaError_t cudaStreamSynchronize(void*) { return done(alive()); }
cudaError_t cudaStreamQuery(void*) { return done(alive()); }
cudaError_t cudaStreamWaitEvent(void*, void*, unsigned) { return done(alive()); }
cudaError_t cudaStreamGetPriority(void* stream, int* priority) {
  *priority = stream ? static_cast<Stream*>(stream)->priority : 0;
  return 0;
}
cudaError_t cudaStreamGetFlags(void* stream, unsigned* flags) {
  *flags = stream ? static_cast<Stream*>(stream)->flags : 0;
  return 0;
}
cudaError_t cudaStreamAddCallback(void* stream, void (*callback)(void*, cudaError_t, void*),
                                  void* data, unsigned) {
  callback(stream, static_cast<int>(alive()), data);
  return 0;
}
cudaError_t cudaLaunchHostFunc(void*, void (*function)(void*), void* data) {
  function(data);
  return done(alive());
}

// --- capture and graphs: not offered, and said so ------------------------------------------------

cudaError_t cudaStreamIsCapturing(void*, int* status) {
  *status = 0;
  return done(alive());
}
cudaError_t cudaStreamGetCaptureInfo(void*, int* status, unsigned long long* id, void**,
                                     const void***, const void**, size_t* count) {
  *status = 0;
  if (id) *id = 0;
  if (count) *count = 0;
  return done(alive());
}
cudaError_t cudaThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int current = 0;
  const int previous = current;
  current = *mode;
  *mode = previous;
  return 0;
}
static cudaError_t no_graphs() {
  return done(fail(Code::kNotSupported, "the virtual GPU does not have CUDA graphs"));
}
cudaError_t cudaStreamBeginCapture(void*, int) { return no_graphs(); }
cudaError_t cudaStreamEndCapture(void*, void**) { return no_graphs(); }
cudaError_t cudaGraphInstantiate(void**, void*, unsigned long long) { return no_graphs(); }
cudaError_t cudaGraphLaunch(void*, void*) { return no_graphs(); }
cudaError_t cudaGraphDestroy(void*) { return no_graphs(); }
cudaError_t cudaGraphExecDestroy(void*) { return no_graphs(); }

// --- events ------------------------------------------------------------------------------------

cudaError_t cudaEventCreateWithFlags(void** event, unsigned flags) {
  *event = new Event{flags, false, {}};
  return done(alive());
}
cudaError_t cudaEventCreate(void** event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(void* event) {
  delete static_cast<Event*>(event);
  return 0;
}
cudaError_t cudaEventRecord(void* event, void*) { return done(record(static_cast<Event*>(event))); }
cudaError_t cudaEventRecordWithFlags(void* event, void*, unsigned) {
  return done(record(static_cast<Event*>(event)));
}
cudaError_t cudaEventSynchronize(void*) { return done(alive()); }
cudaError_t cudaEventQuery(void*) { return done(alive()); }
cudaError_t cudaEventElapsedTime(float* ms, void* begin, void* end) {
  return done(elapsed(static_cast<Event*>(begin), static_cast<Event*>(end), ms));
}

// --- the driver's functions by name --------------------------------------------------------------

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long, int* status) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  *function = driver ? dlsym(driver, symbol) : nullptr;
  if (driver && !*function) *function = dlsym(driver, (std::string(symbol) + "_v2").c_str());
  if (status) *status = *function ? 0 : 1;
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
