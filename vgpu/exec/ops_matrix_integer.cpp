// mma of bytes, nibbles and bits. The sums are exact, and added with wraparound or clamped.
#include "exec/fragments.h"

namespace vgpu::VGPU_ISA {
namespace {

// The elements of a register, low bits first.
template <class T>
struct Bytes {
  static constexpr int kPerWord = 4;
  static VGPU_INLINE s16 at(u32 word, int which) { return static_cast<T>(word >> 8 * which); }
};
template <bool kSigned>
struct Nibbles {
  static constexpr int kPerWord = 8;
  static VGPU_INLINE s16 at(u32 word, int which) {
    const s32 value = static_cast<s32>(word >> 4 * which & 15);
    return static_cast<s16>(kSigned ? (value ^ 8) - 8 : value);
  }
};
using S4 = Nibbles<true>;
using U4 = Nibbles<false>;

VGPU_INLINE u32 accumulate(u32 from, s32 sum, bool clamp) {
  const s64 exact = static_cast<s64>(static_cast<s32>(from)) + sum;
  const s64 low = exact < -0x80000000ll ? -0x80000000ll : exact;
  return static_cast<u32>(!clamp ? exact : low > 0x7fffffffll ? 0x7fffffffll : low);
}

// kRows is 1 for m8n8 and 2 for m16n8.
template <class A, class B, int kRows, int kSteps, bool kClamp>
Status multiply_integers(Warp& w, const Ins& i, u32 mask) {
  if (mask != kFullMask) return whole_warp_only(w, mask);
  constexpr int kWidth = 4 * A::kPerWord;
  constexpr int kDepth = kWidth * kSteps;
  constexpr int kFirstB = 2 * kRows + kRows * kSteps;
  alignas(64) s16 left[8 * kRows][kDepth];
  alignas(64) s16 right[8][kDepth];
  const auto unpack = [](auto type, const u32* from, auto* rows, int column) {
    using T = decltype(type);
    for (int l = 0; l < kWarpSize; ++l) {
      for (int e = 0; e < T::kPerWord; ++e) {
        rows[l / 4][column + T::kPerWord * (l % 4) + e] = T::at(from[l], e);
      }
    }
  };
  for (int h = 0; h < kSteps; ++h) {
    for (int r = 0; r < kRows; ++r) {
      unpack(A(), words(w, i, 2 * kRows + kRows * h + r), left + 8 * r, kWidth * h);
    }
    unpack(B(), words(w, i, kFirstB + h), right, kWidth * h);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < 2; ++c) {
      const u32* from = words(w, i, kFirstB + kSteps + 2 * r + c);
      u32* to = words(w, i, 2 * r + c);
      for (int l = 0; l < kWarpSize; ++l) {
        const s16* row = left[8 * r + l / 4];
        const s16* column = right[2 * (l % 4) + c];
        s32 sum = 0;  // 32 products of 16 bits cannot overflow it
        for (int k = 0; k < kDepth; ++k) sum += row[k] * column[k];
        to[l] = accumulate(from[l], sum, kClamp);
      }
    }
  }
  return Status::kNext;
}

// The number of bits that are set in the exclusive or, or in the conjunction, of row and column.
template <bool kXor, int kRows, int kSteps>
Status multiply_bits(Warp& w, const Ins& i, u32 mask) {
  if (mask != kFullMask) return whole_warp_only(w, mask);
  constexpr int kFirstB = 2 * kRows + kRows * kSteps;
  u32 result[2 * kRows][kWarpSize];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < 2; ++c) {
      const u32* from = words(w, i, kFirstB + kSteps + 2 * r + c);
      for (int l = 0; l < kWarpSize; ++l) {
        u32 sum = from[l];
        for (int h = 0; h < kSteps; ++h) {
          const u32* row = words(w, i, 2 * kRows + kRows * h + r) + l / 4 * 4;
          const u32* column = words(w, i, kFirstB + h) + (2 * (l % 4) + c) * 4;
          for (int t = 0; t < 4; ++t) {
            sum += static_cast<u32>(
                __builtin_popcount(kXor ? row[t] ^ column[t] : row[t] & column[t]));
          }
        }
        result[2 * r + c][l] = sum;
      }
    }
  }
  for (int n = 0; n < 2 * kRows; ++n) blend(words(w, i, n), result[n], kFullMask);
  return Status::kNext;
}

