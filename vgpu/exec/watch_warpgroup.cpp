// wgmma under the checks: what it reads of shared memory and when, and who touches its registers.
#include <bitset>

#include "exec/matrix_descriptor.h"
#include "exec/watch.h"

namespace vgpu::watch {
namespace {

const WgmmaForm& form_of(const Warp& w, const Ins& i) { return w.launch->program->forms[i.extra]; }

// Calls f(address, first line, step of K) for every row of the core matrices of a warp's operands:
// 16 bytes. By lines, a row has 8 lines of one step; else one line.
template <class F>
void each_row(const MatrixDescriptor& m, bool by_lines, u32 first, u32 count, u32 chunks, F f) {
  for (u32 line = first; line < first + count; ++line) {
    for (u32 k = 0; k < chunks; ++k) {
      for (u32 row = 0; row < 8; ++row)
        f(m.swizzled(m.core(line, k) + row * m.pitch()), 8 * line + (by_lines ? 0 : row));
    }
  }
}
template <class F>
void each_row_of_left(const Warp& w, const WgmmaForm& form, const WgmmaIssue& issue, F f) {
  if (form.a_in_registers) return;
  const MatrixDescriptor m(issue.a, form.a_by_columns);
  each_row(m, form.a_by_columns, w.index % kWarpsOfGroup * 2, 2, 2, f);
}
template <class F>
void each_row_of_right(const WgmmaForm& form, const WgmmaIssue& issue, F f) {
  const MatrixDescriptor m(issue.b, form.b_by_rows);
  each_row(m, form.b_by_rows, 0, form.columns / 8, form.b_chunks(), f);
}

// --- registers

enum class Role { kNone, kSum, kFactor };

// What a register, told by its offset, is to a wgmma.
Role role_of(const Warp& w, const Ins& wgmma, u32 offset) {
  const WgmmaForm& form = form_of(w, wgmma);
  for (u32 n = 0; n < form.sums(); ++n) {
    if (wgmma.ops[n] == offset) return Role::kSum;
  }
  for (u32 n = 0; n < form.a_registers(); ++n) {
    if (wgmma.ops[form.a_operand() + n] == offset) return Role::kFactor;
  }
  if (form.sparse && wgmma.ops[form.metadata_operand()] == offset) return Role::kFactor;
  return Role::kNone;
}

void report_touch(Warp& w, const WgmmaIssue& issue, const char* what) {
  CheckRun& run = *w.launch->checks;
  const u32 line = w.launch->code[issue.pc].line;
  Sighting s = {kRacecheck, "register of a wgmma under way",
                std::string(what) + " the wgmma of PTX line " + std::to_string(line) +
                    ", which has not been waited for: wgmma.wait_group is missing"};
  s.cause = what;
  run.report(w, s, 0);
}

// A wgmma may only add to the sums of others of its form, and share A with any.
void check_chain(Warp& w, const Ins& i) {
  const WgmmaForm& form = form_of(w, i);
  const WgmmaQueue& q = w.wgmma;
  for (u64 n = q.waited; n < q.issued; ++n) {
    const WgmmaIssue& other = q.at(n);
    if (other.ins == &i) continue;
    const WgmmaForm& theirs = form_of(w, *other.ins);
    const bool alike = theirs.columns == form.columns && theirs.sum == form.sum;
    for (u32 k = 0; k < form.sums(); ++k) {
      const Role role = role_of(w, *other.ins, i.ops[k]);
      if (role == Role::kFactor) return report_touch(w, other, "writes a register of A of");
      if (role == Role::kSum && !alike)
        return report_touch(w, other, "has another shape than, and adds to a sum of,");
    }
    for (u32 k = 0; k < form.a_registers(); ++k) {
      if (role_of(w, *other.ins, i.ops[form.a_operand() + k]) == Role::kSum)
        return report_touch(w, other, "multiplies a sum of");
    }
  }
}

void check_fence(Warp& w, const Ins& i) {
  const WgmmaForm& form = form_of(w, i);
  WarpCheck& check = *w.check;
  const auto say = [&](const char* text) {
    Sighting s = {kRacecheck, "missing wgmma.fence", text};
    s.cause = text;
    w.launch->checks->report(w, s, 0);
  };
  if (!check.fenced) return say("the first wgmma comes without a wgmma.fence before it");
  for (u32 k = 0; k < form.sums(); ++k) {
    if (check.written[i.ops[k] / 128])
      return say("a sum was written after the last wgmma.fence, by something else than wgmma");
  }
  for (u32 k = 0; k < form.a_registers(); ++k) {
    if (check.written[i.ops[form.a_operand() + k] / 128])
      return say("a register of A was written after the last wgmma.fence");
  }
}

// --- synccheck

// Registers of a thread that this wgmma and those under way hold: nothing may touch them before the
// wait, so no compiler can keep one of them elsewhere.
u32 held_registers(const Warp& w, const Ins& i) {
  const WgmmaQueue& q = w.wgmma;
  std::vector<bool> held(w.launch->program->register_bytes / 128);
  const auto hold = [&](const Ins& wgmma) {
    const WgmmaForm& form = form_of(w, wgmma);
    for (u32 k = 0; k < form.sums(); ++k) held[wgmma.ops[k] / 128] = true;
    for (u32 k = 0; k < form.a_registers(); ++k) held[wgmma.ops[form.a_operand() + k] / 128] = true;
  };
  for (u64 n = q.waited; n < q.issued; ++n) hold(*q.at(n).ins);
  hold(i);
  return static_cast<u32>(std::count(held.begin(), held.end(), true));
}

void check_registers(Warp& w, const Ins& i) {
  if (w.register_limit == w.launch->register_limit) return;
  const u32 held = held_registers(w, i);
  if (held <= w.register_limit) return;
  w.launch->checks->report(
      w,
      {kSynccheck, "registers beyond setmaxnreg",
       "a wgmma and those under way hold " + std::to_string(held) +
           " registers of a thread, which setmaxnreg has left " + std::to_string(w.register_limit)},
      0);
}

// --- initcheck

struct Spoilt {
  std::bitset<kRowsOfWarp> rows;
  std::bitset<kMostColumns> columns;
  bool any() const { return rows.any() || columns.any(); }
};

// The lines of 16 bytes of which some are undefined.
template <class Set>
void look(const Warp& w, bool by_lines, u32 address, u32 line, Set& lines) {
  const u8* written = w.cta->check->shared_written + address;
  constexpr u64 kOnes = 0x0101010101010101ull;
  u64 words[2];
  std::memcpy(words, written, sizeof(words));
  if (__builtin_expect(words[0] == kOnes && words[1] == kOnes, 1)) return;
  for (u32 b = 0; b < kChunkBytes; ++b) {
    if (written[b] != 1) lines.set((line + (by_lines ? b / 2 : 0)) % lines.size());
  }
}

void look_at_left(Warp& w, const Ins& i, const WgmmaIssue& issue, Spoilt& s) {
  const WgmmaForm& form = form_of(w, i);
  each_row_of_left(w, form, issue,
                   [&](u32 at, u32 line) { look(w, form.a_by_columns, at, line, s.rows); });
  for (u32 k = 0; k < form.a_registers(); ++k) {
    u32 left = shadow_of(w, i, static_cast<int>(form.a_operand() + k)).undefined;
    for (; left; left &= left - 1)
      s.rows.set(static_cast<u32>(__builtin_ctz(left)) / 4 + k % 2 * 8);
  }
}
void look_at_right(const Warp& w, const WgmmaIssue& issue, Spoilt& s) {
  const WgmmaForm& form = form_of(w, *issue.ins);
  each_row_of_right(form, issue,
                    [&](u32 at, u32 line) { look(w, form.b_by_rows, at, line, s.columns); });
}

// Columns of the sums are pairs in f16; else registers have one each.
u32 spoilt_lanes(const WgmmaForm& form, const Spoilt& s, u32 sum) {
  const bool pairs = form.sum == WgmmaForm::Sum::kF16;
  const u32 row = (pairs ? sum % 2 : sum / 2 % 2) * 8;
  const u32 first = sum / (pairs ? 2 : 4) * 8 + (pairs ? 0 : sum % 2);
  u32 lanes = 0;
  for (u32 l = 0; l < kWarpSize; ++l) {
    const u32 column = first + 2 * (l % 4);
    const bool bad = s.rows[row + l / 4] || s.columns[column] || (pairs && s.columns[column + 1]);
    lanes |= static_cast<u32>(bad) << l;
  }
  return lanes;
}

// When the product has been made: what was undefined of its operands then is so of its sums.
void follow_values(Warp& w, const WgmmaIssue& issue, Spoilt s) {
  const Ins& i = *issue.ins;
  const WgmmaForm& form = form_of(w, i);
  look_at_left(w, i, issue, s);
  const s32 pc = w.pc;
  w.pc = issue.pc;  // the origin is the wgmma, not the wait for it
  const u32 origin = s.any() ? w.launch->checks->origin(w, Place::kShared, 0, kChunkBytes, 0) : 0;
  w.pc = pc;
  for (u32 k = 0; k < form.sums(); ++k) {
    const int sum = static_cast<int>(k);
    if (!issue.accumulate) define(w, i, sum, kFullMask, 4);
    if (!s.any()) continue;
    const u32 lanes = spoilt_lanes(form, s, k);
    if (lanes) undefine(w, i, sum, lanes, {lanes, lanes, origin});
  }
}

}  // namespace

Status wgmma(Warp& w, const Ins& i, u32 mask) {
  const CheckRun& run = *w.launch->checks;
  if (run.has(kRacecheck)) {
    check_fence(w, i);
    check_chain(w, i);
  }
  if (run.has(kSynccheck)) check_registers(w, i);
  const u64 before = w.wgmma.issued;
  const Status status = i.watch->op(w, i, mask);
  if (status != Status::kNext || w.wgmma.issued == before) return status;
  const WgmmaIssue issue = w.wgmma.at(before);
  const WgmmaForm& form = form_of(w, i);
  if (run.has(kRacecheck)) {
    const auto read = [&](u32 at, u32) { race_wgmma(w, at, kChunkBytes); };
    each_row_of_left(w, form, issue, read);
    each_row_of_right(form, issue, read);
  }
  return status;
}

namespace {

// What the four warps have read for their product number n.
void end_reads(Warp* group, u64 n, u32 epoch) {
  for (u32 k = 0; k < kWarpsOfGroup; ++k) {
    const WgmmaIssue& issue = group[k].wgmma.at(n);
    const WgmmaForm& form = form_of(*group, *issue.ins);
    const auto done = [&](u32 at, u32) { finish_wgmma(*group, at, kChunkBytes, epoch); };
    each_row_of_left(group[k], form, issue, done);
    each_row_of_right(form, issue, done);
  }
}

}  // namespace

// A warpgroup reads together: what one of its warps has waited for, all have done. CUTLASS's
// pipelines have one warp of four tell the producer.
Status wgmma_wait(Warp& w, const Ins& i, u32 mask) {
  const Status status = i.watch->op(w, i, mask);
  if (status != Status::kNext) return status;
  const CheckRun& run = *w.launch->checks;
  Warp* const group = &w - w.index % kWarpsOfGroup;
  const u32 number = warpgroup_number(w);
  const auto time_of = [&](u64 n) {
    return static_cast<u32>(std::min<u64>(w.cta->check->cluster->start + n, kLatestTime));
  };
  u64& over = group->check->wgmmas_over;
  for (; over < w.wgmma.waited; ++over) {
    if (run.has(kInitcheck)) {
      Spoilt shared;  // B is the same for all
      look_at_right(w, group->wgmma.at(over), shared);
      for (u32 k = 0; k < kWarpsOfGroup; ++k)
        follow_values(group[k], group[k].wgmma.at(over), shared);
    }
    if (run.has(kRacecheck)) end_reads(group, over, epoch_of(time_of(over + 1), number));
  }
  if (run.has(kRacecheck)) w.check->clock.see(number, time_of(w.wgmma.waited));
  return status;
}

Status wgmma_fence(Warp& w, const Ins& i, u32 mask) {
  w.check->fenced = true;
  w.check->written.assign(w.check->written.size(), false);
  return i.watch->op(w, i, mask);
}

// extra: how many of the operands are written; imm: whether one may be of a wgmma under way.
Status registers(Warp& w, const Ins& i, u32) {
  const WgmmaQueue& q = w.wgmma;
  for (u32 k = 0; k < i.watch->operands; ++k) {
    const bool write = k < i.extra;
    if (write) w.check->written[i.ops[k] / 128] = true;
    for (u64 n = q.waited; i.imm && n < q.issued; ++n) {
      const Role role = role_of(w, *q.at(n).ins, i.ops[k]);
      if (role == Role::kSum || (role == Role::kFactor && write)) {
        report_touch(w, q.at(n),
                     role == Role::kFactor ? "writes a register of A of"
                     : write               ? "writes a sum of"
                                           : "reads a sum of");
        return Status::kNext;
      }
    }
  }
  return Status::kNext;
}

void end_wgmmas(Warp& w) {
  CheckRun& run = *w.launch->checks;
  WgmmaQueue& q = w.wgmma;
  if (q.waited == q.issued) return;
  Sighting s = {kSynccheck, "wgmma never waited for",
                "the warp ends while " + std::to_string(q.issued - q.waited) +
                    " of its wgmma instructions have not been waited for"};
  s.pc = q.at(q.waited).pc;
  run.report(w, s, 0);
  const u64 over = (&w - w.index % kWarpsOfGroup)->check->wgmmas_over;
  for (q.waited = std::max(q.waited, over); run.has(kRacecheck) && q.waited < q.issued;
       ++q.waited) {
    const WgmmaIssue& issue = q.at(q.waited);
    const WgmmaForm& form = form_of(w, *issue.ins);
    const auto done = [&](u32 at, u32) { finish_wgmma(w, at, kChunkBytes, 0); };
    each_row_of_left(w, form, issue, done);
    each_row_of_right(form, issue, done);
  }
}

}  // namespace vgpu::watch
