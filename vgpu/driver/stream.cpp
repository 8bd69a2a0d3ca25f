// The CUDA driver: streams, events and capture.
#include "core/stream.h"

#include "core/capture.h"
#include "driver/driver.h"

using namespace vgpu;
using vgpu::driver::result;

extern "C" {

CUresult cuStreamCreate(void** stream, unsigned flags) {
  return result(create_stream(flags, 0, stream));
}
CUresult cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  return result(create_stream(flags, priority, stream));
}
CUresult cuStreamDestroy_v2(void* stream) { return result(destroy_stream(stream)); }
CUresult cuStreamSynchronize(void* stream) { return result(synchronize_stream(stream)); }
CUresult cuStreamQuery(void* stream) { return result(synchronize_stream(stream)); }
CUresult cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
  return result(wait_event_with(flags, stream, event));
}
CUresult cuLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  if (!function) return result(fail(Code::kInvalidValue, "a stream's host function is null"));
  return result(submit(stream, host_work({function, data})));
}

CUresult cuEventCreate(void** event, unsigned flags) { return result(create_event(flags, event)); }
CUresult cuEventDestroy_v2(void* event) { return result(destroy_event(event)); }
CUresult cuEventRecord(void* event, void* stream) { return result(record_event(event, stream)); }
CUresult cuEventRecordWithFlags(void* event, void* stream, unsigned flags) {
  return result(record_event_with(flags, event, stream));
}
CUresult cuEventSynchronize(void* event) { return result(synchronize_event(event)); }
CUresult cuEventQuery(void* event) { return result(synchronize_event(event)); }
CUresult cuEventElapsedTime(float* ms, void* begin, void* end) {
  return result(elapsed(begin, end, ms));
}
CUresult cuEventElapsedTime_v2(float* ms, void* begin, void* end) {
  return result(elapsed(begin, end, ms));
}

CUresult cuStreamBeginCapture_v2(void* stream, int mode) {
  return result(begin_capture(stream, mode));
}
CUresult cuStreamEndCapture(void* stream, void** graph) {
  return result(end_capture(stream, graph));
}
CUresult cuStreamIsCapturing(void* stream, int* status) {
  if (!status) return result(fail(Code::kInvalidValue, "cuStreamIsCapturing: the result is null"));
  return result(capture_status(stream, status, nullptr, nullptr));
}
CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  if (!mode || *mode < 0 || *mode > 2)
    return result(fail(Code::kInvalidValue, "a capture mode is null or not defined"));
  *mode = exchange_capture_mode(*mode);
  return 0;
}

}  // extern "C"
