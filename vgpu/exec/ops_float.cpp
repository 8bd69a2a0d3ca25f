// Floating-point arithmetic in f32, f64, f16, bf16 and the packed pairs of the last two.
//
// Operations are registered without .rn, .approx and .ftz: lowering strips those, and wraps an
// operation whose rounding mode or subnormal handling is not the default (see control_word).
#include "exec/math.h"

namespace vgpu::VGPU_ISA {
namespace {

template <class N>
void comparisons(OpTable& t, const char* type) {
  using T = typename N::Value;
  add<Pred, N, N>(t, Name("setp.eq", type).text, [](T a, T b) { return a == b; });
  add<Pred, N, N>(t, Name("setp.ne", type).text, [](T a, T b) { return a < b || a > b; });
  add<Pred, N, N>(t, Name("setp.lt", type).text, [](T a, T b) { return a < b; });
  add<Pred, N, N>(t, Name("setp.le", type).text, [](T a, T b) { return a <= b; });
  add<Pred, N, N>(t, Name("setp.gt", type).text, [](T a, T b) { return a > b; });
  add<Pred, N, N>(t, Name("setp.ge", type).text, [](T a, T b) { return a >= b; });
  add<Pred, N, N>(t, Name("setp.equ", type).text, [](T a, T b) { return !(a < b || a > b); });
  add<Pred, N, N>(t, Name("setp.neu", type).text, [](T a, T b) { return a != b; });
  add<Pred, N, N>(t, Name("setp.ltu", type).text, [](T a, T b) { return !(a >= b); });
  add<Pred, N, N>(t, Name("setp.leu", type).text, [](T a, T b) { return !(a > b); });
  add<Pred, N, N>(t, Name("setp.gtu", type).text, [](T a, T b) { return !(a <= b); });
  add<Pred, N, N>(t, Name("setp.geu", type).text, [](T a, T b) { return !(a < b); });
  add<Pred, N, N>(t, Name("setp.num", type).text, [](T a, T b) { return a == a && b == b; });
  add<Pred, N, N>(t, Name("setp.nan", type).text, [](T a, T b) { return a != a || b != b; });
}

template <class N>
void arithmetic(OpTable& t, const char* type) {
  using T = typename N::Value;
  add<N, N, N>(t, Name("add", type).text, [](T a, T b) { return a + b; });
  add<N, N, N>(t, Name("sub", type).text, [](T a, T b) { return a - b; });
  add<N, N, N>(t, Name("mul", type).text, [](T a, T b) { return a * b; });
  add<N, N, N>(t, Name("min", type).text, [](T a, T b) { return minimum(a, b); });
  add<N, N, N>(t, Name("max", type).text, [](T a, T b) { return maximum(a, b); });
  add<N, N, N>(t, Name("min.NaN", type).text, [](T a, T b) { return minimum_nan(a, b); });
  add<N, N, N>(t, Name("max.NaN", type).text, [](T a, T b) { return maximum_nan(a, b); });
  add<N, N>(t, Name("saturate", type).text,
            [](T a) { return a > T(0) ? (a < T(1) ? a : T(1)) : T(0); });
  add<N, N>(t, Name("relu", type).text, [](T a) { return a < T(0) ? T(0) : a; });
  comparisons<N>(t, type);
}

template <class N>
void divisions(OpTable& t, const char* type) {
  using T = typename N::Value;
  add<N, N, N>(t, Name("div", type).text, [](T a, T b) { return a / b; });
  add<N, N>(t, Name("rcp", type).text, [](T a) { return T(1) / a; });
  if constexpr (sizeof(T) == 8) {
    add<N, N>(t, Name("sqrt", type).text, [](T a) { return __builtin_sqrt(a); });
    add<N, N, N, N>(t, Name("fma", type).text,
                    [](T a, T b, T c) { return __builtin_fma(a, b, c); });
  } else {
    add<N, N>(t, Name("sqrt", type).text, [](T a) { return __builtin_sqrtf(a); });
    add<N, N, N, N>(t, Name("fma", type).text,
                    [](T a, T b, T c) { return __builtin_fmaf(a, b, c); });
  }
}

// By the bits of the exponent and of the fraction.
template <class N>
void tests(OpTable& t, const char* type) {
  using U = typename N::Value;
  constexpr U kExponent = sizeof(U) == 4 ? 0x7f800000u : 0x7ff0000000000000ull;
  constexpr U kAll = kExponent | (sizeof(U) == 4 ? 0x7fffffu : 0xfffffffffffffull);
  add<Pred, N>(t, Name("testp.finite", type).text,
               [](U a) { return (a & kExponent) != kExponent; });
  add<Pred, N>(t, Name("testp.infinite", type).text, [](U a) { return (a & kAll) == kExponent; });
  add<Pred, N>(t, Name("testp.number", type).text, [](U a) { return (a & kAll) <= kExponent; });
  add<Pred, N>(t, Name("testp.notanumber", type).text, [](U a) { return (a & kAll) > kExponent; });
  add<Pred, N>(t, Name("testp.normal", type).text,
               [](U a) { return (a & kExponent) != 0 && (a & kExponent) != kExponent; });
  add<Pred, N>(t, Name("testp.subnormal", type).text,
               [](U a) { return (a & kExponent) == 0 && (a & kAll) != 0; });
}

void special_functions(OpTable& t) {
  add<F32, F32>(t, "ex2.f32", [](float a) { return exp2_float(a); });
  add<F32, F32>(t, "lg2.f32", [](float a) { return log2_float(a); });
  add<F32, F32>(t, "sin.f32", [](float a) { return sine(a); });
  add<F32, F32>(t, "cos.f32", [](float a) { return cosine(a); });
  add<F32, F32>(t, "tanh.f32", [](float a) { return tanh_float(a); });
  add<F32, F32>(t, "rsqrt.f32", [](float a) { return rsqrt_float(a); });
  add<F64, F64>(t, "rsqrt.f64", [](double a) { return 1.0 / __builtin_sqrt(a); });
  // The sign bit, whatever the rest: a NaN keeps its payload.
  add<U32, U32>(t, "neg.f32", [](u32 a) { return a ^ 0x80000000u; });
  add<U32, U32>(t, "abs.f32", [](u32 a) { return a & 0x7fffffffu; });
  add<U64, U64>(t, "neg.f64", [](u64 a) { return a ^ 1ull << 63; });
  add<U64, U64>(t, "abs.f64", [](u64 a) { return a & ~(1ull << 63); });
  add<U32, U32, U32>(t, "copysign.f32",
                     [](u32 a, u32 b) { return (a & 0x80000000u) | (b & 0x7fffffffu); });
  add<U64, U64, U64>(t, "copysign.f64",
                     [](u64 a, u64 b) { return (a & 1ull << 63) | (b & ~(1ull << 63)); });
  tests<U32>(t, "f32");
  tests<U64>(t, "f64");
}

// min and max of magnitudes, with the product's sign, unless the result is NaN.
template <bool kMaximum, bool kNan>
VGPU_INLINE float extreme_magnitude(float a, float b) {
  const u32 x = bit_cast<u32>(a);
  const u32 y = bit_cast<u32>(b);
  const float u = bit_cast<float>(x & 0x7fffffffu);
  const float v = bit_cast<float>(y & 0x7fffffffu);
  const float found = kNan ? (kMaximum ? maximum_nan(u, v) : minimum_nan(u, v))
                           : (kMaximum ? maximum(u, v) : minimum(u, v));
  const u32 sign = (x ^ y) & 0x80000000u;
  return found != found ? found : bit_cast<float>(bit_cast<u32>(found) | sign);
}
template <class N>
void magnitudes(OpTable& t, const char* type) {
  add<N, N, N>(t, Name("min.xorsign.abs", type).text,
               [](float a, float b) { return extreme_magnitude<false, false>(a, b); });
  add<N, N, N>(t, Name("max.xorsign.abs", type).text,
               [](float a, float b) { return extreme_magnitude<true, false>(a, b); });
  add<N, N, N>(t, Name("min.NaN.xorsign.abs", type).text,
               [](float a, float b) { return extreme_magnitude<false, true>(a, b); });
  add<N, N, N>(t, Name("max.NaN.xorsign.abs", type).text,
               [](float a, float b) { return extreme_magnitude<true, true>(a, b); });
}

// min or max of three, or of their magnitudes.
template <bool kMaximum, bool kNan, bool kMagnitude>
void add_extreme_of_three(OpTable& t, const char* name) {
  add<F32, F32, F32, F32>(t, name, [](float a, float b, float c) {
    const auto value = [](float x) {
      return kMagnitude ? bit_cast<float>(bit_cast<u32>(x) & 0x7fffffffu) : x;
    };
    const auto of_two = [](float x, float y) {
      return kNan ? (kMaximum ? maximum_nan(x, y) : minimum_nan(x, y))
                  : (kMaximum ? maximum(x, y) : minimum(x, y));
    };
    return of_two(of_two(value(a), value(b)), value(c));
  });
}
void extremes_of_three(OpTable& t) {
  add_extreme_of_three<false, false, false>(t, "min.of3.f32");
  add_extreme_of_three<false, false, true>(t, "min.abs.of3.f32");
  add_extreme_of_three<false, true, false>(t, "min.NaN.of3.f32");
  add_extreme_of_three<false, true, true>(t, "min.NaN.abs.of3.f32");
  add_extreme_of_three<true, false, false>(t, "max.of3.f32");
  add_extreme_of_three<true, false, true>(t, "max.abs.of3.f32");
  add_extreme_of_three<true, true, false>(t, "max.NaN.of3.f32");
  add_extreme_of_three<true, true, true>(t, "max.NaN.abs.of3.f32");
}

// A product of two halves is exact in double, and the sum's rounding to 53 bits can not turn a
// value into a midpoint of the 11-bit result.
template <class N>
VGPU_INLINE u32 fused_small(u32 a, u32 b, u32 c) {
  const double exact =
      static_cast<double>(N::load(a & 0xffff)) * static_cast<double>(N::load(b & 0xffff)) +
      static_cast<double>(N::load(c & 0xffff));
  if constexpr (std::is_same_v<N, F16>) return double_to_half(exact);
  const float nearest = static_cast<float>(exact);
  u32 bits = bit_cast<u32>(nearest);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  const bool inexact = static_cast<double>(nearest) != exact && finite;
  const double larger = nearest < 0 ? -static_cast<double>(nearest) : static_cast<double>(nearest);
  bits -= (inexact && larger > (exact < 0 ? -exact : exact)) ? 1u : 0u;
  return float_to_bfloat(bit_cast<float>(bits | (inexact ? 1u : 0u)));
}

template <class N, class F>
VGPU_INLINE u32 pairwise(F f, u32 a, u32 b) {
  return N::store(f(N::load(a & 0xffff), N::load(b & 0xffff))) |
         N::store(f(N::load(a >> 16), N::load(b >> 16))) << 16;
}

// What .ftz makes of a source or result.
template <u32 kExponent>
VGPU_INLINE u32 flush_small(u32 a) {
  return a & kExponent ? a & 0xffffu : a & 0x8000u;
}
template <u32 kExponent>
void flushes(OpTable& t, const char* type, const char* pair) {
  add<U32, U32>(t, Name("flush", type).text, [](u32 a) { return flush_small<kExponent>(a); });
  add<U32, U32>(t, Name("flush", pair).text, [](u32 a) {
    return flush_small<kExponent>(a) | flush_small<kExponent>(a >> 16) << 16;
  });
}

template <class N>
void small_floats(OpTable& t, const char* type, const char* pair) {
  arithmetic<N>(t, type);
  magnitudes<N>(t, type);
  add<U32, U32>(t, Name("neg", type).text, [](u32 a) { return (a ^ 0x8000u) & 0xffffu; });
  add<U32, U32>(t, Name("abs", type).text, [](u32 a) { return a & 0x7fffu; });
  add<U32, U32>(t, Name("neg", pair).text, [](u32 a) { return a ^ 0x80008000u; });
  add<U32, U32>(t, Name("abs", pair).text, [](u32 a) { return a & 0x7fff7fffu; });
  add<N, N>(t, Name("ex2", type).text, [](float a) { return exp2_float(a); });
  add<N, N>(t, Name("tanh", type).text, [](float a) { return tanh_float(a); });
  add<U32, U32>(t, Name("ex2", pair).text, [](u32 a) {
    return pairwise<N>([](float x, float) { return exp2_float(x); }, a, a);
  });
  add<U32, U32>(t, Name("tanh", pair).text, [](u32 a) {
    return pairwise<N>([](float x, float) { return tanh_float(x); }, a, a);
  });
  add<U32, U32, U32, U32>(t, Name("fma", type).text,
                          [](u32 a, u32 b, u32 c) { return fused_small<N>(a, b, c); });
  add<U32, U32, U32, U32>(t, Name("fma", pair).text, [](u32 a, u32 b, u32 c) {
    return fused_small<N>(a, b, c) | fused_small<N>(a >> 16, b >> 16, c >> 16) << 16;
  });
  add<U32, U32, U32>(t, Name("add", pair).text, [](u32 a, u32 b) {
    return pairwise<N>([](float x, float y) { return x + y; }, a, b);
  });
  add<U32, U32, U32>(t, Name("sub", pair).text, [](u32 a, u32 b) {
    return pairwise<N>([](float x, float y) { return x - y; }, a, b);
  });
  add<U32, U32, U32>(t, Name("mul", pair).text, [](u32 a, u32 b) {
    return pairwise<N>([](float x, float y) { return x * y; }, a, b);
  });
  add<U32, U32, U32>(t, Name("min", pair).text, [](u32 a, u32 b) {
    return pairwise<N>([](float x, float y) { return minimum(x, y); }, a, b);
  });
  add<U32, U32, U32>(t, Name("max", pair).text, [](u32 a, u32 b) {
    return pairwise<N>([](float x, float y) { return maximum(x, y); }, a, b);
  });
  add<U32, U32, U32>(t, Name("min.NaN", pair).text, [](u32 a, u32 b) {
    return pairwise<N>([](float x, float y) { return minimum_nan(x, y); }, a, b);
  });
  add<U32, U32, U32>(t, Name("max.NaN", pair).text, [](u32 a, u32 b) {
    return pairwise<N>([](float x, float y) { return maximum_nan(x, y); }, a, b);
  });
  add<U32, U32, U32>(t, Name("min.xorsign.abs", pair).text, [](u32 a, u32 b) {
    return pairwise<N>([](float x, float y) { return extreme_magnitude<false, false>(x, y); }, a,
                       b);
  });
  add<U32, U32, U32>(t, Name("min.NaN.xorsign.abs", pair).text, [](u32 a, u32 b) {
    return pairwise<N>([](float x, float y) { return extreme_magnitude<false, true>(x, y); }, a, b);
  });
  add<U32, U32, U32>(t, Name("max.xorsign.abs", pair).text, [](u32 a, u32 b) {
    return pairwise<N>([](float x, float y) { return extreme_magnitude<true, false>(x, y); }, a, b);
  });
  add<U32, U32, U32>(t, Name("max.NaN.xorsign.abs", pair).text, [](u32 a, u32 b) {
    return pairwise<N>([](float x, float y) { return extreme_magnitude<true, true>(x, y); }, a, b);
  });
  add<U32, U32>(t, Name("saturate", pair).text, [](u32 a) {
    return pairwise<N>([](float x, float) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }, a, a);
  });
  add<U32, U32>(t, Name("relu", pair).text, [](u32 a) {
    return pairwise<N>([](float x, float) { return x < 0 ? 0.0f : x; }, a, a);
  });
}

}  // namespace

void register_float(OpTable& t) {
  arithmetic<F32>(t, "f32");
  arithmetic<F64>(t, "f64");
  divisions<F32>(t, "f32");
  divisions<F64>(t, "f64");
  special_functions(t);
  small_floats<F16>(t, "f16", "f16x2");
  small_floats<BF16>(t, "bf16", "bf16x2");
  magnitudes<F32>(t, "f32");
  extremes_of_three(t);
  flushes<0x7c00>(t, "f16", "f16x2");
  flushes<0x7f80>(t, "bf16", "bf16x2");
}

}  // namespace vgpu::VGPU_ISA
