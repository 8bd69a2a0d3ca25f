// Integer instructions on parts of a word, and those that look for a bit.
#include "exec/lanes.h"

namespace vgpu::VGPU_ISA {
namespace {

// dp2a: two 16-bit values times the lower or the upper two bytes.
template <class A, class B>
VGPU_INLINE u32 dot2(u32 a, u32 b, u32 c) {
  for (int k = 0; k < 2; ++k) {
    c += static_cast<u32>(static_cast<s32>(static_cast<A>(a >> (16 * k))) *
                          static_cast<s32>(static_cast<B>(b >> (8 * k))));
  }
  return c;
}

template <class A, class B>
void add_dot2(OpTable& t, const char* types) {
  add<U32, U32, U32, U32>(t, Name("dp2a.lo", types).text,
                          [](u32 a, u32 b, u32 c) { return dot2<A, B>(a, b, c); });
  add<U32, U32, U32, U32>(t, Name("dp2a.hi", types).text,
                          [](u32 a, u32 b, u32 c) { return dot2<A, B>(a, b >> 16, c); });
}

// Sum of |a - b| over the parts of a word, and c.
template <class T>
VGPU_INLINE u32 add_differences(u32 a, u32 b, u32 c) {
  constexpr int kBits = 8 * sizeof(T);
  for (int at = 0; at < 32; at += kBits) {
    const s32 difference =
        static_cast<s32>(static_cast<T>(a >> at)) - static_cast<s32>(static_cast<T>(b >> at));
    c += static_cast<u32>(difference < 0 ? -difference : difference);
  }
  return c;
}

// |a - b| of the bytes of a word.
template <class T>
VGPU_INLINE u32 byte_differences(u32 a, u32 b) {
  u32 result = 0;
  for (int at = 0; at < 32; at += 8) {
    const s32 difference =
        static_cast<s32>(static_cast<T>(a >> at)) - static_cast<s32>(static_cast<T>(b >> at));
    result |= static_cast<u32>(difference < 0 ? -difference : difference) << at;
  }
  return result;
}

// A product of 24 bits each, its upper half: bits 16 to 47.
VGPU_INLINE s32 product24_high(s32 a, s32 b) {
  return static_cast<s32>(static_cast<s64>(static_cast<s32>(static_cast<u32>(a) << 8) >> 8) *
                              (static_cast<s32>(static_cast<u32>(b) << 8) >> 8) >>
                          16);
}

// `length` ones from `position` on (PTX ISA, bmsk).
VGPU_INLINE u32 bit_mask(u32 position, u32 length, bool clamp) {
  const u32 from = position & 31;
  const u32 end = from + (length & 31);
  const u32 low = clamp && position >= 32 ? 0 : ~0u << from;
  const u32 high = end >= 32 || (clamp && (position >= 32 || length >= 32)) ? 0 : ~0u << end;
  return low & ~high;
}

// The low `length` bits, with the sign or zeros above them (PTX ISA, szext).
template <class T>
VGPU_INLINE T extend_low_bits(T a, u32 length, bool clamp) {
  if (clamp && length >= 32) return a;
  const u32 bits = length & 31;
  if (bits == 0) return 0;
  return static_cast<T>(static_cast<T>(static_cast<u32>(a) << (32 - bits)) >> (32 - bits));
}

// The |offset|-th set bit from `base` on, up or down (PTX ISA, fns).
VGPU_INLINE u32 find_nth_set(u32 mask, u32 base, s32 offset) {
  if (offset == 0) return base < 32 && (mask >> (base & 31) & 1u) ? base : ~0u;
  s64 left = offset < 0 ? -static_cast<s64>(offset) : offset;
  const int step = offset < 0 ? -1 : 1;
  for (s64 at = base; at >= 0 && at < 32; at += step) {
    if ((mask >> at & 1u) && --left == 0) return static_cast<u32>(at);
  }
  return ~0u;
}

template <class T, class F>
VGPU_INLINE u32 halves(u32 a, u32 b, F f) {
  const u32 low = static_cast<u16>(f(static_cast<T>(a), static_cast<T>(b)));
  const u32 high = static_cast<u16>(f(static_cast<T>(a >> 16), static_cast<T>(b >> 16)));
  return low | high << 16;
}

template <class T>
void pairs(OpTable& t, const char* type) {
  add<U32, U32, U32>(t, Name("add", type).text,
                     [](u32 a, u32 b) { return halves<T>(a, b, [](T x, T y) { return x + y; }); });
  add<U32, U32, U32>(t, Name("min", type).text, [](u32 a, u32 b) {
    return halves<T>(a, b, [](T x, T y) { return x < y ? x : y; });
  });
  add<U32, U32, U32>(t, Name("max", type).text, [](u32 a, u32 b) {
    return halves<T>(a, b, [](T x, T y) { return x > y ? x : y; });
  });
}

// Two numbers of so many bits, saturated: the first one above the second (PTX ISA, cvt.pack).
template <int kBits, bool kSigned>
VGPU_INLINE u32 saturated_pair(s32 a, s32 b) {
  constexpr s32 kMost = (1 << (kBits - kSigned)) - 1;
  constexpr s32 kLeast = kSigned ? -kMost - 1 : 0;
  const auto narrow = [](s32 x) {
    return static_cast<u32>(x < kLeast ? kLeast : x > kMost ? kMost : x) & ((1u << kBits) - 1);
  };
  return narrow(a) << kBits | narrow(b);
}

template <int kBits, bool kSigned>
void add_pack(OpTable& t, const char* name) {
  add<U32, S32, S32, U32>(t, name, [](s32 a, s32 b, u32 c) {
    return saturated_pair<kBits, kSigned>(a, b) | c << (2 * kBits);
  });
}

VGPU_INLINE s32 positive(s32 a) { return a < 0 ? 0 : a; }

}  // namespace

void register_packed(OpTable& t) {
  add_dot2<u16, u8>(t, "u32.u32");
  add_dot2<u16, s8>(t, "u32.s32");
  add_dot2<s16, u8>(t, "s32.u32");
  add_dot2<s16, s8>(t, "s32.s32");
  add<U32, U32, U32, U32>(t, "vabsdiff4.u32.u32.u32",
                          [](u32 a, u32 b, u32) { return byte_differences<u8>(a, b); });
  add<U32, U32, U32, U32>(t, "vabsdiff4.u32.s32.s32",
                          [](u32 a, u32 b, u32) { return byte_differences<s8>(a, b); });
  add<U32, U32, U32, U32>(t, "vabsdiff4.u32.u32.u32.add",
                          [](u32 a, u32 b, u32 c) { return add_differences<u8>(a, b, c); });
  add<U32, U32, U32, U32>(t, "vabsdiff4.u32.s32.s32.add",
                          [](u32 a, u32 b, u32 c) { return add_differences<s8>(a, b, c); });
  add<U32, U32, U32, U32>(t, "vabsdiff2.u32.u32.u32.add",
                          [](u32 a, u32 b, u32 c) { return add_differences<u16>(a, b, c); });
  add<U32, U32, U32, U32>(t, "vabsdiff2.u32.s32.s32.add",
                          [](u32 a, u32 b, u32 c) { return add_differences<s16>(a, b, c); });
  add<U32, U32, U32, S32>(t, "fns.u32", [](u32 a, u32 b, s32 c) { return find_nth_set(a, b, c); });
  add<U32, U32>(t, "bfind.shiftamt.u32", [](u32 a) { return a ? u32(__builtin_clz(a)) : ~0u; });
  add<U32, S32>(t, "bfind.shiftamt.s32", [](s32 a) {
    const u32 u = static_cast<u32>(a < 0 ? ~a : a);
    return u ? u32(__builtin_clz(u)) : ~0u;
  });
  add<U32, U64>(t, "bfind.shiftamt.u64", [](u64 a) { return a ? u32(__builtin_clzll(a)) : ~0u; });
  add<U32, S64>(t, "bfind.shiftamt.s64", [](s64 a) {
    const u64 u = static_cast<u64>(a < 0 ? ~a : a);
    return u ? u32(__builtin_clzll(u)) : ~0u;
  });
  add_pack<8, true>(t, "cvt.pack.s8.s32");
  add_pack<8, false>(t, "cvt.pack.u8.s32");
  add_pack<4, true>(t, "cvt.pack.s4.s32");
  add_pack<4, false>(t, "cvt.pack.u4.s32");
  add_pack<2, true>(t, "cvt.pack.s2.s32");
  add_pack<2, false>(t, "cvt.pack.u2.s32");
  add<U32, S32, S32>(t, "cvt.pack.s16.s32",
                     [](s32 a, s32 b) { return saturated_pair<16, true>(a, b); });
  add<U32, S32, S32>(t, "cvt.pack.u16.s32",
                     [](s32 a, s32 b) { return saturated_pair<16, false>(a, b); });
  add<U32, U32, U32, U32>(t, "mad24.hi.u32", [](u32 a, u32 b, u32 c) {
    return u32(u64(a & 0xffffff) * (b & 0xffffff) >> 16) + c;
  });
  add<S32, S32, S32, S32>(t, "mad24.hi.s32", [](s32 a, s32 b, s32 c) {
    return s32(u32(product24_high(a, b)) + u32(c));
  });
  add<S32, S32, S32, S32>(t, "mad24.hi.sat.s32", [](s32 a, s32 b, s32 c) {
    const s64 sum = s64(product24_high(a, b)) + c;
    return s32(sum > 0x7fffffffll ? 0x7fffffffll : sum < -0x80000000ll ? -0x80000000ll : sum);
  });
  add<U32, U32, U32>(t, "bmsk.clamp.u32", [](u32 a, u32 b) { return bit_mask(a, b, true); });
  add<U32, U32, U32>(t, "bmsk.wrap.u32", [](u32 a, u32 b) { return bit_mask(a, b, false); });
  add<U32, U32, U32>(t, "szext.clamp.u32",
                     [](u32 a, u32 b) { return extend_low_bits<u32>(a, b, true); });
  add<U32, U32, U32>(t, "szext.wrap.u32",
                     [](u32 a, u32 b) { return extend_low_bits<u32>(a, b, false); });
  add<S32, S32, U32>(t, "szext.clamp.s32",
                     [](s32 a, u32 b) { return extend_low_bits<s32>(a, b, true); });
  add<S32, S32, U32>(t, "szext.wrap.s32",
                     [](s32 a, u32 b) { return extend_low_bits<s32>(a, b, false); });
  pairs<u16>(t, "u16x2");
  pairs<s16>(t, "s16x2");
  // The manual writes .relu before the type, nvcc behind it.
  add<S32, S32, S32>(t, "min.relu.s32", [](s32 a, s32 b) { return positive(a < b ? a : b); });
  add<S32, S32, S32>(t, "min.s32.relu", [](s32 a, s32 b) { return positive(a < b ? a : b); });
  add<S32, S32, S32>(t, "max.relu.s32", [](s32 a, s32 b) { return positive(a > b ? a : b); });
  add<S32, S32, S32>(t, "max.s32.relu", [](s32 a, s32 b) { return positive(a > b ? a : b); });
  for (const char* name : {"min.relu.s16x2", "min.s16x2.relu"}) {
    add<U32, U32, U32>(t, name, [](u32 a, u32 b) {
      return halves<s16>(a, b, [](s16 x, s16 y) { return positive(x < y ? x : y); });
    });
  }
  for (const char* name : {"max.relu.s16x2", "max.s16x2.relu"}) {
    add<U32, U32, U32>(t, name, [](u32 a, u32 b) {
      return halves<s16>(a, b, [](s16 x, s16 y) { return positive(x > y ? x : y); });
    });
  }
}

}  // namespace vgpu::VGPU_ISA
