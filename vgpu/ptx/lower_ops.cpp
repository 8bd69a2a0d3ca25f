// What each PTX instruction becomes: control flow, warp-wide instructions, and the long tail, which
// goes through lower_generic: its normalised name must be in the table of operations, else the
// instruction is unknown.
#include <map>
#include <set>
#include <utility>

#include "exec/check.h"
#include "ptx/builder.h"
#include "ptx/opcode.h"

namespace vgpu::ptx {

void Builder::lower_instruction(const Instruction& ins) {
  if (lower_cluster(ins)) return;
  if (lower_control(ins) || lower_memory(ins) || lower_matrix(ins) || lower_warp(ins)) return;
  const std::string& base = ins.parts[0];
  if (base == "mov") {
    lower_move(ins);
  } else if (base == "setp") {
    lower_setp(ins);
  } else if (base == "set") {
    lower_set(ins);
  } else if (base == "cvt") {
    lower_cvt(ins);
  } else if (base == "addc" || base == "subc" || base == "madc" || has(ins.parts, "cc")) {
    lower_carry(ins);
  } else {
    lower_generic(ins);
  }
}

bool Builder::lower_control(const Instruction& ins) {
  const std::string& base = ins.parts[0];
  if (base == "bra") {
    Draft& d = emit("nothing", {});
    d.kind = Kind::kBranch;
    d.label = label_of(ins, ins.operands.at(0).name);
  } else if (base == "brx") {
    // A chain of tests: divergence then needs no second mechanism.
    const std::string& table = ins.operands.at(1).name;
    const std::vector<std::string>* targets = nullptr;
    for (int s = ins.scope; s >= 0 && !targets; s = frame_->function->scopes[s].parent) {
      auto it = frame_->function->scopes[s].branch_targets.find(table);
      if (it != frame_->function->scopes[s].branch_targets.end()) targets = &it->second;
    }
    if (!targets) throw Unsupported("branch targets " + table + " are not defined");
    const int index = source(ins.operands.at(0), 'w', "u32");
    const int outer_guard = guard_;
    const bool outer_negated = guard_negated_;
    for (size_t k = 0; k < targets->size(); ++k) {
      const int hit = new_slot(Width::kPredicate);
      emit("setp.eq.u32", {hit, index, constant(Width::kWord, k)});
      if (outer_guard >= 0) {
        int allowed = outer_guard;
        if (outer_negated) {
          guard_ = -1;
          allowed = new_slot(Width::kPredicate);
          emit("not.pred", {allowed, outer_guard});
        }
        guard_ = -1;
        emit("and.pred", {hit, hit, allowed});
      }
      guard_ = hit;
      guard_negated_ = false;
      Draft& d = emit("nothing", {});
      d.kind = Kind::kBranch;
      d.label = label_of(ins, (*targets)[k]);
      guard_ = outer_guard;
      guard_negated_ = outer_negated;
    }
  } else if (base == "exit" || (base == "ret" && frame_->end_label < 0)) {
    if (frame_->space->relative)
      throw Unsupported("a function that may call itself, or is called through a pointer, exits");
    emit("nothing", {}).kind = Kind::kExit;
  } else if (base == "ret") {
    Draft& d = emit("nothing", {});
    d.kind = Kind::kBranch;
    d.label = frame_->end_label;
  } else if (base == "call") {
    call(ins);
  } else if (base == "trap" || base == "brkpt") {
    emit("trap", {}).ends = true;
  } else if (base == "nanosleep") {
    emit("nanosleep", {});
  } else if (base == "membar") {
    emit("fence", {}).extra = static_cast<u32>(made_visible(ins.parts));
  } else if (base == "prefetch" || base == "prefetchu" || base == "discard" ||
             base == "applypriority" || base == "pmevent") {
    // Hints: nothing is observable.
  } else if (base == "griddepcontrol") {
    // A launch begins when what it depends on has ended, so only racecheck looks at waits.
    if (!has(ins.parts, "wait") && !has(ins.parts, "launch_dependents")) unknown();
    if (has(ins.parts, "wait") && (checks_ & kRacecheck)) emit("check.waits", {}).count = {};
  } else if (base == "createpolicy") {
    emit("mov.u64", {result(ins.operands.at(0), 'd', false), constant(Width::kDouble, 0)});
  } else {
    return false;
  }
  return true;
}

bool Builder::lower_warp(const Instruction& ins) {
  const Parts& parts = ins.parts;
  const std::string& base = parts[0];
  const auto& o = ins.operands;
  const auto pair = [&](const Operand& operand, char code, std::vector<int>& slots) {
    if (operand.kind == Operand::Kind::kPair) {
      slots.push_back(result(elements(operand)[0], code, false));
      slots.push_back(result(elements(operand)[1], 'p', false));
    } else {
      slots.push_back(result(operand, code, false));
      slots.push_back(-1);
    }
  };
  if (base == "bar" || base == "barrier") {
    lower_barrier(ins);
  } else if (base == "shfl") {
    if (!has(parts, "sync") || parts.size() != 4) unknown();
    std::vector<int> slots;
    pair(o.at(0), 'w', slots);
    for (size_t k = 1; k <= 4; ++k) slots.push_back(source(o.at(k), 'w', "u32"));
    emit("shfl." + parts.at(2), slots);
  } else if (base == "vote") {
    if (!has(parts, "sync")) unknown();
    // CUB writes vote.ballot.sync, which ptxas takes.
    const std::string& mode = parts.at(parts.at(1) == "sync" ? 2 : 1);
    const char code = mode == "ballot" ? 'w' : 'p';
    const int vote = source(o.at(1), 'p', "pred");
    emit("vote." + mode, {result(o.at(0), code, false), vote, source(o.at(2), 'w', "u32")});
  } else if (base == "match") {
    const std::string type = unsigned_of(parts.back());
    std::vector<int> slots;
    if (parts.at(1) == "all") {
      pair(o.at(0), 'w', slots);
    } else {
      slots.push_back(result(o.at(0), 'w', false));
    }
    slots.push_back(source(o.at(1), code_of(type), type));
    slots.push_back(source(o.at(2), 'w', "u32"));
    emit("match." + parts.at(1) + "." + type, slots);
  } else if (base == "redux") {
    std::string type = untyped_to_unsigned(parts.back());
    if (type == "s32" && parts.at(2) == "add") type = "u32";
    const int value = source(o.at(1), 'w', type);
    emit("redux." + parts.at(2) + "." + type,
         {result(o.at(0), 'w', false), value, source(o.at(2), 'w', "u32")});
  } else if (base == "activemask") {
    emit("activemask", {result(o.at(0), 'w', false)});
  } else if (base == "elect") {
    std::vector<int> slots;
    pair(o.at(0), 'w', slots);
    slots.push_back(source(o.at(1), 'w', "u32"));
    emit("elect", slots);
  } else {
    return false;
  }
  return true;
}

void Builder::lower_barrier(const Instruction& ins) {
  const Parts& parts = ins.parts;
  const auto& o = ins.operands;
  if (has(parts, "warp")) {  // the lanes of a warp move together: only racecheck wants to know
    if (checks_ & kRacecheck) emit("check.lanes", {source(o.at(0), 'w', "b32")}).count = {};
    return;
  }
  const auto number = [&](size_t k) { return source(o.at(k), 'w', "u32"); };
  if (has(parts, "sync")) {
    emit("bar.sync", {number(0), o.size() > 1 ? number(1) : -1});
  } else if (has(parts, "arrive")) {
    emit("bar.arrive", {number(0), o.size() > 1 ? number(1) : -1});
  } else if (has(parts, "red")) {
    const std::string kind = has(parts, "popc") ? "popc" : has(parts, "and") ? "and" : "or";
    const int vote = source(o.back(), 'p', "pred");
    const int barrier = number(1);
    const int count = o.size() > 3 ? number(2) : -1;
    emit("bar.red." + kind,
         {result(o.at(0), kind == "popc" ? 'w' : 'p', false), barrier, count, vote});
  } else {
    unknown();
  }
}

void Builder::lower_by_signature(const std::string& name, const std::vector<Operand>& o,
                                 const std::string& type, u32 control) {
  const OpInfo& info = op(name);
  const size_t results = std::string(info.results).size();
  const size_t sources = std::string(info.sources).size();
  if (o.size() != results + sources) throw Unsupported("the number of operands is not expected");
  // The control word does not reach halves, which are computed in f32.
  const bool flush = control && is_half(type);
  if (flush && (control & ~kFlushBits)) unknown();
  std::vector<int> slots(o.size());
  for (size_t k = 0; k < sources; ++k) {
    slots[results + k] = source(o[results + k], info.sources[k], type);
    if (flush) slots[results + k] = flushed(slots[results + k], type);
  }
  for (size_t k = 0; k < results; ++k) slots[k] = result(o[k], info.results[k], info.sign);
  emit(name, slots).control = flush ? 0 : control;
  if (flush && info.results[0] == 'w') emit("flush." + type, {slots[0], slots[0]});
}

// .ftz of a half: subnormals become zeros of their sign.
int Builder::flushed(int slot, const std::string& type) {
  const int to = new_slot(Width::kWord);
  emit("flush." + type, {to, slot});
  return to;
}

// lop3.BOOLOP.b32 d|p, a, b, c, table, q: p = (d != 0) BOOLOP q.
void Builder::lower_lop3_with_predicate(const Instruction& ins) {
  const auto& o = ins.operands;
  if (o.size() != 6 || o.at(0).kind != Operand::Kind::kPair || ins.parts.at(2) != "b32") unknown();
  std::vector<int> slots = {-1};
  for (size_t k = 1; k < 5; ++k) slots.push_back(source(o[k], 'w', "u32"));
  const int other = source(o.at(5), 'p', "pred");
  slots[0] = result(elements(o.at(0))[0], 'w', false);
  emit("lop3.u32", slots);
  const int any = new_slot(Width::kPredicate);
  emit("setp.ne.u32", {any, slots[0], constant(Width::kWord, 0)});
  emit(ins.parts.at(1) + ".pred", {result(elements(o.at(0))[1], 'p', false), any, other});
}

// add, sub, mul and fma of two f32 in 64 bits: an operation of f32 on each half.
void Builder::lower_float_pair(const Instruction& ins) {
  const std::string& base = ins.parts[0];
  const size_t sources = base == "fma" ? 3 : 2;
  if (!only(ins.parts, {"rn", "rz", "rm", "rp", "ftz", "f32x2"}) ||
      !std::set<std::string>{"add", "sub", "mul", "fma"}.count(base))
    unknown();
  needs(100);
  if (ins.operands.size() != sources + 1)
    throw Unsupported("the number of operands is not expected");
  std::vector<int> wide;
  for (size_t k = 1; k <= sources; ++k) wide.push_back(source(ins.operands[k], 'd', "b64"));
  std::vector<int> halves = {-1};
  for (const char* half : {"truncate", "high.64"}) {
    std::vector<int> slots = {new_slot(Width::kWord)};
    for (const int whole : wide) {
      slots.push_back(new_slot(Width::kWord));
      emit(half, {slots.back(), whole});
    }
    emit(base + ".f32", slots).control = control_of(ins.parts);
    halves.push_back(slots[0]);
  }
  halves[0] = result(ins.operands[0], 'd', false);
  emit("pack.64", halves);
}

void Builder::lower_generic(const Instruction& ins) {
  Parts parts = ins.parts;
  // CUTLASS writes fma.rn.f16x2.relu, which ptxas takes.
  if (type_part(parts) + 1 < parts.size()) std::swap(parts[parts.size() - 2], parts.back());
  std::string base = parts[0];
  std::string type = parts.back();
  const bool floating = is_float(type);
  static const std::set<std::string> kSilent = {"rn", "approx", "full", "ftz", "rz", "rm", "rp"};
  static const std::set<std::string> kBitwise = {"and",  "or",   "xor",  "not", "cnot",
                                                 "shl",  "selp", "lop3", "bfi", "brev",
                                                 "popc", "clz",  "slct"};
  if (base == "mad" && floating) base = "fma";
  if (base == "prmt") {
    const std::string mode = type == "b32" ? "u32" : type;
    lower_by_signature("prmt." + mode, ins.operands, "u32", 0);
    return;
  }
  if (base == "shf") {
    lower_by_signature("shf." + parts.at(1) + "." + parts.at(2), ins.operands, "u32", 0);
    return;
  }
  if (base == "lop3" && parts.size() == 3) {
    lower_lop3_with_predicate(ins);
    return;
  }
  if (type == "f32x2") return lower_float_pair(ins);
  std::string name = base;
  u32 control = 0;
  bool saturate = false;
  bool relu = false;
  for (size_t k = 1; k + 1 < parts.size(); ++k) {
    if (floating && kSilent.count(parts[k])) continue;
    if (floating && parts[k] == "sat") {
      saturate = true;
    } else if (floating && parts[k] == "relu") {
      relu = true;
    } else if (base == "slct") {
      continue;
    } else {
      name += "." + parts[k];
    }
  }
  if (floating) control = control_of(parts);
  if (base == "slct") {
    name += "." + type;  // slct.DATA.CONTROL
    type = parts.at(1) == "ftz" ? parts.at(2) : parts.at(1);
  }
  if (type != "pred") type = kBitwise.count(base) ? unsigned_of(type) : untyped_to_unsigned(type);
  if (floating && (base == "min" || base == "max") && ins.operands.size() == 4) {
    needs(100);
    name += ".of3";
  }
  name += "." + type;
  lower_by_signature(name, ins.operands, type, control);
  const int to = code_.back().slots[0];
  if (saturate) emit("saturate." + type, {to, to});
  if (relu) emit("relu." + type, {to, to});
  static const std::set<std::string> kCopyBits = {"abs", "neg", "min", "max"};
  if (control && type == "f32" && kCopyBits.count(base)) {
    // Adding -0 flushes a subnormal and keeps its sign.
    emit("add.f32", {to, to, constant(Width::kWord, 0x80000000u)}).control = control;
  }
}

}  // namespace vgpu::ptx
