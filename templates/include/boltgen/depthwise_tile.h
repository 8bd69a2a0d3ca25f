// The sums of depthwise convolutions of images in NHWC, in FP32: a thread's tile of the output.
//
// For each row of the filter a thread reads the pixels that the tile's rows meet. Pixels that tiles
// share come from L1 or L2. Nothing is staged in shared memory.

#pragma once

#include <cutlass/arch/memory.h>
#include <cutlass/array.h>
#include <cutlass/numeric_conversion.h>

#include "boltgen/launch.h"

namespace boltgen {

/// Columns of a filter that are known when the kernel is compiled: the pixels of a row that a tile
/// meets are then in registers.
template <int kTaps_, int kStride_, int kDilation_>
struct Window {
  static constexpr int kTaps = kTaps_;
  static constexpr int kStride = kStride_;
  static constexpr int kDilation = kDilation_;

  /// Pixels from the first that `columns` of the output meet to the last.
  static constexpr int span(int columns) {
    return (columns - 1) * kStride + (kTaps - 1) * kDilation + 1;
  }

  /// The column of the output whose `tap` meets that pixel of the span; -1 where none of so many.
  static constexpr int column(int pixel, int tap, int columns) {
    int const before = pixel - tap * kDilation;
    return before >= 0 && before % kStride == 0 && before / kStride < columns ? before / kStride
                                                                              : -1;
  }

  /// Whether any of `columns` of the output meets that pixel of the span.
  static constexpr bool meets(int pixel, int columns) {
    for (int tap = 0; tap < kTaps; ++tap) {
      if (column(pixel, tap, columns) >= 0) {
        return true;
      }
    }
    return false;
  }
};

/// Any other filter: a tile's pixels are read for each of its columns.
struct AnyWindow {
  static constexpr int kTaps = 0;
};

/// The sizes of a depthwise convolution, by the names of `boltgen_depthwise_args`.
struct DepthwiseSizes {
  int h, w, c, k, r, s, p, q;
  int pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w;

  explicit DepthwiseSizes(boltgen_depthwise_args const& args)
      : h(args.h),
        w(args.w),
        c(args.c),
        k(args.k),
        r(args.r),
        s(args.s),
        p(args.p),
        q(args.q),
        pad_h(args.pad_h),
        pad_w(args.pad_w),
        stride_h(args.stride_h),
        stride_w(args.stride_w),
        dilation_h(args.dilation_h),
        dilation_w(args.dilation_w) {}
};

/// One vector of channels of kRows x kColumns pixels of the output. Vectors have kVector_ of D's
/// channels, and kMultiplier_ neighbouring ones are of one channel of A.
template <typename Element_, int kVector_, int kMultiplier_, typename Filter_, int kRows_,
          int kColumns_>
struct DepthwiseTile {
  using Element = Element_;
  using Filter = Filter_;

  static constexpr int kVector = kVector_;
  static constexpr int kMultiplier = kMultiplier_;
  static constexpr int kVectorA = kVector >= kMultiplier ? kVector / kMultiplier : 1;
  static constexpr int kRows = kRows_;
  static constexpr int kColumns = kColumns_;
  static constexpr int kTaps = Filter::kTaps;
  static_assert(kVector % kMultiplier == 0 || kMultiplier % kVector == 0,
                "a vector of D is of one vector of A");

  using VectorA = cutlass::AlignedArray<Element, kVectorA>;
  using VectorB = cutlass::AlignedArray<Element, kVector>;
  using WideA = cutlass::Array<float, kVectorA>;
  using WideB = cutlass::Array<float, kVector>;

  DepthwiseSizes const& sizes;
  int row, column;   ///< of the output: the first ones
  Element const* a;  ///< the image, at the vector's channels
  Element const* b;  ///< the filters, at the vector's channels
  float sums[kRows][kColumns][kVector];

  /// `images` and `filters` are A and B; `channel` is the first one of the output.
  CUTLASS_DEVICE
  DepthwiseTile(DepthwiseSizes const& given, Element const* images, Element const* filters,
                int image, int first_row, int first_column, int channel)
      : sizes(given), row(first_row), column(first_column), b(filters + channel) {
    int64_t const pixels = int64_t(sizes.h) * sizes.w;
    a = images + image * pixels * sizes.c + channel / kMultiplier;
  }

  CUTLASS_DEVICE
  void compute() {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kRows * kColumns * kVector; ++i) {
      sums[i / (kColumns * kVector)][i / kVector % kColumns][i % kVector] = 0.0f;
    }
    CUTLASS_PRAGMA_NO_UNROLL
    for (int r = 0; r < sizes.r; ++r) {
      if constexpr (kTaps > 0) {
        add_row(r);
      } else {
        add_row_of_any(r);
      }
    }
  }

