// The integer names of PTX, and the fault and status codes that the executor shares.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vgpu {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s8 = std::int8_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
using f32 = float;
using f64 = double;
__extension__ using u128 = unsigned __int128;
__extension__ using s128 = __int128;

inline constexpr int kWarpSize = 32;
inline constexpr u32 kFullMask = 0xffffffffu;

// Generic addresses of the two spaces that are not host memory. User-space pointers of x86-64 and
// AArch64 Linux stay below 2^56, so the windows cannot collide with device memory.
inline constexpr u64 kSharedWindow = 1ull << 56;
inline constexpr u64 kLocalWindow = 1ull << 57;
// A CTA's shared memory lies so far from that of the one before it in its cluster, as on a GPU.
inline constexpr u32 kSharedSpanBits = 24;
inline constexpr u32 kSharedSpan = 1u << kSharedSpanBits;
inline constexpr u64 kWindowMask = ~((1ull << 56) - 1);

}  // namespace vgpu
