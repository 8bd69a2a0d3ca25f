// What every region's TVM function does besides naming its sizes: checks of the tensors, stream,
// workspace, and errors. Compiled by the host compiler; knows kernels only through their C
// interface, and neither of TVM's calling conventions.

#pragma once

#include <cuda_runtime_api.h>

#include <initializer_list>
#include <stdexcept>
#include <string>

#include "boltgen/abi.h"

namespace boltgen {

/// A tensor as DLPack describes it.
struct TvmTensor {
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
constexpr uint8_t kIntCode = 0;
constexpr uint8_t kUintCode = 1;
constexpr uint8_t kFloatCode = 2;
constexpr uint8_t kBfloatCode = 4;
constexpr uint8_t kFloat8E4m3Code = 10;
constexpr uint8_t kFloat8E5m2Code = 12;

/// The element types of tensors.
struct ElementType {
  char const* name;
  uint8_t code;
  int bits;
};
constexpr ElementType kInt32{"int32", kIntCode, 32};
constexpr ElementType kInt64{"int64", kIntCode, 64};
constexpr ElementType kInt8{"int8", kIntCode, 8};
constexpr ElementType kUint8{"uint8", kUintCode, 8};
constexpr ElementType kFloat16{"float16", kFloatCode, 16};
constexpr ElementType kBfloat16{"bfloat16", kBfloatCode, 16};
constexpr ElementType kFloat32{"float32", kFloatCode, 32};
constexpr ElementType kFloat8E4m3{"float8_e4m3fn", kFloat8E4m3Code, 8};
constexpr ElementType kFloat8E5m2{"float8_e5m2", kFloat8E5m2Code, 8};

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

/// A move's C entry.
using MoveFunction = int (*)(boltgen_move_args const*, boltgen_status*);

/// The sizes in `boltgen_move_args`.
struct MoveSizes {
  int32_t n;
  int32_t pixels;
  int32_t source_c;
  int32_t target_c;
};

/// One call of a region. Errors name the region, the parameter, what was expected and what came.
class RegionCall {
 public:
  RegionCall(char const* symbol, char const* label) : symbol_(symbol), label_(label) {}

  /// Checks the tensor that is parameter `index` and plays `role`; returns its first element.
  void* data(TvmTensor const& tensor, int index, char const* role, ElementType type,
             std::initializer_list<int64_t> shape, Rank rank) {
    check_form(tensor, index, role, type, shape, rank);
    check_device(tensor, index, role);
    return tensor.data;
  }

  /// The product of all but the last `behind` dimensions of parameter `index`, the extent `name` of
  /// the region, which is `low` to `high`.
  int64_t rows(char const* name, TvmTensor const& tensor, int index, char const* role, int behind,
               int64_t low, int64_t high) const {
    int64_t product = 1;
    for (int i = 0; i < tensor.rank - behind; ++i) {
      product *= tensor.shape[i];
    }
    return within(name, tensor.rank > behind ? product : 0, index, role, low, high);
  }

  /// The dimension of parameter `index` with `behind` others after it, in the same way.
  int64_t extent(char const* name, TvmTensor const& tensor, int index, char const* role, int behind,
                 int64_t low, int64_t high) const {
    int const axis = tensor.rank - 1 - behind;
    return within(name, axis >= 0 ? tensor.shape[axis] : 0, index, role, low, high);
  }

  /// How many of `rows` read each row of parameter `index`, which has rows of `columns`, in the
  /// same way.
  int64_t slice_rows(char const* name, TvmTensor const& tensor, int index, char const* role,
                     int64_t rows, int64_t columns, int64_t low, int64_t high) const {
    int64_t elements = 1;
    for (int i = 0; i < tensor.rank; ++i) {
      elements *= tensor.shape[i];
    }
    int64_t const slices = elements / columns;
    bool const is_whole = slices > 0 && elements % columns == 0 && rows % slices == 0;
    return within(name, is_whole ? rows / slices : 0, index, role, low, high);
  }

  /// What lies `bytes` behind the first element of a tensor.
  static void* behind(void* data, size_t bytes) { return static_cast<char*>(data) + bytes; }

  /// What the kernel writes besides D.
  void* result(void* data) { return data; }

  /// Takes the workspace that TVM has planned for the call; `bytes` of it are used.
  void workspace(TvmTensor const& tensor, size_t bytes) {
    check_device(tensor, -1, "workspace");
    size_t const planned = bytes_of(tensor);
    if (planned < bytes) {
      fail("ValueError", region() + "its workspace has " + std::to_string(planned) +
                             " bytes, and it needs " + std::to_string(bytes) +
                             ": partition the model again");
    }
    workspace_ = tensor.data;
    workspace_bytes_ = bytes;
  }

