// What im2col TMA can bring of a convolution's activation.

#pragma once

#include <cstdint>

#include "boltgen/arguments.h"

namespace boltgen {

/// Pixels of padding behind the last one that has any; p and q imply them.
inline int padding_behind(int extent, int size, int filter, int stride, int dilation, int padding) {
  int const implied = (extent - 1) * stride + dilation * (filter - 1) + 1 - size - padding;
  return implied > 0 ? implied : 0;
}

/// What a tensor map can say of a convolution.
inline void check_im2col(ArgumentCheck& check, boltgen_conv2d_args const& args) {
  struct {
    char const* name;
    int value;
  } const extents[] = {{"n", args.n}, {"h", args.h}, {"w", args.w}, {"c", args.c}, {"k", args.k},
                       {"r", args.r}, {"s", args.s}, {"p", args.p}, {"q", args.q}};
  for (auto const& extent : extents) {
    check.at_least(extent.name, extent.value, 1);
  }
  // What a tensor map can say. Source: CUDA driver API, cuTensorMapEncodeIm2col.
  constexpr int kMostStride = 8, kMostReach = 254, kMostPadding = 128;
  struct {
    char const* name;
    int value, least, most;
  } const limits[] = {
      {"stride_h", args.stride_h, 1, kMostStride},
      {"stride_w", args.stride_w, 1, kMostStride},
      {"dilation_h", args.dilation_h, 1, kMostReach},
      {"dilation_w", args.dilation_w, 1, kMostReach},
      {"pad_h", args.pad_h, 0, kMostPadding},
      {"pad_w", args.pad_w, 0, kMostPadding},
  };
  for (auto const& limit : limits) {
    check.at_least(limit.name, limit.value, limit.least);
    check.at_most(limit.name, limit.value, limit.most);
  }
  check.at_most("rows of the filter's reach", int64_t(args.r - 1) * args.dilation_h, kMostReach);
  check.at_most("columns of the filter's reach", int64_t(args.s - 1) * args.dilation_w, kMostReach);
  check.at_most("rows of D", int64_t(args.n) * args.p * args.q, INT32_MAX);
}

}  // namespace boltgen