template <class A, class B, bool kClamp>
void add_bytes(OpTable& t, const char* suffix) {
  add_function(t, Name("mma.m8n8k16", suffix).text, &multiply_integers<A, B, 1, 1, kClamp>, "ww",
               "wwww");
  add_function(t, Name("mma.m16n8k16", suffix).text, &multiply_integers<A, B, 2, 1, kClamp>, "wwww",
               "wwwwwww");
  add_function(t, Name("mma.m16n8k32", suffix).text, &multiply_integers<A, B, 2, 2, kClamp>, "wwww",
               "wwwwwwwwww");
}

template <class A, class B, bool kClamp>
void add_nibbles(OpTable& t, const char* suffix) {
  add_function(t, Name("mma.m8n8k32", suffix).text, &multiply_integers<A, B, 1, 1, kClamp>, "ww",
               "wwww");
  add_function(t, Name("mma.m16n8k32", suffix).text, &multiply_integers<A, B, 2, 1, kClamp>, "wwww",
               "wwwwwww");
  add_function(t, Name("mma.m16n8k64", suffix).text, &multiply_integers<A, B, 2, 2, kClamp>, "wwww",
               "wwwwwwwwww");
}

template <bool kXor>
void add_bits(OpTable& t, const char* suffix) {
  add_function(t, Name("mma.m8n8k128", suffix).text, &multiply_bits<kXor, 1, 1>, "ww", "wwww");
  add_function(t, Name("mma.m16n8k128", suffix).text, &multiply_bits<kXor, 2, 1>, "wwww",
               "wwwwwww");
  add_function(t, Name("mma.m16n8k256", suffix).text, &multiply_bits<kXor, 2, 2>, "wwww",
               "wwwwwwwwww");
}

}  // namespace

void register_matrix_integer(OpTable& t) {
  add_bytes<Bytes<s8>, Bytes<s8>, false>(t, "s32.s8.s8");
  add_bytes<Bytes<s8>, Bytes<u8>, false>(t, "s32.s8.u8");
  add_bytes<Bytes<u8>, Bytes<s8>, false>(t, "s32.u8.s8");
  add_bytes<Bytes<u8>, Bytes<u8>, false>(t, "s32.u8.u8");
  add_bytes<Bytes<s8>, Bytes<s8>, true>(t, "satfinite.s32.s8.s8");
  add_bytes<Bytes<s8>, Bytes<u8>, true>(t, "satfinite.s32.s8.u8");
  add_bytes<Bytes<u8>, Bytes<s8>, true>(t, "satfinite.s32.u8.s8");
  add_bytes<Bytes<u8>, Bytes<u8>, true>(t, "satfinite.s32.u8.u8");
  add_nibbles<S4, S4, false>(t, "s32.s4.s4");
  add_nibbles<S4, U4, false>(t, "s32.s4.u4");
  add_nibbles<U4, S4, false>(t, "s32.u4.s4");
  add_nibbles<U4, U4, false>(t, "s32.u4.u4");
  add_nibbles<S4, S4, true>(t, "satfinite.s32.s4.s4");
  add_nibbles<S4, U4, true>(t, "satfinite.s32.s4.u4");
  add_nibbles<U4, S4, true>(t, "satfinite.s32.u4.s4");
  add_nibbles<U4, U4, true>(t, "satfinite.s32.u4.u4");
  add_bits<true>(t, "xor.popc.s32.b1.b1");
  add_bits<false>(t, "and.popc.s32.b1.b1");
}

}  // namespace vgpu::VGPU_ISA
