// Keys that a mask hides from all rows of a sequence: padding, where sequences of a batch have
// lengths of their own. A threadblock finds the first and the last key that none of its masks hides
// before it begins, and goes along the keys between the two.
//
// Each warp searches by itself, from both ends at once, and reads little more than what is skipped:
// where nothing is hidden, 128 keys at either end. Even all of a mask is little beside K and V: an
// element for each key, where these have a row each, of which every tile of rows reads all.
//
// Which loads are masks, boltgen/ir/key_masks.py says.

#pragma once

#include <cutlass/cutlass.h>
#include <math_constants.h>

#include <type_traits>

#include "boltgen/b2b_epilogue.h"

namespace boltgen {

/// A row that hides keys with -inf; where kHidden_ is not 0, with any number up to it too, from
/// rows that see a key that has 0 or more.
template <typename Element_, int kHidden_ = 0>
struct KeyMask : Row<Element_> {
  static constexpr bool kIsFinite = kHidden_ != 0;

  CUTLASS_DEVICE static float number(boltgen_operand const& operand, int key) {
    return float(static_cast<Element_ const*>(operand.pointer)[key]);
  }

  CUTLASS_DEVICE static bool hides(float number) {
    return kIsFinite ? number <= float(kHidden_) : number == -CUDART_INF_F;
  }
};

template <typename Element, int kHidden, bool kPaired>
class FragmentOperand<KeyMask<Element, kHidden>, kPaired>
    : public FragmentOperand<Row<Element>, kPaired> {
 public:
  using FragmentOperand<Row<Element>, kPaired>::FragmentOperand;
};

/// What any operand, and what a mask, says of a key.
template <typename Operand>
struct KeysOf {
  static constexpr bool kIsMask = false, kIsFinite = false;

  CUTLASS_DEVICE static bool has(boltgen_operand const&, int) { return true; }
  CUTLASS_DEVICE static bool shows(boltgen_operand const&, int) { return true; }
};

template <typename Element, int kHidden>
struct KeysOf<KeyMask<Element, kHidden>> {
  using Mask = KeyMask<Element, kHidden>;
  static constexpr bool kIsMask = true, kIsFinite = Mask::kIsFinite;

  CUTLASS_DEVICE static bool has(boltgen_operand const& mask, int key) {
    return !Mask::hides(Mask::number(mask, key));
  }

  /// Whether a row that sees the key has a score beside which what is hidden is nothing.
  CUTLASS_DEVICE static bool shows(boltgen_operand const& mask, int key) {
    return !kIsFinite || Mask::number(mask, key) >= 0.0f;
  }
};

/// The first and the last of some keys; -1 where there are none.
struct KeyRange {
  int first;
  int last;

  CUTLASS_DEVICE bool is_found() const { return first >= 0 && last >= 0; }
};

/// The masks among the operands of a graph, as one head has them.
template <typename OperandTypes>
struct KeyMasks;

template <typename... Operand>
struct KeyMasks<Operands<Operand...>> {
  static constexpr bool kAny = (KeysOf<Operand>::kIsMask || ...);
  static constexpr bool kFinite = (KeysOf<Operand>::kIsFinite || ...);

  /// Whether no mask hides a key.
  CUTLASS_DEVICE static bool has([[maybe_unused]] boltgen_operand const* operands,
                                 [[maybe_unused]] int key) {
    [[maybe_unused]] int index = 0;
    bool has_all = true;
    ((has_all &= KeysOf<Operand>::has(operands[index++], key)), ...);
    return has_all;
  }

  CUTLASS_DEVICE static bool shows([[maybe_unused]] boltgen_operand const* operands,
                                   [[maybe_unused]] int key) {
    [[maybe_unused]] int index = 0;
    bool shows_all = true;
    ((shows_all &= KeysOf<Operand>::shows(operands[index++], key)), ...);
    return shows_all;
  }

  /// Those of [begin, end) that no mask hides. All lanes of a warp ask, and all have the answer.
  CUTLASS_DEVICE static KeyRange find(boltgen_operand const* operands, int begin, int end) {
    int const lane = int(threadIdx.x) % 32;
    KeyRange range{-1, -1};
    for (int left = end - begin; left > 0 && !range.is_found(); left -= 32 * kAtOnce) {
      bool from_front[kAtOnce], from_back[kAtOnce];
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        int const ahead = 32 * i + lane;
        bool const exists = ahead < left;
        from_front[i] = exists && range.first < 0 && has(operands, end - left + ahead);
        from_back[i] = exists && range.last < 0 && has(operands, begin + left - 1 - ahead);
      }
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        unsigned const front = __ballot_sync(0xffffffffu, from_front[i]);
        unsigned const back = __ballot_sync(0xffffffffu, from_back[i]);
        if (range.first < 0 && front != 0) {
          range.first = end - left + 32 * i + __ffs(int(front)) - 1;
        }
        if (range.last < 0 && back != 0) {
          range.last = begin + left - 32 * i - __ffs(int(back));
        }
      }
    }
    return range;
  }

 private:
  /// Keys of a lane whose numbers are on the way together: 128 of a warp.
  static constexpr int kAtOnce = 4;
};

}  // namespace boltgen
