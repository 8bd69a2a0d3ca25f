// How an elementwise operation runs on 32 lanes. Compiled once per instruction set.
//
// Every variant must give the same bits, so: no contraction (-ffp-contract=off), fused operations
// by name only, NaN results in the GPU's canonical form, and no libm function whose result depends
// on the CPU. No std:: container or algorithm may be instantiated here: the linker would keep one
// copy of it, and that copy might need AVX-512.
#pragma once

#include <cstring>
#include <utility>

#include "exec/op_table.h"
#include "exec/types.h"
#include "exec/warp.h"

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#define VGPU_INLINE inline __attribute__((always_inline))

namespace vgpu::VGPU_ISA {

template <class To, class From>
VGPU_INLINE To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

// --- half precision: plain integer and float arithmetic that the compiler vectorises -------------

VGPU_INLINE float half_to_float(u32 bits) {
  const u32 sign = (bits & 0x8000u) << 16;
  const u32 magnitude = bits & 0x7fffu;
  const u32 normal = (magnitude << 13) + (112u << 23);
  const u32 subnormal = bit_cast<u32>(static_cast<float>(static_cast<s32>(magnitude)) * 0x1p-24f);
  const u32 special = magnitude == 0x7c00u ? 0x7f800000u : 0x7fffffffu;
  u32 result = magnitude < 0x400u ? subnormal : normal;
  result = magnitude >= 0x7c00u ? special : result;
  return bit_cast<float>(result | (magnitude > 0x7c00u ? 0 : sign));
}

// Round to nearest even.
VGPU_INLINE u32 float_to_half(float value) {
  const u32 bits = bit_cast<u32>(value);
  const u32 sign = (bits >> 16) & 0x8000u;
  const u32 magnitude = bits & 0x7fffffffu;
  const u32 normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
  // Adding 0.5 puts the last bit of a half subnormal (2^-24) at the last bit of the sum.
  const u32 subnormal = bit_cast<u32>(bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  u32 result = magnitude < 0x38800000u ? subnormal : normal;
  result = magnitude >= 0x477ff000u ? 0x7c00u : result;
  return magnitude > 0x7f800000u ? 0x7fffu : (result | sign);
}

// Through a float that is rounded to odd, so the second rounding cannot go wrong.
VGPU_INLINE u32 double_to_half(double value) {
  const float nearest = static_cast<float>(value);
  u32 bits = bit_cast<u32>(nearest);
  const double back = nearest;
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  const bool inexact = back != value && finite;
  const double larger = back < 0 ? -back : back;
  const double wanted = value < 0 ? -value : value;
  bits -= (inexact && larger > wanted) ? 1u : 0u;
  bits |= inexact ? 1u : 0u;
  return float_to_half(bit_cast<float>(bits));
}

VGPU_INLINE float bfloat_to_float(u32 bits) { return bit_cast<float>(bits << 16); }

VGPU_INLINE u32 float_to_bfloat(float value) {
  const u32 bits = bit_cast<u32>(value);
  const u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded;
}

// --- operand types: how a lane is stored, and what the operation sees
// -----------------------------

template <class T>
struct Integer {
  using Value = T;
  using Lane = u32;
  static constexpr char kCode = 'w';
  static constexpr bool kSigned = static_cast<T>(-1) < static_cast<T>(0);
  static VGPU_INLINE Value load(Lane x) { return static_cast<T>(x); }
  // A narrow signed result fills its slot sign-extended; readers look at the low bits only.
  static VGPU_INLINE Lane store(Value v) {
    return kSigned ? static_cast<u32>(static_cast<s32>(v)) : static_cast<u32>(v);
  }
};
template <class T>
struct Wide {
  using Value = T;
  using Lane = u64;
  static constexpr char kCode = 'd';
  static constexpr bool kSigned = static_cast<T>(-1) < static_cast<T>(0);
  static VGPU_INLINE Value load(Lane x) { return static_cast<T>(x); }
  static VGPU_INLINE Lane store(Value v) { return static_cast<u64>(v); }
};
using U8 = Integer<u8>;
using S8 = Integer<s8>;
using U16 = Integer<u16>;
using S16 = Integer<s16>;
using U32 = Integer<u32>;
using S32 = Integer<s32>;
using U64 = Wide<u64>;
using S64 = Wide<s64>;

struct F32 {
  using Value = float;
  using Lane = u32;
  static constexpr char kCode = 'w';
  static constexpr bool kSigned = false;
  static VGPU_INLINE Value load(Lane x) { return bit_cast<float>(x); }
  static VGPU_INLINE Lane store(Value v) { return v != v ? 0x7fffffffu : bit_cast<u32>(v); }
};
struct F64 {
  using Value = double;
  using Lane = u64;
  static constexpr char kCode = 'd';
  static constexpr bool kSigned = false;
  static VGPU_INLINE Value load(Lane x) { return bit_cast<double>(x); }
  static VGPU_INLINE Lane store(Value v) {
    return v != v ? 0xfff8000000000000ull : bit_cast<u64>(v);
  }
};
struct F16 {
  using Value = float;
  using Lane = u32;
  static constexpr char kCode = 'w';
  static constexpr bool kSigned = false;
  static VGPU_INLINE Value load(Lane x) { return half_to_float(x & 0xffffu); }
  static VGPU_INLINE Lane store(Value v) { return float_to_half(v); }
};
struct BF16 {
  using Value = float;
  using Lane = u32;
  static constexpr char kCode = 'w';
  static constexpr bool kSigned = false;
  static VGPU_INLINE Value load(Lane x) { return bfloat_to_float(x & 0xffffu); }
  static VGPU_INLINE Lane store(Value v) { return float_to_bfloat(v); }
};
// A predicate operand: one bit a lane.
struct Pred {
  using Value = bool;
  static constexpr char kCode = 'p';
  static constexpr bool kSigned = false;
};

// --- access to the register file
// -------------------------------------------------------------------

template <class Lane>
VGPU_INLINE Lane* slot(Warp& w, const Ins& i, int operand) {
  return reinterpret_cast<Lane*>(
      __builtin_assume_aligned(w.registers + i.ops[operand], sizeof(Lane) == 8 ? 64 : 64));
}
VGPU_INLINE u32& predicate(Warp& w, const Ins& i, int operand) {
  return *reinterpret_cast<u32*>(w.registers + i.ops[operand]);
}
VGPU_INLINE u32* words(Warp& w, const Ins& i, int operand) { return slot<u32>(w, i, operand); }
VGPU_INLINE u64* doubles(Warp& w, const Ins& i, int operand) { return slot<u64>(w, i, operand); }
VGPU_INLINE bool has(const Ins& i, int operand) { return i.ops[operand] != kNoSlot; }

VGPU_INLINE void set_predicate(Warp& w, const Ins& i, int operand, u32 value, u32 mask) {
  u32& p = predicate(w, i, operand);
  p = (p & ~mask) | (value & mask);
}

template <class Lane>
VGPU_INLINE void blend(Lane* to, const Lane* from, u32 mask) {
  for (int l = 0; l < kWarpSize; ++l) to[l] = (mask >> l & 1u) ? from[l] : to[l];
}

// Bit l is set when value[l] is not zero.
VGPU_INLINE u32 pack_mask(const u32* value) {
#if defined(__AVX512F__)
  const __m512i low = _mm512_loadu_si512(value);
  const __m512i high = _mm512_loadu_si512(value + 16);
  return static_cast<u32>(_mm512_test_epi32_mask(low, low)) |
         static_cast<u32>(_mm512_test_epi32_mask(high, high)) << 16;
#elif defined(__AVX2__)
  u32 zero = 0;
  for (int q = 0; q < 4; ++q) {
    const __m256i eight = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(value) + q);
    const __m256i is_zero = _mm256_cmpeq_epi32(eight, _mm256_setzero_si256());
    zero |= static_cast<u32>(_mm256_movemask_ps(_mm256_castsi256_ps(is_zero))) << (8 * q);
  }
  return ~zero;
#else
  u32 mask = 0;
  for (int l = 0; l < kWarpSize; ++l) mask |= static_cast<u32>(value[l] != 0) << l;
  return mask;
#endif
}

template <class T>
struct Source {
  const typename T::Lane* lanes;
  VGPU_INLINE Source(Warp& w, const Ins& i, int operand)
      : lanes(slot<typename T::Lane>(w, i, operand)) {}
  VGPU_INLINE typename T::Value operator[](int l) const { return T::load(lanes[l]); }
};
template <>
struct Source<Pred> {
  u32 bits;
  VGPU_INLINE Source(Warp& w, const Ins& i, int operand) : bits(predicate(w, i, operand)) {}
  VGPU_INLINE bool operator[](int l) const { return bits >> l & 1u; }
};

template <class F, class D, class... S>
VGPU_INLINE void lanewise(Warp& w, const Ins& i, u32 mask, Source<S>... source) {
  if constexpr (D::kCode == 'p') {
    alignas(64) u32 result[kWarpSize];
    for (int l = 0; l < kWarpSize; ++l) result[l] = F{}(source[l]...) ? 1u : 0u;
    set_predicate(w, i, 0, pack_mask(result), mask);
  } else {
    using Lane = typename D::Lane;
    alignas(64) Lane partial[kWarpSize];
    Lane* const to = slot<Lane>(w, i, 0);
    Lane* const out = mask == kFullMask ? to : partial;
    // A destination may be a source, but never shifted against it: slots do not overlap partly.
#pragma GCC ivdep
    for (int l = 0; l < kWarpSize; ++l) {
      out[l] = D::store(static_cast<typename D::Value>(F{}(source[l]...)));
    }
    if (out == partial) blend(to, partial, mask);
  }
}

template <class F, class D, class... S, size_t... K>
VGPU_INLINE void lanewise_indexed(Warp& w, const Ins& i, u32 mask, std::index_sequence<K...>) {
  lanewise<F, D, S...>(w, i, mask, Source<S>(w, i, static_cast<int>(K) + 1)...);
}

template <class F, class D, class... S>
Status elementwise(Warp& w, const Ins& i, u32 mask) {
  lanewise_indexed<F, D, S...>(w, i, mask, std::index_sequence_for<S...>());
  return Status::kNext;
}

// Predicates only: all lanes are the bits of one word.
template <class F, class... S, size_t... K>
VGPU_INLINE void bitwise_indexed(Warp& w, const Ins& i, u32 mask, std::index_sequence<K...>) {
  set_predicate(w, i, 0, F{}(predicate(w, i, static_cast<int>(K) + 1)...), mask);
}
template <class F, class... S>
Status bitwise(Warp& w, const Ins& i, u32 mask) {
  bitwise_indexed<F, S...>(w, i, mask, std::index_sequence_for<S...>());
  return Status::kNext;
}

template <class... T>
inline constexpr char kCodes[] = {T::kCode..., '\0'};

template <class D, class... S, class F>
void add(OpTable& table, const char* name, F) {
  table.put(name, {&elementwise<F, D, S...>, kCodes<D>, kCodes<S...>, true, D::kSigned});
}

// F works on the words that hold the predicates.
template <class... S, class F>
void add_predicate(OpTable& table, const char* name, F) {
  table.put(name, {&bitwise<F, S...>, kCodes<Pred>, kCodes<S...>, true, false});
}

// An operation that is a function of its own. `results` and `sources` spell its operands.
inline void add_function(OpTable& table, const char* name, OpFn fn, const char* results,
                         const char* sources, bool sign = false) {
  table.put(name, {fn, results, sources, false, sign});
}
// One that executes a run of its instructions at once.
inline void add_run(OpTable& table, const char* name, OpFn fn, const char* results,
                    const char* sources) {
  table.put(name, {fn, results, sources, false, false, true});
}

// The parts of an operation's name, joined by dots.
struct Name {
  char text[48];
  explicit Name(const char* a, const char* b = "", const char* c = "", const char* d = "") {
    text[0] = '\0';
    for (const char* part : {a, b, c, d}) {
      if (!*part) continue;
      if (*text) std::strcat(text, ".");
      std::strcat(text, part);
    }
  }
};

template <class F>
VGPU_INLINE void for_lanes(u32 mask, F f) {
  for (; mask; mask &= mask - 1) f(__builtin_ctz(mask));
}

void register_integer(OpTable&);
void register_packed(OpTable&);
void register_float(OpTable&);
void register_convert(OpTable&);
void register_memory(OpTable&);
void register_atomic(OpTable&);
void register_warp(OpTable&);
void register_matrix(OpTable&);
void register_matrix_integer(OpTable&);
void register_matrix_volta(OpTable&);
void register_warpgroup(OpTable&);
void register_registers(OpTable&);

}  // namespace vgpu::VGPU_ISA
