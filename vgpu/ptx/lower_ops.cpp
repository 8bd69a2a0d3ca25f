// What each PTX instruction becomes. The long tail goes through lower_generic: its normalised name
// must be in the table of operations, else the instruction is unknown.
#include <algorithm>
#include <set>

#include "ptx/builder.h"

namespace vgpu::ptx {
namespace {

using Parts = std::vector<std::string>;

bool has(const Parts& parts, const std::string& what) {
  return std::find(parts.begin() + 1, parts.end(), what) != parts.end();
}
bool is_float(const std::string& type) {
  return type == "f16" || type == "f32" || type == "f64" || type == "bf16" || type == "f16x2" ||
         type == "bf16x2";
}
// The unsigned type of the same width, for operations that do not look at the sign.
std::string unsigned_of(const std::string& type) {
  switch (type_bytes(type)) {
    case 1:
      return "u8";
    case 2:
      return "u16";
    case 4:
      return "u32";
    case 8:
      return "u64";
    default:
      return type;
  }
}
std::string untyped_to_unsigned(const std::string& type) {
  return type[0] == 'b' && type[1] != 'f' ? unsigned_of(type) : type;
}
char code_of(const std::string& type) {
  return type == "pred" ? 'p' : type_bytes(type) == 8 ? 'd' : 'w';
}

// MXCSR bits of .ftz and of the rounding modes that are not to nearest.
u32 control_of(const Parts& parts) {
  u32 bits = 0;
  for (size_t k = 1; k < parts.size(); ++k) {
    if (parts[k] == "ftz") bits |= 0x8040;
    if (parts[k] == "rm") bits |= 0x2000;
    if (parts[k] == "rp") bits |= 0x4000;
    if (parts[k] == "rz") bits |= 0x6000;
  }
  return bits;
}

const std::set<std::string> kSpaces = {"global", "shared", "local", "const", "param"};

// "shared::cta" is the shared memory of this CTA.
std::string space_name(const std::string& part) {
  const std::string base = part.substr(0, part.find("::"));
  if (!kSpaces.count(base)) return "";
  return part == "shared::cluster" ? "" : base;
}
std::string find_space(const Parts& parts) {
  for (size_t k = 1; k < parts.size(); ++k) {
    const std::string space = space_name(parts[k]);
    if (!space.empty()) return space == "const" ? "global" : space;
  }
  return "generic";
}
int vector_size(const Parts& parts) {
  return has(parts, "v2") ? 2 : has(parts, "v4") ? 4 : has(parts, "v8") ? 8 : 1;
}

const std::vector<Operand>& elements(const Operand& o) { return o.elements; }

}  // namespace

void Builder::lower_instruction(const Instruction& ins) {
  if (lower_control(ins) || lower_memory(ins) || lower_warp(ins)) return;
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
    const int index = source(ins.operands[0], 'w', "u32");
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
    emit("nothing", {}).kind = Kind::kExit;
  } else if (base == "ret") {
    Draft& d = emit("nothing", {});
    d.kind = Kind::kBranch;
    d.label = frame_->end_label;
  } else if (base == "call") {
    call(ins);
  } else if (base == "trap" || base == "brkpt") {
    emit("trap", {});
  } else if (base == "nanosleep") {
    emit("nanosleep", {});
  } else if (base == "membar" || base == "fence") {
    emit("fence", {});
  } else if (base == "prefetch" || base == "prefetchu" || base == "discard" ||
             base == "applypriority" || base == "pmevent") {
    // Hints: nothing is observable.
  } else if (base == "createpolicy") {
    emit("mov.u64", {result(ins.operands.at(0), 'd', false), constant(Width::kDouble, 0)});
  } else {
    return false;
  }
  return true;
}

bool Builder::lower_memory(const Instruction& ins) {
  const std::string& base = ins.parts[0];
  if (base == "ld" || base == "ldu") {
    lower_load_store(ins, false);
  } else if (base == "st") {
    lower_load_store(ins, true);
  } else if (base == "atom" || base == "red") {
    lower_atomic(ins);
  } else if (base == "cp") {
    lower_async_copy(ins);
  } else if (base == "ldmatrix" || base == "mma") {
    lower_matrix(ins);
  } else if (base == "cvta" || base == "isspacep") {
    lower_cvta(ins);
  } else {
    return false;
  }
  return true;
}

