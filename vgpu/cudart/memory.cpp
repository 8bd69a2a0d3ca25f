// cudaMalloc, copies and fills.
#include "core/memory.h"

#include <cstring>

#include "core/capture.h"
#include "core/copy.h"
#include "core/options.h"
#include "cudart/types.h"

using namespace vgpu;
using vgpu::cudart::alive;
using vgpu::cudart::done;

namespace {

cudaError_t allocate_for(void** out, size_t bytes, MemoryKind kind) {
  if (!out) return done(fail(Code::kInvalidValue, "an allocation has nowhere to go"));
  const Code unsafe = unsafe_while_capturing("an allocation (but for cudaMallocAsync)");
  if (unsafe != Code::kSuccess) return done(unsafe);
  if (alive() != Code::kSuccess) return done(alive());
  return done(allocate(bytes, kind, out));
}

cudaError_t copy(Copy2d copy, int direction) {
  const Code code = set_direction(direction, &copy);
  return done(code == Code::kSuccess ? copy_now(copy) : code);
}
cudaError_t copy(Copy2d copy, int direction, void* stream) {
  const Code code = set_direction(direction, &copy);
  return done(code == Code::kSuccess ? copy_async(copy, stream) : code);
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** out, size_t bytes) {
  return allocate_for(out, bytes, MemoryKind::kDevice);
}
cudaError_t cudaMallocAsync(void** out, size_t bytes, void* stream) {
  return done(allocate_async(out, bytes, stream));
}
cudaError_t cudaMallocFromPoolAsync(void** out, size_t bytes, void*, void* stream) {
  return done(allocate_async(out, bytes, stream));
}
cudaError_t cudaMallocManaged(void** out, size_t bytes, unsigned) {
  return allocate_for(out, bytes, MemoryKind::kManaged);
}
cudaError_t cudaMallocPitch(void** out, size_t* pitch, size_t width, size_t height) {
  if (!pitch) return done(fail(Code::kInvalidValue, "cudaMallocPitch: the pitch is null"));
  *pitch = (width + 511) / 512 * 512;
  return cudaMalloc(out, *pitch * height);
}
// cudaFree waits for the device, so it reports what went wrong there.
cudaError_t cudaFree(void* p) {
  if (const Code code = unsafe_while_capturing("cudaFree"); code != Code::kSuccess)
    return done(code);
  const Code code = release(p, MemoryKind::kDevice);
  return done(alive() != Code::kSuccess ? alive() : code);
}
cudaError_t cudaFreeAsync(void* p, void* stream) { return done(free_async(p, stream)); }
cudaError_t cudaMallocHost(void** out, size_t bytes) {
  return allocate_for(out, bytes, MemoryKind::kHost);
}
cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned) { return cudaMallocHost(out, bytes); }
cudaError_t cudaFreeHost(void* p) { return done(release(p, MemoryKind::kHost)); }
cudaError_t cudaHostRegister(void* p, size_t bytes, unsigned) {
  if (!p || !bytes) return done(fail(Code::kInvalidValue, "cudaHostRegister of no memory"));
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

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, int direction) {
  return copy(copy_of(to, Side::kAny, from, Side::kAny, bytes), direction);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, int direction, void* stream) {
  return copy(copy_of(to, Side::kAny, from, Side::kAny, bytes), direction, stream);
}
cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t bytes) {
  return cudaMemcpy(to, from, bytes, 3);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, void* stream) {
  return cudaMemcpyAsync(to, from, bytes, 3, stream);
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, int direction) {
  return copy({to, to_pitch, from, from_pitch, width, height}, direction);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, int direction, void* stream) {
  return copy({to, to_pitch, from, from_pitch, width, height}, direction, stream);
}
// A memset of device memory need not wait, so the runtime's is one in the default stream.
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return done(fill_now({to, bytes, static_cast<u32>(value), 1, bytes, 1}));
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, void* stream) {
  return done(fill_async({to, bytes, static_cast<u32>(value), 1, bytes, 1}, stream));
}
cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
  return done(fill_now({to, pitch, static_cast<u32>(value), 1, width, height}));
}
cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height,
                              void* stream) {
  return done(fill_async({to, pitch, static_cast<u32>(value), 1, width, height}, stream));
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  *total = options().device.memory_bytes;
  *free_bytes = *total - allocated_bytes();
  return done(alive());
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* p) {
  std::memset(out, 0, offsetof(cudaPointerAttributes, reserved));  // CUDA 12's ends there
  Allocation a;
  if (!is_device_memory(p, &a)) {
    out->hostPointer = const_cast<void*>(p);
    return 0;
  }
  const MemoryKind kind = kind_of(p);
  out->type = kind == MemoryKind::kHost ? 1 : kind == MemoryKind::kManaged ? 3 : 2;
  out->devicePointer = const_cast<void*>(p);
  if (out->type != 2) out->hostPointer = const_cast<void*>(p);
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
