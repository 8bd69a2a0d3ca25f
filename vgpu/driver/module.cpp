// The CUDA driver: modules, functions and launches.
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "core/launch.h"
#include "core/options.h"
#include "driver/driver.h"

using namespace vgpu;
using vgpu::driver::find_function;
using vgpu::driver::result;

namespace {

// The end, buffer and size markers of cuLaunchKernel's `extra`.
void* const kEnd = nullptr;
void* const kBuffer = reinterpret_cast<void*>(1);
void* const kSize = reinterpret_cast<void*>(2);

// Modules that are loaded, and with them the functions that may be used.
std::mutex modules_mutex;
std::set<void*>& modules() {
  static auto* const s = new std::set<void*>;
  return *s;
}
std::map<void*, void*>& functions() {  // to their modules
  static auto* const m = new std::map<void*, void*>;
  return *m;
}

Code find_module(void* module, const char* call, Module** out) {
  const std::lock_guard lock(modules_mutex);
  if (modules().count(module) == 0) {
    return fail(Code::kInvalidHandle, std::string(call) + (module ? ": the module is not loaded"
                                                                  : ": the module is null"));
  }
  *out = static_cast<Module*>(module);
  return Code::kSuccess;
}

LaunchShape shape_of(const CUlaunchConfig& c) {
  LaunchShape s;
  const unsigned values[2][3] = {{c.gridDimX, c.gridDimY, c.gridDimZ},
                                 {c.blockDimX, c.blockDimY, c.blockDimZ}};
  std::memcpy(s.grid, values[0], sizeof(s.grid));
  std::memcpy(s.block, values[1], sizeof(s.block));
  s.dynamic_shared = c.sharedMemBytes;
  for (unsigned k = 0; k < c.numAttrs; ++k) {
    if (c.attrs[k].id == driver::kClusterDimension)
      std::memcpy(s.cluster, c.attrs[k].value.cluster, sizeof(s.cluster));
    if (c.attrs[k].id == driver::kEarlyStart) s.early_start = c.attrs[k].value.early_start != 0;
    if (c.attrs[k].id == driver::kCooperative) s.cooperative = c.attrs[k].value.cooperative != 0;
  }
  return s;
}

CUresult launch_function(void* function, const LaunchShape& shape, void* stream, void** arguments,
                         void** extra) {
  if (sticky_error() != Code::kSuccess) return result(sticky_error());
  Kernel* kernel = nullptr;
  if (const Code code = find_function(function, "cuLaunchKernel", &kernel); code != Code::kSuccess)
    return result(code);
  if (!extra) return result(enqueue(stream, function, *kernel, shape, arguments));
  const void* buffer = nullptr;
  size_t bytes = 0;
  for (; *extra != kEnd; extra += 2) {
    if (extra[0] == kBuffer) buffer = extra[1];
    if (extra[0] == kSize) bytes = *static_cast<size_t*>(extra[1]);
  }
  if (!buffer)
    return result(fail(Code::kInvalidValue, "cuLaunchKernel: extra names no parameter buffer"));
  return result(enqueue_packed(stream, function, *kernel, shape, buffer, bytes));
}

}  // namespace

namespace vgpu::driver {

Code find_function(void* function, const char* call, Kernel** out) {
  const std::lock_guard lock(modules_mutex);
  if (functions().count(function) == 0) {
    return fail(Code::kInvalidHandle,
                std::string(call) + (function ? ": the function belongs to no module that is loaded"
                                              : ": the function is null"));
  }
  *out = static_cast<Kernel*>(function);
  return Code::kSuccess;
}

}  // namespace vgpu::driver

