// Epilogues in interval arithmetic, in FP64: where the value of a right kernel may lie.
//
// The rules are those of boltgen/ir/interval.py; a test holds the two together. Generated kernels
// share nothing with this.

#pragma once

#include <cfloat>
#include <cmath>

#include "elements.cuh"
#include "profiler.h"

namespace boltgen::profiler {

struct Interval {
  double low;
  double high;
};

/// One ulp of an FP32 value is at most this fraction of it.
constexpr double kFloat32Ulp = 0x1p-23;

/// The end of a switch that has a case for everything: an unknown number stops the kernel.
__device__ inline double no_case() {
  __trap();
  return NAN;
}

__device__ inline Interval anything() { return {-INFINITY, INFINITY}; }

__device__ inline double finite_magnitude(double x) { return isfinite(x) ? fabs(x) : 0.0; }

// Like NumPy's, these pass NaN on; fmin and fmax do not.
__device__ inline double minimum(double x, double y) {
  return isnan(x) || isnan(y) ? NAN : fmin(x, y);
}
__device__ inline double maximum(double x, double y) {
  return isnan(x) || isnan(y) ? NAN : fmax(x, y);
}

// `unary_function` and `kUnaryFunctions`, which boltgen.codegen.oracle_functions makes of the rows
// of boltgen/ir/functions.py when the profiler is built.
#include "unary_functions.inc"

__device__ inline double function(profiler_node const& node, double x) {
  return unary_function(node.op - PROFILER_UNARY, x, node.constants[0], node.constants[1]);
}

__device__ inline double function(profiler_node const& node, double x, double y) {
  switch (node.op) {
    case PROFILER_ADD:
      return x + y;
    case PROFILER_SUBTRACT:
      return x - y;
    case PROFILER_MULTIPLY:
      return x * y;
    case PROFILER_DIVIDE:
      return x / y;
    case PROFILER_MAXIMUM:
      return maximum(x, y);
    case PROFILER_MINIMUM:
      return minimum(x, y);
    default:
      return no_case();
  }
}

/// Grows to the hull of the values that a function has at the corners of its domain.
class Hull {
 public:
  __device__ explicit Hull(double corner) : low_(corner), high_(corner), has_nan_(isnan(corner)) {}

  __device__ void add(double corner) {
    low_ = fmin(low_, corner);
    high_ = fmax(high_, corner);
    has_nan_ = has_nan_ || isnan(corner);
  }

  /// A NaN at some corners and not at others says nothing.
  __device__ Interval interval() const {
    return has_nan_ && !isnan(low_) ? anything() : Interval{low_, high_};
  }

 private:
  double low_, high_;
  bool has_nan_;
};

/// `x` after an FP32 operation: `ulps` of the value and an absolute part; FP32 may overflow.
__device__ inline Interval widened(Interval x, double ulps, double absolute) {
  double const relative = kFloat32Ulp * ulps;
  double const flush = ulps > 0.0 ? double(FLT_MIN) : 0.0;
  double const low = x.low - (relative * finite_magnitude(x.low) + absolute + flush);
  double const high = x.high + (relative * finite_magnitude(x.high) + absolute + flush);
  return {low < -double(FLT_MAX) ? -INFINITY : low, high > double(FLT_MAX) ? INFINITY : high};
}

__device__ inline Interval unary_image(profiler_node const& node, Interval x) {
  Hull hull(function(node, x.low));
  hull.add(function(node, x.high));
  if (x.low < node.turn && node.turn < x.high) {  // never where turn is NaN
    hull.add(function(node, node.turn));
  }
  Interval image = hull.interval();
  // x * f(x) tends to 0 at -inf; whether a kernel returns that or inf * 0 is its own affair.
  if (isnan(image.low) && isinf(x.low)) {
    image = anything();
  }
  double const magnitude = fmax(finite_magnitude(x.low), finite_magnitude(x.high));
  return widened(image, node.ulps, kFloat32Ulp * (node.input_ulps * magnitude + node.unit_ulps));
}

__device__ inline Interval binary_image(profiler_node const& node, Interval x, Interval y) {
  Hull hull(function(node, x.low, y.low));
  hull.add(function(node, x.low, y.high));
  hull.add(function(node, x.high, y.low));
  hull.add(function(node, x.high, y.high));
  Interval image = hull.interval();
  if (node.op == PROFILER_DIVIDE && y.low <= 0.0 && y.high >= 0.0) {
    image = anything();
  }
  return widened(image, node.ulps, 0.0);
}

__device__ inline double rounded(double x, int dtype) {
  switch (dtype) {
    case PROFILER_F16:
      return double(widened(narrowed<half>(x)));
    case PROFILER_BF16:
      return double(widened(narrowed<__nv_bfloat16>(x)));
    case PROFILER_F32:
      return double(float(x));
    default:
      return no_case();
  }
}

/// Rounds to nearest even, as if the exponent of `Element` had no upper end.
template <typename Element>
__device__ float rounded_unbounded(double x) {
  if (!(fabs(x) > Range<Element>::kMax) || isinf(x)) {
    return widened(narrowed<Element>(x));
  }
  constexpr int kDigits = Range<Element>::kDigits;
  int exponent;
  double const mantissa = frexp(x, &exponent);
  return float(ldexp(rint(ldexp(mantissa, kDigits)), exponent - kDigits));
}

__device__ inline float rounded_unbounded(double x, int dtype) {
  switch (dtype) {
    case PROFILER_F16:
      return rounded_unbounded<half>(x);
    case PROFILER_BF16:
      return rounded_unbounded<__nv_bfloat16>(x);
    case PROFILER_F32:
      return float(x);  // which holds the ends, so what overflows in it is infinite anyway
    default:
      return float(no_case());
  }
}

/// All values within the accumulation's error of `product`; certain infinities and NaN stay.
__device__ inline Interval accumulated(double product, double magnitude,
                                       profiler_rounding const& rounding) {
  double error = rounding.relative * magnitude + (magnitude > 0.0 ? rounding.absolute : 0.0);
  if (magnitude + error >= rounding.overflow) {
    error = INFINITY;
  }
  if (!isfinite(product)) {
    error = 0.0;
  }
  return {product - error, product + error};
}

}  // namespace boltgen::profiler
