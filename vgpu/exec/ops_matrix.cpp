// Tensor cores: mma.sync.
//
// Floating-point sums run over k in order, one rounding to f32 per step, so every variant agrees.
// A GPU adds blocks of k with more bits and in another order: results differ from it in the last
// bits of f32. Integer sums are exact.
//
// Fragments (PTX ISA, "Matrix fragments for mma"), with g = lane / 4, t = lane % 4 and e elements
// in a 32-bit word (4 bytes, 2 halves or 1 tf32); m8n8 has the registers with r = 0 only:
//   A  register 2h + r: row g + 8r, columns e (4h + t) + 0..e-1
//   B  register h:      rows e (4h + t) + 0..e-1, column g
//   C  register 2r + c: row g + 8r, column 2t + c
#include "exec/access.h"

#if defined(__AVX512F__)
#include "exec/product_avx512.h"
#elif defined(__AVX2__)
#include "exec/product_avx2.h"
#else
#include "exec/product_generic.h"
#endif

namespace vgpu::VGPU_ISA {
namespace {

Status whole_warp_only(Warp& w, u32 mask) {
  w.fault.kind = FaultKind::kBarrier;
  w.fault.detail = "a matrix instruction was reached by a part of the warp's threads";
  w.fault.lane = __builtin_ctz(mask);
  return Status::kFault;
}

// f32 accumulators: d0..d3, A, B, c0..c3.
template <class E, int kSteps>
Status mma_f32(Warp& w, const Ins& i, u32 mask) {
  if (mask != kFullMask) return whole_warp_only(w, mask);
  u32* operand[8 + 3 * kSteps];
  for (int n = 0; n < 8 + 3 * kSteps; ++n) operand[n] = words(w, i, n);
  multiply<E, kSteps>(operand, operand + 4, operand + 4 + 2 * kSteps, operand + 4 + 3 * kSteps);
  return Status::kNext;
}

// f16 accumulators come in pairs of columns; they are summed in f32 and rounded once.
template <int kSteps>
Status mma_f16(Warp& w, const Ins& i, u32 mask) {
  if (mask != kFullMask) return whole_warp_only(w, mask);
  u32* operand[4 + 3 * kSteps];
  for (int n = 0; n < 4 + 3 * kSteps; ++n) operand[n] = words(w, i, n);
  alignas(64) u32 wide[4][kWarpSize];
  for (int r = 0; r < 2; ++r) {
    const u32* c = operand[2 + 3 * kSteps + r];
    for (int l = 0; l < kWarpSize; ++l) {
      wide[2 * r][l] = bit_cast<u32>(half_to_float(c[l] & 0xffff));
      wide[2 * r + 1][l] = bit_cast<u32>(half_to_float(c[l] >> 16));
    }
  }
  u32* const fragment[4] = {wide[0], wide[1], wide[2], wide[3]};
  multiply<Half, kSteps>(fragment, operand + 2, operand + 2 + 2 * kSteps, fragment);
  for (int r = 0; r < 2; ++r) {
    u32* d = operand[r];
    for (int l = 0; l < kWarpSize; ++l) {
      d[l] = float_to_half(bit_cast<float>(wide[2 * r][l])) |
             float_to_half(bit_cast<float>(wide[2 * r + 1][l])) << 16;
    }
  }
  return Status::kNext;
}

VGPU_INLINE s64 clamp_s32(s64 value) {
  return value > 0x7fffffffll ? 0x7fffffffll : value < -0x80000000ll ? -0x80000000ll : value;
}

// Bytes times bytes, added to s32 with wraparound, or clamped. kRows is 1 for m8n8 and 2 for m16n8.
template <class A, class B, int kRows, int kSteps, bool kClamp>
Status mma_s32(Warp& w, const Ins& i, u32 mask) {
  if (mask != kFullMask) return whole_warp_only(w, mask);
  constexpr int kDepth = 16 * kSteps;
  constexpr int kFirstB = 2 * kRows + kRows * kSteps;
  alignas(64) s16 left[8 * kRows][kDepth];
  alignas(64) s16 right[8][kDepth];
  const auto unpack = [](auto type, const u32* words_of, auto* rows, int column) {
    using T = decltype(type);
    const T* bytes = reinterpret_cast<const T*>(words_of);
    for (int g = 0; g < 8; ++g) {
      for (int k = 0; k < 16; ++k) rows[g][column + k] = bytes[16 * g + k];
    }
  };
  for (int h = 0; h < kSteps; ++h) {
    for (int r = 0; r < kRows; ++r) {
      unpack(A(), words(w, i, 2 * kRows + kRows * h + r), left + 8 * r, 16 * h);
    }
    unpack(B(), words(w, i, kFirstB + h), right, 16 * h);
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
        const s64 exact = static_cast<s64>(static_cast<s32>(from[l])) + sum;
        to[l] = static_cast<u32>(kClamp ? clamp_s32(exact) : exact);
      }
    }
  }
  return Status::kNext;
}

template <class A, class B, bool kClamp>
void add_integer(OpTable& t, const char* suffix) {
  add_function(t, Name("mma.m8n8k16", suffix).text, &mma_s32<A, B, 1, 1, kClamp>, "ww", "wwww");
  add_function(t, Name("mma.m16n8k16", suffix).text, &mma_s32<A, B, 2, 1, kClamp>, "wwww",
               "wwwwwww");
  add_function(t, Name("mma.m16n8k32", suffix).text, &mma_s32<A, B, 2, 2, kClamp>, "wwww",
               "wwwwwwwwww");
}

}  // namespace

void register_matrix(OpTable& t) {
  add_function(t, "mma.m16n8k16.f32.f16.f16", &mma_f32<Half, 2>, "wwww", "wwwwwwwwww");
  add_function(t, "mma.m16n8k8.f32.f16.f16", &mma_f32<Half, 1>, "wwww", "wwwwwww");
  add_function(t, "mma.m16n8k16.f16.f16.f16", &mma_f16<2>, "ww", "wwwwwwww");
  add_function(t, "mma.m16n8k8.f16.f16.f16", &mma_f16<1>, "ww", "wwwww");
  add_function(t, "mma.m16n8k16.f32.bf16.bf16", &mma_f32<Bfloat, 2>, "wwww", "wwwwwwwwww");
  add_function(t, "mma.m16n8k8.f32.bf16.bf16", &mma_f32<Bfloat, 1>, "wwww", "wwwwwww");
  add_function(t, "mma.m16n8k8.f32.tf32.tf32", &mma_f32<Tf32, 2>, "wwww", "wwwwwwwwww");
  add_function(t, "mma.m16n8k4.f32.tf32.tf32", &mma_f32<Tf32, 1>, "wwww", "wwwwwww");
  add_integer<s8, s8, false>(t, "s32.s8.s8");
  add_integer<s8, u8, false>(t, "s32.s8.u8");
  add_integer<u8, s8, false>(t, "s32.u8.s8");
  add_integer<u8, u8, false>(t, "s32.u8.u8");
  add_integer<s8, s8, true>(t, "satfinite.s32.s8.s8");
  add_integer<s8, u8, true>(t, "satfinite.s32.s8.u8");
  add_integer<u8, s8, true>(t, "satfinite.s32.u8.s8");
  add_integer<u8, u8, true>(t, "satfinite.s32.u8.u8");
}

}  // namespace vgpu::VGPU_ISA
