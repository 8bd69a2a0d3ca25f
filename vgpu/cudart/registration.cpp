// What nvcc's host stubs call: registration of fatbins, kernels and variables, and launches.
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/device.h"
#include "core/launch.h"
#include "core/memory.h"
#include "core/options.h"
#include "cudart/registration.h"
#include "cudart/types.h"

namespace vgpu::cudart {
namespace {

struct Image {  // one __cudaRegisterFatBinary
  const void* wrapper;
  std::unique_ptr<Module> module;
  bool tried = false;
  Code code = Code::kSuccess;
  std::string message;
};
struct Name {
  Image* image;
  std::string name;
};

std::recursive_mutex mutex;
std::map<const void*, Name>& functions() {
  static auto* const m = new std::map<const void*, Name>;
  return *m;
}
std::map<const void*, Name>& variables() {
  static auto* const m = new std::map<const void*, Name>;
  return *m;
}
struct Configuration {  // what stands between <<< and >>>
  LaunchShape shape;
  void* stream;
};
std::vector<Configuration>& configurations() {
  static thread_local std::vector<Configuration> stack;
  return stack;
}

// PTX is parsed when it is first wanted: loading a library stays quick.
Code module_of(Image& image, Module** out) {
  if (!image.tried) {
    image.tried = true;
    image.code = Module::load(image.wrapper, &image.module);
    if (image.code != Code::kSuccess) image.message = last_message();
  }
  *out = image.module.get();
  return image.code == Code::kSuccess ? Code::kSuccess : fail(image.code, image.message);
}

}  // namespace

Code find_kernel(const void* host, Kernel** out) {
  const std::lock_guard lock(mutex);
  auto it = functions().find(host);
  if (!host || it == functions().end()) {
    return fail(Code::kInvalidDeviceFunction,
                host ? "the function is no registered kernel" : "the kernel function is null");
  }
  Module* module = nullptr;
  if (const Code code = module_of(*it->second.image, &module); code != Code::kSuccess) return code;
  *out = module->kernel(it->second.name);
  if (*out) return Code::kSuccess;
  return fail(Code::kInvalidDeviceFunction,
              "kernel " + it->second.name + " is not in the " + module->where() + " of its fatbin");
}

Code find_variable(const void* host, void** address, u64* bytes) {
  const std::lock_guard lock(mutex);
  auto it = variables().find(host);
  if (it == variables().end())
    return fail(Code::kInvalidSymbol, "the symbol is no registered device variable");
  Module* module = nullptr;
  if (const Code code = module_of(*it->second.image, &module); code != Code::kSuccess) return code;
  if (module->variable(it->second.name, address, bytes)) return Code::kSuccess;
  return fail(Code::kInvalidSymbol, "variable " + it->second.name + " is not in the PTX");
}

LaunchShape shape_of(vgpu_dim3 grid, vgpu_dim3 block, size_t shared) {
  LaunchShape s;
  const unsigned values[2][3] = {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}};
  std::memcpy(s.grid, values[0], sizeof(s.grid));
  std::memcpy(s.block, values[1], sizeof(s.block));
  s.dynamic_shared = shared;
  return s;
}

LaunchShape shape_of(const cudaLaunchConfig_t& config) {
  LaunchShape s = shape_of(config.grid, config.block, config.dynamic_shared);
  for (unsigned k = 0; k < config.count; ++k) {
    if (config.attributes[k].id == kClusterDimension) {
      std::memcpy(s.cluster, config.attributes[k].value.cluster, sizeof(s.cluster));
    } else if (config.attributes[k].id == kCooperative) {
      s.cooperative = config.attributes[k].value.cooperative != 0;
    } else if (config.attributes[k].id == kEarlyStart) {
      s.early_start = config.attributes[k].value.early_start != 0;
    }
  }
  return s;
}

Code launch_host(const void* function, const LaunchShape& shape, void** arguments, void* stream) {
  if (alive() != Code::kSuccess) return alive();
  Kernel* kernel = nullptr;
  if (const Code code = find_kernel(function, &kernel); code != Code::kSuccess) return code;
  return enqueue(stream, function, *kernel, shape, arguments);
}

}  // namespace vgpu::cudart

using namespace vgpu::cudart;

namespace {

// `count` bytes of a variable, from `offset` on.
vgpu::Code part_of(const void* symbol, size_t count, size_t offset, void** at) {
  vgpu::u64 bytes = 0;
  const vgpu::Code code = find_variable(symbol, at, &bytes);
  if (code != vgpu::Code::kSuccess) return code;
  if (offset > bytes || count > bytes - offset) {
    return vgpu::fail(vgpu::Code::kInvalidValue,
                      "bytes " + std::to_string(offset) + " to " + std::to_string(offset + count) +
                          " of a variable of " + std::to_string(bytes) + " bytes");
  }
  *at = static_cast<char*>(*at) + offset;
  return vgpu::Code::kSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, int direction);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, int direction, void* stream);

