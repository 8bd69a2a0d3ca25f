// Puts the wrappers of the checks around the operations that they watch.
#include <cstring>

#include "exec/check.h"
#include "ptx/builder.h"
#include "ptx/opcode.h"

namespace vgpu::ptx {
namespace {

bool starts(const std::string& name, const char* with) { return name.rfind(with, 0) == 0; }

// Operations that rearrange the bits of these operands (one bit each); the others control how.
u32 moved_operands(const std::string& name) {
  const std::string base = name.substr(0, name.find('.'));
  static const std::map<std::string, u32> kMoves = {
      {"mov", 2},  {"extend", 2}, {"truncate", 2}, {"high", 2}, {"low", 2}, {"byte", 2},
      {"half", 2}, {"shl", 2},    {"shr", 2},      {"bfe", 2},  {"bfi", 6}, {"prmt", 6},
      {"shf", 6},  {"selp", 6},   {"slct", 6},     {"brev", 2}, {"shfl", 4}};
  if (base == "pack") return ~1u;
  if (base == "cvt") {
    const Parts parts = [&] {
      Parts p;
      for (size_t at = 0; at != name.npos;) {
        const size_t dot = name.find('.', at);
        p.push_back(name.substr(at, dot == name.npos ? dot : dot - at));
        at = dot == name.npos ? dot : dot + 1;
      }
      return p;
    }();
    const auto whole = [](const std::string& t) { return t[0] == 'u' || t[0] == 's'; };
    return parts.size() == 3 && whole(parts[1]) && whole(parts[2]) ? 2 : 0;
  }
  auto it = kMoves.find(base);
  return it == kMoves.end() ? 0 : it->second;
}

// "ld.shared.s16.4": space, bytes of an element and their number.
void read_access(const std::string& name, Watch& w) {
  const size_t space = name.find('.') + 1;
  const size_t type = name.find('.', space) + 1;
  const std::string where = name.substr(space, type - 1 - space);
  w.place = where == "global"   ? Place::kGlobal
            : where == "shared" ? Place::kShared
            : where == "local"  ? Place::kLocal
            : where == "param"  ? Place::kParam
                                : Place::kGeneric;
  if (w.atomic) return;
  w.bytes = static_cast<u8>(std::atoi(name.c_str() + type + 1) / 8);
  w.count = static_cast<u8>(name.back() - '0');
}

OpFn wrapper_of(const Draft& d, u32 checks, Watch& w, u32* moved) {
  const std::string name = d.info->name;
  const bool init = checks & kInitcheck;
  const bool race = checks & kRacecheck;
  if (d.kind != Kind::kPlain) return nullptr;
  if (name == "check.guard") return init ? &watch::guard : nullptr;
  if (name == "check.lanes") return &watch::lanes;
  if (name == "whole_warp") return race ? &watch::together : nullptr;
  if (name == "fence") return race ? &watch::fence : nullptr;
  if (name == "check.registers") return &watch::registers;
  if (name == "check.waits") return &watch::waits;
  if (name == "wgmma") return &watch::wgmma;
  if (name == "wgmma.fence") return race ? &watch::wgmma_fence : nullptr;
  if (name == "wgmma.wait_group") return init || race ? &watch::wgmma_wait : nullptr;
  if (starts(name, "ld.parameter")) return init ? &watch::values : nullptr;
  if (starts(name, "ld.") || starts(name, "st.") || starts(name, "atom.")) {
    w.atomic = name[0] == 'a';
    w.store = name[0] != 'l';
    w.address = w.atomic ? 1 : w.store ? 0 : w.results;
    w.strong = d.strong || w.atomic;
    w.release = d.release;
    w.constant = d.constant;
    if (w.atomic) {
      w.bytes = static_cast<u8>(type_bytes(name.substr(name.rfind('.') + 1)));
      w.count = 1;
      w.decisive = name.find(".exch.") != name.npos ? 'x' : '\0';
    }
    read_access(name, w);
    return init || race ? &watch::access : nullptr;
  }
  if (starts(name, "ldmatrix")) {
    w.place = Place::kShared;
    w.address = w.results;
    w.count = w.results;
    w.transpose = name.find(".trans") != name.npos;
    return init || race ? &watch::matrix_load : nullptr;
  }
  if (starts(name, "bulk.") || name == "mbarrier.init" || name == "tensormap.replace") {
    if (starts(name, "bulk.value")) w.decisive = 'v';
    return init ? &watch::operands : nullptr;
  }
  if (name == "cp.async") return init || race ? &watch::async_copy : nullptr;
  if (starts(name, "cp.async.")) return init || race ? &watch::async_wait : nullptr;
  if (starts(name, "bar.")) {
    w.address = w.results;
    w.store = starts(name, "bar.arrive");
    return &watch::barrier;
  }
  const bool shuffle = starts(name, "shfl.");
  if (shuffle || starts(name, "vote.") || starts(name, "match.") || starts(name, "redux.")) {
    w.members = static_cast<u8>(w.operands - 1);
    if (shuffle) *moved = 4;
    return init || (checks & kSynccheck) ? &watch::collective : nullptr;
  }
  if (!init || (w.results == 0 && name != "vprintf")) return nullptr;
  if (starts(name, "mma.")) {
    if (starts(name, "mma.sp.")) {
      w.fragments.rows = 16;
      return &watch::sparse_matrix;
    }
    w.fragments.rows = starts(name, "mma.m16") ? 16 : 8;
    w.fragments.volta = starts(name, "mma.m8n8k4.") && !starts(name, "mma.m8n8k4.f64");
    w.fragments.a_by_rows = starts(name, "mma.m8n8k4.row");
    w.fragments.b_by_rows = name.find(".row.f") != name.npos;
    return &watch::matrix;
  }
  const std::string base = name.substr(0, name.find('.'));
  const bool predicate = name.size() > 5 && name.compare(name.size() - 5, 5, ".pred") == 0;
  if (base == "and" || base == "or") w.decisive = base == "and" ? '&' : '|';
  if (w.decisive && predicate) return &watch::predicates;
  if (predicate) return &watch::values;
  if (w.decisive || base == "xor" || base == "not" || base == "lop3") return &watch::bits;
  *moved = moved_operands(name);
  if (*moved) return &watch::move;
  w.packs = base == "cvt" && name.find("16x2.f32") != name.npos;
  w.halves = base != "cvt" && name.find("16x2") != name.npos && !starts(name, "setp");
  return &watch::values;
}

}  // namespace

void insert_checks(std::vector<Draft>& code, std::vector<int>& label_position,
                   const std::function<std::optional<Draft>(size_t)>& check_before) {
  std::vector<Draft> longer;
  std::vector<int> moved_to;
  for (size_t k = 0; k < code.size(); ++k) {
    moved_to.push_back(static_cast<int>(longer.size()));
    if (std::optional<Draft> check = check_before(k)) {
      check->line = code[k].line;
      longer.push_back(std::move(*check));
    }
    longer.push_back(code[k]);
  }
  moved_to.push_back(static_cast<int>(longer.size()));
  for (int& at : label_position) {
    if (at >= 0) at = moved_to[static_cast<size_t>(at)];
  }
  code = std::move(longer);
}

void watch_branches(std::vector<Draft>& code, std::vector<int>& label_position,
                    const OpInfo& guard) {
  insert_checks(code, label_position, [&](size_t k) -> std::optional<Draft> {
    if (code[k].kind == Kind::kPlain || code[k].guard < 0) return std::nullopt;
    Draft check;
    check.info = &guard;
    check.slots = {code[k].guard};
    return check;
  });
}

void attach_watches(const std::vector<Draft>& code, const std::vector<Slot>& slots, u32 checks,
                    Program& program) {
  std::map<u32, u32> numbers;  // of the places in the register file
  const auto number_of = [&](int slot) -> u32 {
    if (slot < 0 || slots[slot].kind != Slot::Kind::kVirtual || slots[slot].offset == kNoSlot)
      return 0;
    return numbers.try_emplace(slots[slot].offset, static_cast<u32>(numbers.size()) + 1)
        .first->second;
  };
  program.watches.resize(code.size());
  program.watch_operands.reserve(2 * program.operands.size());  // the watches point in here
  for (size_t k = 0; k < code.size(); ++k) {
    const Draft& d = code[k];
    Ins& ins = program.code[k];
    Watch& w = program.watches[k];
    w.results = static_cast<u8>(std::strlen(d.info->results));
    w.operands = static_cast<u16>(d.slots.size());
    for (u32 r = 0; r < w.results; ++r) {
      if (d.info->results[r] == 'p') w.predicates |= static_cast<u8>(1u << r);
      w.wide |= d.info->results[r] == 'd';
    }
    u32 moved = 0;
    const OpFn wrapper = wrapper_of(d, checks, w, &moved);
    if (!wrapper) continue;
    w.op = ins.fn;
    w.slots = program.watch_operands.data() + program.watch_operands.size();
    for (int s : d.slots) program.watch_operands.push_back(number_of(s));
    if (moved) {
      w.shadows = program.watch_operands.data() + program.watch_operands.size();
      for (u32 o = 0; o < w.operands; ++o) {
        const bool data = o < w.results || (moved >> o & 1);
        const bool dropped = o < w.results && (w.predicates >> o & 1);
        const u32 at = ins.ops[o];
        program.watch_operands.push_back(dropped                 ? kNoSlot
                                         : data && at != kNoSlot ? at + program.register_bytes
                                                                 : at);
      }
    }
    w.guard = number_of(d.guard);
    ins.fn = wrapper;
    ins.watch = &w;
  }
  for (const Slot& s : slots) {
    if (!s.unset || s.offset == kNoSlot) continue;
    const u32 bytes = s.width == Width::kPredicate ? 0 : s.width == Width::kWord ? 128 : 256;
    program.unset.push_back({number_of(static_cast<int>(&s - slots.data())), s.offset, bytes});
  }
  program.watched_slots = static_cast<u32>(numbers.size()) + 1;
}

}  // namespace vgpu::ptx
