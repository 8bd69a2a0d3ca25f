// Matrix descriptors of wgmma: where the rows of a core matrix (8 rows of 16 bytes) lie in shared
// memory. Source: PTX ISA, "Shared memory matrix layout"; the canonical layouts are written out in
// CUTLASS, cute/atom/mma_traits_sm90_gmma.hpp.
//
//   bits  0-13  start address / 16       bits 49-51  base offset
//   bits 16-29  leading byte offset / 16  bits 62-63  0 no swizzle, 1 128, 2 64, 3 32 bytes
//   bits 32-45  stride byte offset / 16
//
// "Lines" are M or N, and "chunks" 16 bytes along the direction that runs fastest in memory.
#pragma once

#include "exec/types.h"

namespace vgpu {

class MatrixDescriptor {
 public:
  // `by_lines`: M or N runs fastest ("MN-major"), which only 16-bit elements allow.
  MatrixDescriptor(u64 bits, bool by_lines)
      : start_(static_cast<u32>(bits & 0x3fff) << 4),
        by_lines_(by_lines),
        phase_(static_cast<u32>(bits >> 49 & 7)) {
    const u32 leading = static_cast<u32>(bits >> 16 & 0x3fff) << 4;
    const u32 stride = static_cast<u32>(bits >> 32 & 0x3fff) << 4;
    const u32 mode = static_cast<u32>(bits >> 62);
    width_ = mode == 0 ? 1 : mode == 1 ? 8 : mode == 2 ? 4 : 2;
    if (!by_lines) {
      groups_ = stride;
      chunks_ = width_ == 1 ? leading : kChunk;
    } else {
      groups_ = width_ == 1 ? leading : stride;
      chunks_ = width_ == 1 ? stride : leading;
    }
  }

  // The first byte of row 0 of a core matrix before the swizzle; its rows lie pitch() apart. Core
  // matrices are told by their line and their place along K: both in units of 8 or of a chunk.
  // By lines, a row is a step of K and 8 lines of 16 bits.
  u32 core(u32 lines, u32 along_k) const {
    if (!by_lines_) return start_ + lines * groups_ + along_k * chunks_;
    return start_ + along_k * groups_ + lines / width_ * chunks_ +
           (width_ == 1 ? 0 : lines % width_ * kChunk);
  }
  u32 pitch() const { return width_ * kChunk; }
  // Whether so many chunks along K lie in one row of the swizzle: nothing tells where others would.
  bool holds_row(u32 chunks) const {
    return by_lines_ || width_ == 1 || start_ / kChunk % width_ + chunks <= width_;
  }
  // The swizzle exchanges chunks of 16 bytes within 128, by the number of the 128 bytes in the
  // pattern. The base offset is that of the pattern's start.
  u32 swizzled(u32 address) const {
    return address ^ ((((address >> 7) - phase_) & (width_ - 1)) << 4);
  }

 private:
  static constexpr u32 kChunk = 16;
  u32 start_;
  bool by_lines_;
  u32 phase_;
  u32 width_;   // chunks of a swizzle's row; 1: no swizzle
  u32 groups_;  // bytes from 8 rows to the next 8
  u32 chunks_;
};

}  // namespace vgpu
