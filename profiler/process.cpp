#include "process.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace boltgen::profiler {
namespace {

cudaStream_t process_stream = nullptr;

/// The few calls of NVIDIA's management library that are wanted here.
/// Source: nvml.h; NVML_CLOCK_SM is 1.
struct Nvml {
  using Device = void*;
  static constexpr unsigned kClockSm = 1;

  int (*clock)(Device, unsigned, unsigned*) = nullptr;
  Device device = nullptr;

  bool open(char const* uuid, char* driver, unsigned driver_length) {
    void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      return false;
    }
    auto const init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
    auto const find = reinterpret_cast<int (*)(char const*, Device*)>(
        dlsym(library, "nvmlDeviceGetHandleByUUID"));
    auto const version =
        reinterpret_cast<int (*)(char*, unsigned)>(dlsym(library, "nvmlSystemGetDriverVersion"));
    auto const read = reinterpret_cast<int (*)(Device, unsigned, unsigned*)>(
        dlsym(library, "nvmlDeviceGetClockInfo"));
    if (init == nullptr || find == nullptr || version == nullptr || read == nullptr ||
        init() != 0 || find(uuid, &device) != 0) {
      return false;
    }
    version(driver, driver_length);
    clock = read;
    return true;
  }
};

Nvml nvml;

void write_uuid(cudaUUID_t const& uuid, char* out, size_t length) {
  auto const* b = reinterpret_cast<unsigned char const*>(uuid.bytes);
  std::snprintf(out, length,
                "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                b[14], b[15]);
}

}  // namespace

cudaStream_t stream() { return process_stream; }

int succeed(profiler_status* status) {
  status->kind = PROFILER_OK;
  status->cuda_error = 0;
  status->message[0] = '\0';
  return PROFILER_OK;
}

int fail(profiler_status* status, cudaError_t error, char const* what) {
  cudaGetLastError();
  status->kind = PROFILER_CUDA_ERROR;
  status->cuda_error = int(error);
  std::snprintf(status->message, sizeof(status->message), "%s: %s", what,
                cudaGetErrorString(error));
  return status->kind;
}

int refuse(profiler_status* status, char const* format, ...) {
  status->kind = PROFILER_REFUSED;
  status->cuda_error = 0;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(status->message, sizeof(status->message), format, arguments);
  va_end(arguments);
  return status->kind;
}

bool is_loaded_type(int dtype) {
  return is_element_type(dtype) || dtype == PROFILER_I8 || dtype == PROFILER_U8 ||
         dtype == PROFILER_I32;
}

bool is_element_type(int dtype) {
  return dtype == PROFILER_F16 || dtype == PROFILER_BF16 || dtype == PROFILER_F32;
}

int finish(profiler_status* status, char const* what) {
  cudaError_t const error = cudaStreamSynchronize(process_stream);
  return error == cudaSuccess ? succeed(status) : fail(status, error, what);
}

}  // namespace boltgen::profiler

using namespace boltgen::profiler;

namespace {

int attribute(cudaDeviceAttr which, int ordinal) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, which, ordinal) == cudaSuccess ? value : 0;
}

}  // namespace

int profiler_open(int ordinal, int with_nvml, profiler_device* out, profiler_status* status) {
  std::memset(out, 0, sizeof(*out));
  cudaError_t error = cudaSetDevice(ordinal);
  if (error != cudaSuccess) {
    return fail(status, error, "cudaSetDevice");
  }
  cudaDeviceProp properties;
  error = cudaGetDeviceProperties(&properties, ordinal);
  if (error != cudaSuccess) {
    return fail(status, error, "cudaGetDeviceProperties");
  }
  if (process_stream == nullptr) {
    error = cudaStreamCreateWithFlags(&process_stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) {
      return fail(status, error, "cudaStreamCreateWithFlags");
    }
  }
  std::snprintf(out->name, sizeof(out->name), "%s", properties.name);
  write_uuid(properties.uuid, out->uuid, sizeof(out->uuid));
  int version = 0;
  cudaDriverGetVersion(&version);
  std::snprintf(out->driver, sizeof(out->driver), "CUDA %d.%d", version / 1000,
                version % 1000 / 10);
  out->major = properties.major;
  out->minor = properties.minor;
  out->sm_count = properties.multiProcessorCount;
  out->clock_mhz = attribute(cudaDevAttrClockRate, ordinal) / 1000;
  out->memory_clock_mhz = attribute(cudaDevAttrMemoryClockRate, ordinal) / 1000;
  out->memory_bytes = properties.totalGlobalMem;
  out->l2_bytes = uint64_t(properties.l2CacheSize);
  out->has_nvml = with_nvml && nvml.open(out->uuid, out->driver, sizeof(out->driver));
  out->stream = process_stream;
  return succeed(status);
}

int profiler_clock_mhz(void) {
  unsigned mhz = 0;
  bool const read = nvml.clock != nullptr && nvml.clock(nvml.device, Nvml::kClockSm, &mhz) == 0;
  return read ? int(mhz) : 0;
}
