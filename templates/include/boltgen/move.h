// Moves: kernels that compute nothing. They cast, transpose between NCHW and NHWC, and pad or crop
// channels, all in one pass; a model's first and last layers run them in the same call.
//
// A tile is staged in shared memory as FP16 or BF16, the type `Narrow` in which kernels compute, so
// that global reads and writes both are whole 32-byte sectors in vectors of 16 bytes, wherever the
// sizes allow that. The host entries are here.

#pragma once

#include "boltgen/arguments.h"
#include "boltgen/dependent_launch.h"
#include "boltgen/move_layout.h"
#include "boltgen/move_rows.h"

namespace boltgen {

template <typename Body>
__global__ void __launch_bounds__(kMoveThreads) move_kernel(boltgen_move_args const args) {
  wait_for_earlier_kernels();
  Body::run(args);
}

template <typename Body>
__global__ void __launch_bounds__(kMoveThreads)
    move_kernel(boltgen_move_args const args, typename Body::Tile const tile) {
  wait_for_earlier_kernels();
  Body::run(args, tile);
}

template <typename... Arguments>
int launch_move(void (*kernel)(Arguments...), dim3 grid, int shared_bytes,
                boltgen_move_args const& args, boltgen_status* status, Arguments... arguments) {
  void* pointers[] = {&arguments...};
  cudaError_t const error = enqueue(reinterpret_cast<void const*>(kernel), grid, kMoveThreads,
                                    shared_bytes, args.stream, pointers);
  if (error != cudaSuccess) {
    return fail_cuda(status, error, "launch of %u x %u x %u blocks of %d threads", grid.x, grid.y,
                     grid.z, kMoveThreads);
  }
  return succeed(status);
}

/// NHWC to NHWC: casts, and pads or crops channels.
template <typename Narrow, typename In, typename Out>
struct NhwcToNhwc {
  static int launch(boltgen_move_args const& args, boltgen_status* status) {
    using Body = Repad<Narrow, In, Out>;
    typename Body::Tile const tile(args);
    if (tile.blocks(args) > INT32_MAX) {
      return fail(status, BOLTGEN_INVALID_ARGUMENT, "%lld elements are too many for one launch",
                  static_cast<long long>(Body::count(args, args.target_c)));
    }
    return launch_move(move_kernel<Body>, dim3(unsigned(tile.blocks(args))), tile.shared_bytes(),
                       args, status, args, tile);
  }
};

/// Calls `launch` with the widest vectors of `Pixels` and of channels that `c` channels allow.
template <typename Narrow, typename Pixels, template <typename, typename, int, int> class Direction>
int launch_transpose(boltgen_move_args const& args, int nhwc_channels, boltgen_status* status) {
  bool const pixels = args.pixels % kWidest<Pixels> == 0, channels = nhwc_channels % 8 == 0;
  auto const run = [&](auto body) {
    using Body = decltype(body);
    return launch_move(move_kernel<Body>, Body::grid(args), 0, args, status, args);
  };
  if (pixels) {
    return channels ? run(Direction<Narrow, Pixels, kWidest<Pixels>, 8>{})
                    : run(Direction<Narrow, Pixels, kWidest<Pixels>, 1>{});
  }
  return channels ? run(Direction<Narrow, Pixels, 1, 8>{}) : run(Direction<Narrow, Pixels, 1, 1>{});
}

/// NCHW to NHWC in `Narrow`.
template <typename Narrow, typename In>
struct NchwToNhwc {
  static int launch(boltgen_move_args const& args, boltgen_status* status) {
    switch (args.target_c) {
      case 4:
        return args.pixels % 2 == 0 ? pixelwise<Interleave<Narrow, In, 4, 2>>(args, status)
                                    : pixelwise<Interleave<Narrow, In, 4, 1>>(args, status);
      case 8:
        return pixelwise<Interleave<Narrow, In, 8, 1>>(args, status);
      default:
        return launch_transpose<Narrow, In, TransposeToNhwc>(args, args.target_c, status);
    }
  }

 private:
  template <typename Body>
  static int pixelwise(boltgen_move_args const& args, boltgen_status* status) {
    return launch_move(move_kernel<Body>, Body::grid(args), 0, args, status, args);
  }
};

/// NHWC in `Narrow` to NCHW.
template <typename Narrow, typename Out>
struct NhwcToNchw {
  static int launch(boltgen_move_args const& args, boltgen_status* status) {
    return launch_transpose<Narrow, Out, TransposeToNchw>(args, args.source_c, status);
  }
};

template <typename Move>
int run_move(boltgen_move_args const* args, boltgen_status* status) {
  ArgumentCheck check(status);
  check.at_least("n", args->n, 1);
  check.at_least("pixels", args->pixels, 1);
  check.at_least("source_c", args->source_c, 1);
  check.at_least("target_c", args->target_c, 1);
  // The grid's y and z dimensions. Source: CUDA C++ Programming Guide, compute capabilities.
  check.at_most("n", args->n, 65535);
  check.at_most("source_c", args->source_c, 64 * 65535);
  check.at_most("target_c", args->target_c, 64 * 65535);
  check.pointer("source", args->source, 16, 1);
  check.pointer("target", args->target, 16, 1);
  return check.failed() ? check.code() : Move::launch(*args, status);
}

}  // namespace boltgen
