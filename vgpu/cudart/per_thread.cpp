// The names that calls have in programs built with --default-stream per-thread: there the null
// stream is the calling thread's own, which does not wait for others and can be captured.
#include "core/stream.h"
#include "cudart/types.h"

namespace {

void* own(void* stream) { return stream ? stream : vgpu::kPerThreadStream; }

}  // namespace

// NAME(parameters..., stream) and NAME(stream, parameters...)
#define STREAM_LAST(name, parameters, ...) \
  cudaError_t name parameters;             \
  cudaError_t name##_ptsz parameters { return name(__VA_ARGS__, own(stream)); }
#define STREAM_FIRST(name, parameters, ...) \
  cudaError_t name parameters;              \
  cudaError_t name##_ptsz parameters { return name(own(stream), ##__VA_ARGS__); }

extern "C" {

STREAM_LAST(cudaMemcpyAsync, (void* to, const void* from, size_t n, int kind, void* stream), to,
            from, n, kind)
STREAM_LAST(cudaMemcpy2DAsync,
            (void* to, size_t to_pitch, const void* from, size_t pitch, size_t width, size_t height,
             int kind, void* stream),
            to, to_pitch, from, pitch, width, height, kind)
STREAM_LAST(cudaMemsetAsync, (void* to, int value, size_t n, void* stream), to, value, n)
STREAM_LAST(cudaMemset2DAsync,
            (void* to, size_t pitch, int value, size_t width, size_t height, void* stream), to,
            pitch, value, width, height)
STREAM_LAST(cudaMemcpyToSymbolAsync,
            (const void* symbol, const void* from, size_t n, size_t offset, int kind, void* stream),
            symbol, from, n, offset, kind)
STREAM_LAST(cudaMemcpyFromSymbolAsync,
            (void* to, const void* symbol, size_t n, size_t offset, int kind, void* stream), to,
            symbol, n, offset, kind)
STREAM_LAST(cudaMallocAsync, (void** out, size_t n, void* stream), out, n)
STREAM_LAST(cudaMallocFromPoolAsync, (void** out, size_t n, void* pool, void* stream), out, n, pool)
STREAM_LAST(cudaFreeAsync, (void* p, void* stream), p)
STREAM_LAST(cudaEventRecord, (void* event, void* stream), event)
STREAM_LAST(cudaGraphLaunch, (void* executable, void* stream), executable)
STREAM_LAST(cudaGraphUpload, (void* executable, void* stream), executable)
STREAM_LAST(cudaLaunchKernel,
            (const void* kernel, vgpu_dim3 grid, vgpu_dim3 block, void** arguments, size_t shared,
             void* stream),
            kernel, grid, block, arguments, shared)
STREAM_LAST(__cudaLaunchKernel,
            (const void* kernel, vgpu_dim3 grid, vgpu_dim3 block, void** arguments, size_t shared,
             void* stream),
            kernel, grid, block, arguments, shared)
STREAM_LAST(cudaLaunchCooperativeKernel,
            (const void* kernel, vgpu_dim3 grid, vgpu_dim3 block, void** arguments, size_t shared,
             void* stream),
            kernel, grid, block, arguments, shared)

STREAM_FIRST(cudaStreamQuery, (void* stream))
STREAM_FIRST(cudaStreamSynchronize, (void* stream))
STREAM_FIRST(cudaStreamWaitEvent, (void* stream, void* event, unsigned flags), event, flags)
STREAM_FIRST(cudaStreamGetFlags, (void* stream, unsigned* flags), flags)
STREAM_FIRST(cudaStreamGetPriority, (void* stream, int* priority), priority)
STREAM_FIRST(cudaStreamGetId, (void* stream, unsigned long long* id), id)
STREAM_FIRST(cudaStreamGetDevice, (void* stream, int* device), device)
STREAM_FIRST(cudaStreamAddCallback,
             (void* stream, void (*callback)(void*, cudaError_t, void*), void* data,
              unsigned flags),
             callback, data, flags)
STREAM_FIRST(cudaStreamBeginCapture, (void* stream, int mode), mode)
STREAM_FIRST(cudaStreamEndCapture, (void* stream, void** graph), graph)
STREAM_FIRST(cudaStreamIsCapturing, (void* stream, int* status), status)
STREAM_FIRST(cudaStreamGetCaptureInfo,
             (void* stream, int* status, unsigned long long* id, void** graph,
              const void*** dependencies, const void** edges, size_t* count),
             status, id, graph, dependencies, edges, count)
STREAM_FIRST(cudaStreamGetCaptureInfo_v2,
             (void* stream, int* status, unsigned long long* id, void** graph,
              const void*** dependencies, size_t* count),
             status, id, graph, dependencies, count)
STREAM_FIRST(cudaStreamGetCaptureInfo_v3,
             (void* stream, int* status, unsigned long long* id, void** graph,
              const void*** dependencies, const void** edges, size_t* count),
             status, id, graph, dependencies, edges, count)
STREAM_FIRST(cudaLaunchHostFunc, (void* stream, void (*function)(void*), void* data), function,
             data)

// Calls that wait: for the thread's own stream, not for the legacy one, which others may disturb.
#define WAITING(name, parameters, ...)                                \
  cudaError_t name##_ptds parameters {                                \
    const cudaError_t error = name##Async(__VA_ARGS__, own(nullptr)); \
    return error ? error : cudaStreamSynchronize(own(nullptr));       \
  }

