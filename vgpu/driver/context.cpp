// Contexts: handles, and for every host thread a stack of those that it made current. All share the
// device, its memory, modules and limits; a thread that made none current has the primary one.
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/limits.h"
#include "core/stream.h"
#include "driver/driver.h"

using namespace vgpu;
using vgpu::driver::refuse_null;
using vgpu::driver::result;

namespace {

struct Context {};

Context primary;
std::mutex mutex;

std::set<void*>& created() {
  static std::set<void*>* const all = new std::set<void*>;  // programs end in any order
  return *all;
}

std::vector<void*>& stack() {
  static thread_local std::vector<void*> of_thread;
  return of_thread;
}

// Contexts that another thread has destroyed are current to nobody.
void drop_dead() {
  const std::lock_guard lock(mutex);
  std::erase_if(stack(), [](void* c) { return c != &primary && !created().count(c); });
}

Code check(void* context, const char* call) {
  const std::lock_guard lock(mutex);
  if (context == &primary || created().count(context)) return Code::kSuccess;
  return fail(Code::kInvalidContext, std::string(call) + ": no context that is alive");
}

CUresult create(void** context, const char* call) {
  if (!context) return refuse_null(call);
  *context = new Context;
  {
    const std::lock_guard lock(mutex);
    created().insert(*context);
  }
  stack().push_back(*context);
  return 0;
}

}  // namespace

extern "C" {

CUresult cuDevicePrimaryCtxRetain(void** context, int) {
  if (!context) return refuse_null("cuDevicePrimaryCtxRetain");
  *context = &primary;
  return 0;
}
CUresult cuDevicePrimaryCtxRelease_v2(int) { return 0; }
CUresult cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  if (!flags || !active) return refuse_null("cuDevicePrimaryCtxGetState");
  *flags = 0;
  *active = 1;
  return 0;
}
CUresult cuDevicePrimaryCtxSetFlags_v2(int, unsigned) { return 0; }
CUresult cuDevicePrimaryCtxReset_v2(int) {
  reset_device();
  return 0;
}

CUresult cuCtxCreate_v2(void** context, unsigned, int) { return create(context, "cuCtxCreate"); }
CUresult cuCtxCreate_v4(void** context, void*, unsigned, int) {
  return create(context, "cuCtxCreate");
}
CUresult cuCtxDestroy_v2(void* context) {
  {
    const std::lock_guard lock(mutex);
    if (!created().erase(context)) {
      return result(fail(Code::kInvalidContext,
                         "cuCtxDestroy: no context that is alive and was made by cuCtxCreate"));
    }
  }
  delete static_cast<Context*>(context);
  drop_dead();
  return 0;
}

CUresult cuCtxSetCurrent(void* context) {
  if (context) {
    if (const Code code = check(context, "cuCtxSetCurrent"); code != Code::kSuccess)
      return result(code);
  }
  drop_dead();
  if (!stack().empty()) stack().pop_back();
  if (context) stack().push_back(context);
  return 0;
}
CUresult cuCtxGetCurrent(void** context) {
  if (!context) return refuse_null("cuCtxGetCurrent");
  drop_dead();
  *context = stack().empty() ? &primary : stack().back();
  return 0;
}
CUresult cuCtxPushCurrent_v2(void* context) {
  if (const Code code = check(context, "cuCtxPushCurrent"); code != Code::kSuccess)
    return result(code);
  stack().push_back(context);
  return 0;
}
CUresult cuCtxPopCurrent_v2(void** context) {
  drop_dead();
  if (stack().empty()) {
    return result(
        fail(Code::kInvalidContext, "cuCtxPopCurrent: the thread has made no context current"));
  }
  if (context) *context = stack().back();
  stack().pop_back();
  return 0;
}

CUresult cuCtxGetDevice(int* device) {
  if (!device) return refuse_null("cuCtxGetDevice");
  *device = 0;
  return 0;
}
CUresult cuCtxGetApiVersion(void*, unsigned* version) {
  if (!version) return refuse_null("cuCtxGetApiVersion");
  *version = 13000;
  return 0;
}
CUresult cuCtxGetLimit(size_t* value, int limit) { return result(get_limit(limit, value)); }
CUresult cuCtxSetLimit(int limit, size_t value) { return result(set_limit(limit, value)); }
CUresult cuCtxSynchronize() { return result(synchronize_device()); }
CUresult cuCtxSynchronize_v2(void* context) {
  const Code code = check(context, "cuCtxSynchronize");
  return result(code == Code::kSuccess ? synchronize_device() : code);
}

}  // extern "C"
