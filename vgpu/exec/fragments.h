// What the matrix instructions share.
//
// Fragments (PTX ISA, "Matrix fragments for mma"), with g = lane / 4, t = lane % 4 and e elements
// in a register (32 bits, 8 nibbles, 4 bytes, 2 halves, 1 tf32 or f64); m8n8 has the registers with
// r = 0 only:
//   A  register 2h + r: row g + 8r, columns e (4h + t) + 0..e-1
//   B  register h:      rows e (4h + t) + 0..e-1, column g
//   C  register 2r + c: row g + 8r, column 2t + c
// m8n8k4 of halves is older and has fragments of its own: ops_matrix_volta.cpp.
#pragma once

#include "exec/access.h"

namespace vgpu::VGPU_ISA {

inline Status whole_warp_only(Warp& w, u32 mask) {
  w.fault.kind = FaultKind::kBarrier;
  w.fault.detail = "a matrix instruction was reached by a part of the warp's threads";
  w.fault.lane = __builtin_ctz(mask);
  return Status::kFault;
}

}  // namespace vgpu::VGPU_ISA
