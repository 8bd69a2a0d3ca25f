// Attributes of streams, and what programs ask of devices that has one answer here.
#include <cstdio>
#include <cstring>

#include "core/memory.h"
#include "core/stream.h"
#include "cudart/types.h"

using namespace vgpu;
using vgpu::cudart::alive;
using vgpu::cudart::done;
using vgpu::cudart::refuse_null;

namespace {

constexpr char kBusId[] = "0000:00:00.0";

Code check_graph_memory(int which, const void* value) {
  if (value && which >= 0 && which < 4) return Code::kSuccess;
  return fail(Code::kInvalidValue, "an attribute of graphs' memory that is not defined");
}

}  // namespace

extern "C" {

cudaError_t cudaStreamSetAttribute(void* stream, int which, const void* value) {
  return done(set_stream_attribute(stream, which, value));
}
cudaError_t cudaStreamGetAttribute(void* stream, int which, void* value) {
  return done(get_stream_attribute(stream, which, value));
}
cudaError_t cudaStreamCopyAttributes(void* to, void* from) {
  return done(copy_stream_attributes(to, from));
}
// All of managed memory is always everybody's.
cudaError_t cudaStreamAttachMemAsync(void* stream, void* memory, size_t, unsigned) {
  Stream* s = nullptr;
  if (!memory) return refuse_null("cudaStreamAttachMemAsync");
  return done(find_stream(stream, &s));
}

// Graphs keep no memory that is not in use: used and reserved, now and at most, are 0.
cudaError_t cudaDeviceGetGraphMemAttribute(int, int which, void* value) {
  const Code code = check_graph_memory(which, value);
  if (code == Code::kSuccess) std::memset(value, 0, sizeof(u64));
  return done(code);
}
cudaError_t cudaDeviceSetGraphMemAttribute(int, int which, void* value) {
  return done(check_graph_memory(which, value));
}
cudaError_t cudaDeviceGraphMemTrim(int) { return done(alive()); }
cudaError_t cudaCtxResetPersistingL2Cache() { return done(alive()); }
cudaError_t cudaMemAdvise(const void* memory, size_t, int, int) {
  return memory ? done(alive()) : refuse_null("cudaMemAdvise");
}

cudaError_t cudaChooseDevice(int* device, const void*) {
  if (!device) return refuse_null("cudaChooseDevice");
  *device = 0;
  return 0;
}
cudaError_t cudaSetValidDevices(const int* devices, int count) {
  for (int k = 0; k < count; ++k) {
    if (!devices || devices[k] != 0)
      return done(fail(Code::kInvalidDevice, "there is one device, number 0"));
  }
  return 0;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (!id || length <= 0) return refuse_null("cudaDeviceGetPCIBusId");
  if (device != 0) return done(fail(Code::kInvalidDevice, "there is one device, number 0"));
  std::snprintf(id, static_cast<size_t>(length), "%s", kBusId);
  return 0;
}
cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id) {
  if (!device || !id) return refuse_null("cudaDeviceGetByPCIBusId");
  if (std::strcmp(id, kBusId) != 0)
    return done(fail(Code::kInvalidDevice, std::string("no device has the bus id ") + id));
  *device = 0;
  return 0;
}

}  // extern "C"