  /// The workspace for a module in which TVM has planned none: stream-ordered memory.
  void allocate_workspace(size_t bytes) { workspace_bytes_ = bytes; }

  /// A is moved before the kernel runs, to `offset` bytes into the workspace.
  void move_before(MoveFunction move, MoveSizes sizes, size_t offset) {
    before_ = {move, sizes, offset};
  }

  /// The kernel writes to `offset` bytes into the workspace; from there the result is moved to D.
  void move_after(MoveFunction move, MoveSizes sizes, size_t offset) {
    after_ = {move, sizes, offset};
  }

  /// Runs the kernel on `stream`, and the moves before and after it. Where TVM planned the
  /// workspace, nothing is allocated; nothing ever waits.
  template <typename Args>
  void run(Args& args, int (*kernel)(Args const*, boltgen_status*), void* stream) {
    DeviceGuard const guard(*this, device_id_);
    bool const allocates = workspace_bytes_ > 0 && workspace_ == nullptr;
    StreamMemory const own(*this, allocates ? workspace_bytes_ : 0,
                           static_cast<cudaStream_t>(stream));
    char* const base = static_cast<char*>(allocates ? own.pointer : workspace_);
    args.workspace = base;
    args.workspace_bytes = workspace_bytes_;
    args.stream = stream;
    void* const result = args.d;
    if (before_.move != nullptr) {
      run_move(before_, args.a, base + before_.offset, stream);
      args.a = base + before_.offset;
    }
    if (after_.move != nullptr) {
      args.d = base + after_.offset;
    }
    boltgen_status status;
    if (kernel(&args, &status) != BOLTGEN_OK) {
      fail("RuntimeError", region() + status.message);
    }
    if (after_.move != nullptr) {
      run_move(after_, args.d, result, stream);
    }
  }

 protected:
  /// The device of the tensors that were checked.
  int device_id() const { return device_id_; }

  /// Checks everything but where the tensor is.
  void check_form(TvmTensor const& tensor, int index, char const* role, ElementType type,
                  std::initializer_list<int64_t> shape, Rank rank) const {
    if (tensor.type_code != type.code || tensor.bits != type.bits || tensor.lanes != 1) {
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

  void check_device(TvmTensor const& tensor, int index, char const* role) {
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

  /// A move of the call, and where in the workspace one of its sides is.
  struct PlannedMove {
    MoveFunction move = nullptr;
    MoveSizes sizes{};
    size_t offset = 0;
  };

  void run_move(PlannedMove const& planned, void const* source, void* target, void* stream) const {
    MoveSizes const& sizes = planned.sizes;
    boltgen_move_args const args{sizes.n, sizes.pixels, sizes.source_c, sizes.target_c,
                                 source,  target,       stream};
    boltgen_status status;
    if (planned.move(&args, &status) != BOLTGEN_OK) {
      fail("RuntimeError", region() + status.message);
    }
  }

  /// Stream-ordered memory: no synchronisation, and it can be captured into a graph.
  struct StreamMemory {
    StreamMemory(RegionCall const& call, size_t bytes, cudaStream_t stream) : stream(stream) {
      if (bytes > 0) {
        call.check(cudaMallocAsync(&pointer, bytes, stream), "cannot allocate workspace");
      }
    }
    ~StreamMemory() {
      if (pointer != nullptr) {
        cudaFreeAsync(pointer, stream);
      }
    }
    StreamMemory(StreamMemory const&) = delete;
    StreamMemory& operator=(StreamMemory const&) = delete;

    void* pointer = nullptr;
    cudaStream_t stream;
  };

  [[noreturn]] static void fail(char const* kind, std::string const& message) {
    throw RegionError(kind, message);
  }

  int64_t within(char const* name, int64_t value, int index, char const* role, int64_t low,
                 int64_t high) const {
    if (value < low || value > high) {
      fail("ValueError", where(index, role) + name + " is " + std::to_string(value) +
                             ", its kernels were chosen for " + std::to_string(low) + " to " +
                             std::to_string(high) + ": compile the model for other ranges");
    }
    return value;
  }

  static bool is_contiguous(TvmTensor const& tensor) {
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

  static bool matches(TvmTensor const& tensor, std::initializer_list<int64_t> expected, Rank rank) {
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

  static size_t bytes_of(TvmTensor const& tensor) {
    size_t bytes = size_t(tensor.bits) * tensor.lanes / 8;
    for (int i = 0; i < tensor.rank; ++i) {
      bytes *= size_t(tensor.shape[i]);
    }
    return bytes;
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
  static std::string dtype_text(TvmTensor const& tensor) {
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
  void* workspace_ = nullptr;
  size_t workspace_bytes_ = 0;
  PlannedMove before_, after_;
};

}  // namespace boltgen
