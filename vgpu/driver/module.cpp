// The CUDA driver: modules, functions and launches.
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>

#include "core/launch.h"
#include "core/options.h"
#include "driver/driver.h"

using namespace vgpu;
using vgpu::driver::result;

namespace {

// The end, buffer and size markers of cuLaunchKernel's `extra`.
void* const kEnd = nullptr;
void* const kBuffer = reinterpret_cast<void*>(1);
void* const kSize = reinterpret_cast<void*>(2);

CUresult launch_function(void* function, const LaunchShape& shape, void** arguments, void** extra) {
  if (sticky_error() != Code::kSuccess) return result(sticky_error());
  if (!function) return result(fail(Code::kInvalidHandle, "cuLaunchKernel: the function is null"));
  Kernel& kernel = *static_cast<Kernel*>(function);
  if (!extra) return result(launch(kernel, shape, arguments));
  const void* buffer = nullptr;
  size_t bytes = 0;
  for (; *extra != kEnd; extra += 2) {
    if (extra[0] == kBuffer) buffer = extra[1];
    if (extra[0] == kSize) bytes = *static_cast<size_t*>(extra[1]);
  }
  if (!buffer)
    return result(fail(Code::kInvalidValue, "cuLaunchKernel: extra names no parameter buffer"));
  return result(launch_packed(kernel, shape, buffer, bytes));
}

}  // namespace

extern "C" {

CUresult cuModuleLoadData(void** module, const void* image) {
  std::unique_ptr<Module> loaded;
  const Code code = Module::load(image, &loaded);
  *module = loaded.release();
  return result(code);
}
CUresult cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) {
  return cuModuleLoadData(module, image);
}
CUresult cuModuleLoadFatBinary(void** module, const void* image) {
  return cuModuleLoadData(module, image);
}
CUresult cuModuleLoad(void** module, const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return result(fail(Code::kNotFound, std::string("cannot open ") + path));
  const std::string image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return cuModuleLoadData(module, image.c_str());
}
CUresult cuModuleUnload(void* module) {
  delete static_cast<Module*>(module);
  return 0;
}
CUresult cuModuleGetFunction(void** function, void* module, const char* name) {
  if (!module || !name)
    return result(fail(Code::kInvalidHandle, "cuModuleGetFunction: the module is null"));
  *function = static_cast<Module*>(module)->kernel(name);
  if (*function) return 0;
  return result(fail(Code::kNotFound, std::string("the module has no kernel ") + name));
}
CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, void* module, const char* name) {
  void* at = nullptr;
  u64 size = 0;
  if (!module || !static_cast<Module*>(module)->variable(name, &at, &size)) {
    return result(fail(Code::kNotFound, std::string("the module has no variable ") + name));
  }
  if (address) *address = reinterpret_cast<CUdeviceptr>(at);
  if (bytes) *bytes = size;
  return 0;
}
CUresult cuModuleGetLoadingMode(int* mode) {
  *mode = 2;  // lazy
  return 0;
}

CUresult cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, void*, void** arguments,
                        void** extra) {
  LaunchShape s;
  const unsigned values[2][3] = {{gx, gy, gz}, {bx, by, bz}};
  std::memcpy(s.grid, values[0], sizeof(s.grid));
  std::memcpy(s.block, values[1], sizeof(s.block));
  s.dynamic_shared = shared;
  return launch_function(function, s, arguments, extra);
}
CUresult cuLaunchCooperativeKernel(void* function, unsigned gx, unsigned gy, unsigned gz,
                                   unsigned bx, unsigned by, unsigned bz, unsigned shared, void*,
                                   void** arguments) {
  LaunchShape s;
  const unsigned values[2][3] = {{gx, gy, gz}, {bx, by, bz}};
  std::memcpy(s.grid, values[0], sizeof(s.grid));
  std::memcpy(s.block, values[1], sizeof(s.block));
  s.dynamic_shared = shared;
  s.cooperative = true;
  return launch_function(function, s, arguments, nullptr);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* c, void* function, void** arguments, void** extra) {
  if (!c) return result(fail(Code::kInvalidValue, "cuLaunchKernelEx: the configuration is null"));
  LaunchShape s;
  const unsigned values[2][3] = {{c->gridDimX, c->gridDimY, c->gridDimZ},
                                 {c->blockDimX, c->blockDimY, c->blockDimZ}};
  std::memcpy(s.grid, values[0], sizeof(s.grid));
  std::memcpy(s.block, values[1], sizeof(s.block));
  s.dynamic_shared = c->sharedMemBytes;
  for (unsigned k = 0; k < c->numAttrs; ++k) {
    if (c->attrs[k].id == driver::kClusterDimension)
      std::memcpy(s.cluster, c->attrs[k].value.cluster, sizeof(s.cluster));
    if (c->attrs[k].id == driver::kCooperative) s.cooperative = c->attrs[k].value.cooperative != 0;
  }
  return launch_function(function, s, arguments, extra);
}

CUresult cuFuncSetAttribute(void* function, int attribute, int value) {
  if (!function)
    return result(fail(Code::kInvalidHandle, "cuFuncSetAttribute: the function is null"));
  Kernel& kernel = *static_cast<Kernel*>(function);
  switch (attribute) {
    case 8:
      return result(set_max_dynamic_shared(kernel, value));
    case 9:
      kernel.shared_carveout = value;
      return 0;
    case 10:
    case 11:
    case 12:
    case 13:
    case 14:
    case 15:
      return 0;  // clusters: judged at the launch
    default:
      return result(fail(Code::kInvalidValue, "cuFuncSetAttribute: attribute " +
                                                  std::to_string(attribute) + " cannot be set"));
  }
}
CUresult cuFuncGetAttribute(int* value, int attribute, void* function) {
  if (!function)
    return result(fail(Code::kInvalidHandle, "cuFuncGetAttribute: the function is null"));
  KernelResources r;
  if (const Code code = resources(*static_cast<Kernel*>(function), &r); code != Code::kSuccess)
    return result(code);
  switch (attribute) {
    case 0:
      *value = static_cast<int>(r.max_threads);
      return 0;
    case 1:
      *value = static_cast<int>(r.static_shared);
      return 0;
    case 2:
      *value = 0;
      return 0;
    case 3:
      *value = static_cast<int>(r.local_bytes);
      return 0;
    case 4:
      *value = static_cast<int>(r.registers);
      return 0;
    case 5:
      *value = r.capability;
      return 0;
    case 6:
      *value = options().device->capability;
      return 0;
    case 8:
      *value = static_cast<int>(r.max_dynamic_shared);
      return 0;
    default:
      *value = 0;
      return 0;
  }
}
CUresult cuFuncSetCacheConfig(void*, int) { return 0; }
CUresult cuFuncGetName(const char** name, void* function) {
  if (!function) return result(fail(Code::kInvalidHandle, "cuFuncGetName: the function is null"));
  *name = static_cast<Kernel*>(function)->name().c_str();
  return 0;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* function, int threads,
                                                     size_t shared) {
  if (!function) return result(fail(Code::kInvalidHandle, "occupancy: the function is null"));
  return result(occupancy(*static_cast<Kernel*>(function), threads, shared, blocks));
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, void* function,
                                                              int threads, size_t shared,
                                                              unsigned) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}

}  // extern "C"
