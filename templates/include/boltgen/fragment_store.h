// Results from the registers of a fragment to global memory.

#pragma once

#include <cutlass/array.h>
#include <cutlass/numeric_conversion.h>

namespace boltgen {

/// Stores as many of two neighbouring results as there are columns, at once where kPaired.
template <typename Element, bool kPaired>
CUTLASS_DEVICE void store_pair(Element* target, cutlass::Array<float, 2> const& pair, int columns) {
  auto const results = cutlass::NumericArrayConverter<Element, float, 2>()(pair);
  if constexpr (kPaired) {
    if (columns > 0) {
      *reinterpret_cast<cutlass::AlignedArray<Element, 2>*>(target) =
          reinterpret_cast<cutlass::AlignedArray<Element, 2> const&>(results);
    }
  } else {
    CUTLASS_PRAGMA_UNROLL
    for (int e = 0; e < 2; ++e) {
      if (e < columns) {
        target[e] = results[e];
      }
    }
  }
}

}  // namespace boltgen
