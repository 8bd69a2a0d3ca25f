// The CUDA driver: devices, contexts, memory, streams and errors.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>

#include "core/attributes.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/stream.h"
#include "driver/driver.h"

using namespace vgpu;
using vgpu::driver::result;

namespace vgpu::driver {

// The runtime has a few codes that the driver does not; their messages go with them.
CUresult result(Code code) {
  const Code instead = code == Code::kInvalidConfiguration    ? Code::kInvalidValue
                       : code == Code::kInvalidDeviceFunction ? Code::kInvalidHandle
                                                              : code;
  if (instead != code) fail(instead, last_message());
  return static_cast<CUresult>(instead);
}

}  // namespace vgpu::driver

namespace {

char the_context;

void* pointer(CUdeviceptr p) { return reinterpret_cast<void*>(p); }

CUresult copy(void* to, const void* from, size_t bytes) {
  if (sticky_error() != Code::kSuccess) return result(sticky_error());
  Code code = check_range(to, bytes, "copy, destination");
  if (code == Code::kSuccess) code = check_range(from, bytes, "copy, source");
  if (code == Code::kSuccess && bytes) std::memmove(to, from, bytes);
  return result(code);
}

template <class T>
CUresult fill(CUdeviceptr to, T value, size_t count) {
  const Code code = check_range(pointer(to), count * sizeof(T), "memset");
  if (code == Code::kSuccess) std::fill_n(static_cast<T*>(pointer(to)), count, value);
  return result(code);
}

}  // namespace

extern "C" {

// --- errors ------------------------------------------------------------------------------------

CUresult cuGetErrorString(CUresult code, const char** text) {
  *text = error_text(code);
  return 0;
}
CUresult cuGetErrorName(CUresult code, const char** name) {
  *name = error_name(code);
  return 0;
}

// --- devices and contexts ------------------------------------------------------------------------

CUresult cuInit(unsigned) { return 0; }
CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
CUresult cuDeviceGet(int* device, int ordinal) {
  *device = 0;
  return ordinal == 0 ? 0 : result(fail(Code::kInvalidDevice, "there is one device, number 0"));
}
CUresult cuDeviceGetName(char* name, int length, int) {
  std::strncpy(name, options().device->name, static_cast<size_t>(length));
  if (length > 0) name[length - 1] = '\0';
  return 0;
}
CUresult cuDeviceGetUuid_v2(char* uuid, int) {
  std::memcpy(uuid, "vgpu-of-boltgen", 16);
  return 0;
}
CUresult cuDeviceGetUuid(char* uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }
CUresult cuDeviceGetAttribute(int* value, int attribute, int) {
  return result(device_attribute(attribute, value));
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = options().device->memory_bytes;
  return 0;
}
CUresult cuDeviceGetPCIBusId(char* id, int length, int) {
  std::strncpy(id, "0000:00:00.0", static_cast<size_t>(length));
  return 0;
}
CUresult cuDeviceComputeCapability(int* major, int* minor, int) {
  *major = options().device->capability / 10;
  *minor = options().device->capability % 10;
  return 0;
}
CUresult cuDevicePrimaryCtxRetain(void** context, int) {
  *context = &the_context;
  return 0;
}
CUresult cuDevicePrimaryCtxRelease_v2(int) { return 0; }
CUresult cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return 0;
}
CUresult cuDevicePrimaryCtxSetFlags_v2(int, unsigned) { return 0; }
CUresult cuDevicePrimaryCtxReset_v2(int) {
  clear_sticky_error();
  return 0;
}
CUresult cuCtxCreate_v2(void** context, unsigned, int) {
  *context = &the_context;
  return 0;
}
CUresult cuCtxCreate_v4(void** context, void*, unsigned, int) {
  *context = &the_context;
  return 0;
}
CUresult cuCtxDestroy_v2(void*) { return 0; }
CUresult cuCtxSetCurrent(void*) { return 0; }
CUresult cuCtxGetCurrent(void** context) {
  *context = &the_context;
  return 0;
}
CUresult cuCtxPushCurrent_v2(void*) { return 0; }
CUresult cuCtxPopCurrent_v2(void** context) {
  if (context) *context = &the_context;
  return 0;
}
CUresult cuCtxGetDevice(int* device) {
  *device = 0;
  return 0;
}
CUresult cuCtxGetApiVersion(void*, unsigned* version) {
  *version = 13000;
  return 0;
}
CUresult cuCtxSynchronize() { return result(sticky_error()); }

// --- memory ------------------------------------------------------------------------------------

CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  if (bytes == 0) return result(fail(Code::kInvalidValue, "cuMemAlloc of no bytes"));
  if (sticky_error() != Code::kSuccess) return result(sticky_error());
  void* p = nullptr;
  const Code code = allocate(bytes, MemoryKind::kDevice, &p);
  *out = reinterpret_cast<CUdeviceptr>(p);
  return result(code);
}
CUresult cuMemAllocAsync(CUdeviceptr* out, size_t bytes, void*) {
  return cuMemAlloc_v2(out, bytes);
}
CUresult cuMemFree_v2(CUdeviceptr p) { return result(release(pointer(p), MemoryKind::kDevice)); }
CUresult cuMemFreeAsync(CUdeviceptr p, void*) { return cuMemFree_v2(p); }
CUresult cuMemAllocHost_v2(void** out, size_t bytes) {
  return result(allocate(bytes, MemoryKind::kHost, out));
}
CUresult cuMemHostAlloc(void** out, size_t bytes, unsigned) {
  return cuMemAllocHost_v2(out, bytes);
}
CUresult cuMemFreeHost(void* p) { return result(release(p, MemoryKind::kHost)); }
CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  *total = options().device->memory_bytes;
  *free_bytes = *total - allocated_bytes();
  return 0;
}
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t n) {
  return copy(pointer(to), pointer(from), n);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, void*) {
  return cuMemcpy(to, from, n);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t n) {
  return copy(pointer(to), from, n);
}
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t n) {
  return copy(to, pointer(from), n);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t n) {
  return cuMemcpy(to, from, n);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t n, void*) {
  return cuMemcpyHtoD_v2(to, from, n);
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t n, void*) {
  return cuMemcpyDtoH_v2(to, from, n);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, void*) {
  return cuMemcpy(to, from, n);
}
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t n) { return fill(to, value, n); }
CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t n) {
  return fill(to, value, n);
}
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t n) { return fill(to, value, n); }
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, void*) {
  return fill(to, value, n);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t n, void*) {
  return fill(to, value, n);
}

// --- streams and events
// ----------------------------------------------------------------------------

CUresult cuStreamCreate(void** stream, unsigned flags) {
  *stream = new Stream{flags, 0};
  return 0;
}
CUresult cuStreamDestroy_v2(void* stream) {
  delete static_cast<Stream*>(stream);
  return 0;
}
CUresult cuStreamSynchronize(void*) { return result(sticky_error()); }
CUresult cuStreamQuery(void*) { return result(sticky_error()); }
CUresult cuStreamWaitEvent(void*, void*, unsigned) { return result(sticky_error()); }
CUresult cuStreamIsCapturing(void*, int* status) {
  *status = 0;
  return 0;
}
CUresult cuEventCreate(void** event, unsigned flags) {
  *event = new Event{flags, false, {}};
  return 0;
}
CUresult cuEventDestroy_v2(void* event) {
  delete static_cast<Event*>(event);
  return 0;
}
CUresult cuEventRecord(void* event, void*) { return result(record(static_cast<Event*>(event))); }
CUresult cuEventSynchronize(void*) { return result(sticky_error()); }
CUresult cuEventQuery(void*) { return result(sticky_error()); }
CUresult cuEventElapsedTime(float* ms, void* begin, void* end) {
  return result(elapsed(static_cast<Event*>(begin), static_cast<Event*>(end), ms));
}
CUresult cuEventElapsedTime_v2(float* ms, void* begin, void* end) {
  return cuEventElapsedTime(ms, begin, end);
}

// --- functions by name
// -----------------------------------------------------------------------------

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int, unsigned long long,
                             int* status) {
  // Newest version first, as the real one does for the newest CUDA version.
  void* self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  *function = self ? dlsym(self, (std::string(symbol) + "_v2").c_str()) : nullptr;
  if (self && !*function) *function = dlsym(self, symbol);
  if (status) *status = *function ? 0 : 1;
  return *function ? 0
                   : result(fail(Code::kNotFound,
                                 std::string("the virtual GPU's driver has no ") + symbol));
}
CUresult cuGetProcAddress(const char* symbol, void** function, int version,
                          unsigned long long flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

// Descriptors of the tensor memory accelerator belong to sm_90.
CUresult cuTensorMapEncodeTiled(void*, int, unsigned, void*, const unsigned long long*,
                                const unsigned long long*, const unsigned*, const unsigned*, int,
                                int, int, int) {
  return result(fail(Code::kNotSupported, "tensor maps (TMA, sm_90) are not modelled"));
}

}  // extern "C"
