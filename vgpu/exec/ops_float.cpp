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
  add<Pred, U32>(t, "testp.finite.f32", [](u32 a) { return (a & 0x7f800000u) != 0x7f800000u; });
  add<Pred, U32>(t, "testp.infinite.f32", [](u32 a) { return (a & 0x7fffffffu) == 0x7f800000u; });
  add<Pred, U32>(t, "testp.number.f32", [](u32 a) { return (a & 0x7fffffffu) <= 0x7f800000u; });
  add<Pred, U32>(t, "testp.notanumber.f32", [](u32 a) { return (a & 0x7fffffffu) > 0x7f800000u; });
  add<Pred, U32>(t, "testp.normal.f32", [](u32 a) {
    const u32 exponent = a >> 23 & 255;
    return exponent != 0 && exponent != 255;
  });
  add<Pred, U32>(t, "testp.subnormal.f32",
                 [](u32 a) { return (a & 0x7f800000u) == 0 && (a & 0x7fffffu) != 0; });
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

template <class N>
void small_floats(OpTable& t, const char* type, const char* pair) {
  arithmetic<N>(t, type);
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
}

}  // namespace vgpu::VGPU_ISA
