// Floats of four and six bits, two at a time, to halves: every one of them is a half.
#include "exec/lanes.h"

namespace vgpu::VGPU_ISA {
namespace {

// A sign, kExponent bits and kMantissa bits; no infinities and no NaN.
template <int kExponent, int kMantissa>
VGPU_INLINE u32 half_of(u32 bits) {
  constexpr u32 kBias = (1u << (kExponent - 1)) - 1;
  const u32 exponent = bits >> kMantissa & ((1u << kExponent) - 1);
  const u32 mantissa = bits & ((1u << kMantissa) - 1);
  const u32 whole = exponent ? mantissa | 1u << kMantissa : mantissa;
  const u32 scale = 127 + (exponent ? exponent : 1) - kBias - kMantissa;
  const float magnitude = static_cast<float>(whole) * bit_cast<float>(scale << 23);
  return float_to_half(magnitude) | (bits >> (kExponent + kMantissa) & 1) << 15;
}

}  // namespace

void register_narrow(OpTable& t) {
  add<U32, U32>(t, "cvt.f16x2.e2m1x2",
                [](u32 a) { return half_of<2, 1>(a) | half_of<2, 1>(a >> 4) << 16; });
  add<U32, U32>(t, "cvt.f16x2.e3m2x2",
                [](u32 a) { return half_of<3, 2>(a) | half_of<3, 2>(a >> 8) << 16; });
  add<U32, U32>(t, "cvt.f16x2.e2m3x2",
                [](u32 a) { return half_of<2, 3>(a) | half_of<2, 3>(a >> 8) << 16; });
}

}  // namespace vgpu::VGPU_ISA
