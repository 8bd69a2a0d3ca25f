// mma.sp: of each four elements of a row of A two are stored, and metadata tells which.
//
// The fragments of the stored A, of B and of C are those of fragments.h. Everything is summed in
// f32, which holds the sums of integers exactly; those are then added to C as whole numbers.
#include "exec/fragments.h"
#include "exec/narrow_elements.h"

namespace vgpu::VGPU_ISA {
namespace {

template <bool kSigned>
struct Nibble : ExactProduct {
  static constexpr int kPerWord = 8;
  static VGPU_INLINE float at(u32 word, int which) {
    const s32 value = static_cast<s32>(word >> 4 * which & 15);
    return static_cast<float>(kSigned ? (value ^ 8) - 8 : value);
  }
};

// Where in K the stored element e of a row belongs. Source: PTX ISA 9.0, "Sparse matrix storage".
// 16- and 32-bit types have rows g and g + 8 in the halves of a word, and the selector picks one of
// four threads, or two of them; narrower types have a row in a word, of a pair of threads that it
// picks, or of all four. Two bits tell which of four, for nibbles which pair of four; of two tf32
// one is stored, and four bits count halves of a word.
template <class E, int kSteps>
VGPU_INLINE int place_of(const u32* metadata, int selector, int row, int e) {
  const u32* quad = metadata + row % 8 * 4;
  if constexpr (E::kPerWord <= 2) {
    constexpr int kEach = 4 * E::kPerWord;
    const u32 half = quad[kSteps * selector + e / kEach] >> row / 8 * 16;
    const u32 bits = half >> 16 / kEach * (e % kEach);
    return E::kPerWord == 1 ? 2 * e + static_cast<int>(bits >> 1 & 1)
                            : e / 2 * 4 + static_cast<int>(bits & 3);
  } else {
    constexpr int kUnit = E::kPerWord / 4;
    const int u = e / kUnit;
    const u32 word = quad[row / 8 + 2 * (kSteps == 1 ? selector : u / 16)];
    const int which = static_cast<int>(word >> 2 * (u % 16) & 3);
    return (u / 2 * 4 + which) * kUnit + e % kUnit;
  }
}

VGPU_INLINE u32 add_whole(u32 from, float sum, bool clamp) {
  const s64 exact = static_cast<s64>(static_cast<s32>(from)) + static_cast<s64>(sum);
  const s64 low = exact < -0x80000000ll ? -0x80000000ll : exact;
  return static_cast<u32>(!clamp ? exact : low > 0x7fffffffll ? 0x7fffffffll : low);
}

enum class Sums { kFloat, kInteger, kClamped };

// Operands: D, A, B, C, metadata; the selector is at hand as imm.
template <class A, class B, int kSteps, Sums kSums>
Status multiply_sparse(Warp& w, const Ins& i, u32 mask) {
  if (mask != kFullMask) return whole_warp_only(w, mask);
  constexpr int kStored = 4 * A::kPerWord * kSteps;
  constexpr int kFirstB = 4 + 2 * kSteps;
  constexpr int kFirstC = kFirstB + 2 * kSteps;
  float left[16][kStored];
  float right[2 * kStored][8];
  for (int n = 0; n < 2 * kSteps; ++n) {
    const u32* a = words(w, i, 4 + n);
    const u32* b = words(w, i, kFirstB + n);
    for (int l = 0; l < kWarpSize; ++l) {
      for (int e = 0; e < A::kPerWord; ++e) {
        left[l / 4 + 8 * (n % 2)][A::kPerWord * (4 * (n / 2) + l % 4) + e] = A::at(a[l], e);
        right[A::kPerWord * (4 * n + l % 4) + e][l / 4] = B::at(b[l], e);
      }
    }
  }
  const u32* metadata = words(w, i, kFirstC + 4);
  for (int row = 0; row < 16; ++row) {
    const int lane = row % 8 * 4;
    const int r = row / 8 * 2;
    float sum[8] = {};
    if (kSums == Sums::kFloat) {
      for (int n = 0; n < 8; ++n)
        sum[n] = bit_cast<float>(words(w, i, kFirstC + r + n % 2)[lane + n / 2]);
    }
    for (int e = 0; e < kStored; ++e) {
      const float* b = right[place_of<A, kSteps>(metadata, static_cast<int>(i.imm), row, e)];
      const float a = left[row][e];
      for (int n = 0; n < 8; ++n) sum[n] = A::multiply_add(a, b[n], sum[n]);
    }
    for (int n = 0; n < 8; ++n) {
      u32& to = words(w, i, r + n % 2)[lane + n / 2];
      to = kSums == Sums::kFloat ? bit_cast<u32>(sum[n])
                                 : add_whole(words(w, i, kFirstC + r + n % 2)[lane + n / 2], sum[n],
                                             kSums == Sums::kClamped);
    }
  }
  return Status::kNext;
}

template <class A, class B, int kSteps, Sums kSums>
void add_one(OpTable& t, const char* shape, const char* types) {
  add_function(t, Name("mma.sp", shape, types).text, &multiply_sparse<A, B, kSteps, kSums>, "wwww",
               kSteps == 1 ? "wwwwwwwww" : "wwwwwwwwwwwww");
}

template <class E>
void add_floats(OpTable& t, const char* one, const char* two, const char* types) {
  add_one<E, E, 1, Sums::kFloat>(t, one, types);
  add_one<E, E, 2, Sums::kFloat>(t, two, types);
}

template <class A, class B>
void add_integers(OpTable& t, const char* one, const char* two, const char* types) {
  const Name clamped("satfinite", types);
  add_one<A, B, 1, Sums::kInteger>(t, one, types);
  add_one<A, B, 2, Sums::kInteger>(t, two, types);
  add_one<A, B, 1, Sums::kClamped>(t, one, clamped.text);
  add_one<A, B, 2, Sums::kClamped>(t, two, clamped.text);
}

}  // namespace

void register_matrix_sparse(OpTable& t) {
  add_floats<Half>(t, "m16n8k16", "m16n8k32", "f32.f16.f16");
  add_floats<Bfloat>(t, "m16n8k16", "m16n8k32", "f32.bf16.bf16");
  add_floats<Tf32>(t, "m16n8k8", "m16n8k16", "f32.tf32.tf32");
  add_one<E4m3, E4m3, 2, Sums::kFloat>(t, "m16n8k64", "f32.e4m3.e4m3");
  add_one<E4m3, E5m2, 2, Sums::kFloat>(t, "m16n8k64", "f32.e4m3.e5m2");
  add_one<E5m2, E4m3, 2, Sums::kFloat>(t, "m16n8k64", "f32.e5m2.e4m3");
  add_one<E5m2, E5m2, 2, Sums::kFloat>(t, "m16n8k64", "f32.e5m2.e5m2");
  add_integers<Byte<s8>, Byte<s8>>(t, "m16n8k32", "m16n8k64", "s32.s8.s8");
  add_integers<Byte<s8>, Byte<u8>>(t, "m16n8k32", "m16n8k64", "s32.s8.u8");
  add_integers<Byte<u8>, Byte<s8>>(t, "m16n8k32", "m16n8k64", "s32.u8.s8");
  add_integers<Byte<u8>, Byte<u8>>(t, "m16n8k32", "m16n8k64", "s32.u8.u8");
  add_integers<Nibble<true>, Nibble<true>>(t, "m16n8k64", "m16n8k128", "s32.s4.s4");
  add_integers<Nibble<true>, Nibble<false>>(t, "m16n8k64", "m16n8k128", "s32.s4.u4");
  add_integers<Nibble<false>, Nibble<true>>(t, "m16n8k64", "m16n8k128", "s32.u4.s4");
  add_integers<Nibble<false>, Nibble<false>>(t, "m16n8k64", "m16n8k128", "s32.u4.u4");
}

}  // namespace vgpu::VGPU_ISA
