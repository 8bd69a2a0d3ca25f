// Convolutions of more images than 32-bit offsets address: a launch for each slice of them.

#pragma once

#include <algorithm>
#include <cstdint>

#include "boltgen/operands.h"

/// CUTLASS addresses a convolution's tensors with 32-bit byte offsets. Source:
/// cutlass/conv/device/implicit_gemm_convolution.h, can_implement. A test defines less.
#ifndef BOLTGEN_MOST_CONV_BYTES
#define BOLTGEN_MOST_CONV_BYTES INT32_MAX
#endif

namespace boltgen {

/// Moves the operands of an epilogue to row `row` of D, which has `columns` columns.
template <typename... Operand>
void move_to_row(Operands<Operand...>, [[maybe_unused]] boltgen_operand* operands,
                 [[maybe_unused]] int64_t row, [[maybe_unused]] int64_t columns) {
  [[maybe_unused]] int index = 0;
  ((operands[index].pointer =
        static_cast<typename Operand::Element const*>(operands[index].pointer) +
        Operand::before(operands[index], row),
    ++index),
   ...);
}

/// Calls `launch` with arguments of as many images as offsets address, and again for the rest.
/// An image has `elements` of A, and `pixels` of D. The slices share the workspace, one after the
/// other; the status's code is returned.
template <typename Kernel, typename Args, typename Launch>
int for_slices_of_images(Args const& args, int64_t elements, int64_t pixels, Launch const& launch) {
  using A = typename Kernel::ElementA;
  using D = typename Kernel::ElementC;
  int64_t const largest =
      std::max(elements * int64_t(sizeof(A)), pixels * args.k * int64_t(sizeof(D)));
  int64_t const most =
      std::max(int64_t(1), largest > 0 ? BOLTGEN_MOST_CONV_BYTES / largest : int64_t(args.n));
  if (args.n <= most) {
    return launch(args);  // which refuses what is no convolution
  }
  for (int64_t first = 0; first < args.n; first += most) {
    Args slice = args;
    slice.n = int32_t(std::min(most, args.n - first));
    slice.a = static_cast<A const*>(args.a) + first * elements;
    slice.d = static_cast<D*>(args.d) + first * pixels * args.k;
    move_to_row(typename Kernel::Operands(), slice.operands, first * pixels, args.k);
    if (int const code = launch(slice)) {
      return code;
    }
  }
  return BOLTGEN_OK;
}

}  // namespace boltgen
