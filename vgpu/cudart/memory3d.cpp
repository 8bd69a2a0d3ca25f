// Memory of three dimensions: rows of a pitch, in planes. CUDA arrays are not supported.
#include <utility>

#include "core/capture.h"
#include "cudart/graph_parameters.h"

using namespace vgpu;
using vgpu::cudart::alive;
using vgpu::cudart::done;
using vgpu::cudart::refuse_null;
using vgpu::cudart::work_of;

extern "C" {

cudaError_t cudaMallocPitch(void** out, size_t* pitch, size_t width, size_t height);

cudaError_t cudaMalloc3D(cudaPitchedPtr* out, cudaExtent extent) {
  if (!out) return refuse_null("cudaMalloc3D");
  *out = {nullptr, 0, extent.width, extent.height};
  return cudaMallocPitch(&out->ptr, &out->pitch, extent.width, extent.height * extent.depth);
}

cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* p, void* stream) {
  if (!p) return refuse_null("cudaMemcpy3D");
  Work work;
  const Code code = work_of(*p, &work);
  return done(code == Code::kSuccess ? submit(stream, std::move(work)) : code);
}
cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* p) {
  const cudaError_t error = cudaMemcpy3DAsync(p, nullptr);
  return error ? error : done(synchronize_stream(nullptr));
}

// A fill for each plane.
cudaError_t cudaMemset3DAsync(cudaPitchedPtr to, int value, cudaExtent extent, void* stream) {
  for (size_t z = 0; z < extent.depth; ++z) {
    const cudaMemsetParams plane = {static_cast<char*>(to.ptr) + z * to.ysize * to.pitch,
                                    to.pitch,
                                    static_cast<unsigned>(value) & 0xff,
                                    1,
                                    extent.width,
                                    extent.height};
    Work work;
    Code code = work_of(plane, &work);
    if (code == Code::kSuccess) code = submit(stream, std::move(work));
    if (code != Code::kSuccess) return done(code);
  }
  return done(alive());
}
cudaError_t cudaMemset3D(cudaPitchedPtr to, int value, cudaExtent extent) {
  return cudaMemset3DAsync(to, value, extent, nullptr);
}

}  // extern "C"