void Builder::lower_load_store(const Instruction& ins, bool store) {
  const Parts& parts = ins.parts;
  std::string space = find_space(parts);
  const int count = vector_size(parts);
  const std::string& type = parts.back();
  const u32 bytes = type_bytes(type);
  if (has(parts, "shared::cluster") || bytes == 0 || bytes > 8) unknown();
  const bool sign = !store && type[0] == 's' && bytes <= 2;
  const std::string access = (sign ? "s" : "u") + std::to_string(8 * bytes);

  const Operand& value = ins.operands.at(store ? 1 : 0);
  const Address at = address(ins.operands.at(store ? 0 : 1), space == "shared" ? 'w' : 'd');
  std::vector<int> values;
  const char code = bytes == 8 ? 'd' : 'w';
  const auto one = [&](const Operand& o) {
    return store ? source(o, code, type) : result(o, code, type[0] == 's');
  };
  if (value.kind == Operand::Kind::kVector) {
    for (const Operand& e : elements(value)) values.push_back(one(e));
  } else {
    values.push_back(one(value));
  }
  if (static_cast<int>(values.size()) != count) throw Unsupported("the vector has another length");
  const std::string tail = "." + access + "." + std::to_string(count);
  if (store && has(parts, "release")) emit("fence", {});
  if (at.entry_parameter) {
    if (store) throw Unsupported("a kernel parameter cannot be written");
    emit("ld.parameter" + tail, values).imm = at.offset;
  } else {
    if (at.local_storage || (space == "param" && (frame_->end_label >= 0 || store)))
      space = "local";
    if (store) {
      values.insert(values.begin(), at.slot);
    } else {
      values.push_back(at.slot);
    }
    emit((store ? "st." : "ld.") + space + tail, values).imm = at.offset;
  }
  if (!store && has(parts, "acquire")) emit("fence", {});
}

void Builder::lower_atomic(const Instruction& ins) {
  const Parts& parts = ins.parts;
  static const std::set<std::string> kOps = {"add", "min",  "max", "and", "or",
                                             "xor", "exch", "cas", "inc", "dec"};
  std::string op;
  for (size_t k = 1; k < parts.size(); ++k) {
    if (kOps.count(parts[k])) op = parts[k];
  }
  std::string type = untyped_to_unsigned(parts.back());
  if (type[0] == 's' && op != "min" && op != "max") type = unsigned_of(type);
  if (op.empty() || vector_size(parts) != 1 || has(parts, "shared::cluster")) unknown();
  const bool reduction = parts[0] == "red";
  const std::string space = find_space(parts);
  const char code = code_of(type);
  size_t next = 0;
  const int old = reduction ? -1 : result(ins.operands.at(next++), code, parts.back()[0] == 's');
  const Address at = address(ins.operands.at(next++), space == "shared" ? 'w' : 'd');
  const int a = source(ins.operands.at(next++), code, type);
  const int b = op == "cas" ? source(ins.operands.at(next++), code, type) : -1;
  emit("atom." + space + "." + op + "." + type, {old, at.slot, a, b}).imm = at.offset;
}

void Builder::lower_async_copy(const Instruction& ins) {
  const Parts& parts = ins.parts;
  if (!has(parts, "async") || has(parts, "bulk") || has(parts, "mbarrier")) unknown();
  if (parts.back() == "commit_group" || parts.back() == "wait_all") {
    emit("cp.async." + parts.back(), {});
    return;
  }
  if (parts.back() == "wait_group") {
    emit("cp.async.wait_group", {}).extra = static_cast<u32>(ins.operands.at(0).bits);
    return;
  }
  if (find_space(parts) != "shared") unknown();
  const Address to = address(ins.operands.at(0), 'w');
  const Address from = address(ins.operands.at(1), 'd');
  std::vector<int> slots = {to.slot, from.slot, -1, -1};
  size_t count = ins.operands.size();
  if (has(parts, "L2::cache_hint")) --count;
  if (count > 3) {
    const Operand& o = ins.operands[3];
    const bool predicate =
        o.kind == Operand::Kind::kRegister && frame_->function->registers[o.index].type == "pred";
    slots[predicate ? 3 : 2] = source(o, predicate ? 'p' : 'w', "u32");
  }
  if (to.offset < 0 || to.offset >= 1 << 20) {  // does not fit beside the global offset
    const int moved = new_slot(Width::kWord);
    emit("add.u32", {moved, to.slot, constant(Width::kWord, static_cast<u64>(to.offset))});
    slots[0] = moved;
  }
  Draft& d = emit("cp.async", slots);
  d.imm =
      static_cast<s64>(static_cast<u64>(from.offset) << 20) | (slots[0] == to.slot ? to.offset : 0);
  d.extra = static_cast<u32>(ins.operands.at(2).bits);
}

