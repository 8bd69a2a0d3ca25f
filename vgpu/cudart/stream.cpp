// Streams, events and capture.
#include "core/stream.h"

#include "core/capture.h"
#include "cudart/types.h"

using namespace vgpu;
using vgpu::cudart::alive;
using vgpu::cudart::done;

extern "C" {

// --- streams -----------------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  return done(create_stream(flags, priority, stream));
}
cudaError_t cudaStreamCreate(void** stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
cudaError_t cudaStreamCreateWithFlags(void** stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamDestroy(void* stream) { return done(destroy_stream(stream)); }
cudaError_t cudaStreamSynchronize(void* stream) { return done(synchronize_stream(stream)); }
cudaError_t cudaStreamQuery(void* stream) { return done(synchronize_stream(stream)); }
cudaError_t cudaStreamWaitEvent(void* stream, void* event, unsigned flags) {
  return done(wait_event_with(flags, stream, event));
}
cudaError_t cudaStreamGetPriority(void* stream, int* priority) {
  Stream* s = nullptr;
  const Code code = find_stream(stream, &s);
  if (code == Code::kSuccess && priority) *priority = s->priority;
  return done(code);
}
cudaError_t cudaStreamGetFlags(void* stream, unsigned* flags) {
  Stream* s = nullptr;
  const Code code = find_stream(stream, &s);
  if (code == Code::kSuccess && flags) *flags = s->flags;
  return done(code);
}
cudaError_t cudaStreamGetId(void* stream, unsigned long long* id) {
  Stream* s = nullptr;
  const Code code = find_stream(stream, &s);
  if (code == Code::kSuccess && id) *id = s->id;
  return done(code);
}
cudaError_t cudaStreamGetDevice(void* stream, int* device) {
  Stream* s = nullptr;
  const Code code = find_stream(stream, &s);
  if (code == Code::kSuccess && device) *device = 0;
  return done(code);
}
cudaError_t cudaStreamAddCallback(void* stream, void (*callback)(void*, cudaError_t, void*),
                                  void* data, unsigned) {
  if (!callback) return done(fail(Code::kInvalidValue, "a stream's callback is null"));
  Stream* s = nullptr;
  if (const Code code = find_stream(stream, &s); code != Code::kSuccess) return done(code);
  if (s->capture) {
    return done(spoil(*s->capture, Code::kCaptureUnsupported,
                      "cudaStreamAddCallback cannot be captured; cudaLaunchHostFunc can"));
  }
  callback(stream, static_cast<int>(alive()), data);
  return 0;
}
cudaError_t cudaLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  if (!function) return done(fail(Code::kInvalidValue, "a stream's host function is null"));
  return done(submit(stream, host_work({function, data})));
}

// --- events ------------------------------------------------------------------------------------

cudaError_t cudaEventCreateWithFlags(void** event, unsigned flags) {
  return done(create_event(flags, event));
}
cudaError_t cudaEventCreate(void** event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(void* event) { return done(destroy_event(event)); }
cudaError_t cudaEventRecord(void* event, void* stream) { return done(record_event(event, stream)); }
cudaError_t cudaEventRecordWithFlags(void* event, void* stream, unsigned flags) {
  return done(record_event_with(flags, event, stream));
}
cudaError_t cudaEventSynchronize(void* event) { return done(synchronize_event(event)); }
cudaError_t cudaEventQuery(void* event) { return done(synchronize_event(event)); }
cudaError_t cudaEventElapsedTime(float* ms, void* begin, void* end) {
  return done(elapsed(begin, end, ms));
}
cudaError_t cudaEventElapsedTime_v2(float* ms, void* begin, void* end) {
  return done(elapsed(begin, end, ms));
}

// --- capture -----------------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(void* stream, int mode) {
  return done(begin_capture(stream, mode));
}
cudaError_t cudaStreamEndCapture(void* stream, void** graph) {
  return done(end_capture(stream, graph));
}
cudaError_t cudaStreamIsCapturing(void* stream, int* status) {
  if (!status) return done(fail(Code::kInvalidValue, "cudaStreamIsCapturing: the result is null"));
  return done(capture_status(stream, status, nullptr, nullptr));
}
// The lists stay as they are until the calling thread asks again.
cudaError_t cudaStreamGetCaptureInfo(void* stream, int* status, unsigned long long* id,
                                     void** graph, const void*** dependencies, const void**,
                                     size_t* count) {
  if (!status)
    return done(fail(Code::kInvalidValue, "cudaStreamGetCaptureInfo: the result is null"));
  static thread_local std::vector<vgpu::Handle> nodes;
  nodes.clear();
  Code code = capture_status(stream, status, id, graph);
  if (code == Code::kSuccess) code = capture_dependencies(stream, &nodes);
  if (dependencies) *dependencies = const_cast<const void**>(nodes.data());
  if (count) *count = nodes.size();
  return done(code);
}
cudaError_t cudaStreamGetCaptureInfo_v3(void* stream, int* status, unsigned long long* id,
                                        void** graph, const void*** dependencies,
                                        const void** edges, size_t* count) {
  return cudaStreamGetCaptureInfo(stream, status, id, graph, dependencies, edges, count);
}
// CUDA 12's, without data of edges.
cudaError_t cudaStreamGetCaptureInfo_v2(void* stream, int* status, unsigned long long* id,
                                        void** graph, const void*** dependencies, size_t* count) {
  return cudaStreamGetCaptureInfo(stream, status, id, graph, dependencies, nullptr, count);
}
cudaError_t cudaStreamBeginCaptureToGraph(void* stream, void* graph, void* const* after,
                                          const void*, size_t count, int mode) {
  return done(begin_capture_to(stream, graph, handles_of(after, count), mode));
}
cudaError_t cudaStreamUpdateCaptureDependencies_v2(void* stream, void* const* nodes, const void*,
                                                   size_t count, unsigned flags) {
  constexpr unsigned kSet = 1;  // cudaStreamSetCaptureDependencies
  if (flags > kSet) return done(fail(Code::kInvalidValue, "flags that are not defined"));
  return done(set_capture_dependencies(stream, handles_of(nodes, count), flags != kSet));
}
cudaError_t cudaThreadExchangeStreamCaptureMode(int* mode) {
  if (!mode || *mode < 0 || *mode > 2)
    return done(fail(Code::kInvalidValue, "a capture mode is null or not defined"));
  *mode = exchange_capture_mode(*mode);
  return 0;
}

}  // extern "C"
