// The CUDA driver: devices, contexts and errors.
#include <dlfcn.h>

#include <cstring>

#include "core/attributes.h"
#include "core/limits.h"
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

}  // namespace

extern "C" {

// --- errors ------------------------------------------------------------------------------------

CUresult cuGetErrorString(CUresult code, const char** text) {
  if (!text) return result(Code::kInvalidValue);
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
CUresult cuCtxGetLimit(size_t* value, int limit) {
  u64 found = 0;
  const Code code = get_limit(limit, value ? &found : nullptr);
  if (code == Code::kSuccess) *value = found;
  return result(code);
}
CUresult cuCtxSetLimit(int limit, size_t value) { return result(set_limit(limit, value)); }
CUresult cuCtxSynchronize() { return result(synchronize_device()); }
CUresult cuCtxSynchronize_v2(void*) { return result(synchronize_device()); }

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
