// Moves, comparisons, conversions and carries: instructions that become several operations.

#include "ptx/builder.h"
#include "ptx/opcode.h"

namespace vgpu::ptx {

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
  int x = source(a, code_of(of), type);
  int y = source(b, code_of(of), type);
  const int to = new_slot(Width::kPredicate);
  if (control && is_half(type)) {
    x = flushed(x, type);
    y = flushed(y, type);
    control = 0;
  }
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
    int a = source(o.at(1), 'w', "u32");
    int b = source(o.at(2), 'w', "u32");
    if (has(parts, "ftz")) {
      a = flushed(a, type);
      b = flushed(b, type);
    }
    int value[2];
    for (int k = 0; k < 2; ++k) {
      const int x = new_slot(Width::kWord);
      const int y = new_slot(Width::kWord);
      emit(k ? "high.32" : "low.32", {x, a});
      emit(k ? "high.32" : "low.32", {y, b});
      value[k] = new_slot(Width::kPredicate);
      emit("setp." + parts.at(1) + "." + half, {value[k], x, y});
    }
    deliver(two ? elements(to)[0] : to, value[0]);
    if (two) deliver(elements(to)[1], value[1]);
    return;
  }
  const int value = compare(parts.at(1), type, o.at(1), o.at(2), control_of(parts));
  int opposite = -1;
  if (two) {
    opposite = new_slot(Width::kPredicate);
    emit("not.pred", {opposite, value});
  }
  deliver(two ? elements(to)[0] : to, value);
  if (two) deliver(elements(to)[1], opposite);
}

void Builder::lower_set(const Instruction& ins) {
  const Parts& parts = ins.parts;
  const auto& o = ins.operands;
  const std::string& from = parts.back();
  const std::string& to = parts.at(parts.size() - 2);
  const auto truth = [&](const std::string& type) {
    const u64 one = type == "f32"    ? 0x3f800000u
                    : type == "f16"  ? 0x3c00u
                    : type == "bf16" ? 0x3f80u
                                     : 0xffffffffu;
    return constant(Width::kWord, type == "u16" || type == "s16" ? 0xffffu : one);
  };
  const int zero = constant(Width::kWord, 0);
  if (from == "f16x2" || from == "bf16x2") {
    const bool as_mask = to == "u32" || to == "s32";  // 0xffff in each half
    if (to != from && !as_mask) unknown();
    const std::string half = from == "f16x2" ? "f16" : "bf16";
    int a = source(o.at(1), 'w', "u32");
    int b = source(o.at(2), 'w', "u32");
    if (has(parts, "ftz")) {
      a = flushed(a, from);
      b = flushed(b, from);
    }
    std::vector<int> slots = {result(o.at(0), 'w', false)};
    for (int k = 0; k < 2; ++k) {
      const int x = new_slot(Width::kWord);
      const int y = new_slot(Width::kWord);
      const int p = new_slot(Width::kPredicate);
      emit(k ? "high.32" : "low.32", {x, a});
      emit(k ? "high.32" : "low.32", {y, b});
      emit("setp." + parts.at(1) + "." + half, {p, x, y});
      emit("selp.u32", {x, as_mask ? constant(Width::kWord, 0xffffu) : truth(half), zero, p});
      slots.push_back(x);
    }
    emit("pack.32", slots);
    return;
  }
  int p = compare(parts.at(1), from, o.at(1), o.at(2), control_of(parts));
  for (const char* op : {"and", "or", "xor"}) {
    if (!has(parts, op)) continue;
    const int combined = new_slot(Width::kPredicate);
    emit(std::string(op) + ".pred", {combined, p, source(o.at(3), 'p', "pred")});
    p = combined;
  }
  emit("selp.u32", {result(o.at(0), 'w', to[0] == 's'), truth(to), zero, p});
}

// cvt[.ROUNDING][.ftz][.sat][.satfinite][.relu].TO.FROM
void Builder::lower_cvt(const Instruction& ins) {
  const Parts& parts = ins.parts;
  const auto& o = ins.operands;
  if (has(parts, "pack")) return lower_pack(ins);
  static const std::set<std::string> kModifiers = {
      "rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi", "ftz", "sat", "satfinite", "relu"};
  for (size_t k = 1; k + 2 < parts.size(); ++k) {
    if (!kModifiers.count(parts[k])) unknown();
  }
  const std::string& from = parts.back();
  const std::string& to = parts.at(parts.size() - 2);
  const bool eight_bits = to == "e4m3x2" || to == "e5m2x2";
  const bool float_to = is_float(to) || to == "tf32" || eight_bits;
  std::string rounding;
  for (const char* r : {"rni", "rzi", "rmi", "rpi", "rz", "rm", "rp", "rna"}) {
    if (has(parts, r)) rounding = r;
  }
  const bool integer_rounding = rounding.size() == 3 && rounding.back() == 'i';
  u32 control = has(parts, "ftz") ? kFlushBits : 0;
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
  // Eight bits are always made finite.
  if (has(parts, "satfinite") ? !float_to || type_bytes(to) == 8 || to == "f32" : eight_bits)
    unknown();
  if (has(parts, "sat") && !float_to && !is_float(from)) name += ".sat";
  name += "." + to + "." + from;
  lower_by_signature(name, o, from, control);
  const int result = code_.back().slots[0];
  if (has(parts, "sat") && float_to) emit("saturate." + to, {result, result});
  if (has(parts, "satfinite") && !eight_bits) emit("satfinite." + to, {result, result});
  if (has(parts, "relu")) emit("relu." + to, {result, result});
}

// cvt.pack.sat.s8.s32.b32: two numbers, saturated, before the low bits of a third word; 16-bit ones
// fill the word.
void Builder::lower_pack(const Instruction& ins) {
  const Parts& parts = ins.parts;
  if (parts.size() < 5 || parts.at(2) != "sat" || parts.at(4) != "s32") unknown();
  const std::string name = "cvt.pack." + parts.at(3) + ".s32";
  const OpInfo& info = op(name);
  std::vector<int> slots = {-1};
  for (size_t k = 1; info.sources[k - 1]; ++k)
    slots.push_back(source(ins.operands.at(k), 'w', k == 3 ? "b32" : "s32"));
  slots[0] = result(ins.operands.at(0), 'w', false);
  emit(name, slots);
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

}  // namespace vgpu::ptx
