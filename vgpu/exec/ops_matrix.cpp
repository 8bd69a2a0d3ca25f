// Tensor cores: mma.sync.
//
// Floating-point sums run over k in order, one rounding to f32 per step, so every variant agrees.
// A GPU adds blocks of k with more bits and in another order: results differ from it in the last
// bits of f32. The fragments are those of fragments.h.
#include "exec/fragments.h"

#if defined(__AVX512F__)
#include "exec/product_avx512.h"
#elif defined(__AVX2__)
#include "exec/product_avx2.h"
#else
#include "exec/product_generic.h"
#endif

namespace vgpu::VGPU_ISA {
namespace {

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
}

}  // namespace vgpu::VGPU_ISA