void** __cudaRegisterFatBinary(void* wrapper) {
  return reinterpret_cast<void**>(new Image{wrapper, nullptr, false, vgpu::Code::kSuccess, ""});
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void** handle) {
  auto* image = reinterpret_cast<Image*>(handle);
  const std::lock_guard lock(mutex);
  for (auto* names : {&functions(), &variables()}) {
    std::erase_if(*names, [&](const auto& entry) { return entry.second.image == image; });
  }
  delete image;
}
void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, void*,
                            void*, void*, void*, int*) {
  const std::lock_guard lock(mutex);
  functions()[host] = {reinterpret_cast<Image*>(handle), name};
}
void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, size_t, int, int) {
  const std::lock_guard lock(mutex);
  variables()[host] = {reinterpret_cast<Image*>(handle), name};
}
void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, size_t, int, int) {}
char __cudaInitModule(void**) { return 1; }

unsigned __cudaPushCallConfiguration(vgpu_dim3 grid, vgpu_dim3 block, size_t shared, void* stream) {
  configurations().push_back({shape_of(grid, block, shared), stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(vgpu_dim3* grid, vgpu_dim3* block, size_t* shared,
                                       void* stream) {
  if (configurations().empty()) {
    return done(
        fail(vgpu::Code::kMissingConfiguration, "a kernel stub was called without <<<...>>>"));
  }
  const auto [s, launch_stream] = configurations().back();
  configurations().pop_back();
  *grid = {s.grid[0], s.grid[1], s.grid[2]};
  *block = {s.block[0], s.block[1], s.block[2]};
  *shared = s.dynamic_shared;
  std::memcpy(stream, &launch_stream, sizeof(void*));
  return 0;
}

// A kernel's handle is the address of its host stub.
cudaError_t __cudaGetKernel(const void** kernel, const void* host) {
  *kernel = host;
  return 0;
}
cudaError_t cudaGetKernel(const void** kernel, const void* host) {
  return __cudaGetKernel(kernel, host);
}

cudaError_t __cudaLaunchKernel(const void* kernel, vgpu_dim3 grid, vgpu_dim3 block,
                               void** arguments, size_t shared, void* stream) {
  return done(launch_host(kernel, shape_of(grid, block, shared), arguments, stream));
}
cudaError_t cudaLaunchKernel(const void* kernel, vgpu_dim3 grid, vgpu_dim3 block, void** arguments,
                             size_t shared, void* stream) {
  return __cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void* kernel, vgpu_dim3 grid, vgpu_dim3 block,
                                        void** arguments, size_t shared, void* stream) {
  vgpu::LaunchShape s = shape_of(grid, block, shared);
  s.cooperative = true;
  return done(launch_host(kernel, s, arguments, stream));
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                void** arguments) {
  if (!config)
    return done(fail(vgpu::Code::kInvalidValue, "cudaLaunchKernelExC: the configuration is null"));
  return done(launch_host(kernel, shape_of(*config), arguments, config->stream));
}
cudaError_t __cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                  void** arguments) {
  return cudaLaunchKernelExC(config, kernel, arguments);
}

// --- attributes and occupancy
// ----------------------------------------------------------------------

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* function) {
  vgpu::Kernel* kernel = nullptr;
  vgpu::Code code = find_kernel(function, &kernel);
  vgpu::KernelResources r;
  if (code == vgpu::Code::kSuccess) code = vgpu::resources(*kernel, &r);
  if (code != vgpu::Code::kSuccess) return done(code);
  std::memset(out, 0, sizeof(*out));
  out->sharedSizeBytes = r.static_shared;
  out->localSizeBytes = r.local_bytes;
  out->maxThreadsPerBlock = static_cast<int>(r.max_threads);
  out->numRegs = static_cast<int>(r.registers);
  out->ptxVersion = r.capability;
  out->binaryVersion = vgpu::options().device.capability;
  out->maxDynamicSharedSizeBytes = static_cast<int>(r.max_dynamic_shared);
  out->preferredShmemCarveout = kernel->shared_carveout;
  int* const of_clusters[] = {&out->clusterDimMustBeSet, &out->requiredClusterWidth,
                              &out->requiredClusterHeight, &out->requiredClusterDepth,
                              &out->nonPortableClusterSizeAllowed};
  for (int k = 0; k < 5; ++k) vgpu::cluster_attribute(*kernel, 10 + k, of_clusters[k]);
  return 0;
}

cudaError_t cudaFuncSetAttribute(const void* function, int attribute, int value) {
  vgpu::Kernel* kernel = nullptr;
  const vgpu::Code code = find_kernel(function, &kernel);
  if (code != vgpu::Code::kSuccess) return done(code);
  switch (attribute) {
    case 8:
      return done(vgpu::set_max_dynamic_shared(*kernel, value));
    case 9:
      kernel->shared_carveout = value;
      return 0;
    default:
      break;
  }
  bool known = false;
  const vgpu::Code set = vgpu::set_cluster_attribute(*kernel, attribute, value, &known);
  if (known) return done(set);
  return done(fail(vgpu::Code::kInvalidValue,
                   "cudaFuncSetAttribute: unknown attribute " + std::to_string(attribute)));
}
cudaError_t cudaFuncSetCacheConfig(const void*, int) { return 0; }
cudaError_t cudaFuncGetName(const char** name, const void* function) {
  vgpu::Kernel* kernel = nullptr;
  const vgpu::Code code = find_kernel(function, &kernel);
  if (code != vgpu::Code::kSuccess) return done(code);
  *name = kernel->name().c_str();
  return 0;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks,
                                                                   const void* function,
                                                                   int threads, size_t shared,
                                                                   unsigned) {
  vgpu::Kernel* kernel = nullptr;
  const vgpu::Code code = find_kernel(function, &kernel);
  if (code != vgpu::Code::kSuccess) return done(code);
  return done(vgpu::occupancy(*kernel, threads, shared, blocks));
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared,
                                                                0);
}

cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* function,
                                           const cudaLaunchConfig_t* config) {
  if (!clusters || !config) return refuse_null("cudaOccupancyMaxActiveClusters");
  vgpu::Kernel* kernel = nullptr;
  const vgpu::Code code = find_kernel(function, &kernel);
  if (code != vgpu::Code::kSuccess) return done(code);
  return done(vgpu::max_active_clusters(*kernel, shape_of(*config), clusters));
}
cudaError_t cudaOccupancyMaxPotentialClusterSize(int* size, const void* function,
                                                 const cudaLaunchConfig_t* config) {
  if (!size || !config) return refuse_null("cudaOccupancyMaxPotentialClusterSize");
  vgpu::Kernel* kernel = nullptr;
  const vgpu::Code code = find_kernel(function, &kernel);
  if (code != vgpu::Code::kSuccess) return done(code);
  return done(vgpu::max_cluster_size(*kernel, shape_of(*config), size));
}

// Dynamic shared memory that still lets so many blocks share a multiprocessor.
cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* function,
                                                      int blocks, int threads) {
  vgpu::Kernel* kernel = nullptr;
  vgpu::Code code = find_kernel(function, &kernel);
  if (code == vgpu::Code::kSuccess && (!bytes || blocks < 1))
    code =
        vgpu::fail(vgpu::Code::kInvalidValue, "occupancy of " + std::to_string(blocks) + " blocks");
  if (code != vgpu::Code::kSuccess) return done(code);
  return done(vgpu::available_shared(*kernel, blocks, threads, bytes));
}

cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  vgpu::u64 bytes;
  return done(find_variable(symbol, address, &bytes));
}
cudaError_t cudaGetSymbolSize(size_t* size, const void* symbol) {
  void* address;
  vgpu::u64 bytes = 0;
  const vgpu::Code code = find_variable(symbol, &address, &bytes);
  *size = bytes;
  return done(code);
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t count, size_t offset,
                               int direction) {
  void* at = nullptr;
  const vgpu::Code code = part_of(symbol, count, offset, &at);
  return code == vgpu::Code::kSuccess ? cudaMemcpy(at, from, count, direction) : done(code);
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t count, size_t offset,
                                 int direction) {
  void* at = nullptr;
  const vgpu::Code code = part_of(symbol, count, offset, &at);
  return code == vgpu::Code::kSuccess ? cudaMemcpy(to, at, count, direction) : done(code);
}
cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t count,
                                    size_t offset, int direction, void* stream) {
  void* at = nullptr;
  const vgpu::Code code = part_of(symbol, count, offset, &at);
  return code == vgpu::Code::kSuccess ? cudaMemcpyAsync(at, from, count, direction, stream)
                                      : done(code);
}
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t count, size_t offset,
                                      int direction, void* stream) {
  void* at = nullptr;
  const vgpu::Code code = part_of(symbol, count, offset, &at);
  return code == vgpu::Code::kSuccess ? cudaMemcpyAsync(to, at, count, direction, stream)
                                      : done(code);
}

}  // extern "C"
