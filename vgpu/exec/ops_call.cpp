// Calls that are not inlined (recursion, calls through pointers), and malloc.
//
// A function that is called so has its code once. Arguments and results travel through local
// memory, where every call has a frame, at the lower end of it; the warp's registers are saved
// (call_stack.h) and restored where the call returns. The lanes that call wait on the stack of
// paths, below the paths that the callee's branches make, so the call returns when all of its lanes
// have.
#include "exec/call_stack.h"
#include "exec/device_heap.h"
#include "exec/lanes.h"

namespace vgpu::VGPU_ISA {
namespace {

Status trap_with(Warp& w, const char* what, u32 mask) {
  w.fault.kind = FaultKind::kTrap;
  w.fault.detail = what;
  w.fault.lane = __builtin_ctz(mask);
  return Status::kFault;
}

// Operands: start of the frame in local memory, and the number of calls that are under way. imm is
// the size of the caller's frame, extra that of the callee's.
Status call(Warp& w, const Ins& i, u32 mask) {
  u64* frame = doubles(w, i, 0);
  u32* level = words(w, i, 1);
  const u64 start = frame[0] + static_cast<u64>(i.imm);
  const u32 under_way = level[0];
  u64 bytes = 0;
  if (!fits_stack(*w.launch, start + i.extra, under_way + 1, &bytes)) {
    w.fault.kind = FaultKind::kStack;
    w.fault.address = bytes;
    w.fault.bytes = under_way + 1;
    w.fault.lane = __builtin_ctz(mask);
    return Status::kFault;
  }
  if (w.depth == w.stack_room || !save_registers(w, under_way, start + i.extra))
    return trap_with(w, "the calls are nested deeper than the virtual GPU's stack", mask);
  for (int l = 0; l < kWarpSize; ++l) {
    frame[l] = start;
    level[l] = under_way + 1;
  }
  w.stack[w.depth++] = {w.pc + 1, w.reconverge, mask};
  w.reconverge = -1;
  w.pc = i.target - 1;  // the loop goes to the next
  return Status::kNext;
}
// The lanes of this path are done with the function. Those of its other paths go on, or the caller.
Status leave(Warp& w, const Ins&, u32 mask) {
  while (w.depth) {
    const DivergenceEntry& e = w.stack[--w.depth];
    const u32 going = e.mask & w.live;
    if (!going) continue;
    w.pc = e.pc - 1;
    w.reconverge = e.reconverge;
    w.mask = going;
    return Status::kNext;
  }
  return trap_with(w, "a function returns to no caller", mask);
}
Status restore(Warp& w, const Ins& i, u32) {
  u64* frame = doubles(w, i, 0);
  u32* level = words(w, i, 1);
  const u64 start = frame[0] - static_cast<u64>(i.imm);
  const u32 under_way = level[0] - 1;
  restore_registers(w, under_way);
  for (int l = 0; l < kWarpSize; ++l) {
    frame[l] = start;
    level[l] = under_way;
  }
  return Status::kNext;
}
Status nowhere(Warp& w, const Ins&, u32 mask) {
  return trap_with(w, "a call through a pointer to no function of this type in the module", mask);
}

Status allocate(Warp& w, const Ins& i, u32 mask) {
  for_lanes(mask, [&](int l) { doubles(w, i, 0)[l] = device_malloc(doubles(w, i, 1)[l]); });
  return Status::kNext;
}
Status release(Warp& w, const Ins& i, u32 mask) {
  for (u32 left = mask; left; left &= left - 1) {
    const int l = __builtin_ctz(left);
    if (!device_free(doubles(w, i, 0)[l]))
      return trap_with(w, "free of what malloc did not return, or of what is freed", 1u << l);
  }
  return Status::kNext;
}

}  // namespace

void register_call(OpTable& t) {
  add_function(t, "call", &call, "", "dw");
  add_function(t, "call.restore", &restore, "", "dw");
  add_function(t, "call.nowhere", &nowhere, "", "");
  add_function(t, "return", &leave, "", "");
  add_function(t, "malloc", &allocate, "d", "d");
  add_function(t, "free", &release, "", "d");
}

}  // namespace vgpu::VGPU_ISA
