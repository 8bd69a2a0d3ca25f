// Vectors of FP16, BF16 and FP32 elements, as moves load and store them.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace boltgen {

constexpr int kMoveThreads = 256;

/// The bits of an FP16 number: unlike CUDA's `half`, vectors of them are moved in one access.
enum class Half : uint16_t {};
/// The same of a BF16 number.
enum class Bfloat16 : uint16_t {};

/// An element as a move takes it, in the two bytes in which kernels compute.
template <typename Narrow>
__device__ inline Narrow narrowed(Narrow value) {
  return value;
}
template <typename Narrow>
__device__ inline Narrow narrowed(float value) {
  if constexpr (std::is_same<Narrow, Half>::value) {
    return Half(__half_as_ushort(__float2half_rn(value)));
  } else {
    return Bfloat16(__bfloat16_as_ushort(__float2bfloat16_rn(value)));
  }
}

/// And back: as `T`, which is FP32 or the same.
template <typename T, typename Narrow>
__device__ inline T widened(Narrow value) {
  if constexpr (std::is_same<T, Narrow>::value) {
    return value;
  } else if constexpr (std::is_same<Narrow, Half>::value) {
    return __half2float(__ushort_as_half(uint16_t(value)));
  } else {
    return __bfloat162float(__ushort_as_bfloat16(uint16_t(value)));
  }
}

/// Elements that are loaded and stored in one access, from a multiple of their size.
///
/// They are kept as words that are put together by hand: compilers take a struct of small elements
/// apart and store those.
template <typename T, int kLength>
struct Vector {
  static_assert(std::is_same<T, float>::value || std::is_same<T, Half>::value ||
                    std::is_same<T, Bfloat16>::value,
                "moves know FP32 and the bits of FP16 and BF16");
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
