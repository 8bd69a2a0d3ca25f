// What every region's TVM function does besides naming its sizes: checks of the tensors, stream,
// workspace, and errors. Compiled by the host compiler; knows kernels only through boltgen/abi.h.

#pragma once

#include <cuda_runtime_api.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <initializer_list>
#include <sstream>
#include <string>

#include "boltgen/abi.h"

namespace boltgen {

/// The element types of tensors.
struct ElementType {
  char const* name;
  int bits;
};
constexpr ElementType kFloat16{"float16", 16};
constexpr ElementType kFloat32{"float32", 32};

/// How a tensor's shape is compared.
enum class Rank {
  kExact,   ///< dimension by dimension
  kMatrix,  ///< any leading dimensions with the right product; the last dimension counts
  kVector,  ///< any shape with the right number of elements
};

/// One call of a region. Errors name the region, the parameter, what was expected and what came.
class RegionCall {
 public:
  RegionCall(char const* symbol, char const* label) : symbol_(symbol), label_(label) {}

  /// Checks the tensor that is parameter `index` and plays `role`; returns its first element.
  void* data(tvm::ffi::TensorView const& tensor, int index, char const* role, ElementType type,
             std::initializer_list<int64_t> shape, Rank rank) {
    DLDataType const dtype = tensor.dtype();
    if (dtype.code != kDLFloat || dtype.bits != type.bits || dtype.lanes != 1) {
      TVM_FFI_THROW(TypeError) << where(index, role) << "expected " << type.name << ", got "
                               << dtype_text(dtype);
    }
    if (!matches(tensor, shape, rank)) {
      TVM_FFI_THROW(ValueError) << where(index, role) << "expected " << expected_text(shape, rank)
                                << ", got shape " << shape_text(tensor.shape());
    }
    if (!tensor.IsContiguous()) {
      TVM_FFI_THROW(ValueError) << where(index, role)
                                << "expected a contiguous tensor, got strides "
                                << shape_text(tensor.strides());
    }
    check_device(tensor.device(), index, role);
    return static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset();
  }

  /// Runs the kernel on TVM's stream, with workspace that is allocated and freed on it.
  template <typename Args>
  void run(Args& args, int (*kernel)(Args const*, boltgen_status*),
           size_t (*workspace_bytes)(Args const*)) {
    DeviceGuard const guard(*this, device_.device_id);
    void* const stream = TVMFFIEnvGetStream(device_.device_type, device_.device_id);
    Workspace const workspace(*this, workspace_bytes(&args), static_cast<cudaStream_t>(stream));
    args.workspace = workspace.pointer;
    args.workspace_bytes = workspace.bytes;
    args.stream = stream;
    boltgen_status status;
    if (kernel(&args, &status) != BOLTGEN_OK) {
      TVM_FFI_THROW(RuntimeError) << region() << status.message;
    }
  }

 private:
  using ShapeView = tvm::ffi::ShapeView;

  /// Makes the tensors' device current for the call.
  struct DeviceGuard {
    DeviceGuard(RegionCall const& call, int device) {
      call.check(cudaGetDevice(&previous), "cannot ask for the current device");
      if (device != previous) {
        call.check(cudaSetDevice(device), "cannot make the tensors' device current");
        changed = true;
      }
    }
    ~DeviceGuard() {
      if (changed) {
        cudaSetDevice(previous);
      }
    }
    DeviceGuard(DeviceGuard const&) = delete;
    DeviceGuard& operator=(DeviceGuard const&) = delete;

    int previous = 0;
    bool changed = false;
  };

  /// Stream-ordered memory: no synchronisation, and it can be captured into a graph.
  struct Workspace {
    Workspace(RegionCall const& call, size_t bytes, cudaStream_t stream)
        : bytes(bytes), stream(stream) {
      if (bytes > 0) {
        call.check(cudaMallocAsync(&pointer, bytes, stream), "cannot allocate workspace");
      }
    }
    ~Workspace() {
      if (pointer != nullptr) {
        cudaFreeAsync(pointer, stream);
      }
    }
    Workspace(Workspace const&) = delete;
    Workspace& operator=(Workspace const&) = delete;

    void* pointer = nullptr;
    size_t bytes;
    cudaStream_t stream;
  };

  void check(cudaError_t error, char const* what) const {
    if (error != cudaSuccess) {
      TVM_FFI_THROW(RuntimeError) << region() << what << ": " << cudaGetErrorString(error);
    }
  }

  void check_device(DLDevice device, int index, char const* role) {
    if (device.device_type != kDLCUDA) {
      TVM_FFI_THROW(ValueError) << where(index, role) << "expected a CUDA tensor, got device type "
                                << int(device.device_type);
    }
    if (!device_known_) {
      device_ = device;
      device_known_ = true;
    } else if (device.device_id != device_.device_id) {
      TVM_FFI_THROW(ValueError) << where(index, role) << "expected device " << device_.device_id
                                << ", where the others are, got device " << device.device_id;
    }
  }

  static bool matches(tvm::ffi::TensorView const& tensor, std::initializer_list<int64_t> expected,
                      Rank rank) {
    ShapeView const shape = tensor.shape();
    int64_t elements = 1;
    for (int64_t extent : expected) {
      elements *= extent;
    }
    switch (rank) {
      case Rank::kExact: {
        size_t i = 0;
        if (shape.size() != expected.size()) {
          return false;
        }
        for (int64_t extent : expected) {
          if (shape[i++] != extent) {
            return false;
          }
        }
        return true;
      }
      case Rank::kMatrix:
        return shape.size() > 0 && shape[shape.size() - 1] == *(expected.end() - 1) &&
               tensor.numel() == elements;
      case Rank::kVector:
        return tensor.numel() == elements;
    }
    return false;
  }

  template <typename Extents>
  static std::string shape_text(Extents const& extents) {
    std::ostringstream text;
    char const* separator = "(";
    for (int64_t extent : extents) {
      text << separator << extent;
      separator = ", ";
    }
    text << (extents.size() == 0 ? "()" : ")");
    return text.str();
  }

  static std::string expected_text(std::initializer_list<int64_t> shape, Rank rank) {
    switch (rank) {
      case Rank::kExact:
        return "shape " + shape_text(shape);
      case Rank::kMatrix:
        return "the elements of " + shape_text(shape) + " with that last dimension";
      case Rank::kVector:
        return "the elements of " + shape_text(shape);
    }
    return "";
  }

  static std::string dtype_text(DLDataType dtype) {
    std::ostringstream text;
    char const* const code = dtype.code == kDLFloat    ? "float"
                             : dtype.code == kDLInt    ? "int"
                             : dtype.code == kDLUInt   ? "uint"
                             : dtype.code == kDLBfloat ? "bfloat"
                                                       : "type code ";
    text << code;
    if (dtype.code != kDLFloat && dtype.code != kDLInt && dtype.code != kDLUInt &&
        dtype.code != kDLBfloat) {
      text << int(dtype.code) << " of bits ";
    }
    text << int(dtype.bits);
    if (dtype.lanes != 1) {
      text << "x" << int(dtype.lanes);
    }
    return text.str();
  }

  std::string region() const {
    return std::string("boltgen region ") + symbol_ + " (" + label_ + "): ";
  }

  std::string where(int index, char const* role) const {
    std::ostringstream text;
    text << region() << "parameter " << index << " (" << role << "): ";
    return text.str();
  }

  char const* symbol_;
  char const* label_;
  DLDevice device_{kDLCUDA, 0};
  bool device_known_ = false;
};

}  // namespace boltgen
