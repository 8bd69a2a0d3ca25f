// A region as a function of TVM 0.27, which calls through tvm-ffi.

#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <initializer_list>
#include <type_traits>
#include <utility>

#include "boltgen/region_call.h"

namespace boltgen {

using tvm::ffi::TensorView;

/// RegionCall on TVM's tensors and stream, with TVM's errors.
class TvmCall : public RegionCall {
 public:
  using RegionCall::RegionCall;

  void* data(TensorView const& view, int index, char const* role, ElementType type,
             std::initializer_list<int64_t> shape, Rank rank) {
    TvmTensor const tensor = described(view);
    return raising([&] { return RegionCall::data(tensor, index, role, type, shape, rank); });
  }

  int64_t rows(char const* name, TensorView const& view, int index, char const* role, int behind,
               int64_t low, int64_t high) const {
    TvmTensor const tensor = described(view);
    return raising([&] { return RegionCall::rows(name, tensor, index, role, behind, low, high); });
  }

  int64_t extent(char const* name, TensorView const& view, int index, char const* role, int behind,
                 int64_t low, int64_t high) const {
    TvmTensor const tensor = described(view);
    return raising(
        [&] { return RegionCall::extent(name, tensor, index, role, behind, low, high); });
  }

  int64_t slice_rows(char const* name, TensorView const& view, int index, char const* role,
                     int64_t rows, int64_t columns, int64_t low, int64_t high) const {
    TvmTensor const tensor = described(view);
    return raising([&] {
      return RegionCall::slice_rows(name, tensor, index, role, rows, columns, low, high);
    });
  }

  void workspace(TensorView const& view, size_t bytes) {
    TvmTensor const tensor = described(view);
    raising([&] { RegionCall::workspace(tensor, bytes); });
  }

  template <typename Args>
  void run(Args& args, int (*kernel)(Args const*, boltgen_status*)) {
    void* const stream = TVMFFIEnvGetStream(kCudaDevice, device_id());
    raising([&] { RegionCall::run(args, kernel, stream); });
  }

 private:
  static TvmTensor described(TensorView const& view) {
    DLDataType const dtype = view.dtype();
    return {static_cast<char*>(view.data_ptr()) + view.byte_offset(),
            view.device().device_type,
            view.device().device_id,
            dtype.code,
            dtype.bits,
            dtype.lanes,
            view.ndim(),
            view.shape().data(),
            view.strides().data()};
  }

  /// What `action` returns; an error becomes the Python exception that it names.
  template <typename Action>
  static std::invoke_result_t<Action> raising(Action const& action) {
    try {
      return action();
    } catch (RegionError const& error) {
      throw tvm::ffi::Error(error.kind, error.what(),
                            TVMFFIBacktrace(__FILE__, __LINE__, TVM_FFI_FUNC_SIG, 0));
    }
  }
};

/// The caller's argument `index`, a tensor.
[[gnu::noinline]] inline TensorView tensor_argument(char const* name, TVMFFIAny const* args,
                                                    int index) {
  auto const found = tvm::ffi::AnyView::CopyFromTVMFFIAny(args[index]).try_cast<TensorView>();
  if (!found.has_value()) {
    TVM_FFI_THROW(TypeError) << "argument " << index << " of " << name << " is no tensor";
  }
  return *found;
}

template <typename... Tensors, size_t... kIndex>
void call_region(void (*region)(Tensors const&...), char const* name, TVMFFIAny const* args,
                 std::index_sequence<kIndex...>) {
  region(tensor_argument(name, args, int(kIndex))...);
}

/// Calls `region` with the caller's tensors; what it throws is raised by TVM.
///
/// TVM's own macro unpacks arguments in every exported function, which took three quarters of the
/// time to compile a model's adapter. This function is the same for all regions of as many tensors.
template <typename... Tensors>
[[gnu::noinline]] int run_exported(void (*region)(Tensors const&...), char const* name,
                                   TVMFFIAny const* args, int32_t count) {
  TVM_FFI_SAFE_CALL_BEGIN();
  if (count != int32_t(sizeof...(Tensors))) {
    TVM_FFI_THROW(TypeError) << name << " takes " << sizeof...(Tensors) << " tensors, not "
                             << count;
  }
  call_region(region, name, args, std::index_sequence_for<Tensors...>());
  TVM_FFI_SAFE_CALL_END();
}

}  // namespace boltgen

/// Exports `region` under the name that TVM calls.
#define BOLTGEN_EXPORT(symbol, region)                                               \
  extern "C" TVM_FFI_DLL_EXPORT int __tvm_ffi_##symbol(void*, TVMFFIAny const* args, \
                                                       int32_t count, TVMFFIAny*) {  \
    return boltgen::run_exported(region, #symbol, args, count);                      \
  }
