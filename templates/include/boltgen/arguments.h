// Host side of every C entry: its status, and checks of its arguments.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>

#include "boltgen/abi.h"

namespace boltgen {

/// Writes the status and returns its code.
inline int fail(boltgen_status* status, int code, char const* format, ...) {
  status->code = code;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(status->message, sizeof(status->message), format, arguments);
  va_end(arguments);
  return code;
}

inline int succeed(boltgen_status* status) {
  status->code = BOLTGEN_OK;
  status->message[0] = '\0';
  return BOLTGEN_OK;
}

/// The first violation that a check finds is the one reported; later checks pass over it.
class ArgumentCheck {
 public:
  explicit ArgumentCheck(boltgen_status* status) : status_(status) { succeed(status); }

  bool failed() const { return status_->code != BOLTGEN_OK; }
  int code() const { return status_->code; }

  void at_least(char const* name, int64_t value, int64_t least) {
    if (!failed() && value < least) {
      fail(status_, BOLTGEN_INVALID_ARGUMENT, "%s is %lld; it must be at least %lld", name,
           static_cast<long long>(value), static_cast<long long>(least));
    }
  }

  void at_most(char const* name, int64_t value, int64_t most) {
    if (!failed() && value > most) {
      fail(status_, BOLTGEN_INVALID_ARGUMENT, "%s is %lld; it must be at most %lld", name,
           static_cast<long long>(value), static_cast<long long>(most));
    }
  }

  /// A size that a kernel is compiled for.
  void equal(char const* name, int64_t value, int64_t only) {
    if (!failed() && value != only) {
      fail(status_, BOLTGEN_INVALID_ARGUMENT, "%s is %lld; this kernel takes %lld", name,
           static_cast<long long>(value), static_cast<long long>(only));
    }
  }

  /// 1, 2, 4 and so on up to `most`.
  void power_of_two(char const* name, int64_t value, int64_t most) {
    if (!failed() && (value < 1 || value > most || (value & (value - 1)) != 0)) {
      fail(status_, BOLTGEN_INVALID_ARGUMENT,
           "%s is %lld; it must be a power of two from 1 to %lld", name,
           static_cast<long long>(value), static_cast<long long>(most));
    }
  }

  /// An extent or a stride, in elements, that vectors of `alignment` elements must divide.
  void multiple(char const* name, int64_t value, int alignment) {
    if (!failed() && value % alignment != 0) {
      fail(status_, BOLTGEN_MISALIGNED,
           "%s is %lld; this kernel needs a multiple of %d elements (its alignment)", name,
           static_cast<long long>(value), alignment);
    }
  }

  /// A pointer to vectors of `alignment` elements of `element_bytes` bytes.
  void pointer(char const* name, void const* address, int alignment, size_t element_bytes) {
    if (failed()) {
      return;
    }
    if (address == nullptr) {
      fail(status_, BOLTGEN_INVALID_ARGUMENT, "%s is a null pointer", name);
      return;
    }
    // The widest access is 128 bits; a longer vector is several of them.
    size_t const vector_bytes = size_t(alignment) * element_bytes;
    size_t const needed = vector_bytes < 16 ? vector_bytes : 16;
    if (reinterpret_cast<uintptr_t>(address) % needed != 0) {
      fail(status_, BOLTGEN_MISALIGNED,
           "%s is at address %p; this kernel needs %d-byte alignment (vectors of %d elements)",
           name, address, int(needed), alignment);
    }
  }

  /// A block of workspace with room for `needed` bytes.
  void workspace(void const* address, size_t bytes, size_t needed) {
    if (failed() || needed == 0) {
      return;
    }
    if (address == nullptr || bytes < needed) {
      fail(status_, BOLTGEN_WORKSPACE_TOO_SMALL,
           "workspace has %zu bytes; these sizes need %zu (ask the kernel's _workspace function)",
           address == nullptr ? size_t(0) : bytes, needed);
      return;
    }
    pointer("workspace", address, 16, 1);
  }

 private:
  boltgen_status* status_;
};

/// Takes the error of a runtime call, and clears it: a later call must not be blamed for it.
inline int fail_cuda(boltgen_status* status, cudaError_t error, char const* format, ...) {
  cudaGetLastError();
  char what[160];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(what, sizeof(what), format, arguments);
  va_end(arguments);
  return fail(status, BOLTGEN_CUDA_ERROR, "%s: %s", what, cudaGetErrorString(error));
}

}  // namespace boltgen
