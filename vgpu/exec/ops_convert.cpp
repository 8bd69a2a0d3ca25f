// cvt: every pair of types, rounding and saturation that PTX has below 128 bits.
#include "exec/math.h"

namespace vgpu::VGPU_ISA {
namespace {

template <class T>
VGPU_INLINE double lowest() {
  return static_cast<T>(-1) < 0 ? -static_cast<double>(1ull << (sizeof(T) * 8 - 1)) : 0.0;
}
// The first value above the range: a power of two, so exact.
template <class T>
VGPU_INLINE double beyond() {
  constexpr int kBits = static_cast<int>(sizeof(T) * 8) - (static_cast<T>(-1) < 0 ? 1 : 0);
  return kBits == 64 ? 0x1p64 : static_cast<double>(1ull << (kBits & 63));
}
template <class T>
VGPU_INLINE T highest() {
  constexpr int kBits = static_cast<int>(sizeof(T) * 8) - (static_cast<T>(-1) < 0 ? 1 : 0);
  return static_cast<T>(~0ull >> (64 - kBits));
}

// `value` is already rounded to an integer. NaN gives zero, or the top bit where 64 bits are
// involved.
template <class T, bool kNanIsTopBit>
VGPU_INLINE T clamp_to(double value) {
  T result;
  if (sizeof(T) == 8 && static_cast<T>(-1) > 0) {
    // x86 converts to signed only, below AVX-512.
    const bool top = value >= 0x1p63;
    const double reduced = top ? value - 0x1p63 : value;
    const double bounded = reduced > 0 && reduced < 0x1p63 ? reduced : 0.0;
    result = static_cast<T>(static_cast<u64>(static_cast<s64>(bounded)) + (top ? 1ull << 63 : 0));
  } else {
    const bool inside = value > lowest<T>() && value < beyond<T>();
    result = static_cast<T>(static_cast<s64>(inside ? value : 0.0));
  }
  result = value >= beyond<T>() ? highest<T>() : result;
  result = value <= lowest<T>()
               ? static_cast<T>(static_cast<T>(-1) < 0 ? 1ull << (sizeof(T) * 8 - 1) : 0)
               : result;
  return value != value ? static_cast<T>(kNanIsTopBit ? 1ull << (sizeof(T) * 8 - 1) : 0) : result;
}

VGPU_INLINE double to_nearest(double x) { return __builtin_rint(x); }
VGPU_INLINE double to_zero(double x) { return __builtin_trunc(x); }
VGPU_INLINE double to_lower(double x) { return __builtin_floor(x); }
VGPU_INLINE double to_upper(double x) { return __builtin_ceil(x); }

template <class D, class S>
void float_to_integer(OpTable& t, const char* to, const char* from) {
  using T = typename D::Value;
  constexpr bool kTop = sizeof(T) == 8 || S::kCode == 'd';
  using V = typename S::Value;
  add<D, S>(t, Name("cvt.rni", to, from).text,
            [](V a) { return clamp_to<T, kTop>(to_nearest(a)); });
  add<D, S>(t, Name("cvt.rzi", to, from).text, [](V a) { return clamp_to<T, kTop>(to_zero(a)); });
  add<D, S>(t, Name("cvt.rmi", to, from).text, [](V a) { return clamp_to<T, kTop>(to_lower(a)); });
  add<D, S>(t, Name("cvt.rpi", to, from).text, [](V a) { return clamp_to<T, kTop>(to_upper(a)); });
}

// Rounding to a half towards zero, or away from it when `up` says so for an inexact value.
VGPU_INLINE u32 half_directed(float value, bool up_positive, bool up_negative) {
  const u32 bits = bit_cast<u32>(value);
  const u32 sign = bits >> 16 & 0x8000u;
  const u32 magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fffu;
  if (magnitude == 0x7f800000u) return sign | 0x7c00u;
  u32 truncated;
  if (magnitude >= 0x47800000u) {
    truncated = 0x7bffu;  // past the largest half: inexact
  } else if (magnitude >= 0x38800000u) {
    truncated = (magnitude - (112u << 23)) >> 13;
  } else {
    truncated = static_cast<u32>(bit_cast<float>(magnitude) * 0x1p24f);
  }
  const bool inexact = half_to_float(truncated) != bit_cast<float>(magnitude);
  if (inexact && (sign ? up_negative : up_positive)) ++truncated;
  return sign | truncated;
}

VGPU_INLINE u32 bfloat_truncated(float value) {
  const u32 bits = bit_cast<u32>(value);
  return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : bits >> 16;
}

VGPU_INLINE u32 bfloat_directed(float value, bool up_positive, bool up_negative) {
  const u32 bits = bit_cast<u32>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  const bool up = (bits >> 31) ? up_negative : up_positive;
  return (bits >> 16) + ((up && (bits & 0xffffu)) ? 1u : 0u);
}

// An integer in the bits of a float: one that does not fit is cut, and its last bit set (rounded
// to odd), so that rounding to a narrower type afterwards cannot go wrong.
template <class T>
VGPU_INLINE float float_to_odd(T value) {
  const bool negative = value < 0;
  const u64 magnitude = negative ? 0 - static_cast<u64>(value) : static_cast<u64>(value);
  const int excess = magnitude >> 24 ? 40 - __builtin_clzll(magnitude | 1) : 0;
  const u64 cut = magnitude >> excess;
  const u64 odd = cut << excess != magnitude ? 1 : 0;
  const float scale = bit_cast<float>(static_cast<u32>(excess + 127) << 23);
  const float result = static_cast<float>(static_cast<s32>(cut | odd)) * scale;
  return negative ? -result : result;
}

template <class D, class S>
void integer_pair(OpTable& t, const char* to, const char* from) {
  using A = typename S::Value;
  using B = typename D::Value;
  add<D, S>(t, Name("cvt", to, from).text, [](A a) { return static_cast<B>(a); });
  add<D, S>(t, Name("cvt.sat", to, from).text, [](A a) {
    const s128 v = a;
    const s128 high = highest<B>();
    const s128 low = static_cast<B>(-1) < 0 ? -high - 1 : 0;
    return static_cast<B>(v > high ? high : v < low ? low : v);
  });
}

template <class S>
void from_integer(OpTable& t, const char* from) {
  using T = typename S::Value;
  integer_pair<U8, S>(t, "u8", from);
  integer_pair<S8, S>(t, "s8", from);
  integer_pair<U16, S>(t, "u16", from);
  integer_pair<S16, S>(t, "s16", from);
  integer_pair<U32, S>(t, "u32", from);
  integer_pair<S32, S>(t, "s32", from);
  integer_pair<U64, S>(t, "u64", from);
  integer_pair<S64, S>(t, "s64", from);
  // Rounding other than to nearest goes through the control word.
  add<F32, S>(t, Name("cvt.f32", from).text, [](T a) { return static_cast<float>(a); });
  add<F64, S>(t, Name("cvt.f64", from).text, [](T a) { return static_cast<double>(a); });
  // Everything that a half can hold, and the overflow threshold 65520, are exact in 53 bits.
  add<U32, S>(t, Name("cvt.f16", from).text,
              [](T a) { return double_to_half(static_cast<double>(a)); });
  add<U32, S>(t, Name("cvt.rz.f16", from).text,
              [](T a) { return half_directed(float_to_odd(a), false, false); });
  add<U32, S>(t, Name("cvt.rm.f16", from).text,
              [](T a) { return half_directed(float_to_odd(a), false, true); });
  add<U32, S>(t, Name("cvt.rp.f16", from).text,
              [](T a) { return half_directed(float_to_odd(a), true, false); });
  add<U32, S>(t, Name("cvt.bf16", from).text, [](T a) { return float_to_bfloat(float_to_odd(a)); });
  add<U32, S>(t, Name("cvt.rz.bf16", from).text,
              [](T a) { return bfloat_truncated(float_to_odd(a)); });
  add<U32, S>(t, Name("cvt.rm.bf16", from).text,
              [](T a) { return bfloat_directed(float_to_odd(a), false, true); });
  add<U32, S>(t, Name("cvt.rp.bf16", from).text,
              [](T a) { return bfloat_directed(float_to_odd(a), true, false); });
}

template <class S>
void from_float(OpTable& t, const char* from) {
  float_to_integer<U8, S>(t, "u8", from);
  float_to_integer<S8, S>(t, "s8", from);
  float_to_integer<U16, S>(t, "u16", from);
  float_to_integer<S16, S>(t, "s16", from);
  float_to_integer<U32, S>(t, "u32", from);
  float_to_integer<S32, S>(t, "s32", from);
  float_to_integer<U64, S>(t, "u64", from);
  float_to_integer<S64, S>(t, "s64", from);
  using V = typename S::Value;
  add<S, S>(t, Name("cvt.rni", from, from).text, [](V a) { return static_cast<V>(to_nearest(a)); });
  add<S, S>(t, Name("cvt.rzi", from, from).text, [](V a) { return static_cast<V>(to_zero(a)); });
  add<S, S>(t, Name("cvt.rmi", from, from).text, [](V a) { return static_cast<V>(to_lower(a)); });
  add<S, S>(t, Name("cvt.rpi", from, from).text, [](V a) { return static_cast<V>(to_upper(a)); });
  add<S, S>(t, Name("cvt", from, from).text, [](V a) { return a; });
}

// A double in the bits of a float, its last bit set where it is not exact.
VGPU_INLINE float double_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  u32 bits = bit_cast<u32>(nearest);
  const bool inexact = static_cast<double>(nearest) != value && (bits & 0x7f800000u) != 0x7f800000u;
  const double larger = nearest < 0 ? -static_cast<double>(nearest) : static_cast<double>(nearest);
  bits -= (inexact && larger > (value < 0 ? -value : value)) ? 1u : 0u;
  return bit_cast<float>(bits | (inexact ? 1u : 0u));
}

VGPU_INLINE u32 to_tf32(float value, u32 half, bool even) {
  const u32 bits = bit_cast<u32>(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return value != value ? 0x7fffffffu : bits;
  return (bits + half + (even ? bits >> 13 & 1u : 0u)) & ~0x1fffu;
}

// Eight bits with kBias and kMantissa bits of fraction; `kLargest` is the largest finite one. To
// nearest even; what is too large becomes the largest.
template <int kBias, int kMantissa, u32 kLargest>
struct Small {
  static VGPU_INLINE u32 from(float value) {
    const u32 bits = bit_cast<u32>(value);
    const u32 sign = bits >> 24 & 0x80u;
    const u32 magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7fu;
    constexpr int kCut = 23 - kMantissa;
    constexpr u32 kLeastNormal = static_cast<u32>(128 - kBias) << 23;
    // At this exponent the last bit of a float is that of the subnormals.
    constexpr u32 kMagic = static_cast<u32>(128 - kBias - kMantissa + 23) << 23;
    u32 result;
    if (magnitude < kLeastNormal) {
      result = bit_cast<u32>(bit_cast<float>(magnitude) + bit_cast<float>(kMagic)) - kMagic;
    } else {
      const u32 rounded = magnitude + (1u << (kCut - 1)) - 1 + (magnitude >> kCut & 1u);
      result = (rounded >> kCut) - (static_cast<u32>(127 - kBias) << kMantissa);
    }
    return sign | (result > kLargest ? kLargest : result);
  }
};
using E4m3 = Small<7, 3, 0x7e>;
using E5m2 = Small<15, 2, 0x7b>;

// As a half, which holds every value of both types.
VGPU_INLINE u32 e4m3_to_half(u32 byte) {
  const u32 sign = (byte & 0x80u) << 8;
  const u32 magnitude = byte & 0x7fu;
  if (magnitude == 0x7fu) return 0x7fffu;
  if (magnitude >= 8) return sign | ((magnitude << 7) + (8u << 10));
  return sign | float_to_half(static_cast<float>(static_cast<s32>(magnitude)) * 0x1p-9f);
}
VGPU_INLINE u32 e5m2_to_half(u32 byte) {
  return (byte & 0x7fu) > 0x7cu ? 0x7fffu : (byte & 0xffu) << 8;
}
// NaN is positive, so a sign means a negative number.
VGPU_INLINE u32 no_negatives(u32 bytes) { return bytes & ~((bytes >> 7 & 0x0101u) * 0xffu); }

template <class S>
void to_eight_bits(OpTable& t, const char* type) {
  // The first source goes to the upper byte.
  add<U32, F32, F32>(t, Name("cvt", type, "f32").text,
                     [](float a, float b) { return S::from(a) << 8 | S::from(b); });
  add<U32, U32>(t, Name("cvt", type, "f16x2").text, [](u32 a) {
    return S::from(half_to_float(a >> 16)) << 8 | S::from(half_to_float(a & 0xffff));
  });
  add<U32, U32>(t, Name("relu", type).text, [](u32 a) { return no_negatives(a); });
}

// A one in each half that is infinite.
template <u32 kInfinity>
VGPU_INLINE u32 infinities(u32 a) {
  return ((a & 0x7fffu) == kInfinity ? 1u : 0u) |
         ((a >> 16 & 0x7fffu) == kInfinity ? 0x10000u : 0u);
}

void between_floats(OpTable& t) {
  add<F64, F32>(t, "cvt.f64.f32", [](float a) { return static_cast<double>(a); });
  add<F32, F64>(t, "cvt.f32.f64", [](double a) { return static_cast<float>(a); });
  add<F32, F16>(t, "cvt.f32.f16", [](float a) { return a; });
  add<F64, F16>(t, "cvt.f64.f16", [](float a) { return static_cast<double>(a); });
  add<F32, BF16>(t, "cvt.f32.bf16", [](float a) { return a; });
  add<F64, BF16>(t, "cvt.f64.bf16", [](float a) { return static_cast<double>(a); });
  add<F16, F32>(t, "cvt.f16.f32", [](float a) { return a; });
  add<U32, F64>(t, "cvt.f16.f64", [](double a) { return double_to_half(a); });
  add<BF16, F32>(t, "cvt.bf16.f32", [](float a) { return a; });
  add<F16, BF16>(t, "cvt.f16.bf16", [](float a) { return a; });
  add<BF16, F16>(t, "cvt.bf16.f16", [](float a) { return a; });
  add<U32, F32>(t, "cvt.rz.f16.f32", [](float a) { return half_directed(a, false, false); });
  add<U32, F32>(t, "cvt.rm.f16.f32", [](float a) { return half_directed(a, false, true); });
  add<U32, F32>(t, "cvt.rp.f16.f32", [](float a) { return half_directed(a, true, false); });
  add<U32, F32>(t, "cvt.rz.bf16.f32", [](float a) { return bfloat_truncated(a); });
  add<U32, F32>(t, "cvt.rm.bf16.f32", [](float a) { return bfloat_directed(a, false, true); });
  add<U32, F32>(t, "cvt.rp.bf16.f32", [](float a) { return bfloat_directed(a, true, false); });
  add<U32, F64>(t, "cvt.bf16.f64", [](double a) { return float_to_bfloat(double_to_odd(a)); });
  add<U32, F32>(t, "cvt.rna.tf32.f32", [](float a) { return to_tf32(a, 0x1000u, false); });
  add<U32, F32>(t, "cvt.tf32.f32", [](float a) { return to_tf32(a, 0xfffu, true); });
  add<U32, F32>(t, "cvt.rz.tf32.f32", [](float a) { return to_tf32(a, 0, false); });
  add<F32, F32>(t, "relu.tf32", [](float a) { return a < 0 ? 0.0f : a; });
  // Instead of infinity the largest number.
  add<U32, U32>(t, "satfinite.tf32", [](u32 a) { return a << 1 == 0xff000000u ? a - 0x2000u : a; });
  add<U32, U32>(t, "satfinite.f16", [](u32 a) { return (a & 0x7fff) == 0x7c00 ? a - 1 : a; });
  add<U32, U32>(t, "satfinite.bf16", [](u32 a) { return (a & 0x7fff) == 0x7f80 ? a - 1 : a; });
  add<U32, U32>(t, "satfinite.f16x2", [](u32 a) { return a - infinities<0x7c00>(a); });
  add<U32, U32>(t, "satfinite.bf16x2", [](u32 a) { return a - infinities<0x7f80>(a); });
  to_eight_bits<E4m3>(t, "e4m3x2");
  to_eight_bits<E5m2>(t, "e5m2x2");
  add<U32, U32>(t, "cvt.f16x2.e4m3x2",
                [](u32 a) { return e4m3_to_half(a & 0xff) | e4m3_to_half(a >> 8 & 0xff) << 16; });
  add<U32, U32>(t, "cvt.f16x2.e5m2x2",
                [](u32 a) { return e5m2_to_half(a & 0xff) | e5m2_to_half(a >> 8 & 0xff) << 16; });
  // The first source goes to the upper half.
  add<U32, F32, F32>(t, "cvt.f16x2.f32",
                     [](float a, float b) { return float_to_half(a) << 16 | float_to_half(b); });
  add<U32, F32, F32>(t, "cvt.bf16x2.f32", [](float a, float b) {
    return float_to_bfloat(a) << 16 | float_to_bfloat(b);
  });
  add<U32, F32, F32>(t, "cvt.rz.f16x2.f32", [](float a, float b) {
    return half_directed(a, false, false) << 16 | half_directed(b, false, false);
  });
  add<U32, F32, F32>(t, "cvt.rz.bf16x2.f32", [](float a, float b) {
    return bfloat_truncated(a) << 16 | bfloat_truncated(b);
  });
}

}  // namespace

void register_convert(OpTable& t) {
  from_integer<U8>(t, "u8");
  from_integer<S8>(t, "s8");
  from_integer<U16>(t, "u16");
  from_integer<S16>(t, "s16");
  from_integer<U32>(t, "u32");
  from_integer<S32>(t, "s32");
  from_integer<U64>(t, "u64");
  from_integer<S64>(t, "s64");
  from_float<F32>(t, "f32");
  from_float<F64>(t, "f64");
  from_float<F16>(t, "f16");
  from_float<BF16>(t, "bf16");
  between_floats(t);
}

}  // namespace vgpu::VGPU_ISA
