// The operands of a depthwise convolution's graph, and its further results, for a thread: it has
// one vector of channels of neighbouring pixels of one image.

#pragma once

#include <type_traits>

#include "boltgen/norm_operands.h"
#include "boltgen/reductions.h"

namespace boltgen {

/// An operand of which all of a thread's pixels have the same vector: it is loaded once.
template <typename Operand>
struct Fixed : Operand {};

template <typename Operand, int kVector>
class VectorOperand<Fixed<Operand>, kVector> : public VectorOperand<Operand, kVector> {
 public:
  using VectorOperand<Operand, kVector>::VectorOperand;

  CUTLASS_DEVICE
  void load(Place const& place, bool) {
    if (!is_loaded_) {  // known when the loops over pixels are unrolled
      VectorOperand<Operand, kVector>::load(place, true);
      is_loaded_ = true;
    }
  }

 private:
  bool is_loaded_ = false;
};

template <typename Operand>
struct OfPixels {
  using Type = Operand;
};

template <typename Element>
struct OfPixels<Row<Element>> {
  using Type = Fixed<Row<Element>>;
};

template <typename Element>
struct OfPixels<SliceRow<Element>> {
  using Type = Fixed<SliceRow<Element>>;
};

template <typename... Operand>
struct OfPixels<Operands<Operand...>> {
  using Type = Operands<typename OfPixels<Operand>::Type...>;
};

template <typename Loads, typename... Result>
struct OfPixels<OperandsAndResults<Loads, Result...>> {
  using Type = OperandsAndResults<typename OfPixels<Loads>::Type, Result...>;
};

/// One number for each channel of each image: those of a thread's pixels are added at its end, in
/// FP32 whatever the result's type is.
template <typename Element, typename Reduction, int kVector>
class VectorResult<Reduced<Row<Element>, Reduction>, kVector> {
 public:
  CUTLASS_DEVICE
  explicit VectorResult(boltgen_operand const& result)
      : pointer_(static_cast<float*>(const_cast<void*>(result.pointer))), rows_each_(result.ld) {
    CUTLASS_PRAGMA_UNROLL
    for (int e = 0; e < kVector; ++e) {
      sums_[e] = Reduction::empty();
    }
  }

  VectorResult(VectorResult const&) = delete;
  VectorResult& operator=(VectorResult const&) = delete;

  CUTLASS_DEVICE
  void put(float value, int element) { values_[element] = value; }

  CUTLASS_DEVICE
  void store(Place const& place, bool inside) {
    CUTLASS_PRAGMA_UNROLL
    for (int e = 0; e < kVector; ++e) {
      sums_[e] = inside ? Reduction::merge(sums_[e], Reduction::term(values_[e])) : sums_[e];
    }
  }

  /// Adds what the thread has of the image that `first`, its first pixel, is in.
  CUTLASS_DEVICE
  void finish(Place const& first, int columns) const {
    float* const row = pointer_ + first.row / rows_each_ * columns + first.column;
    CUTLASS_PRAGMA_UNROLL
    for (int e = 0; e < kVector; ++e) {
      Reduction::add(row + e, sums_[e]);
    }
  }

 private:
  float* pointer_;
  int64_t rows_each_;
  float values_[kVector];
  float sums_[kVector];
};

/// Whether a result is a sum that is rounded to a narrower type than FP32.
template <typename Result>
struct IsRoundedSum : std::false_type {};

template <typename Element>
struct IsRoundedSum<Reduced<Row<Element>, Sum>>
    : std::bool_constant<!std::is_same<Element, float>::value> {};

/// The place of the one rounded sum among the operands of a graph; -1 without any.
template <typename OperandTypes>
struct RoundedSum {
  static constexpr int kIndex = -1;
};

template <typename Loads, typename... Result>
struct RoundedSum<OperandsAndResults<Loads, Result...>> {
  static_assert((int(IsRoundedSum<Result>::value) + ...) <= 1, "one sum is rounded");

  static constexpr int index() {
    int place = Loads::kCount, found = -1;
    ((found = IsRoundedSum<Result>::value ? place : found, ++place), ...);
    return found;
  }

  static constexpr int kIndex = index();
};

}  // namespace boltgen
