// The softmax of rows between two layers: from where the scores lie to where what is multiplied
// does. The rules are those of boltgen/ir/softmax.py; a test holds the two together.

#include "interval.cuh"
#include "process.h"

namespace boltgen::profiler {
namespace {

/// What decides a row before any sum is made.
struct RowFacts {
  double greatest = -INFINITY;  ///< of the upper ends
  bool is_undefined = false;    ///< a NaN or an infinity is certain
  bool may_overflow = false;
  bool all_low = true;   ///< every lower end is -inf
  bool all_high = true;  ///< every upper end is
};

__device__ RowFacts facts_of(float const* low, float const* high, uint64_t columns) {
  RowFacts facts;
  for (uint64_t i = 0; i < columns; ++i) {
    facts.greatest = maximum(facts.greatest, double(high[i]));
    facts.is_undefined = facts.is_undefined || isnan(low[i]) || low[i] == INFINITY;
    facts.may_overflow = facts.may_overflow || high[i] == INFINITY;
    facts.all_low = facts.all_low && low[i] == -INFINITY;
    facts.all_high = facts.all_high && high[i] == -INFINITY;
  }
  facts.is_undefined = facts.is_undefined || facts.all_high;
  return facts;
}

__device__ void fill(float* low, float* high, uint64_t columns, Interval value) {
  for (uint64_t i = 0; i < columns; ++i) {
    low[i] = float(value.low);
    high[i] = float(value.high);
  }
}

/// Puts the ends of a row's softmax in the place of those of its scores.
__device__ void enclose_row(float* low, float* high, uint64_t columns,
                            profiler_softmax_rounding const& rounding) {
  RowFacts const facts = facts_of(low, high, columns);
  if (facts.is_undefined) {
    return fill(low, high, columns, {NAN, NAN});
  }
  if (facts.may_overflow || facts.all_low) {
    return fill(low, high, columns, anything());
  }
  double least_sum = 0.0, most_sum = 0.0;
  for (uint64_t i = 0; i < columns; ++i) {
    least_sum += exp(double(low[i]) - facts.greatest);
    most_sum += exp(double(high[i]) - facts.greatest);
  }
  for (uint64_t i = 0; i < columns; ++i) {
    double const least = exp(double(low[i]) - facts.greatest);
    double const most = exp(double(high[i]) - facts.greatest);
    double const span = finite_magnitude(double(low[i]) - facts.greatest);
    double const error = expm1(rounding.fixed + rounding.of_difference * span);
    double const flushed = high[i] == -INFINITY ? 0.0 : rounding.flushed;
    double from = least / (least + fmax(most_sum - most, 0.0));
    double to = most / (most + fmax(least_sum - least, 0.0));
    from = fmax(from * (1.0 - error) - flushed, 0.0);
    to = to * (1.0 + error) + flushed;
    double const stored = to > 0.0 ? rounding.relative * to + rounding.absolute : 0.0;
    low[i] = __double2float_rd(from - stored);
    high[i] = __double2float_ru(to + stored);
  }
}

/// Hides the columns behind the diagonal, which ends the last of `sequence` rows; and all but so
/// many as the `window` up to it, if there is one.
__device__ void hide(float* low, float* high, uint64_t columns, uint64_t row, uint64_t sequence,
                     uint64_t window) {
  uint64_t const behind = sequence - 1 - row % sequence;
  uint64_t const seen = behind < columns ? columns - behind : 0;
  uint64_t const before = window > 0 && seen > window ? seen - window : 0;
  for (uint64_t i = 0; i < before; ++i) {
    low[i] = high[i] = -INFINITY;
  }
  for (uint64_t i = seen; i < columns; ++i) {
    low[i] = high[i] = -INFINITY;
  }
}

__global__ void enclose_rows(float* low, float* high, uint64_t rows, uint64_t columns,
                             uint64_t sequence, uint64_t window,
                             profiler_softmax_rounding rounding) {
  uint64_t const stride = uint64_t(gridDim.x) * blockDim.x;
  for (uint64_t row = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; row < rows; row += stride) {
    if (sequence > 0) {
      hide(low + row * columns, high + row * columns, columns, row, sequence, window);
    }
    enclose_row(low + row * columns, high + row * columns, columns, rounding);
  }
}

}  // namespace
}  // namespace boltgen::profiler

int profiler_softmax(float* low, float* high, uint64_t rows, uint64_t columns, uint64_t sequence,
                     uint64_t window, profiler_softmax_rounding const* rounding,
                     profiler_status* status) {
  using namespace boltgen::profiler;
  unsigned const threads = 64;
  uint64_t const wanted = (rows + threads - 1) / threads;
  unsigned const blocks = unsigned(wanted < 4096 ? wanted : 4096);
  enclose_rows<<<blocks, threads, 0, stream()>>>(low, high, rows, columns, sequence, window,
                                                 *rounding);
  cudaError_t const error = cudaGetLastError();
  return error == cudaSuccess ? finish(status, "softmax")
                              : fail(status, error, "launch of softmax");
}