void Builder::lower_matrix(const Instruction& ins) {
  const Parts& parts = ins.parts;
  if (parts[0] == "ldmatrix") {
    std::string name = "ldmatrix";
    for (const char* count : {"x1", "x2", "x4"}) {
      if (has(parts, count)) name += std::string(".") + count;
    }
    if (has(parts, "trans")) name += ".trans";
    if (!has(parts, "m8n8") || parts.back() != "b16") unknown();
    const Address at = address(ins.operands.at(1), 'w');
    std::vector<int> slots;
    const Operand& to = ins.operands[0];
    if (to.kind == Operand::Kind::kVector) {
      for (const Operand& e : elements(to)) slots.push_back(result(e, 'w', false));
    } else {
      slots.push_back(result(to, 'w', false));
    }
    slots.push_back(at.slot);
    if (std::string(op(name).results).size() + 1 != slots.size())
      throw Unsupported("the vector has another length");
    emit(name, slots).imm = at.offset;
    return;
  }
  // mma.sync.aligned.SHAPE.row.col.D.A.B.C
  if (parts.size() < 10 || parts[4] != "row" || parts[5] != "col") unknown();
  const size_t n = parts.size();
  const std::string d = parts[n - 4];
  const std::string a = parts[n - 3];
  if (n != 10 || parts[n - 2] != a || parts[n - 1] != d) unknown();
  const std::string name = "mma." + parts[3] + "." + d + "." + a;
  const OpInfo& info = op(name);
  std::vector<int> slots;
  for (size_t k = 0; k < ins.operands.size(); ++k) {
    const Operand& o = ins.operands[k];
    const std::vector<Operand> one = {o};
    for (const Operand& e : o.kind == Operand::Kind::kVector ? elements(o) : one) {
      slots.push_back(k == 0 ? result(e, 'w', false) : source(e, 'w', "u32"));
    }
  }
  if (slots.size() != std::string(info.results).size() + std::string(info.sources).size()) {
    throw Unsupported("the fragments have other lengths");
  }
  emit(name, slots);
}

void Builder::lower_cvta(const Instruction& ins) {
  const Parts& parts = ins.parts;
  if (parts[0] == "isspacep") {
    const std::string space = find_space(parts);
    const u64 window = space == "shared" ? kSharedWindow : space == "local" ? kLocalWindow : 0;
    if (has(parts, "shared::cluster") || space == "param") unknown();
    const int to = result(ins.operands.at(0), 'p', false);
    emit("isspacep", {to, source(ins.operands.at(1), 'd', "u64")}).imm = static_cast<s64>(window);
    return;
  }
  const std::string space = find_space(parts);
  const u64 window = space == "shared" ? kSharedWindow : space == "local" ? kLocalWindow : 0;
  if (space == "generic") unknown();
  const int from = source(ins.operands.at(1), 'd', "u64");
  const int to = result(ins.operands.at(0), 'd', false);
  if (!window) {
    emit("mov.u64", {to, from});
  } else {
    emit(has(parts, "to") ? "sub.u64" : "add.u64", {to, from, constant(Width::kDouble, window)});
  }
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
    emit("shfl." + parts[2], slots);
  } else if (base == "vote") {
    if (!has(parts, "sync")) unknown();
    const char code = parts[2] == "ballot" ? 'w' : 'p';
    const int vote = source(o.at(1), 'p', "pred");
    emit("vote." + parts[2], {result(o.at(0), code, false), vote, source(o.at(2), 'w', "u32")});
  } else if (base == "match") {
    const std::string type = unsigned_of(parts.back());
    std::vector<int> slots;
    if (parts[1] == "all") {
      pair(o.at(0), 'w', slots);
    } else {
      slots.push_back(result(o.at(0), 'w', false));
    }
    slots.push_back(source(o.at(1), code_of(type), type));
    slots.push_back(source(o.at(2), 'w', "u32"));
    emit("match." + parts[1] + "." + type, slots);
  } else if (base == "redux") {
    std::string type = untyped_to_unsigned(parts.back());
    if (type == "s32" && parts[2] == "add") type = "u32";
    const int value = source(o.at(1), 'w', type);
    emit("redux." + parts[2] + "." + type,
         {result(o.at(0), 'w', false), value, source(o.at(2), 'w', "u32")});
  } else if (base == "activemask") {
    emit("activemask", {result(o.at(0), 'w', false)});
  } else {
    return false;
  }
  return true;
}

