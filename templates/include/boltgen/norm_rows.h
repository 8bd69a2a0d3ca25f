// The rows that norms are of: where they lie, and the arguments that say so.
//
// A row of a matrix is contiguous. Of images in NHWC a row is one group of channels: a few
// elements of each pixel, as far apart as a pixel has channels. Where these are fewer than a
// vector has, a row here is as many neighbouring groups as one vector spans, each with statistics
// of its own.

#pragma once

#include <cutlass/cutlass.h>
#include <cutlass/fast_math.h>

#include <climits>

#include "boltgen/abi.h"
#include "boltgen/arguments.h"

namespace boltgen {

/// Of a vector: the row and the first column in the matrix that a tensor is in memory.
struct Place {
  int64_t row;
  int column;
};

/// Rows of a matrix; each has its columns.
struct MatrixRows {
  using Args = boltgen_norm_args;

  static constexpr int kGroups = 1;

  int rows;
  int columns;
  int64_t lda;
  int64_t ldd;

  explicit MatrixRows(Args const& args)
      : rows(args.rows), columns(args.columns), lda(args.lda), ldd(args.ldd) {}

  /// Checks the sizes; a row has `most` elements.
  static void check(ArgumentCheck& check, Args const& args, int vector, int most) {
    check.at_least("rows", args.rows, 1);
    check.at_least("columns", args.columns, 1);
    check.at_most("columns", args.columns, most);
    check.multiple("columns", args.columns, vector);
    check.at_least("lda", args.lda, args.columns);
    check.multiple("lda", args.lda, vector);
    check.at_least("ldd", args.ldd, args.columns);
    check.multiple("ldd", args.ldd, vector);
  }

  /// Columns of the matrix that every full tensor is.
  static int matrix_columns(Args const& args) { return args.columns; }

  CUTLASS_DEVICE
  Place begin(int row) const { return {row, 0}; }

  CUTLASS_DEVICE
  Place at(Place const& begin, int element) const { return {begin.row, element}; }
};

/// kGroups_ neighbouring groups of channels of an image in NHWC, which is a matrix of pixels.
template <int kGroups_>
struct ImageRows {
  using Args = boltgen_image_norm_args;

  static constexpr int kGroups = kGroups_;

  int rows;
  int columns;
  int64_t lda;
  int64_t ldd;
  int pixels;
  cutlass::FastDivmod of_image;  ///< rows
  cutlass::FastDivmod of_pixel;  ///< elements of a row

  explicit ImageRows(Args const& args)
      : rows(args.n * (args.groups / kGroups)),
        columns(args.pixels * run(args)),
        lda(args.channels),
        ldd(args.channels),
        pixels(args.pixels),
        of_image(args.groups / kGroups),
        of_pixel(run(args)) {}

  static void check(ArgumentCheck& check, Args const& args, int vector, int most) {
    check.at_least("n", args.n, 1);
    check.at_least("pixels", args.pixels, 1);
    check.at_least("channels", args.channels, 1);
    check.at_least("groups", args.groups, 1);
    if (check.failed()) {
      return;
    }
    check.multiple("channels", args.channels, args.groups);
    check.multiple("groups", args.groups, kGroups);
    if (check.failed()) {
      return;
    }
    check.multiple("channels of a row", run(args), vector);
    if (kGroups > 1) {
      check.at_most("channels of a row", run(args), vector);
    }
    int64_t const elements = int64_t(args.pixels) * run(args);
    check.at_most("elements of a row", elements, most);
    check.at_most("rows", int64_t(args.n) * (args.groups / kGroups), INT_MAX);
  }

  static int matrix_columns(Args const& args) { return args.channels; }

  CUTLASS_DEVICE
  Place begin(int row) const {
    int image, place;
    of_image(image, place, row);
    return {int64_t(image) * pixels, place * of_pixel.divisor};
  }

  CUTLASS_DEVICE
  Place at(Place const& begin, int element) const {
    int pixel, within;
    of_pixel(pixel, within, element);
    return {begin.row + pixel, begin.column + within};
  }

 private:
  /// Elements of a row in each pixel.
  static int run(Args const& args) { return args.channels / args.groups * kGroups; }
};

}  // namespace boltgen
