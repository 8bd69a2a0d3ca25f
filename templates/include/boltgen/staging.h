// Tensors in host memory for a kernel on the device: copied there for one call, and back.
//
// TVM's ahead-of-time executor keeps everything in host memory; so do models that TVM builds for
// target llvm. Each call then moves its weights too: a model whose rest is built for target cuda,
// for the graph executor or the virtual machine, keeps its tensors on the device instead.

#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

namespace boltgen {

/// The device's copies of one call's host tensors, on one stream.
class Staging {
 public:
  explicit Staging(cudaStream_t stream) : stream_(stream) {}

  ~Staging() {
    for (Copy const& copy : copies_) {
      cudaFreeAsync(copy.device, stream_);
    }
  }
  Staging(Staging const&) = delete;
  Staging& operator=(Staging const&) = delete;

  /// Sets `device` to memory with the contents of `host`.
  cudaError_t to_device(void* host, size_t bytes, void** device) {
    cudaError_t const error = cudaMallocAsync(device, bytes, stream_);
    if (error != cudaSuccess) {
      return error;
    }
    copies_.push_back({host, *device, bytes});
    return cudaMemcpyAsync(*device, host, bytes, cudaMemcpyHostToDevice, stream_);
  }

  /// Copies what is at `device` to where it came from, and waits; nothing where it is no copy.
  cudaError_t to_host(void* device) {
    for (Copy const& copy : copies_) {
      if (copy.device == device) {
        cudaError_t const error =
            cudaMemcpyAsync(copy.host, copy.device, copy.bytes, cudaMemcpyDeviceToHost, stream_);
        return error == cudaSuccess ? cudaStreamSynchronize(stream_) : error;
      }
    }
    return cudaSuccess;
  }

 private:
  struct Copy {
    void* host;
    void* device;
    size_t bytes;
  };

  cudaStream_t stream_;
  std::vector<Copy> copies_;
};

}  // namespace boltgen