void Builder::lower_barrier(const Instruction& ins) {
  const Parts& parts = ins.parts;
  const auto& o = ins.operands;
  if (has(parts, "warp")) return;  // the lanes of a warp move together
  if (has(parts, "cluster")) unknown();
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

void Builder::lower_move(const Instruction& ins) {
  const std::string& type = ins.parts.back();
  const Operand& to = ins.operands.at(0);
  const Operand& from = ins.operands.at(1);
  const u32 bytes = type_bytes(type);
  if (from.kind == Operand::Kind::kVector) {
    const size_t n = elements(from).size();
    std::vector<int> slots = {result(to, bytes == 8 ? 'd' : 'w', false)};
    for (const Operand& e : elements(from)) slots.push_back(source(e, 'w', "u32"));
    emit("pack." + std::to_string(8 * bytes) + (n == 4 ? "x4" : ""), slots);
  } else if (to.kind == Operand::Kind::kVector) {
    // Through temporaries: a part may be the register that is taken apart.
    const size_t n = elements(to).size();
    const int whole = source(from, bytes == 8 ? 'd' : 'w', "u64");
    std::vector<std::pair<const Operand*, int>> part;
    for (size_t k = 0; k < n; ++k) {
      if (elements(to)[k].kind == Operand::Kind::kSink) continue;
      const int piece = new_slot(Width::kWord);
      if (bytes == 8 && n == 2) {
        emit(k ? "high.64" : "truncate", {piece, whole});
      } else if (bytes == 8) {
        emit("half.64", {piece, whole, constant(Width::kWord, k)});
      } else if (bytes == 4 && n == 2) {
        emit(k ? "high.32" : "low.32", {piece, whole});
      } else {
        emit("byte", {piece, whole, constant(Width::kWord, k)});
      }
      part.emplace_back(&elements(to)[k], piece);
    }
    for (const auto& [operand, piece] : part)
      emit("mov.u32", {result(*operand, 'w', false), piece});
  } else if (type == "pred") {
    emit("mov.pred", {result(to, 'p', false), source(from, 'p', "pred")});
  } else {
    const char code = bytes == 8 ? 'd' : 'w';
    const int value = source(from, code, type);
    emit(code == 'd' ? "mov.u64" : "mov.u32", {result(to, code, type[0] == 's'), value});
  }
}

int Builder::compare(const std::string& cmp, const std::string& type, const Operand& a,
                     const Operand& b, u32 control) {
  std::string relation = cmp;
  std::string of = type;
  if (!is_float(type)) {
    const bool untyped = type[0] == 'b' || cmp == "eq" || cmp == "ne";
    if (cmp == "lo") relation = "lt";
    if (cmp == "ls") relation = "le";
    if (cmp == "hi") relation = "gt";
    if (cmp == "hs") relation = "ge";
    if (untyped || relation != cmp) of = unsigned_of(type);
  }
  const int x = source(a, code_of(of), type);
  const int y = source(b, code_of(of), type);
  const int to = new_slot(Width::kPredicate);
  emit("setp." + relation + "." + of, {to, x, y}).control = control;
  return to;
}

void Builder::lower_setp(const Instruction& ins) {
  const Parts& parts = ins.parts;
  const auto& o = ins.operands;
  const std::string& type = parts.back();
  std::string combine;
  for (const char* op : {"and", "or", "xor"}) {
    if (has(parts, op)) combine = op;
  }
  const Operand& to = o.at(0);
  const bool two = to.kind == Operand::Kind::kPair;
  const int other = combine.empty() ? -1 : source(o.at(3), 'p', "pred");
  const auto deliver = [&](const Operand& d, int value) {
    if (d.kind == Operand::Kind::kSink) return;
    const int p = result(d, 'p', false);
    if (other >= 0) {
      emit(combine + ".pred", {p, value, other});
    } else {
      emit("mov.pred", {p, value});
    }
  };
  if (type == "f16x2" || type == "bf16x2") {
    const std::string half = type == "f16x2" ? "f16" : "bf16";
    const int a = source(o.at(1), 'w', "u32");
    const int b = source(o.at(2), 'w', "u32");
    int value[2];
    for (int k = 0; k < 2; ++k) {
      const int x = new_slot(Width::kWord);
      const int y = new_slot(Width::kWord);
      emit(k ? "high.32" : "low.32", {x, a});
      emit(k ? "high.32" : "low.32", {y, b});
      value[k] = new_slot(Width::kPredicate);
      emit("setp." + parts[1] + "." + half, {value[k], x, y});
    }
    deliver(two ? elements(to)[0] : to, value[0]);
    if (two) deliver(elements(to)[1], value[1]);
    return;
  }
  const int value = compare(parts[1], type, o.at(1), o.at(2), control_of(parts));
  int opposite = -1;
  if (two) {
    opposite = new_slot(Width::kPredicate);
    emit("not.pred", {opposite, value});
  }
  deliver(two ? elements(to)[0] : to, value);
  if (two) deliver(elements(to)[1], opposite);
}

// set: like setp, with a number for the truth value.
void Builder::lower_set(const Instruction& ins) {
  const Parts& parts = ins.parts;
  const auto& o = ins.operands;
  const std::string& from = parts.back();
  const std::string& to = parts[parts.size() - 2];
  const auto truth = [&](const std::string& type) {
    const u64 one = type == "f32"    ? 0x3f800000u
                    : type == "f16"  ? 0x3c00u
                    : type == "bf16" ? 0x3f80u
                                     : 0xffffffffu;
    return constant(Width::kWord, type == "u16" || type == "s16" ? 0xffffu : one);
  };
  const int zero = constant(Width::kWord, 0);
  if (from == "f16x2" || from == "bf16x2") {
    if (to != from) unknown();
    const std::string half = from == "f16x2" ? "f16" : "bf16";
    const int a = source(o.at(1), 'w', "u32");
    const int b = source(o.at(2), 'w', "u32");
    std::vector<int> slots = {result(o.at(0), 'w', false)};
    for (int k = 0; k < 2; ++k) {
      const int x = new_slot(Width::kWord);
      const int y = new_slot(Width::kWord);
      const int p = new_slot(Width::kPredicate);
      emit(k ? "high.32" : "low.32", {x, a});
      emit(k ? "high.32" : "low.32", {y, b});
      emit("setp." + parts[1] + "." + half, {p, x, y});
      emit("selp.u32", {x, truth(half), zero, p});
      slots.push_back(x);
    }
    emit("pack.32", slots);
    return;
  }
  int p = compare(parts[1], from, o.at(1), o.at(2), control_of(parts));
  for (const char* op : {"and", "or", "xor"}) {
    if (!has(parts, op)) continue;
    const int combined = new_slot(Width::kPredicate);
    emit(std::string(op) + ".pred", {combined, p, source(o.at(3), 'p', "pred")});
    p = combined;
  }
  emit("selp.u32", {result(o.at(0), 'w', to[0] == 's'), truth(to), zero, p});
}

void Builder::lower_cvt(const Instruction& ins) {
  const Parts& parts = ins.parts;
  const auto& o = ins.operands;
  const std::string& from = parts.back();
  const std::string& to = parts[parts.size() - 2];
  const bool float_to = is_float(to) || to == "tf32";
  std::string rounding;
  for (const char* r : {"rni", "rzi", "rmi", "rpi", "rz", "rm", "rp", "rna"}) {
    if (has(parts, r)) rounding = r;
  }
  const bool integer_rounding = rounding.size() == 3 && rounding.back() == 'i';
  u32 control = has(parts, "ftz") ? 0x8040 : 0;
  std::string name = "cvt";
  if (integer_rounding || rounding == "rna") {
    name += "." + rounding;
  } else if (!rounding.empty()) {
    if (type_bytes(to) < 4 || to == "f16x2" || to == "bf16x2" || to == "tf32") {
      name += "." + rounding;
    } else {
      control = control_of(parts);
    }
  }
  if (has(parts, "satfinite")) unknown();
  if (has(parts, "sat") && !float_to && !is_float(from)) name += ".sat";
  name += "." + to + "." + from;
  const OpInfo& info = op(name);
  std::vector<int> slots = {-1};
  for (size_t k = 1; info.sources[k - 1]; ++k)
    slots.push_back(source(o.at(k), info.sources[k - 1], from));
  slots[0] = result(o.at(0), info.results[0], info.sign);
  emit(name, slots).control = control;
  if (has(parts, "sat") && float_to) emit("saturate." + to, {slots[0], slots[0]});
  if (has(parts, "relu")) emit("relu." + to, {slots[0], slots[0]});
}

void Builder::lower_carry(const Instruction& ins) {
  const Parts& parts = ins.parts;
  const auto& o = ins.operands;
  const std::string& base = parts[0];
  const bool takes = base == "addc" || base == "subc" || base == "madc";
  const bool gives = has(parts, "cc");
  const bool multiply = base == "mad" || base == "madc";
  const std::string type = unsigned_of(parts.back());
  if (multiply && has(parts, "hi") && parts.back()[0] == 's') unknown();
  const char code = code_of(type);
  if (frame_->carry < 0) frame_->carry = new_slot(Width::kPredicate);
  std::vector<int> slots = {-1, gives ? frame_->carry : -1};
  for (size_t k = 1; k <= 2; ++k) slots.push_back(source(o.at(k), code, type));
  slots.push_back(multiply ? source(o.at(3), code, type)
                           : constant(code == 'd' ? Width::kDouble : Width::kWord, 0));
  slots.push_back(takes ? frame_->carry : -1);
  slots[0] = result(o.at(0), code, false);
  const std::string op = takes ? base : base + ".cc";
  emit(op + "." + type, slots).extra = has(parts, "hi") ? 1 : 0;
}

void Builder::lower_by_signature(const std::string& name, const std::vector<Operand>& o,
                                 const std::string& type, u32 control) {
  const OpInfo& info = op(name);
  const size_t results = std::string(info.results).size();
  const size_t sources = std::string(info.sources).size();
  if (o.size() != results + sources) throw Unsupported("the number of operands is not expected");
  std::vector<int> slots(o.size());
  for (size_t k = 0; k < sources; ++k)
    slots[results + k] = source(o[results + k], info.sources[k], type);
  for (size_t k = 0; k < results; ++k)
    slots[k] = result(o[k], info.results[k], type[0] == 's' || info.sign);
  emit(name, slots).control = control;
}

void Builder::lower_generic(const Instruction& ins) {
  const Parts& parts = ins.parts;
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
    lower_by_signature("shf." + parts[1] + "." + parts[2], ins.operands, "u32", 0);
    return;
  }
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
  // Only f32 has subnormals flushed and rounding modes that the control word can set.
  if (control && type_bytes(type) < 4) unknown();
  if (control && (type == "f16x2" || type == "bf16x2")) unknown();
  if (base == "slct") {
    name += "." + type;  // slct.DATA.CONTROL
    type = parts[1] == "ftz" ? parts[2] : parts[1];
  }
  if (type != "pred") type = kBitwise.count(base) ? unsigned_of(type) : untyped_to_unsigned(type);
  name += "." + type;
  lower_by_signature(name, ins.operands, type, control);
  const int to = code_.back().slots[0];
  if (saturate) emit("saturate." + type, {to, to});
  if (relu) emit("relu." + type, {to, to});
  if ((control & 0x8000) && (base == "abs" || base == "neg")) {
    // These only touch the sign bit; adding -0 flushes the subnormal and keeps the sign.
    emit("add.f32", {to, to, constant(Width::kWord, 0x80000000u)}).control = control;
  }
}

}  // namespace vgpu::ptx
