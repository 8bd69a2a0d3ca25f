// Tensor cores: mma.sync.
//
// Floating-point sums run over k in order, one rounding to f32 per step, so every variant agrees.
// A GPU adds blocks of k with more bits and in another order: results differ from it in the last
// bits of f32. The fragments are those of fragments.h.
#include "exec/fragments.h"

#if defined(__AVX2__)
#include "exec/product.h"
#else
#include "exec/product_generic.h"
#endif

namespace vgpu::VGPU_ISA {
namespace {

// One instruction: d, A, B, c. Sums in f16 are pairs of columns, and are read later.
template <int kSteps, int kSums>
VGPU_INLINE void read_operands(Warp& w, const Ins& i, Operands<kSteps>& o) {
  o.registers = w.registers;
  o.a = i.ops + kSums;
  o.b = o.a + 2 * kSteps;
  if constexpr (kSums == 4) {
    for (int n = 0; n < 4; ++n) {
      o.d[n] = words(w, i, n);
      o.c[n] = words(w, i, kSums + 3 * kSteps + n);
    }
  }
}

template <class E, int kSteps>
Status mma_f32(Warp& w, const Ins& first, u32 mask) {
  if (mask != kFullMask) return whole_warp_only(w, mask);
  Multiplier<E, kSteps> multiplier;
  for (const Ins *i = &first, *end = i + first.run; i != end; ++i) {
    Operands<kSteps> one, other;
    read_operands<kSteps, 4>(w, *i, one);
    bool both = i + 1 != end;
    if (both) {
      read_operands<kSteps, 4>(w, i[1], other);
      for (int n = 0; n < 2 * kSteps; ++n) both &= one.a[n] == other.a[n];
    }
    if (both) {
      multiplier.run(one, other);
      ++i;
    } else {
      multiplier.run(one);
    }
  }
  return Status::kNext;
}

// f16 accumulators come in pairs of columns; they are summed in f32 and rounded once.
template <int kSteps>
Status mma_f16(Warp& w, const Ins& first, u32 mask) {
  if (mask != kFullMask) return whole_warp_only(w, mask);
  Multiplier<Half, kSteps> multiplier;
  for (const Ins* i = &first; i != &first + first.run; ++i) {
    alignas(64) u32 wide[4][kWarpSize];
    for (int r = 0; r < 2; ++r) {
      const u32* c = words(w, *i, 2 + 3 * kSteps + r);
      for (int l = 0; l < kWarpSize; ++l) {
        wide[2 * r][l] = bit_cast<u32>(half_to_float(c[l] & 0xffff));
        wide[2 * r + 1][l] = bit_cast<u32>(half_to_float(c[l] >> 16));
      }
    }
    Operands<kSteps> one;
    read_operands<kSteps, 2>(w, *i, one);
    for (int n = 0; n < 4; ++n) one.c[n] = one.d[n] = wide[n];
    multiplier.run(one);
    for (int r = 0; r < 2; ++r) {
      u32* d = words(w, *i, r);
      for (int l = 0; l < kWarpSize; ++l) {
        d[l] = float_to_half(bit_cast<float>(wide[2 * r][l])) |
               float_to_half(bit_cast<float>(wide[2 * r + 1][l])) << 16;
      }
    }
  }
  return Status::kNext;
}

}  // namespace

void register_matrix(OpTable& t) {
  add_run(t, "mma.m16n8k16.f32.f16.f16", &mma_f32<Half, 2>, "wwww", "wwwwwwwwww");
  add_run(t, "mma.m16n8k8.f32.f16.f16", &mma_f32<Half, 1>, "wwww", "wwwwwww");
  add_run(t, "mma.m16n8k16.f16.f16.f16", &mma_f16<2>, "ww", "wwwwwwww");
  add_run(t, "mma.m16n8k8.f16.f16.f16", &mma_f16<1>, "ww", "wwwww");
  add_run(t, "mma.m16n8k16.f32.bf16.bf16", &mma_f32<Bfloat, 2>, "wwww", "wwwwwwwwww");
  add_run(t, "mma.m16n8k8.f32.bf16.bf16", &mma_f32<Bfloat, 1>, "wwww", "wwwwwww");
  add_run(t, "mma.m16n8k8.f32.tf32.tf32", &mma_f32<Tf32, 2>, "wwww", "wwwwwwwwww");
  add_run(t, "mma.m16n8k4.f32.tf32.tf32", &mma_f32<Tf32, 1>, "wwww", "wwwwwww");
}

}  // namespace vgpu::VGPU_ISA
