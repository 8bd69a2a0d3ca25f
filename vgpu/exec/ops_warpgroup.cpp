// wgmma: what a warp notes when it issues one, and who performs it when.
//
// Operands are those of WgmmaForm; extra is the form's number in Program::forms.
#include "exec/matrix_descriptor.h"
#include "exec/warpgroup_product.h"

namespace vgpu::VGPU_ISA {
namespace {

Status fault(Warp& w, const char* what, u32 lane) {
  w.fault.kind = FaultKind::kBarrier;
  w.fault.detail = what;
  w.fault.lane = static_cast<int>(lane);
  return Status::kFault;
}

Warp* group_of(Warp& w) { return &w - w.index % kWarpsOfGroup; }

// The same in all lanes, as the instruction demands.
bool same_in_all(const u64* value) {
  bool same = true;
  for (int l = 1; l < kWarpSize; ++l) same &= value[l] == value[0];
  return same;
}

// The end of what a descriptor's matrix takes of shared memory. `lines` and `along_k` count core
// matrices. The swizzle moves nothing out of its 128 bytes, so the last of those decide, mostly.
bool inside_shared(const Warp& w, const MatrixDescriptor& m, u32 first, u32 lines, u32 along_k) {
  const u32 last = m.core(first + lines - 1, along_k - 1) + 7 * m.pitch();
  if ((last | 127) < w.shared_bytes) return true;
  for (u32 line = first; line < first + lines; ++line) {
    for (u32 k = 0; k < along_k; ++k) {
      for (u32 row = 0; row < 8; ++row) {
        const u32 at = m.swizzled(m.core(line, k) + row * m.pitch());
        if (!fits(at, kChunkBytes, 0, w.shared_bytes)) return false;
      }
    }
  }
  return true;
}

// Performs, for all warps, what they have issued up to `end`.
Status perform(Warp& w, u64 end) {
  Warp* const group = group_of(w);
  while (w.wgmma.performed < end) {
    const u64 first = w.wgmma.performed;
    const WgmmaIssue& issue = w.wgmma.at(first);
    const WgmmaForm& form = w.launch->program->forms[issue.ins->extra];
    for (u32 k = 0; k < kWarpsOfGroup; ++k) {
      const WgmmaIssue& theirs = group[k].wgmma.at(first);
      if (theirs.ins->extra != issue.ins->extra)
        return fault(w, "the warps of a warpgroup execute different wgmma instructions", 0);
      if (theirs.b != issue.b || (!form.a_in_registers && theirs.a != issue.a) ||
          theirs.accumulate != issue.accumulate)
        return fault(w, "the warps of a warpgroup give one wgmma different descriptors", 0);
    }
    const u64 done = multiply_warpgroup(group, form, first, end);
    for (u32 k = 0; k < kWarpsOfGroup; ++k) group[k].wgmma.performed = done;
  }
  return Status::kNext;
}

bool all_have_issued(Warp& w, u64 end) {
  const Warp* const group = group_of(w);
  for (u32 k = 0; k < kWarpsOfGroup; ++k) {
    if (group[k].wgmma.issued < end) return false;
  }
  return true;
}

// A warp that has ended, or was never there, will not come.
bool one_is_missing(Warp& w, u64 end) {
  const Warp* const group = group_of(w);
  for (u32 k = 0; k < kWarpsOfGroup; ++k) {
    if (group[k].done && group[k].wgmma.issued < end) return true;
  }
  return false;
}

Status issue(Warp& w, const Ins& i, u32 mask) {
  const u32 lane = static_cast<u32>(__builtin_ctz(mask));
  if (mask != kFullMask) return fault(w, "wgmma was reached by a part of the warp's threads", lane);
  if (w.index / kWarpsOfGroup * kWarpsOfGroup + kWarpsOfGroup > w.cta->warps)
    return fault(w, "wgmma needs a warpgroup, four warps, and the block has not so many", lane);
  const WgmmaForm& form = w.launch->program->forms[i.extra];
  const int a = static_cast<int>(form.a_operand());
  const int b = static_cast<int>(form.b_operand());
  const u32 scale = predicate(w, i, static_cast<int>(form.scale_operand()));
  if (!same_in_all(doubles(w, i, b)) || (!form.a_in_registers && !same_in_all(doubles(w, i, a))))
    return fault(w, "the lanes of a warp give wgmma different descriptors", lane);
  if (scale != 0 && scale != kFullMask)
    return fault(w, "the lanes of a warp give wgmma different values of scale-d", lane);
  if (w.wgmma.issued - w.wgmma.waited == w.wgmma.capacity) grow_wgmmas(w.wgmma);
  WgmmaIssue& to = w.wgmma.at(w.wgmma.issued);
  to.ins = &i;
  to.a = form.a_in_registers ? 0 : doubles(w, i, a)[0];
  to.b = doubles(w, i, b)[0];
  to.group = w.wgmma.group;
  to.pc = w.pc;
  to.accumulate = scale != 0;
  const u32 mine = w.index % kWarpsOfGroup * 2;
  const MatrixDescriptor right(to.b, form.b_by_rows);
  if (!right.holds_row(form.b_chunks()))
    return fault(w, "the descriptor of B leads out of a row of its swizzle", lane);
  if (!inside_shared(w, right, 0, form.columns / 8, form.b_chunks()))
    return fault(w, "the descriptor of B leads beyond the block's shared memory", lane);
  const MatrixDescriptor left(to.a, form.a_by_columns);
  if (!form.a_in_registers && !left.holds_row(2))
    return fault(w, "the descriptor of A leads out of a row of its swizzle", lane);
  if (!form.a_in_registers && !inside_shared(w, left, mine, 2, 2))
    return fault(w, "the descriptor of A leads beyond the block's shared memory", lane);
  ++w.wgmma.issued;
  if (!w.launch->late_copies && all_have_issued(w, w.wgmma.issued))
    return perform(w, w.wgmma.issued);
  return Status::kNext;
}

Status commit(Warp& w, const Ins&, u32 mask) {
  if (mask != kFullMask)
    return fault(w, "wgmma.commit_group was reached by a part of the warp's threads",
                 static_cast<u32>(__builtin_ctz(mask)));
  ++w.wgmma.group;
  return Status::kNext;
}

// extra: groups that may stay under way.
Status wait(Warp& w, const Ins& i, u32 mask) {
  if (mask != kFullMask)
    return fault(w, "wgmma.wait_group was reached by a part of the warp's threads",
                 static_cast<u32>(__builtin_ctz(mask)));
  WgmmaQueue& q = w.wgmma;
  u64 end = q.waited;
  while (end < q.issued && static_cast<s32>(q.at(end).group - (q.group - i.extra)) < 0) ++end;
  if (q.performed < end) {
    if (one_is_missing(w, end))
      return fault(w, "a warp of the warpgroup has ended without the wgmma that others wait for",
                   0);
    if (!all_have_issued(w, end)) {
      w.waiting = true;
      w.barrier_id = kWaitsForWarpgroup;
      return Status::kBlock;
    }
    if (const Status status = perform(w, end); status != Status::kNext) return status;
  }
  w.waiting = false;
  q.waited = end;
  return Status::kNext;
}

Status fence(Warp& w, const Ins&, u32 mask) {
  if (mask == kFullMask) return Status::kNext;
  return fault(w, "wgmma.fence was reached by a part of the warp's threads",
               static_cast<u32>(__builtin_ctz(mask)));
}

}  // namespace

// The operands of "wgmma" are those of a form: lowering spells them.
void register_warpgroup(OpTable& t) {
  add_function(t, "wgmma", &issue, "", "");
  add_function(t, "wgmma.commit_group", &commit, "", "");
  add_function(t, "wgmma.wait_group", &wait, "", "");
  add_function(t, "wgmma.fence", &fence, "", "");
}

}  // namespace vgpu::VGPU_ISA
