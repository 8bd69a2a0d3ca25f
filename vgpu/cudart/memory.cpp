// cudaMalloc, copies and fills.
#include "core/memory.h"

#include <cstring>

#include "core/options.h"
#include "cudart/types.h"

using namespace vgpu;
using vgpu::cudart::alive;
using vgpu::cudart::done;

namespace {

cudaError_t allocate_for(void** out, size_t bytes, MemoryKind kind) {
  if (!out) return done(fail(Code::kInvalidValue, "an allocation has nowhere to go"));
  if (alive() != Code::kSuccess) return done(alive());
  return done(allocate(bytes, kind, out));
}

cudaError_t copy(void* to, const void* from, size_t bytes) {
  if (alive() != Code::kSuccess) return done(alive());
  Code code = check_range(to, bytes, "cudaMemcpy, destination");
  if (code == Code::kSuccess) code = check_range(from, bytes, "cudaMemcpy, source");
  if (code == Code::kSuccess && bytes) std::memmove(to, from, bytes);
  return done(code);
}

cudaError_t fill(void* to, int value, size_t bytes) {
  if (alive() != Code::kSuccess) return done(alive());
  const Code code = check_range(to, bytes, "cudaMemset");
  if (code == Code::kSuccess && bytes) std::memset(to, value, bytes);
  return done(code);
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** out, size_t bytes) {
  return allocate_for(out, bytes, MemoryKind::kDevice);
}
cudaError_t cudaMallocAsync(void** out, size_t bytes, void*) { return cudaMalloc(out, bytes); }
cudaError_t cudaMallocFromPoolAsync(void** out, size_t bytes, void*, void*) {
  return cudaMalloc(out, bytes);
}
cudaError_t cudaMallocManaged(void** out, size_t bytes, unsigned) { return cudaMalloc(out, bytes); }
cudaError_t cudaMallocPitch(void** out, size_t* pitch, size_t width, size_t height) {
  *pitch = (width + 511) / 512 * 512;
  return cudaMalloc(out, *pitch * height);
}
cudaError_t cudaFree(void* p) { return done(release(p, MemoryKind::kDevice)); }
cudaError_t cudaFreeAsync(void* p, void*) { return cudaFree(p); }
cudaError_t cudaMallocHost(void** out, size_t bytes) {
  return allocate_for(out, bytes, MemoryKind::kHost);
}
cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned) { return cudaMallocHost(out, bytes); }
cudaError_t cudaFreeHost(void* p) { return done(release(p, MemoryKind::kHost)); }
cudaError_t cudaHostRegister(void* p, size_t bytes, unsigned) {
  register_memory_range(p, bytes, false);
  return 0;
}
cudaError_t cudaHostUnregister(void* p) {
  unregister_memory_range(p);
  return 0;
}
cudaError_t cudaHostGetDevicePointer(void** out, void* p, unsigned) {
  *out = p;
  return 0;
}
cudaError_t cudaHostGetFlags(unsigned* flags, void*) {
  *flags = 0;
  return 0;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, int) {
  return copy(to, from, bytes);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, void*) {
  return copy(to, from, bytes);
}
cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t bytes) {
  return copy(to, from, bytes);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, void*) {
  return copy(to, from, bytes);
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, int) {
  for (size_t row = 0; row < height; ++row) {
    const cudaError_t e = copy(static_cast<char*>(to) + row * to_pitch,
                               static_cast<const char*>(from) + row * from_pitch, width);
    if (e) return e;
  }
  return done(alive());
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, int kind, void*) {
  return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) { return fill(to, value, bytes); }
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, void*) {
  return fill(to, value, bytes);
}
cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
  for (size_t row = 0; row < height; ++row) {
    if (const cudaError_t e = fill(static_cast<char*>(to) + row * pitch, value, width)) return e;
  }
  return done(alive());
}
cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height,
                              void*) {
  return cudaMemset2D(to, pitch, value, width, height);
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  *total = options().device->memory_bytes;
  *free_bytes = *total - allocated_bytes();
  return done(alive());
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* p) {
  std::memset(out, 0, sizeof(*out));
  Allocation a;
  if (!is_device_memory(p, &a)) {
    out->hostPointer = const_cast<void*>(p);
    return 0;
  }
  out->type = kind_of(p) == MemoryKind::kHost ? 1 : 2;
  out->devicePointer = const_cast<void*>(p);
  if (out->type == 1) out->hostPointer = const_cast<void*>(p);
  return 0;
}

cudaError_t cudaDeviceGetDefaultMemPool(void** pool, int) {
  static char the_pool;
  *pool = &the_pool;
  return 0;
}
cudaError_t cudaDeviceGetMemPool(void** pool, int device) {
  return cudaDeviceGetDefaultMemPool(pool, device);
}
cudaError_t cudaMemPoolSetAttribute(void*, int, void*) { return 0; }
cudaError_t cudaMemPoolTrimTo(void*, size_t) { return 0; }
cudaError_t cudaMemPrefetchAsync(const void*, size_t, int, void*) { return 0; }

}  // extern "C"
