// A kernel with another swizzle than it was compiled with: on the device that is a number among its
// parameters, from which a block tells its tile. Only the host reads it off the type.

#pragma once

#include <cutlass/gemm/threadblock/threadblock_swizzle.h>

namespace swizzled {

/// `Kernel`, one of boltgen::Gemm, as `run_gemm` launches it for swizzle `kSwizzle`.
template <typename Kernel, int kSwizzle>
struct Gemm : Kernel {
  using ThreadblockSwizzle = cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<kSwizzle>;
};

/// `Kernel`, one of boltgen::Conv2d, as `run_conv2d` launches it for swizzle `kSwizzle`.
template <typename Kernel, int kSwizzle>
struct Conv2d : Kernel {
  using ThreadblockSwizzle = cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<kSwizzle>;

  /// CUTLASS's own constructor takes the swizzle from the type that was compiled.
  struct Params : Kernel::Params {
    Params(typename Kernel::Arguments const& arguments, int* semaphore)
        : Kernel::Params(arguments, semaphore) {
      this->swizzle_log_tile = ThreadblockSwizzle::get_log_tile(this->grid_tiled_shape);
    }
  };
};

/// The device's function, which knows nothing of swizzles, as a launch of `Swizzled` takes it.
template <typename Swizzled, typename Params>
auto as(void (*kernel)(Params)) -> void (*)(typename Swizzled::Params) {
  static_assert(sizeof(typename Swizzled::Params) == sizeof(Params), "the parameters are the same");
  return reinterpret_cast<void (*)(typename Swizzled::Params)>(kernel);
}

}  // namespace swizzled
