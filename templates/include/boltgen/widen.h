// Vectors of elements to FP32 and back, two elements of 16 bits by one word.

#pragma once

#include <cutlass/array.h>
#include <cutlass/numeric_conversion.h>

#include <cstdint>

namespace boltgen {

/// The two elements of a word.
template <typename Element>
CUTLASS_DEVICE void widen_pair(float& low, float& high, uint32_t word);

template <>
CUTLASS_DEVICE void widen_pair<cutlass::half_t>(float& low, float& high, uint32_t word) {
  asm("{\n"
      "  .reg .b16 low, high;\n"
      "  mov.b32 {low, high}, %2;\n"
      "  cvt.f32.f16 %0, low;\n"
      "  cvt.f32.f16 %1, high;\n"
      "}"
      : "=f"(low), "=f"(high)
      : "r"(word));
}

/// A BF16 is the upper half of its FP32.
template <>
CUTLASS_DEVICE void widen_pair<cutlass::bfloat16_t>(float& low, float& high, uint32_t word) {
  low = __uint_as_float(word << 16);
  high = __uint_as_float(word & 0xffff0000u);
}

template <typename Element, int kCount>
CUTLASS_DEVICE void widen(float (&values)[kCount],
                          cutlass::AlignedArray<Element, kCount> const& vector) {
  if constexpr (sizeof(Element) == 2 && kCount % 2 == 0) {
    CUTLASS_PRAGMA_UNROLL
    for (int e = 0; e < kCount; e += 2) {
      widen_pair<Element>(values[e], values[e + 1],
                          reinterpret_cast<uint32_t const*>(&vector)[e / 2]);
    }
  } else {
    CUTLASS_PRAGMA_UNROLL
    for (int e = 0; e < kCount; ++e) {
      values[e] = float(Element(vector[e]));
    }
  }
}

template <typename Element, int kCount>
CUTLASS_DEVICE cutlass::AlignedArray<Element, kCount> narrow(float const (&values)[kCount]) {
  cutlass::AlignedArray<Element, kCount> vector;
  if constexpr (sizeof(Element) == 2 && kCount % 2 == 0) {
    CUTLASS_PRAGMA_UNROLL
    for (int e = 0; e < kCount; e += 2) {
      cutlass::Array<Element, 2> const pair =
          cutlass::NumericArrayConverter<Element, float, 2>()({values[e], values[e + 1]});
      reinterpret_cast<uint32_t*>(&vector)[e / 2] = reinterpret_cast<uint32_t const&>(pair);
    }
  } else {
    CUTLASS_PRAGMA_UNROLL
    for (int e = 0; e < kCount; ++e) {
      vector[e] = cutlass::NumericConverter<Element, float>()(values[e]);
    }
  }
  return vector;
}

}  // namespace boltgen
