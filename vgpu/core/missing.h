// Functions of CUDA that nothing here implements: they exist, say so and do nothing else.
//
// cudart/names.h and driver/names.h name every function of CUDA's headers. What a library defines
// itself takes precedence over the weak functions that these macros make of them.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>

#include "core/error.h"
#include "core/stream.h"

namespace vgpu {

struct DeclaredFunction {
  const char* name;
  void* exported;  // of whoever defines it
  void* missing;   // what it is when nobody does; null where it only passes its arguments on
};

// Says once for each function that it is not there.
inline Code refuse_missing(const char* name, std::atomic<bool>& told) {
  const std::string message = std::string(name) + " is not supported by the virtual GPU";
  if (!told.exchange(true)) std::fprintf(stderr, "vgpu: %s\n", message.c_str());
  return fail(Code::kNotSupported, message);
}

// The default stream of programs that are built with one for each thread.
inline void* own(void* stream) { return stream ? stream : kPerThreadStream; }

}  // namespace vgpu

// What names.h is included with, in a block of extern "C".
#define VGPU_MISSING(name, result)                    \
  static int missing_##name() {                       \
    static std::atomic<bool> told{false};             \
    return result(vgpu::refuse_missing(#name, told)); \
  }                                                   \
  __attribute__((weak, alias("missing_" #name))) int name();
#define VGPU_PER_THREAD(name, base, parameters, values)  \
  int call_##base##_of_##name parameters __asm__(#base); \
  __attribute__((weak)) int name parameters { return call_##base##_of_##name values; }
