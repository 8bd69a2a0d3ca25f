// What every region's TVM function does besides naming its sizes: checks of the tensors, stream,
// workspace, and errors. Compiled by the host compiler; knows kernels only through boltgen/abi.h,
// and neither of TVM's calling conventions.

#pragma once

#include <cuda_runtime_api.h>

#include <initializer_list>
#include <stdexcept>
#include <string>

#include "boltgen/abi.h"

namespace boltgen {

/// A tensor as DLPack describes it.
struct Tensor {
  void* data;  ///< with the byte offset added
  int32_t device_type;
  int32_t device_id;
  uint8_t type_code;
  uint8_t bits;
  uint16_t lanes;
  int32_t rank;
  int64_t const* shape;
  int64_t const* strides;  ///< in elements; null where it is contiguous
};

/// DLPack's numbers. Source: dlpack.h, DLDeviceType and DLDataTypeCode.
constexpr int32_t kCudaDevice = 2;
constexpr uint8_t kFloatCode = 2;

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

/// What is wrong with a call; `kind` is the name of a Python exception.
struct RegionError : std::runtime_error {
  RegionError(char const* kind, std::string const& message)
      : std::runtime_error(message), kind(kind) {}

  char const* kind;
};

/// One call of a region. Errors name the region, the parameter, what was expected and what came.
class RegionCall {
 public:
  RegionCall(char const* symbol, char const* label) : symbol_(symbol), label_(label) {}

  /// Checks the tensor that is parameter `index` and plays `role`; returns its first element.
  void* data(Tensor const& tensor, int index, char const* role, ElementType type,
             std::initializer_list<int64_t> shape, Rank rank) {
    check_form(tensor, index, role, type, shape, rank);
    check_device(tensor, index, role);
    return tensor.data;
  }

  /// Runs the kernel on `stream`, with workspace that is allocated and freed on it.
  template <typename Args>
  void run(Args& args, int (*kernel)(Args const*, boltgen_status*),
           size_t (*workspace_bytes)(Args const*), void* stream) {
    DeviceGuard const guard(*this, device_id_);
    Workspace const workspace(*this, workspace_bytes(&args), static_cast<cudaStream_t>(stream));
    args.workspace = workspace.pointer;
    args.workspace_bytes = workspace.bytes;
    args.stream = stream;
    boltgen_status status;
    if (kernel(&args, &status) != BOLTGEN_OK) {
      fail("RuntimeError", region() + status.message);
    }
  }

 protected:
  /// The device of the tensors that were checked.
  int device_id() const { return device_id_; }

  /// Checks everything but where the tensor is.
  void check_form(Tensor const& tensor, int index, char const* role, ElementType type,
                  std::initializer_list<int64_t> shape, Rank rank) const {
    if (tensor.type_code != kFloatCode || tensor.bits != type.bits || tensor.lanes != 1) {
      fail("TypeError",
           where(index, role) + "expected " + type.name + ", got " + dtype_text(tensor));
    }
    if (!matches(tensor, shape, rank)) {
      fail("ValueError", where(index, role) + "expected " + expected_text(shape, rank) +
                             ", got shape " + shape_text(tensor.shape, tensor.shape + tensor.rank));
    }
    if (!is_contiguous(tensor)) {
      fail("ValueError", where(index, role) + "expected a contiguous tensor, got strides " +
                             shape_text(tensor.strides, tensor.strides + tensor.rank));
    }
  }

  void check_device(Tensor const& tensor, int index, char const* role) {
    if (tensor.device_type != kCudaDevice) {
      fail("ValueError", where(index, role) + "expected a CUDA tensor, got device type " +
                             std::to_string(tensor.device_type));
    }
    if (device_id_ < 0) {
      device_id_ = tensor.device_id;
    } else if (tensor.device_id != device_id_) {
      fail("ValueError", where(index, role) + "expected device " + std::to_string(device_id_) +
                             ", where the others are, got device " +
                             std::to_string(tensor.device_id));
    }
  }

  void check(cudaError_t error, char const* what) const {
    if (error != cudaSuccess) {
      fail("RuntimeError", region() + what + ": " + cudaGetErrorString(error));
    }
  }

 private:
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

  [[noreturn]] static void fail(char const* kind, std::string const& message) {
    throw RegionError(kind, message);
  }

  static bool is_contiguous(Tensor const& tensor) {
    if (tensor.strides == nullptr) {
      return true;
    }
    int64_t expected = 1;
    for (int i = tensor.rank; i-- > 0;) {
      if (tensor.shape[i] != 1 && tensor.strides[i] != expected) {
        return false;
      }
      expected *= tensor.shape[i];
    }
    return true;
  }

  static bool matches(Tensor const& tensor, std::initializer_list<int64_t> expected, Rank rank) {
    int64_t want = 1, elements = 1;
    for (int64_t extent : expected) {
      want *= extent;
    }
    for (int i = 0; i < tensor.rank; ++i) {
      elements *= tensor.shape[i];
    }
    switch (rank) {
      case Rank::kExact: {
        bool equal = tensor.rank == static_cast<int>(expected.size());
        for (int i = 0; equal && i < tensor.rank; ++i) {
          equal = tensor.shape[i] == expected.begin()[i];
        }
        return equal;
      }
      case Rank::kMatrix:
        return tensor.rank > 0 && tensor.shape[tensor.rank - 1] == *(expected.end() - 1) &&
               elements == want;
      case Rank::kVector:
        return elements == want;
    }
    return false;
  }

  static std::string shape_text(int64_t const* begin, int64_t const* end) {
    std::string text = "(";
    for (int64_t const* extent = begin; extent != end; ++extent) {
      text += (extent == begin ? "" : ", ") + std::to_string(*extent);
    }
    return text + ")";
  }

  static std::string expected_text(std::initializer_list<int64_t> shape, Rank rank) {
    std::string const extents = shape_text(shape.begin(), shape.end());
    switch (rank) {
      case Rank::kExact:
        return "shape " + extents;
      case Rank::kMatrix:
        return "the elements of " + extents + " with that last dimension";
      case Rank::kVector:
        return "the elements of " + extents;
    }
    return extents;
  }

  /// Source of the codes: dlpack.h, DLDataTypeCode.
  static std::string dtype_text(Tensor const& tensor) {
    constexpr char const* names[] = {"int", "uint", "float", "handle", "bfloat"};
    std::string text = tensor.type_code < 5
                           ? names[tensor.type_code]
                           : "type code " + std::to_string(tensor.type_code) + " of bits ";
    text += std::to_string(tensor.bits);
    return tensor.lanes == 1 ? text : text + "x" + std::to_string(tensor.lanes);
  }

  std::string region() const {
    return std::string("boltgen region ") + symbol_ + " (" + label_ + "): ";
  }

  std::string where(int index, char const* role) const {
    return region() + "parameter " + std::to_string(index) + " (" + role + "): ";
  }

  char const* symbol_;
  char const* label_;
  int device_id_ = -1;
};

}  // namespace boltgen
