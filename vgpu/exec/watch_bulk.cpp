// Bulk copies under the checks: what they carry (initcheck), and what they may meet in shared
// memory while they are under way (racecheck).
#include "exec/async.h"
#include "exec/watch.h"

namespace vgpu::watch {
namespace {

using Kind = BulkCopy::Kind;

bool stores(const BulkCopy& copy) { return copy.kind == Kind::kStore; }

// Bytes of shared memory that a copy uses in its CTA.
u32 span_of(const BulkCopy& copy) { return copy.tensor ? box_span(copy.box) : copy.bytes; }

// --- initcheck: marks travel with the bytes

u8* marks_of(const Warp& w, u64 global) { return written_at(w, {Place::kGlobal, global}, 0); }

// What is undefined in shared memory is told by the numbers of this launch; in global memory they
// must outlive it.
u8 carried(Warp& w, u8 mark, bool to_global) {
  if (mark < 2) return mark;
  return to_global ? w.launch->checks->lasting(mark) : static_cast<u8>(255);
}

// `from` may be null, where everything counts as written.
void carry(Warp& w, const BulkCopy& copy, u8* to, const u8* from, u32 bytes, bool to_global) {
  const bool combines = copy.reduce != Reduce::kNone;
  for (u32 k = 0; k < bytes; ++k) {
    if (!(copy.byte_mask >> k % 16 & 1)) continue;
    const u8 mark = !from                       ? 1
                    : copy.kind == Kind::kValue ? from[k]
                                                : carried(w, from[k], to_global);
    if (!combines || mark != 1) to[k] = mark;
  }
}

void carry_plain(Warp& w, const BulkCopy& copy, u8* to, const u8* from, u32 bytes, bool global) {
  const bool simple = copy.byte_mask == 0xffff && copy.reduce == Reduce::kNone;
  if (simple && (!from || std::all_of(from, from + bytes, [](u8 m) { return m == 1; }))) {
    std::memset(to, 1, bytes);
    return;
  }
  carry(w, copy, to, from, bytes, global);
}

struct Landing {
  Warp& w;
  const BulkCopy& copy;
};

bool carry_row(void* context, const BoxRow& row) {
  const auto& [w, copy] = *static_cast<Landing*>(context);
  u8* const shared = copy.cta->check->shared_written;
  const u8* const outside = nullptr;
  u8* const global = row.global ? marks_of(w, reinterpret_cast<u64>(row.global)) : nullptr;
  if (stores(copy) && !global) return true;
  pieces_of(copy, row, [&](u32 at, u32 offset, u32 bytes) {
    if (stores(copy)) {
      carry_plain(w, copy, global + offset, shared + at, bytes, true);
    } else {
      carry_plain(w, copy, shared + at, global ? global + offset : outside, bytes, false);
    }
  });
  return true;
}

void carry_marks(Warp& w, const BulkCopy& copy) {
  if (copy.tensor) {
    Landing landing = {w, copy};
    walk_box(copy.box, carry_row, &landing);
    return;
  }
  u8* const shared = copy.cta->check->shared_written + copy.at;
  switch (copy.kind) {
    case Kind::kLoad:
      return carry_plain(w, copy, shared, marks_of(w, copy.global), copy.bytes, false);
    case Kind::kBetween:
      return carry_plain(w, copy, shared, copy.source->check->shared_written + copy.source_at,
                         copy.bytes, false);
    case Kind::kStore:
      if (u8* to = marks_of(w, copy.global)) carry_plain(w, copy, to, shared, copy.bytes, true);
      return;
    case Kind::kValue:
      return carry(w, copy, shared, copy.marks, copy.bytes, false);
  }
}

// st.async and red.async carry registers: what is defined of those, by byte.
void mark_value(Warp& w, BulkCopy& copy) {
  const Ins& i = w.launch->code[w.pc];
  if (!i.watch) return;
  int values = 0;
  while (2 + values < i.watch->operands && !absent(i, 2 + values)) ++values;
  const u32 bytes = copy.bytes / static_cast<u32>(values);
  for (int k = 0; k < values; ++k) {
    const SlotShadow& s = shadow_of(w, i, 2 + k);
    if (s.undefined >> copy.lane & 1) {
      const u8* bits =
          w.registers + w.check->shadow + i.ops[2 + k] + static_cast<u32>(copy.lane) * bytes;
      const u8 mark = !(s.computed >> copy.lane & 1)   ? 0
                      : s.origin < 2 || s.origin > 255 ? 255
                                                       : static_cast<u8>(s.origin);
      for (u32 b = 0; b < bytes; ++b)
        copy.marks[static_cast<u32>(k) * bytes + b] = bits[b] ? mark : 1;
    }
  }
}

// --- racecheck

void report_proxy(Warp& w, const BulkCopy& copy, Target t, u32 writer, const char* what) {
  report_race(w, t, 1, copy.lane, "missing proxy fence",
              std::string("a bulk copy ") + what + " what " + name_of(w, writer) +
                  " stored, with no fence.proxy.async between the two",
              what);
}

// Shared memory that a copy reads from its issue until it lands.
void begin_read(Warp& w, const BulkCopy& copy, Cta* cta, u32 at, u32 bytes) {
  const Clock& proxy = w.cta->check->cluster->proxy;
  bool said = false;
  for (u32 k = 0; k < bytes; ++k) {
    SharedCell& cell = cta->check->cells[at + k];
    ++cell.reading;
    if (said || !cell.write) continue;
    const Target t = {Place::kShared, at + k, cta};
    const u32 writer = number_in(cell.write);
    said = true;
    if (cell.write & kPendingCopy) {
      const BulkCopy* other = copy_at(w, *cta, at + k);
      report_race(w, t, 1, copy.lane, "access to a copy under way",
                  "a bulk copy reads shared memory that " +
                      (other ? describe(w, *other) : std::string("a cp.async")) +
                      " is still filling: a wait is missing");
    } else if (unordered(w, cell.write)) {
      report_race(w, t, 1, copy.lane, "read after write",
                  "a bulk copy reads what " + name_of(w, writer) +
                      " wrote, with no barrier between the two");
    } else if (cell.stored && time_in(cell.write) > proxy[writer]) {
      report_proxy(w, copy, t, writer, "reads");
    } else {
      said = false;
    }
  }
}
// The issuer has waited for it, or others for its mbarrier.
void end_read(Warp& w, Cta* cta, u32 at, u32 bytes, u32 epoch) {
  for (u32 k = 0; k < bytes; ++k) {
    SharedCell& cell = cta->check->cells[at + k];
    if (cell.reading) --cell.reading;
    cell.read[unordered(w, cell.read[0])] = epoch;
  }
}

void begin_write(Warp& w, const BulkCopy& copy, u32 bytes, u32 epoch) {
  const Clock& proxy = w.cta->check->cluster->proxy;
  const bool adds = copy.reduce != Reduce::kNone;
  const std::string barrier = ": it completes at the mbarrier at offset " +
                              std::to_string(copy.barrier_at) + " of shared memory";
  bool said = false;
  for (u32 k = 0; k < bytes; ++k) {
    SharedCell& cell = copy.cta->check->cells[copy.at + k];
    const Target t = {Place::kShared, copy.at + k, copy.cta};
    const auto say = [&](const char* kind, const std::string& text) {
      report_race(w, t, 1, copy.lane, kind, text + barrier);
      said = true;
    };
    if (!said && (cell.write & kPendingCopy) && !adds) {
      say("access to a copy under way",
          "a bulk copy is issued to shared memory that another one "
          "is still filling: a wait is missing");
    } else if (!said && cell.reading) {
      const BulkCopy* other = copy_at(w, *copy.cta, copy.at + k);
      say(other ? "write under a copy" : "write into what wgmma reads",
          "a bulk copy is issued to shared memory that " +
              (other ? describe(w, *other) : std::string("a wgmma under way")) +
              " reads: a wait is missing");
    } else if (!said && !adds && !(cell.write & kPendingCopy) && unordered(w, cell.write)) {
      say("write after write", "a bulk copy overwrites what " + name_of(w, number_in(cell.write)) +
                                   " wrote, with no barrier between the two");
    } else if (!said && cell.stored && time_in(cell.write) > proxy[number_in(cell.write)]) {
      report_proxy(w, copy, t, number_in(cell.write), "overwrites");
      said = true;
    }
    for (u32& reader : cell.read) {
      if (!said && unordered(w, reader))
        say("write after read", "a bulk copy overwrites what " + name_of(w, number_in(reader)) +
                                    " read, with no barrier between the two");
      reader = 0;
    }
    cell.write = kPendingCopy | epoch;
    cell.stored = false;
    cell.last_write.epoch = cell.last_read.epoch = 0;
  }
}
void end_write(const BulkCopy& copy, u32 bytes, u32 epoch) {
  for (u32 k = 0; k < bytes; ++k) copy.cta->check->cells[copy.at + k].write = epoch;
}

bool race_row(void* context, const BoxRow& row) {
  const auto& [w, copy] = *static_cast<Landing*>(context);
  if (row.global)
    race_global_copy(w, reinterpret_cast<u64>(row.global), row.bytes, stores(copy),
                     copy.reduce != Reduce::kNone, copy.lane);
  return true;
}

void race_tensor(Warp& w, const BulkCopy& copy) {
  Landing landing = {w, copy};
  if (copy.tensor) {
    walk_box(copy.box, race_row, &landing);
  } else if (copy.kind == Kind::kLoad || stores(copy)) {
    race_global_copy(w, copy.global, copy.bytes, stores(copy), copy.reduce != Reduce::kNone,
                     copy.lane);
  }
}

void report_unawaited(Warp& w, const BulkCopy& copy, const char* who) {
  Sighting s = {kSynccheck,
                "copies never waited for",
                std::string(who) + " ends while " + describe(w, copy) + " has not been waited for",
                Place::kShared,
                copy.at,
                copy.bytes};
  s.pc = copy.pc;
  w.launch->checks->report(w, s, copy.lane);
}

// Not the phase in which it was issued: that one has ended without its bytes.
void check_phase(Warp& w, const BulkCopy& copy) {
  Mbarrier b;
  if (!load(*copy.barrier_cta, copy.barrier_at, &b) || b.parity == copy.phase) return;
  Sighting s = {kSynccheck,
                "expect_tx does not add up",
                describe(w, copy) + " comes with " + std::to_string(copy.bytes) +
                    " bytes after the phase in which it was issued has ended: expect_tx was told "
                    "of fewer bytes than the copies have",
                Place::kShared,
                copy.barrier_at,
                8};
  s.pc = copy.pc;
  w.launch->checks->report(w, s, copy.lane);
}

}  // namespace

const BulkCopy* copy_at(const Warp& w, const Cta& cta, u32 at) {
  const Cluster& c = *w.cta->cluster;
  for (const std::vector<BulkCopy>* list : {&c.loads, &c.stores}) {
    for (const BulkCopy& copy : *list) {
      if (copy.cta == &cta && at - copy.at < span_of(copy)) return &copy;
      if (copy.kind == Kind::kBetween && copy.source == &cta && at - copy.source_at < copy.bytes)
        return &copy;
    }
  }
  return nullptr;
}

std::string describe(const Warp& w, const BulkCopy& copy) {
  std::string text = "the bulk copy of PTX line " + std::to_string(w.launch->code[copy.pc].line) +
                     ", issued by " + name_of(w, copy.issuer->check->number);
  if (!copy.barrier_cta) return text + " in a bulk group,";
  return text + " for phase " + std::to_string(copy.phase) + " of the mbarrier at offset " +
         std::to_string(copy.barrier_at) + " of shared memory,";
}

void bulk_issued(Warp& w, BulkCopy& copy) {
  const CheckRun& run = *w.launch->checks;
  if (copy.kind == Kind::kValue && run.has(kInitcheck)) mark_value(w, copy);
  if (!run.has(kRacecheck)) return;
  if (copy.kind == Kind::kLoad || stores(copy)) {
    early_access(w, copy.tensor ? copy.box.map.address : copy.global, copy.bytes, stores(copy),
                 copy.lane);
  }
  if (stores(copy)) return begin_read(w, copy, copy.cta, copy.at, span_of(copy));
  mbarrier_completes(w, *copy.barrier_cta, copy.barrier_at, copy.kind != Kind::kValue, copy.lane);
  const MbarrierCheck& b = mbarrier_of(w, *copy.barrier_cta, copy.barrier_at);
  if (copy.kind == Kind::kBetween) begin_read(w, copy, copy.source, copy.source_at, copy.bytes);
  begin_write(w, copy, span_of(copy), epoch_of(w.check->clock[b.number], b.number));
}

void bulk_landed(Warp& w, const BulkCopy& copy) {
  const CheckRun& run = *w.launch->checks;
  if (run.has(kSynccheck) && copy.barrier_cta) check_phase(w, copy);
  if (run.has(kInitcheck)) carry_marks(w, copy);
  if (!run.has(kRacecheck)) return;
  race_tensor(*copy.issuer, copy);
  if (stores(copy)) {
    const u32 me = copy.issuer->check->number;
    const u32 epoch = epoch_of(copy.issuer->check->clock[me], me);
    return end_read(*copy.issuer, copy.cta, copy.at, span_of(copy), epoch);
  }
  MbarrierCheck& b = mbarrier_of(w, *copy.barrier_cta, copy.barrier_at);
  Clock& times = w.cta->check->cluster->copies;
  times.tick(b.number);
  b.arriving.see(b.number, times[b.number]);
  const u32 epoch = epoch_of(times[b.number], b.number);
  if (copy.kind == Kind::kBetween)
    end_read(*copy.issuer, copy.source, copy.source_at, copy.bytes, epoch);
  end_write(copy, span_of(copy), epoch);
}

void bulk_never_waited_for(Warp& w, const BulkCopy& copy) { report_unawaited(w, copy, "the warp"); }

void end_bulk_copies(Warp& w) {
  const bool races = w.launch->checks->has(kRacecheck);
  for (const BulkCopy& copy : w.cta->cluster->loads) {
    if (copy.cta != w.cta) continue;
    report_unawaited(w, copy, "the block");
    if (races) end_write(copy, span_of(copy), 0);
  }
}

Status operands(Warp& w, const Ins& i, u32 mask) {
  check_guard(w, i);
  // st.async carries its values; all else decides where something goes, or how much.
  const bool carries = i.watch->decisive == 'v';
  const int count = carries ? 2 : i.watch->operands;
  for (int k = 0; k < count; ++k) {
    SlotShadow& s = shadow_of(w, i, k);
    if (const u32 bad = s.undefined & mask) {
      report_use(w, s, bad, "uninitialised address",
                 "an operand of an asynchronous operation is computed from a value that was never "
                 "written");
    }
  }
  return i.watch->op(w, i, mask);
}

}  // namespace vgpu::watch
