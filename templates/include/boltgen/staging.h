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
    copies_.push_back({host, *device, bytes, false});
    return cudaMemcpyAsync(*device, host, bytes, cudaMemcpyHostToDevice, stream_);
  }

  /// What is at `device` is a result; nothing where it is no copy.
  void written(void* device) {
    for (Copy& copy : copies_) {
      copy.is_result |= copy.device == device;
    }
  }

  /// Copies all results to where they came from, and waits; nothing where none is a copy.
  cudaError_t results_to_host() {
    bool found = false;
    for (Copy const& copy : copies_) {
      if (copy.is_result) {
        cudaError_t const error =
            cudaMemcpyAsync(copy.host, copy.device, copy.bytes, cudaMemcpyDeviceToHost, stream_);
        if (error != cudaSuccess) {
          return error;
        }
        found = true;
      }
    }
    return found ? cudaStreamSynchronize(stream_) : cudaSuccess;
  }

 private:
  struct Copy {
    void* host;
    void* device;
    size_t bytes;
    bool is_result;
  };

  cudaStream_t stream_;
  std::vector<Copy> copies_;
};

}  // namespace boltgen
