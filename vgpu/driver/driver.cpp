// The CUDA driver: devices, errors, and functions by name.
#include <cstring>

#include "core/attributes.h"
#include "core/options.h"
#include "driver/driver.h"

using namespace vgpu;
using vgpu::driver::refuse_null;
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

CUresult refuse_null(const char* call) {
  return result(fail(Code::kInvalidValue, std::string(call) + ": an argument is null"));
}

}  // namespace vgpu::driver

extern "C" {

// --- errors ------------------------------------------------------------------------------------

CUresult cuGetErrorString(CUresult code, const char** text) {
  if (!text) return refuse_null("cuGetErrorString");
  *text = error_text(code);
  return 0;
}
CUresult cuGetErrorName(CUresult code, const char** name) {
  if (!name) return refuse_null("cuGetErrorName");
  *name = error_name(code);
  return 0;
}

// --- devices -------------------------------------------------------------------------------------

CUresult cuInit(unsigned) { return 0; }
CUresult cuDriverGetVersion(int* version) {
  if (!version) return refuse_null("cuDriverGetVersion");
  *version = 13000;
  return 0;
}
CUresult cuDeviceGetCount(int* count) {
  if (!count) return refuse_null("cuDeviceGetCount");
  *count = 1;
  return 0;
}
CUresult cuDeviceGet(int* device, int ordinal) {
  if (!device) return refuse_null("cuDeviceGet");
  *device = 0;
  return ordinal == 0 ? 0 : result(fail(Code::kInvalidDevice, "there is one device, number 0"));
}
CUresult cuDeviceGetName(char* name, int length, int) {
  if (!name) return refuse_null("cuDeviceGetName");
  std::strncpy(name, options().device.name, static_cast<size_t>(length));
  if (length > 0) name[length - 1] = '\0';
  return 0;
}
CUresult cuDeviceGetUuid_v2(char* uuid, int) {
  if (!uuid) return refuse_null("cuDeviceGetUuid");
  std::memcpy(uuid, "vgpu-of-boltgen", 16);
  return 0;
}
CUresult cuDeviceGetUuid(char* uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }
CUresult cuDeviceGetAttribute(int* value, int attribute, int) {
  return result(device_attribute(attribute, value));
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, int) {
  if (!bytes) return refuse_null("cuDeviceTotalMem");
  *bytes = options().device.memory_bytes;
  return 0;
}
CUresult cuDeviceGetPCIBusId(char* id, int length, int) {
  if (!id) return refuse_null("cuDeviceGetPCIBusId");
  std::strncpy(id, "0000:00:00.0", static_cast<size_t>(length));
  return 0;
}
CUresult cuDeviceComputeCapability(int* major, int* minor, int) {
  if (!major || !minor) return refuse_null("cuDeviceComputeCapability");
  *major = options().device.capability / 10;
  *minor = options().device.capability % 10;
  return 0;
}

// --- functions by name
// -----------------------------------------------------------------------------

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int, unsigned long long flags,
                             int* status) {
  if (!symbol || !function) return refuse_null("cuGetProcAddress");
  constexpr unsigned long long kPerThread = 2;  // CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
  *function = vgpu::driver::function_named(symbol, flags & kPerThread);
  if (status) *status = *function ? 0 : 1;
  return *function ? 0
                   : result(fail(Code::kNotFound,
                                 std::string("the virtual GPU's driver has no ") + symbol));
}
CUresult cuGetProcAddress(const char* symbol, void** function, int version,
                          unsigned long long flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

}  // extern "C"