extern "C" {

CUresult cuModuleLoadData(void** module, const void* image) {
  if (!module) return result(fail(Code::kInvalidValue, "a loaded module has nowhere to go"));
  std::unique_ptr<Module> loaded;
  const Code code = Module::load(image, &loaded);
  *module = loaded.release();
  const std::lock_guard lock(modules_mutex);
  if (*module) modules().insert(*module);
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
  Module* m = nullptr;
  if (const Code code = find_module(module, "cuModuleUnload", &m); code != Code::kSuccess)
    return result(code);
  {
    const std::lock_guard lock(modules_mutex);
    modules().erase(module);
    std::erase_if(functions(), [&](const auto& entry) { return entry.second == module; });
  }
  delete m;
  return 0;
}
CUresult cuModuleGetFunction(void** function, void* module, const char* name) {
  Module* m = nullptr;
  if (const Code code = find_module(module, "cuModuleGetFunction", &m); code != Code::kSuccess)
    return result(code);
  if (!function || !name)
    return result(fail(Code::kInvalidValue, "cuModuleGetFunction: an argument is null"));
  *function = m->kernel(name);
  const std::lock_guard lock(modules_mutex);
  if (*function) functions()[*function] = module;
  if (*function) return 0;
  return result(fail(Code::kNotFound, std::string("the module has no kernel ") + name));
}
CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, void* module, const char* name) {
  void* at = nullptr;
  u64 size = 0;
  Module* m = nullptr;
  if (const Code code = find_module(module, "cuModuleGetGlobal", &m); code != Code::kSuccess)
    return result(code);
  if (!name || !m->variable(name, &at, &size)) {
    return result(fail(Code::kNotFound,
                       std::string("the module has no variable ") + (name ? name : "(null)")));
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
                        unsigned by, unsigned bz, unsigned shared, void* stream, void** arguments,
                        void** extra) {
  LaunchShape s;
  const unsigned values[2][3] = {{gx, gy, gz}, {bx, by, bz}};
  std::memcpy(s.grid, values[0], sizeof(s.grid));
  std::memcpy(s.block, values[1], sizeof(s.block));
  s.dynamic_shared = shared;
  return launch_function(function, s, stream, arguments, extra);
}
CUresult cuLaunchCooperativeKernel(void* function, unsigned gx, unsigned gy, unsigned gz,
                                   unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                   void* stream, void** arguments) {
  LaunchShape s;
  const unsigned values[2][3] = {{gx, gy, gz}, {bx, by, bz}};
  std::memcpy(s.grid, values[0], sizeof(s.grid));
  std::memcpy(s.block, values[1], sizeof(s.block));
  s.dynamic_shared = shared;
  s.cooperative = true;
  return launch_function(function, s, stream, arguments, nullptr);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* c, void* function, void** arguments, void** extra) {
  if (!c) return result(fail(Code::kInvalidValue, "cuLaunchKernelEx: the configuration is null"));
  return launch_function(function, shape_of(*c), c->hStream, arguments, extra);
}
CUresult cuOccupancyMaxActiveClusters(int* clusters, void* function, const CUlaunchConfig* c) {
  if (!clusters || !c) return driver::refuse_null("cuOccupancyMaxActiveClusters");
  Kernel* kernel = nullptr;
  const Code code = find_function(function, "cuOccupancyMaxActiveClusters", &kernel);
  if (code != Code::kSuccess) return result(code);
  return result(max_active_clusters(*kernel, shape_of(*c), clusters));
}
CUresult cuOccupancyMaxPotentialClusterSize(int* size, void* function, const CUlaunchConfig* c) {
  if (!size || !c) return driver::refuse_null("cuOccupancyMaxPotentialClusterSize");
  Kernel* kernel = nullptr;
  const Code code = find_function(function, "cuOccupancyMaxPotentialClusterSize", &kernel);
  if (code != Code::kSuccess) return result(code);
  return result(max_cluster_size(*kernel, shape_of(*c), size));
}

CUresult cuFuncSetAttribute(void* function, int attribute, int value) {
  Kernel* kernel = nullptr;
  if (const Code code = find_function(function, "cuFuncSetAttribute", &kernel);
      code != Code::kSuccess)
    return result(code);
  switch (attribute) {
    case 8:
      return result(set_max_dynamic_shared(*kernel, value));
    case 9:
      kernel->shared_carveout = value;
      return 0;
    default:
      break;
  }
  bool known = false;
  const Code set = set_cluster_attribute(*kernel, attribute, value, &known);
  if (known) return result(set);
  return result(fail(Code::kInvalidValue, "cuFuncSetAttribute: attribute " +
                                              std::to_string(attribute) + " cannot be set"));
}
CUresult cuFuncGetAttribute(int* value, int attribute, void* function) {
  Kernel* kernel = nullptr;
  if (const Code code = find_function(function, "cuFuncGetAttribute", &kernel);
      code != Code::kSuccess)
    return result(code);
  if (!value) return result(fail(Code::kInvalidValue, "cuFuncGetAttribute: the result is null"));
  KernelResources r;
  if (const Code code = resources(*kernel, &r); code != Code::kSuccess) return result(code);
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
      *value = options().device.capability;
      return 0;
    case 8:
      *value = static_cast<int>(r.max_dynamic_shared);
      return 0;
    default:
      if (!cluster_attribute(*kernel, attribute, value)) *value = 0;
      return 0;
  }
}
CUresult cuFuncSetCacheConfig(void*, int) { return 0; }
CUresult cuFuncGetName(const char** name, void* function) {
  Kernel* kernel = nullptr;
  if (const Code code = find_function(function, "cuFuncGetName", &kernel); code != Code::kSuccess)
    return result(code);
  *name = kernel->name().c_str();
  return 0;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* function, int threads,
                                                     size_t shared) {
  Kernel* kernel = nullptr;
  if (const Code code = find_function(function, "occupancy", &kernel); code != Code::kSuccess)
    return result(code);
  return result(occupancy(*kernel, threads, shared, blocks));
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, void* function,
                                                              int threads, size_t shared,
                                                              unsigned) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}

}  // extern "C"
