// Vectors of FP16 and FP32 elements, as moves load and store them.

#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace boltgen {

constexpr int kMoveThreads = 256;

/// The bits of an FP16 number: unlike CUDA's `half`, vectors of them are moved in one access.
using Half = uint16_t;

__device__ inline Half to_half(float value) { return __half_as_ushort(__float2half_rn(value)); }
__device__ inline Half to_half(Half value) { return value; }
template <typename T>
__device__ inline T from_half(Half value);
template <>
__device__ inline float from_half<float>(Half value) {
  return __half2float(__ushort_as_half(value));
}
template <>
__device__ inline Half from_half<Half>(Half value) {
  return value;
}

/// Elements that are loaded and stored in one access, from a multiple of their size.
///
/// They are kept as words that are put together by hand: compilers take a struct of small elements
/// apart and store those.
template <typename T, int kLength>
struct Vector {
  static_assert(std::is_same<T, float>::value || std::is_same<T, Half>::value,
                "moves know FP32 and the bits of FP16");
  static constexpr int kBytes = kLength * int(sizeof(T));
  static constexpr int kWords = kBytes < 4 ? 1 : kBytes / 4;

  uint32_t words[kWords] = {};

  __device__ T get(int i) const {
    if constexpr (sizeof(T) == 4) {
      return __uint_as_float(words[i]);
    } else {
      return T(words[i / 2] >> (i % 2 * 16));
    }
  }

  /// Sets an element that is zero so far.
  __device__ void set(int i, T value) {
    if constexpr (sizeof(T) == 4) {
      words[i] = __float_as_uint(value);
    } else {
      words[i / 2] |= uint32_t(value) << (i % 2 * 16);
    }
  }

  __device__ static Vector load(void const* from) {
    Vector vector;
    if constexpr (kBytes == 16) {
      auto const [x, y, z, w] = *static_cast<uint4 const*>(from);
      vector.words[0] = x, vector.words[1] = y, vector.words[2] = z, vector.words[3] = w;
    } else if constexpr (kBytes == 8) {
      auto const [x, y] = *static_cast<uint2 const*>(from);
      vector.words[0] = x, vector.words[1] = y;
    } else if constexpr (kBytes == 4) {
      vector.words[0] = *static_cast<uint32_t const*>(from);
    } else {
      vector.words[0] = *static_cast<uint16_t const*>(from);
    }
    return vector;
  }

  __device__ void store(void* to) const {
    if constexpr (kBytes == 16) {
      *static_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    } else if constexpr (kBytes == 8) {
      *static_cast<uint2*>(to) = make_uint2(words[0], words[1]);
    } else {
      static_assert(kBytes == 4, "narrower vectors go to global memory only");
      *static_cast<uint32_t*>(to) = words[0];
    }
  }

  /// The same to global memory, by an instruction that the compiler cannot take apart.
  __device__ void store_global(void* to) const {
    if constexpr (kBytes == 16) {
      __stwb(static_cast<uint4*>(to), make_uint4(words[0], words[1], words[2], words[3]));
    } else if constexpr (kBytes == 8) {
      __stwb(static_cast<uint2*>(to), make_uint2(words[0], words[1]));
    } else if constexpr (kBytes == 4) {
      __stwb(static_cast<uint32_t*>(to), words[0]);
    } else {
      *static_cast<uint16_t*>(to) = uint16_t(words[0]);
    }
  }
};

/// How many elements of `T` the widest access has.
template <typename T>
constexpr int kWidest = 16 / int(sizeof(T));

}  // namespace boltgen
