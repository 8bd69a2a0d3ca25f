// The driver's functions that nothing else here defines, and functions by name.
#include "core/missing.h"

#include <dlfcn.h>

#include "driver/driver.h"

using vgpu::own;

extern "C" {

#define MISSING(name) VGPU_MISSING(name, vgpu::driver::result)
#define PER_THREAD VGPU_PER_THREAD
#include "driver/names.h"
#undef MISSING
#undef PER_THREAD

}  // extern "C"

namespace vgpu::driver {
namespace {

#define MISSING(name) \
  {#name, reinterpret_cast<void*>(&name), reinterpret_cast<void*>(&missing_##name)},
#define PER_THREAD(name, base, parameters, values) {#name, reinterpret_cast<void*>(&name), nullptr},
const DeclaredFunction kDeclared[] = {
#include "driver/names.h"
};

const DeclaredFunction* find_declared(const std::string& name) {
  for (const DeclaredFunction& f : kDeclared) {
    if (name == f.name) return &f;
  }
  return nullptr;
}

}  // namespace

void* function_named(const std::string& name, bool per_thread) {
  void* self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  void* refusal = nullptr;
  // Newest version first, as the real one does for the newest CUDA version.
  for (const char* version : {"_v4", "_v3", "_v2", ""}) {
    for (const char* stream : {"_ptsz", "_ptds", ""}) {
      if (*stream && !per_thread) continue;
      const std::string whole = name + version + stream;
      void* const found = self ? dlsym(self, whole.c_str()) : nullptr;
      if (!found) continue;
      const DeclaredFunction* declared = find_declared(whole);
      if (!declared || declared->exported != declared->missing) return found;
      if (!refusal) refusal = found;
    }
  }
  return refusal;
}

}  // namespace vgpu::driver
