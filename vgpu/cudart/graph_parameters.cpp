#include "cudart/graph_parameters.h"

#include <utility>

#include "cudart/registration.h"

namespace vgpu::cudart {

Code work_of(const cudaKernelNodeParams& p, Work* work) {
  Kernel* kernel = nullptr;
  if (const Code code = find_kernel(p.func, &kernel); code != Code::kSuccess) return code;
  if (p.extra) {
    return fail(Code::kNotSupported,
                "a kernel node with its parameters in one buffer (extra); pass kernelParams");
  }
  const LaunchShape shape = shape_of(p.gridDim, p.blockDim, p.sharedMemBytes);
  return kernel_work(p.func, *kernel, shape, p.kernelParams, work);
}

Code work_of(const cudaMemcpy3DParms& p, Work* work) {
  if (p.srcArray || p.dstArray) return fail(Code::kNotSupported, "copies of CUDA arrays");
  std::vector<Copy2d> slices;
  for (size_t z = 0; z < p.extent.depth; ++z) {
    const auto corner = [z](const cudaPitchedPtr& at, const cudaPos& from) {
      const size_t row = (from.z + z) * at.ysize + from.y;
      return static_cast<char*>(at.ptr) + row * at.pitch + from.x;
    };
    Copy2d slice = {corner(p.dstPtr, p.dstPos),
                    p.dstPtr.pitch,
                    corner(p.srcPtr, p.srcPos),
                    p.srcPtr.pitch,
                    p.extent.width,
                    p.extent.height};
    if (const Code code = set_direction(p.kind, &slice); code != Code::kSuccess) return code;
    slices.push_back(slice);
  }
  return copy_work(std::move(slices), work);
}

Code work_of(const cudaMemsetParams& p, Work* work) {
  return fill_work({p.dst, p.pitch, p.value, p.elementSize, p.width, p.height}, work);
}

Code work_of(const cudaHostNodeParams& p, Work* work) {
  if (!p.fn) return fail(Code::kInvalidValue, "a graph node's host function is null");
  *work = host_work({p.fn, p.userData});
  return Code::kSuccess;
}

namespace {

int direction_of(const Copy2d& c) {
  if (c.to_side == Side::kAny || c.from_side == Side::kAny) return 4;
  return (c.to_side == Side::kDevice ? 1 : 0) | (c.from_side == Side::kDevice ? 2 : 0);
}

}  // namespace

cudaMemcpy3DParms parameters_of(const std::vector<Copy2d>& slices) {
  cudaMemcpy3DParms p = {};
  if (slices.empty()) return p;
  const Copy2d& c = slices[0];
  const auto rows = [&](u64 first, u64 second, u64 pitch) {
    return slices.size() > 1 && pitch ? (second - first) / pitch : c.height;
  };
  const Copy2d& next = slices[slices.size() > 1];
  const auto number = [](const void* at) { return reinterpret_cast<u64>(at); };
  p.srcPtr = {const_cast<void*>(c.from), c.from_pitch, c.width,
              rows(number(c.from), number(next.from), c.from_pitch)};
  p.dstPtr = {c.to, c.to_pitch, c.width, rows(number(c.to), number(next.to), c.to_pitch)};
  p.extent = {c.width, c.height, slices.size()};
  p.kind = direction_of(c);
  return p;
}

}  // namespace vgpu::cudart
