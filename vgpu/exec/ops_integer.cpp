// Integer arithmetic, logic, comparison, selection and bit manipulation.
#include "exec/lanes.h"

namespace vgpu::VGPU_ISA {
namespace {

template <class T>
struct UnsignedOf;
template <>
struct UnsignedOf<u16> {
  using Type = u16;
  using Double = u32;
};
template <>
struct UnsignedOf<s16> {
  using Type = u16;
  using Double = s32;
};
template <>
struct UnsignedOf<u32> {
  using Type = u32;
  using Double = u64;
};
template <>
struct UnsignedOf<s32> {
  using Type = u32;
  using Double = s64;
};
template <>
struct UnsignedOf<u64> {
  using Type = u64;
  using Double = u128;
};
template <>
struct UnsignedOf<s64> {
  using Type = u64;
  using Double = s128;
};

template <class T>
VGPU_INLINE T divide(T a, T b) {
  using U = typename UnsignedOf<T>::Type;
  if (b == 0) return static_cast<T>(~U{0});
  if (static_cast<T>(-1) < 0 && b == static_cast<T>(-1))
    return static_cast<T>(U{0} - static_cast<U>(a));
  return static_cast<T>(a / b);
}
template <class T>
VGPU_INLINE T remainder(T a, T b) {
  if (b == 0) return a;
  if (static_cast<T>(-1) < 0 && b == static_cast<T>(-1)) return 0;
  return static_cast<T>(a % b);
}

template <class N>
void arithmetic(OpTable& t, const char* type) {
  using T = typename N::Value;
  using U = typename UnsignedOf<T>::Type;
  using D = typename UnsignedOf<T>::Double;
  constexpr int kBits = sizeof(T) * 8;
  // 16-bit operands would promote to int: the casts to U keep the arithmetic unsigned and wrapping.
  add<N, N, N>(t, Name("add", type).text, [](T a, T b) { return T(U(U(a) + U(b))); });
  add<N, N, N>(t, Name("sub", type).text, [](T a, T b) { return T(U(U(a) - U(b))); });
  add<N, N, N>(t, Name("mul.lo", type).text, [](T a, T b) { return T(U(u64(U(a)) * U(b))); });
  add<N, N, N>(t, Name("mul.hi", type).text, [](T a, T b) { return T(D(D(a) * D(b)) >> kBits); });
  add<N, N, N, N>(t, Name("mad.lo", type).text,
                  [](T a, T b, T c) { return T(U(u64(U(a)) * U(b) + U(c))); });
  add<N, N, N, N>(t, Name("mad.hi", type).text,
                  [](T a, T b, T c) { return T(U(U(D(D(a) * D(b)) >> kBits) + U(c))); });
  add<N, N, N>(t, Name("div", type).text, [](T a, T b) { return divide<T>(a, b); });
  add<N, N, N>(t, Name("rem", type).text, [](T a, T b) { return remainder<T>(a, b); });
  add<N, N, N>(t, Name("min", type).text, [](T a, T b) { return a < b ? a : b; });
  add<N, N, N>(t, Name("max", type).text, [](T a, T b) { return a > b ? a : b; });
  add<N, N, N, N>(t, Name("sad", type).text, [](T a, T b, T c) {
    return T(U(U(c) + (a < b ? U(U(b) - U(a)) : U(U(a) - U(b)))));
  });
  add<N, N>(t, Name("neg", type).text, [](T a) { return T(U(U(0) - U(a))); });
  add<N, N>(t, Name("abs", type).text, [](T a) { return a < 0 ? T(U(U(0) - U(a))) : a; });
  add<N, N, U32>(t, Name("shr", type).text, [](T a, u32 n) {
    if (n >= kBits) return T(a < 0 ? -1 : 0);
    return T(a >> n);
  });
  add<Pred, N, N>(t, Name("setp.lt", type).text, [](T a, T b) { return a < b; });
  add<Pred, N, N>(t, Name("setp.le", type).text, [](T a, T b) { return a <= b; });
  add<Pred, N, N>(t, Name("setp.gt", type).text, [](T a, T b) { return a > b; });
  add<Pred, N, N>(t, Name("setp.ge", type).text, [](T a, T b) { return a >= b; });
}

template <class N>
void bitwise(OpTable& t, const char* type) {
  using T = typename N::Value;
  constexpr u32 kBits = sizeof(T) * 8;
  add<N, N, N>(t, Name("and", type).text, [](T a, T b) { return T(a & b); });
  add<N, N, N>(t, Name("or", type).text, [](T a, T b) { return T(a | b); });
  add<N, N, N>(t, Name("xor", type).text, [](T a, T b) { return T(a ^ b); });
  add<N, N>(t, Name("not", type).text, [](T a) { return T(~a); });
  add<N, N>(t, Name("cnot", type).text, [](T a) { return T(a == 0); });
  add<N, N>(t, Name("mov", type).text, [](T a) { return a; });
  add<N, N, U32>(t, Name("shl", type).text,
                 [](T a, u32 n) { return n >= kBits ? T(0) : T(a << n); });
  add<N, N, N, Pred>(t, Name("selp", type).text, [](T a, T b, bool c) { return c ? a : b; });
  add<N, N, N, S32>(t, Name("slct.s32", type).text, [](T a, T b, s32 c) { return c >= 0 ? a : b; });
  add<N, N, N, F32>(t, Name("slct.f32", type).text,
                    [](T a, T b, float c) { return c >= 0 ? a : b; });
  add<Pred, N, N>(t, Name("setp.eq", type).text, [](T a, T b) { return a == b; });
  add<Pred, N, N>(t, Name("setp.ne", type).text, [](T a, T b) { return a != b; });
}

template <class N, class W>
void widening(OpTable& t, const char* type) {
  using T = typename N::Value;
  using D = typename W::Value;
  using U = typename UnsignedOf<D>::Type;
  add<W, N, N>(t, Name("mul.wide", type).text, [](T a, T b) { return D(D(a) * D(b)); });
  add<W, N, N, W>(t, Name("mad.wide", type).text,
                  [](T a, T b, D c) { return D(U(D(D(a) * D(b))) + U(c)); });
}

// PTX: position and length are the low 8 bits; the field may reach past the top.
template <class T>
VGPU_INLINE T extract_field(T a, u32 position, u32 length) {
  using U = typename UnsignedOf<T>::Type;
  constexpr u32 kBits = sizeof(T) * 8;
  position &= 255;
  length &= 255;
  if (length == 0) return 0;
  const bool sign_bit_set =
      static_cast<T>(-1) < 0 &&
      (U(a) >> (position + length - 1 < kBits - 1 ? position + length - 1 : kBits - 1) & 1);
  U field = position >= kBits ? U(0) : U(a) >> position;
  if (length < kBits) field &= (U(1) << length) - 1;
  // Bits that the field does not cover, or that lie past the top, repeat the sign.
  const u32 valid = position >= kBits ? 0 : (length < kBits - position ? length : kBits - position);
  if (sign_bit_set && valid < kBits) field |= ~U(0) << valid;
  return static_cast<T>(field);
}

template <class U>
VGPU_INLINE U insert_field(U a, U b, u32 position, u32 length) {
  constexpr u32 kBits = sizeof(U) * 8;
  position &= 255;
  length &= 255;
  if (position >= kBits) return b;
  const U ones = length >= kBits ? ~U(0) : (U(1) << length) - 1;
  const U mask = ones << position;
  return (b & ~mask) | ((a << position) & mask);
}

VGPU_INLINE u32 reverse_bits(u32 x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}

VGPU_INLINE u32 permute_bytes(u32 a, u32 b, u32 selector) {
  const u64 bytes = a | static_cast<u64>(b) << 32;
  u32 result = 0;
  for (int k = 0; k < 4; ++k) {
    const u32 choice = selector >> (4 * k) & 15;
    u32 byte = static_cast<u32>(bytes >> (8 * (choice & 7))) & 255;
    if (choice & 8) byte = (byte & 128) ? 255 : 0;
    result |= byte << (8 * k);
  }
  return result;
}

// prmt's named modes are selectors that depend on the two low bits of c.
template <int kMode>
VGPU_INLINE u32 permute_mode(u32 a, u32 b, u32 c) {
  static constexpr u16 kSelectors[6][4] = {
      {0x3210, 0x4321, 0x5432, 0x6543},  // f4e
      {0x5670, 0x6701, 0x7012, 0x0123},  // b4e
      {0x0000, 0x1111, 0x2222, 0x3333},  // rc8
      {0x3210, 0x3211, 0x3222, 0x3333},  // ecl
      {0x0000, 0x1110, 0x2210, 0x3210},  // ecr
      {0x1010, 0x3232, 0x1010, 0x3232},  // rc16
  };
  return permute_bytes(a, b, kSelectors[kMode][c & 3]);
}

VGPU_INLINE u32 lookup3(u32 a, u32 b, u32 c, u32 table) {
  u32 result = 0;
  for (int k = 0; k < 8; ++k) {
    const u32 term = ((k & 4) ? a : ~a) & ((k & 2) ? b : ~b) & ((k & 1) ? c : ~c);
    result |= (table >> k & 1) ? term : 0;
  }
  return result;
}

VGPU_INLINE s32 clamp_s32(s64 v) {
  return v > 0x7fffffffll ? 0x7fffffff : v < -0x80000000ll ? s32(-0x7fffffff - 1) : s32(v);
}

// dp4a: four products of bytes, each signed or not.
template <class A, class B>
VGPU_INLINE u32 dot4(u32 a, u32 b, u32 c) {
  for (int k = 0; k < 4; ++k) {
    c += static_cast<u32>(static_cast<s32>(static_cast<A>(a >> (8 * k))) *
                          static_cast<s32>(static_cast<B>(b >> (8 * k))));
  }
  return c;
}

void bits(OpTable& t) {
  add<U32, U32>(t, "popc.u32", [](u32 a) { return u32(__builtin_popcount(a)); });
  add<U32, U64>(t, "popc.u64", [](u64 a) { return u32(__builtin_popcountll(a)); });
  add<U32, U32>(t, "clz.u32", [](u32 a) { return a ? u32(__builtin_clz(a)) : 32u; });
  add<U32, U64>(t, "clz.u64", [](u64 a) { return a ? u32(__builtin_clzll(a)) : 64u; });
  add<U32, U32>(t, "brev.u32", [](u32 a) { return reverse_bits(a); });
  add<U64, U64>(t, "brev.u64", [](u64 a) {
    return static_cast<u64>(reverse_bits(static_cast<u32>(a))) << 32 |
           reverse_bits(static_cast<u32>(a >> 32));
  });
  add<U32, U32>(t, "bfind.u32", [](u32 a) { return a ? 31u - __builtin_clz(a) : ~0u; });
  add<U32, S32>(t, "bfind.s32", [](s32 a) {
    const u32 u = static_cast<u32>(a < 0 ? ~a : a);
    return u ? 31u - __builtin_clz(u) : ~0u;
  });
  add<U32, U64>(t, "bfind.u64", [](u64 a) { return a ? 63u - __builtin_clzll(a) : ~0u; });
  add<U32, S64>(t, "bfind.s64", [](s64 a) {
    const u64 u = static_cast<u64>(a < 0 ? ~a : a);
    return u ? 63u - __builtin_clzll(u) : ~0u;
  });
  add<U32, U32, U32, U32>(t, "bfe.u32",
                          [](u32 a, u32 p, u32 n) { return extract_field<u32>(a, p, n); });
  add<S32, S32, U32, U32>(t, "bfe.s32",
                          [](s32 a, u32 p, u32 n) { return extract_field<s32>(a, p, n); });
  add<U64, U64, U32, U32>(t, "bfe.u64",
                          [](u64 a, u32 p, u32 n) { return extract_field<u64>(a, p, n); });
  add<S64, S64, U32, U32>(t, "bfe.s64",
                          [](s64 a, u32 p, u32 n) { return extract_field<s64>(a, p, n); });
  add<U32, U32, U32, U32, U32>(
      t, "bfi.u32", [](u32 a, u32 b, u32 p, u32 n) { return insert_field<u32>(a, b, p, n); });
  add<U64, U64, U64, U32, U32>(
      t, "bfi.u64", [](u64 a, u64 b, u32 p, u32 n) { return insert_field<u64>(a, b, p, n); });
  add<U32, U32, U32, U32>(t, "prmt.u32",
                          [](u32 a, u32 b, u32 c) { return permute_bytes(a, b, c); });
  add<U32, U32, U32, U32>(t, "prmt.f4e",
                          [](u32 a, u32 b, u32 c) { return permute_mode<0>(a, b, c); });
  add<U32, U32, U32, U32>(t, "prmt.b4e",
                          [](u32 a, u32 b, u32 c) { return permute_mode<1>(a, b, c); });
  add<U32, U32, U32, U32>(t, "prmt.rc8",
                          [](u32 a, u32 b, u32 c) { return permute_mode<2>(a, b, c); });
  add<U32, U32, U32, U32>(t, "prmt.ecl",
                          [](u32 a, u32 b, u32 c) { return permute_mode<3>(a, b, c); });
  add<U32, U32, U32, U32>(t, "prmt.ecr",
                          [](u32 a, u32 b, u32 c) { return permute_mode<4>(a, b, c); });
  add<U32, U32, U32, U32>(t, "prmt.rc16",
                          [](u32 a, u32 b, u32 c) { return permute_mode<5>(a, b, c); });
  add<U32, U32, U32, U32, U32>(
      t, "lop3.u32", [](u32 a, u32 b, u32 c, u32 table) { return lookup3(a, b, c, table); });
  add<U32, U32, U32, U32>(t, "shf.l.clamp", [](u32 lo, u32 hi, u32 n) {
    n = n > 32 ? 32 : n;
    return static_cast<u32>((static_cast<u64>(hi) << 32 | lo) << n >> 32);
  });
  add<U32, U32, U32, U32>(t, "shf.l.wrap", [](u32 lo, u32 hi, u32 n) {
    return static_cast<u32>((static_cast<u64>(hi) << 32 | lo) << (n & 31) >> 32);
  });
  add<U32, U32, U32, U32>(t, "shf.r.clamp", [](u32 lo, u32 hi, u32 n) {
    return static_cast<u32>((static_cast<u64>(hi) << 32 | lo) >> (n > 32 ? 32 : n));
  });
  add<U32, U32, U32, U32>(t, "shf.r.wrap", [](u32 lo, u32 hi, u32 n) {
    return static_cast<u32>((static_cast<u64>(hi) << 32 | lo) >> (n & 31));
  });
}

void mixed(OpTable& t) {
  add<S32, S32, S32>(t, "add.sat.s32", [](s32 a, s32 b) { return clamp_s32(s64(a) + b); });
  add<S32, S32, S32>(t, "sub.sat.s32", [](s32 a, s32 b) { return clamp_s32(s64(a) - b); });
  add<S32, S32, S32, S32>(t, "mad.hi.sat.s32",
                          [](s32 a, s32 b, s32 c) { return clamp_s32((s64(a) * b >> 32) + c); });
  add<U32, U32, U32>(t, "mul24.lo.u32",
                     [](u32 a, u32 b) { return (a & 0xffffff) * (b & 0xffffff); });
  add<S32, S32, S32>(t, "mul24.lo.s32", [](s32 a, s32 b) {
    return s32(u32(s64(s32(u32(a) << 8) >> 8) * (s32(u32(b) << 8) >> 8)));
  });
  add<U32, U32, U32>(t, "mul24.hi.u32",
                     [](u32 a, u32 b) { return u32(u64(a & 0xffffff) * (b & 0xffffff) >> 16); });
  add<S32, S32, S32>(t, "mul24.hi.s32", [](s32 a, s32 b) {
    return s32(s64(s32(u32(a) << 8) >> 8) * (s32(u32(b) << 8) >> 8) >> 16);
  });
  add<U32, U32, U32, U32>(t, "mad24.lo.u32",
                          [](u32 a, u32 b, u32 c) { return (a & 0xffffff) * (b & 0xffffff) + c; });
  add<S32, S32, S32, S32>(t, "mad24.lo.s32", [](s32 a, s32 b, s32 c) {
    return s32(u32(s64(s32(u32(a) << 8) >> 8) * (s32(u32(b) << 8) >> 8)) + u32(c));
  });
  add<U32, U32, U32, U32>(t, "dp4a.u32.u32",
                          [](u32 a, u32 b, u32 c) { return dot4<u8, u8>(a, b, c); });
  add<U32, U32, U32, U32>(t, "dp4a.s32.s32",
                          [](u32 a, u32 b, u32 c) { return dot4<s8, s8>(a, b, c); });
  add<U32, U32, U32, U32>(t, "dp4a.u32.s32",
                          [](u32 a, u32 b, u32 c) { return dot4<u8, s8>(a, b, c); });
  add<U32, U32, U32, U32>(t, "dp4a.s32.u32",
                          [](u32 a, u32 b, u32 c) { return dot4<s8, u8>(a, b, c); });
  add_predicate<Pred, Pred>(t, "and.pred", [](u32 a, u32 b) { return a & b; });
  add_predicate<Pred, Pred>(t, "or.pred", [](u32 a, u32 b) { return a | b; });
  add_predicate<Pred, Pred>(t, "xor.pred", [](u32 a, u32 b) { return a ^ b; });
  add_predicate<Pred>(t, "not.pred", [](u32 a) { return ~a; });
  add_predicate<Pred>(t, "mov.pred", [](u32 a) { return a; });
  add<Pred, Pred, Pred, Pred>(t, "selp.pred", [](bool a, bool b, bool c) { return c ? a : b; });
  // Fixing operand widths, packing and unpacking vectors.
  add<U64, U32>(t, "extend.u", [](u32 a) { return u64(a); });
  add<S64, S32>(t, "extend.s", [](s32 a) { return s64(a); });
  add<U32, U64>(t, "truncate", [](u64 a) { return u32(a); });
  add<U64, U32, U32>(t, "pack.64", [](u32 lo, u32 hi) { return lo | u64(hi) << 32; });
  add<U32, U64>(t, "high.64", [](u64 a) { return u32(a >> 32); });
  add<U32, U16, U16>(t, "pack.32", [](u16 lo, u16 hi) { return lo | u32(hi) << 16; });
  add<U32, U32>(t, "low.32", [](u32 a) { return a & 0xffff; });
  add<U32, U32>(t, "high.32", [](u32 a) { return a >> 16; });
  add<U32, U8, U8, U8, U8>(t, "pack.32x4", [](u8 a, u8 b, u8 c, u8 d) {
    return a | u32(b) << 8 | u32(c) << 16 | u32(d) << 24;
  });
  add<U32, U8, U8>(t, "pack.16", [](u8 lo, u8 hi) { return lo | u32(hi) << 8; });
  add<U32, U32, U32>(t, "byte", [](u32 a, u32 n) { return a >> (8 * n) & 255; });
  add<U64, U16, U16, U16, U16>(t, "pack.64x4", [](u16 a, u16 b, u16 c, u16 d) {
    return a | u64(b) << 16 | u64(c) << 32 | u64(d) << 48;
  });
  add<U32, U64, U32>(t, "half.64", [](u64 a, u32 n) { return u32(a >> (16 * n)) & 0xffff; });
}

// The carry flag of add.cc and its kin is a predicate slot: the last result, the last source.
template <class N, bool kSubtract, bool kCarryIn, bool kMultiply>
Status carry(Warp& w, const Ins& i, u32 mask) {
  using T = typename N::Value;
  auto* d = slot<typename N::Lane>(w, i, 0);
  const auto* a = slot<typename N::Lane>(w, i, 2);
  const auto* b = slot<typename N::Lane>(w, i, 3);
  const auto* c = slot<typename N::Lane>(w, i, 4);  // the addend of mad, or the zero slot
  const u32 in = kCarryIn ? predicate(w, i, 5) : 0;
  u32 out = 0;
  for_lanes(mask, [&](int l) {
    const T x = static_cast<T>(a[l]);
    const T y = static_cast<T>(b[l]);
    u128 sum;
    if (kMultiply) {
      const u128 product = static_cast<u128>(x) * y;
      const T part = i.extra ? static_cast<T>(product >> (8 * sizeof(T))) : static_cast<T>(product);
      sum = static_cast<u128>(part) + static_cast<T>(c[l]) + (in >> l & 1);
    } else if (kSubtract) {
      // The flag of a subtraction is the borrow.
      sum = static_cast<u128>(x) - y - (in >> l & 1);
    } else {
      sum = static_cast<u128>(x) + y + (in >> l & 1);
    }
    d[l] = static_cast<T>(sum);
    out |= static_cast<u32>(sum >> (8 * sizeof(T)) & 1) << l;
  });
  if (has(i, 1)) set_predicate(w, i, 1, out, mask);
  return Status::kNext;
}

template <class N>
void carries(OpTable& t, const char* type, const char* results, const char* sources) {
  add_function(t, Name("add.cc", type).text, &carry<N, false, false, false>, results, sources);
  add_function(t, Name("addc", type).text, &carry<N, false, true, false>, results, sources);
  add_function(t, Name("sub.cc", type).text, &carry<N, true, false, false>, results, sources);
  add_function(t, Name("subc", type).text, &carry<N, true, true, false>, results, sources);
  add_function(t, Name("mad.cc", type).text, &carry<N, false, false, true>, results, sources);
  add_function(t, Name("madc", type).text, &carry<N, false, true, true>, results, sources);
}

}  // namespace

void register_integer(OpTable& t) {
  arithmetic<U16>(t, "u16");
  arithmetic<S16>(t, "s16");
  arithmetic<U32>(t, "u32");
  arithmetic<S32>(t, "s32");
  arithmetic<U64>(t, "u64");
  arithmetic<S64>(t, "s64");
  bitwise<U16>(t, "u16");
  bitwise<U32>(t, "u32");
  bitwise<U64>(t, "u64");
  widening<U16, U32>(t, "u16");
  widening<S16, S32>(t, "s16");
  widening<U32, U64>(t, "u32");
  widening<S32, S64>(t, "s32");
  bits(t);
  mixed(t);
  carries<U32>(t, "u32", "wp", "wwwp");
  carries<U64>(t, "u64", "dp", "dddp");
}

}  // namespace vgpu::VGPU_ISA