  /// Adds a row of the filter whose columns are known.
  CUTLASS_DEVICE
  void add_row(int r) {
    constexpr int kSpan = Filter::span(kColumns);
    WideB weights[kTaps];
    CUTLASS_PRAGMA_UNROLL
    for (int s = 0; s < kTaps; ++s) {
      weights[s] = widen(weight(r, s));
    }
    int const left = column * Filter::kStride - sizes.pad_w;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kRows; ++i) {
      VectorA pixels[kSpan];
      Row pixels_of(*this, i, r, left);
      CUTLASS_PRAGMA_UNROLL
      for (int x = 0; x < kSpan; ++x) {
        if (Filter::meets(x, kColumns)) {
          pixels_of.load(pixels[x]);
        }
        pixels_of.advance(1);
      }
      CUTLASS_PRAGMA_UNROLL
      for (int x = 0; x < kSpan; ++x) {
        if (Filter::meets(x, kColumns)) {
          WideA const pixel = widen(pixels[x]);
          CUTLASS_PRAGMA_UNROLL
          for (int s = 0; s < kTaps; ++s) {
            int const j = Filter::column(x, s, kColumns);
            if (j >= 0) {
              add(sums[i][j], pixel, weights[s]);
            }
          }
        }
      }
    }
  }

  /// Adds a row of a filter of any columns.
  CUTLASS_DEVICE
  void add_row_of_any(int r) {
    CUTLASS_PRAGMA_NO_UNROLL
    for (int s = 0; s < sizes.s; ++s) {
      WideB const weights = widen(weight(r, s));
      int const left = column * sizes.stride_w - sizes.pad_w + s * sizes.dilation_w;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kRows; ++i) {
        VectorA pixels[kColumns];
        Row pixels_of(*this, i, r, left);
        CUTLASS_PRAGMA_UNROLL
        for (int j = 0; j < kColumns; ++j) {
          pixels_of.load(pixels[j]);
          pixels_of.advance(sizes.stride_w);
        }
        CUTLASS_PRAGMA_UNROLL
        for (int j = 0; j < kColumns; ++j) {
          add(sums[i][j], widen(pixels[j]), weights);
        }
      }
    }
  }

  CUTLASS_DEVICE
  VectorB weight(int r, int s) const {
    return *reinterpret_cast<VectorB const*>(b + (r * sizes.s + s) * sizes.k);
  }

  /// Two halves at a time.
  template <typename Vector>
  CUTLASS_DEVICE static auto widen(Vector const& vector) {
    return cutlass::NumericArrayConverter<float, Element, Vector::kElements>()(vector);
  }

  CUTLASS_DEVICE
  static void add(float (&sum)[kVector], WideA const& pixel, WideB const& weight) {
    CUTLASS_PRAGMA_UNROLL
    for (int e = 0; e < kVector; ++e) {
      sum[e] += pixel[e / kMultiplier] * weight[e];
    }
  }

  /// Pixels of the row of the image that a row of the tile meets with one of the filter, from
  /// column `x` on; zeros around the image.
  struct Row {
    Element const* pixel;
    int x;
    int width;  ///< 0 where there is no such row
    int stride;

    CUTLASS_DEVICE
    Row(DepthwiseTile const& tile, int i, int r, int left) : x(left), stride(tile.sizes.c) {
      DepthwiseSizes const& sizes = tile.sizes;
      int const y = (tile.row + i) * sizes.stride_h - sizes.pad_h + r * sizes.dilation_h;
      pixel = tile.a + (int64_t(y) * sizes.w + left) * stride;
      width = unsigned(y) < unsigned(sizes.h) ? sizes.w : 0;
    }

    CUTLASS_DEVICE
    void load(VectorA& to) const {
      to.clear();
      cutlass::arch::global_load<VectorA, sizeof(VectorA)>(to, pixel,
                                                           unsigned(x) < unsigned(width));
    }

    CUTLASS_DEVICE
    void advance(int columns) {
      x += columns;
      pixel += int64_t(columns) * stride;
    }
  };
};

/// Checks sizes and operands of a depthwise convolution that tiles `Tile` compute.
template <typename Tile>
void check_depthwise_tile(ArgumentCheck& check, boltgen_depthwise_args const& args) {
  struct {
    char const* name;
    int value;
  } const extents[] = {{"n", args.n},
                       {"h", args.h},
                       {"w", args.w},
                       {"c", args.c},
                       {"k", args.k},
                       {"r", args.r},
                       {"s", args.s},
                       {"p", args.p},
                       {"q", args.q},
                       {"stride_h", args.stride_h},
                       {"stride_w", args.stride_w},
                       {"dilation_h", args.dilation_h},
                       {"dilation_w", args.dilation_w}};
  for (auto const& extent : extents) {
    check.at_least(extent.name, extent.value, 1);
  }
  check.at_least("pad_h", args.pad_h, 0);
  check.at_least("pad_w", args.pad_w, 0);
  check.equal("k", args.k, int64_t(args.c) * Tile::kMultiplier);
  if constexpr (Tile::kTaps > 0) {
    check.equal("s", args.s, Tile::kTaps);
    check.equal("stride_w", args.stride_w, Tile::Filter::kStride);
    check.equal("dilation_w", args.dilation_w, Tile::Filter::kDilation);
  }
  check.multiple("c", args.c, Tile::kVectorA);
  check.multiple("k", args.k, Tile::kVector);
  check.pointer("a", args.a, Tile::kVectorA, sizeof(typename Tile::Element));
  check.pointer("b", args.b, Tile::kVector, sizeof(typename Tile::Element));
}

}  // namespace boltgen
