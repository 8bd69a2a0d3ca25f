// The CUDA driver: memory.
#include "core/memory.h"

#include "core/capture.h"
#include "core/copy.h"
#include "core/options.h"
#include "driver/driver.h"

using namespace vgpu;
using vgpu::driver::result;

namespace {

void* pointer(CUdeviceptr p) { return reinterpret_cast<void*>(p); }

CUresult allocate_for(void** out, size_t bytes, MemoryKind kind) {
  if (!out) return result(fail(Code::kInvalidValue, "an allocation has nowhere to go"));
  if (bytes == 0) return result(fail(Code::kInvalidValue, "an allocation of no bytes"));
  if (sticky_error() != Code::kSuccess) return result(sticky_error());
  const Code code = unsafe_while_capturing("an allocation (but for cuMemAllocAsync)");
  return result(code == Code::kSuccess ? allocate(bytes, kind, out) : code);
}

CUresult fill(CUdeviceptr to, u32 value, u32 element, size_t count) {
  return result(fill_now({pointer(to), count * element, value, element, count, 1}));
}
CUresult fill(CUdeviceptr to, u32 value, u32 element, size_t count, void* stream) {
  return result(fill_async({pointer(to), count * element, value, element, count, 1}, stream));
}

}  // namespace

extern "C" {

CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  return allocate_for(reinterpret_cast<void**>(out), bytes, MemoryKind::kDevice);
}
CUresult cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned) {
  return allocate_for(reinterpret_cast<void**>(out), bytes, MemoryKind::kManaged);
}
CUresult cuMemAllocAsync(CUdeviceptr* out, size_t bytes, void* stream) {
  return result(allocate_async(reinterpret_cast<void**>(out), bytes, stream));
}
CUresult cuMemFree_v2(CUdeviceptr p) {
  if (const Code code = unsafe_while_capturing("cuMemFree"); code != Code::kSuccess)
    return result(code);
  const Code code = release(pointer(p), MemoryKind::kDevice);
  return result(sticky_error() != Code::kSuccess ? sticky_error() : code);
}
CUresult cuMemFreeAsync(CUdeviceptr p, void* stream) {
  return result(free_async(pointer(p), stream));
}
CUresult cuMemAllocHost_v2(void** out, size_t bytes) {
  return allocate_for(out, bytes, MemoryKind::kHost);
}
CUresult cuMemHostAlloc(void** out, size_t bytes, unsigned) {
  return cuMemAllocHost_v2(out, bytes);
}
CUresult cuMemFreeHost(void* p) { return result(release(p, MemoryKind::kHost)); }
CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  if (!free_bytes || !total)
    return result(fail(Code::kInvalidValue, "cuMemGetInfo: a result is null"));
  *total = options().device.memory_bytes;
  *free_bytes = *total - allocated_bytes();
  return 0;
}

// --- copies ------------------------------------------------------------------------------------

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t n) {
  return result(copy_now(copy_of(pointer(to), Side::kAny, pointer(from), Side::kAny, n)));
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, void* stream) {
  return result(copy_async(copy_of(pointer(to), Side::kAny, pointer(from), Side::kAny, n), stream));
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t n) {
  return result(copy_now(copy_of(pointer(to), Side::kDevice, from, Side::kHost, n)));
}
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t n) {
  return result(copy_now(copy_of(to, Side::kHost, pointer(from), Side::kDevice, n)));
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t n) {
  return result(copy_now(copy_of(pointer(to), Side::kDevice, pointer(from), Side::kDevice, n)));
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t n, void* stream) {
  return result(copy_async(copy_of(pointer(to), Side::kDevice, from, Side::kHost, n), stream));
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t n, void* stream) {
  return result(copy_async(copy_of(to, Side::kHost, pointer(from), Side::kDevice, n), stream));
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, void* stream) {
  return result(
      copy_async(copy_of(pointer(to), Side::kDevice, pointer(from), Side::kDevice, n), stream));
}

// --- fills -------------------------------------------------------------------------------------

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t n) {
  return fill(to, value, 1, n);
}
CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t n) {
  return fill(to, value, 2, n);
}
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t n) { return fill(to, value, 4, n); }
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, void* stream) {
  return fill(to, value, 1, n, stream);
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t n, void* stream) {
  return fill(to, value, 2, n, stream);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t n, void* stream) {
  return fill(to, value, 4, n, stream);
}

}  // extern "C"