WAITING(cudaMemcpy, (void* to, const void* from, size_t n, int kind), to, from, n, kind)
WAITING(cudaMemcpy2D,
        (void* to, size_t to_pitch, const void* from, size_t pitch, size_t width, size_t height,
         int kind),
        to, to_pitch, from, pitch, width, height, kind)
WAITING(cudaMemset, (void* to, int value, size_t n), to, value, n)
WAITING(cudaMemset2D, (void* to, size_t pitch, int value, size_t width, size_t height), to, pitch,
        value, width, height)
WAITING(cudaMemcpyToSymbol,
        (const void* symbol, const void* from, size_t n, size_t offset, int kind), symbol, from, n,
        offset, kind)
WAITING(cudaMemcpyFromSymbol, (void* to, const void* symbol, size_t n, size_t offset, int kind), to,
        symbol, n, offset, kind)

// The stream stands elsewhere.
cudaError_t cudaEventRecordWithFlags(void* event, void* stream, unsigned flags);
cudaError_t cudaEventRecordWithFlags_ptsz(void* event, void* stream, unsigned flags) {
  return cudaEventRecordWithFlags(event, own(stream), flags);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                void** arguments);
cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t* config, const void* kernel,
                                     void** arguments) {
  if (!config) return cudaLaunchKernelExC(config, kernel, arguments);
  cudaLaunchConfig_t c = *config;
  c.stream = own(c.stream);
  return cudaLaunchKernelExC(&c, kernel, arguments);
}
cudaError_t __cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t* config, const void* kernel,
                                       void** arguments) {
  return cudaLaunchKernelExC_ptsz(config, kernel, arguments);
}
// These do not care about streams.
struct cudaGraphInstantiateParams;
cudaError_t cudaGraphInstantiateWithParams(void**, void*, cudaGraphInstantiateParams*);
cudaError_t cudaGraphInstantiateWithParams_ptsz(void** executable, void* graph,
                                                cudaGraphInstantiateParams* parameters) {
  return cudaGraphInstantiateWithParams(executable, graph, parameters);
}
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void**, unsigned, unsigned long long,
                                             int*);
cudaError_t cudaGetDriverEntryPointByVersion_ptsz(const char* symbol, void** function,
                                                  unsigned version, unsigned long long flags,
                                                  int* status) {
  return cudaGetDriverEntryPointByVersion(symbol, function, version, flags, status);
}

}  // extern "C"
