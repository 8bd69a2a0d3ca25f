// setmaxnreg: how the warps of a block share out its registers.
//
// A block starts with what its launch gave each thread; what a warp gives up is for the others to
// take. Registers of warps that have ended are not.
#include "exec/lanes.h"

namespace vgpu::VGPU_ISA {
namespace {

Status fault(Warp& w, const char* what, u32 mask) {
  w.fault.kind = FaultKind::kBarrier;
  w.fault.detail = what;
  w.fault.lane = __builtin_ctz(mask);
  return Status::kFault;
}

// extra: registers of a thread from now on. Without a limit that the kernel was compiled with, it
// has no effect. Source: PTX ISA, setmaxnreg.
Status give_up(Warp& w, const Ins& i, u32 mask) {
  if (mask != kFullMask)
    return fault(w, "setmaxnreg was reached by a part of the warp's threads", mask);
  if (!w.launch->register_limit) return Status::kNext;
  if (i.extra > w.register_limit)
    return fault(w, "setmaxnreg.dec asks for more registers than the warp has", mask);
  w.cta->free_registers += w.register_limit - i.extra;
  w.register_limit = i.extra;
  return Status::kNext;
}

// Waits until others have given up enough.
Status take(Warp& w, const Ins& i, u32 mask) {
  if (mask != kFullMask)
    return fault(w, "setmaxnreg was reached by a part of the warp's threads", mask);
  if (!w.launch->register_limit) return Status::kNext;
  if (i.extra < w.register_limit)
    return fault(w, "setmaxnreg.inc asks for fewer registers than the warp has", mask);
  const u32 more = i.extra - w.register_limit;
  if (more > w.cta->free_registers) {
    w.waiting = true;
    w.barrier_id = kWaitsForRegisters;
    return Status::kBlock;
  }
  w.waiting = false;
  w.cta->free_registers -= more;
  w.register_limit = i.extra;
  return Status::kNext;
}

}  // namespace

void register_registers(OpTable& t) {
  add_function(t, "setmaxnreg.dec", &give_up, "", "");
  add_function(t, "setmaxnreg.inc", &take, "", "");
}

}  // namespace vgpu::VGPU_ISA
