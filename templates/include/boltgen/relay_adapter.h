// A region as a function of TVM 0.14 to 0.19: the packed C calling convention, declared here
// because TVM's headers do not come with its Python package. Source: tvm/runtime/c_runtime_api.h
// and c_backend_api.h, dlpack/dlpack.h; none of these structures has changed within those versions.

#pragma once

#include <exception>
#include <utility>

#include "boltgen/region_call.h"
#include "boltgen/staging.h"

extern "C" {

struct boltgen_dl_tensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t ndim;
  uint8_t type_code;
  uint8_t bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};

union boltgen_tvm_value {
  int64_t v_int64;
  double v_float64;
  void* v_handle;
  char const* v_str;
};

// libtvm_runtime's.
void TVMAPISetLastError(char const* message);
int TVMFuncGetGlobal(char const* name, void** out);
int TVMFuncCall(void* function, boltgen_tvm_value* args, int* type_codes, int count,
                boltgen_tvm_value* result, int* result_type_code);

}  // extern "C"

namespace boltgen {

/// Type codes of arguments. Source: c_runtime_api.h, TVMArgTypeCode.
constexpr int kTensorHandle = 7;
constexpr int kArrayHandle = 13;
/// Source: dlpack.h, DLDeviceType.
constexpr int32_t kHostDevice = 1;
/// What TVM's ahead-of-time executor, whose `main` calls with the sizes that it was compiled for,
/// has in the place of an external function's element types; shapes are not set at all.
/// Source: tir/transforms/legalize_packed_calls.cc; dlpack.h, DLDataTypeCode.
constexpr uint8_t kOpaqueHandle = 3;

/// A region's parameter.
using TensorView = TvmTensor;

inline TensorView view(boltgen_tvm_value value, int type_code, char const* symbol, int index) {
  if (type_code != kTensorHandle && type_code != kArrayHandle) {
    throw std::runtime_error(std::string("boltgen region ") + symbol + ": parameter " +
                             std::to_string(index) + ": expected a tensor, got type code " +
                             std::to_string(type_code));
  }
  auto const& t = *static_cast<boltgen_dl_tensor const*>(value.v_handle);
  return {static_cast<char*>(t.data) + t.byte_offset,
          t.device_type,
          t.device_id,
          t.type_code,
          t.bits,
          t.lanes,
          t.ndim,
          t.shape,
          t.strides};
}

/// The stream on which TVM works in this thread.
inline cudaStream_t current_stream() {
  // Asked for once: each answer is a new object that TVM never frees.
  static void* const function = [] {
    void* found = nullptr;
    if (TVMFuncGetGlobal("runtime.get_cuda_stream", &found) != 0 || found == nullptr) {
      throw std::runtime_error("boltgen: TVM's CUDA runtime has no runtime.get_cuda_stream");
    }
    return found;
  }();
  boltgen_tvm_value result{};
  int type_code = 0;
  if (TVMFuncCall(function, nullptr, nullptr, 0, &result, &type_code) != 0) {
    throw std::runtime_error("boltgen: TVM's CUDA runtime does not tell its stream");
  }
  return static_cast<cudaStream_t>(result.v_handle);
}

/// RegionCall on TVM's stream, for tensors on the device or in host memory.
class TvmCall : public RegionCall {
 public:
  TvmCall(char const* symbol, char const* label)
      : RegionCall(symbol, label), stream_(current_stream()), staging_(stream_) {}

  void* data(TvmTensor const& tensor, int index, char const* role, ElementType type,
             std::initializer_list<int64_t> shape, Rank rank) {
    if (tensor.device_type != kHostDevice) {
      return RegionCall::data(tensor, index, role, type, shape, rank);
    }
    if (tensor.type_code != kOpaqueHandle) {
      check_form(tensor, index, role, type, shape, rank);
    }
    TvmTensor staged = tensor;
    check(cudaGetDevice(&staged.device_id), "cannot ask for the current device");
    staged.device_type = kCudaDevice;
    check(staging_.to_device(tensor.data, bytes(type, shape), &staged.data),
          "cannot copy a tensor in host memory to the device");
    check_device(staged, index, role);
    return staged.data;
  }

  void* result(void* data) {
    staging_.written(data);
    return data;
  }

  void workspace(TvmTensor const& tensor, size_t bytes) {
    if (tensor.device_type == kHostDevice) {
      allocate_workspace(bytes);  // with the copies of the other tensors
    } else {
      RegionCall::workspace(tensor, bytes);
    }
  }

  template <typename Args>
  void run(Args& args, int (*kernel)(Args const*, boltgen_status*)) {
    result(args.d);
    RegionCall::run(args, kernel, stream_);
    check(staging_.results_to_host(), "cannot copy the results to host memory");
  }

 private:
  static size_t bytes(ElementType type, std::initializer_list<int64_t> shape) {
    size_t total = type.bits / 8;
    for (int64_t extent : shape) {
      total *= static_cast<size_t>(extent);
    }
    return total;
  }

  cudaStream_t stream_;
  Staging staging_;
};

template <typename... Views, size_t... Index>
void unpack(void (*region)(Views...), char const* symbol, boltgen_tvm_value* args, int* type_codes,
            std::index_sequence<Index...>) {
  region(view(args[Index], type_codes[Index], symbol, static_cast<int>(Index))...);
}

/// Calls `region` with TVM's packed arguments; an error becomes TVM's last error and status -1.
template <typename... Views>
int32_t invoke(void (*region)(Views...), char const* symbol, boltgen_tvm_value* args,
               int* type_codes, int count) {
  constexpr int expected = sizeof...(Views);
  try {
    if (count != expected) {
      throw std::runtime_error(std::string("boltgen region ") + symbol + ": expected " +
                               std::to_string(expected) + " tensors, got " + std::to_string(count));
    }
    unpack(region, symbol, args, type_codes, std::index_sequence_for<Views...>());
    return 0;
  } catch (std::exception const& error) {
    TVMAPISetLastError(error.what());
    return -1;
  }
}

}  // namespace boltgen

/// Exports `region` under the name that TVM calls.
#define BOLTGEN_EXPORT(symbol, region)                                                        \
  extern "C" __attribute__((visibility("default"))) int32_t symbol(                           \
      boltgen_tvm_value* args, int* type_codes, int count, boltgen_tvm_value*, int*, void*) { \
    return boltgen::invoke(region, #symbol, args, type_codes, count);                         \
  }
