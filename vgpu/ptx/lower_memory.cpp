// Loads, stores, atomics, address conversions and asynchronous copies.
#include <set>

#include "ptx/builder.h"
#include "ptx/opcode.h"

namespace vgpu::ptx {

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
  if (bytes == 0 || bytes > 8) unknown();
  if (count * bytes > 16) needs(100);
  const bool sign = !store && type[0] == 's' && bytes <= 2;
  const std::string access = (sign ? "s" : "u") + std::to_string(8 * bytes);

  const Operand& value = ins.operands.at(store ? 1 : 0);
  const Operand& where = ins.operands.at(store ? 0 : 1);
  const Address at = has(parts, "shared::cluster") ? cluster_generic(where)
                                                   : address(where, space == "shared" ? 'w' : 'd');
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
  if (store && has(parts, "release"))
    emit("fence", {}).extra = static_cast<u32>(made_visible(parts));
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
    Draft& d = emit((store ? "st." : "ld.") + space + tail, values);
    d.imm = at.offset;
    for (const char* order : {"volatile", "relaxed", "acquire", "release"})
      d.strong |= has(parts, order);
    d.constant = has(parts, "const");
  }
  const bool strong = has(parts, "acquire") || has(parts, "volatile") || has(parts, "relaxed");
  // No other CTA changes this one's shared memory: who looks at it waits for its own warps.
  if (!store && strong) emit(space == "shared" ? "poll.shared" : "poll", {});
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
  if (op.empty()) unknown();
  const bool reduction = parts[0] == "red";
  const std::string space = find_space(parts);
  const char code = code_of(type);
  if (vector_size(parts) > 1) {  // one atomic operation for each element
    if (space == "shared" || (op != "add" && op != "min" && op != "max")) unknown();
    const Address to = address(ins.operands.at(reduction ? 0 : 1), 'd');
    const auto& values = elements(ins.operands.at(reduction ? 1 : 2));
    if (static_cast<int>(values.size()) != vector_size(parts))
      throw Unsupported("the vector has another length");
    std::vector<int> sources;
    for (const Operand& value : values) {  // copies: a result may be the register of a source
      const int kept = new_slot(code == 'd' ? Width::kDouble : Width::kWord);
      emit(code == 'd' ? "mov.u64" : "mov.u32", {kept, source(value, code, type)});
      sources.push_back(kept);
    }
    for (size_t k = 0; k < values.size(); ++k) {
      const int before = reduction ? -1 : result(elements(ins.operands.at(0)).at(k), code, false);
      emit("atom." + space + "." + op + "." + type, {before, to.slot, sources[k], -1}).imm =
          to.offset + static_cast<s64>(k * type_bytes(parts.back()));
    }
    return;
  }
  if (is_half(type) && op != "add" && op != "cas" && op != "exch") unknown();
  size_t next = 0;
  const int old = reduction ? -1 : result(ins.operands.at(next++), code, parts.back()[0] == 's');
  const Operand& where = ins.operands.at(next++);
  const Address at = has(parts, "shared::cluster") ? cluster_generic(where)
                                                   : address(where, space == "shared" ? 'w' : 'd');
  const int a = source(ins.operands.at(next++), code, type);
  const int b = op == "cas" ? source(ins.operands.at(next++), code, type) : -1;
  Draft& d = emit("atom." + space + "." + op + "." + type, {old, at.slot, a, b});
  d.imm = at.offset;
  d.release = has(parts, "release") || has(parts, "acq_rel");
}

void Builder::lower_async_copy(const Instruction& ins) {
  const Parts& parts = ins.parts;
  if (!has(parts, "async")) unknown();
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
    const Operand& o = ins.operands.at(3);
    const bool predicate =
        o.kind == Operand::Kind::kRegister && frame_->function->registers[o.index].type == "pred";
    slots[predicate ? 3 : 2] = source(o, predicate ? 'p' : 'w', "u32");
  }
  if (to.offset < 0 || to.offset >= 1 << 20) {  // does not fit beside the global offset
    const int moved = new_slot(Width::kWord);
    emit("add.u32", {moved, to.slot, constant(Width::kWord, static_cast<u64>(to.offset))});
    slots[0] = moved;
  }
  const u64 bytes = ins.operands.at(2).bits;
  if (bytes != 4 && bytes != 8 && bytes != 16) throw Unsupported("it copies 4, 8 or 16 bytes");
  Draft& d = emit("cp.async", slots);
  d.imm =
      static_cast<s64>(static_cast<u64>(from.offset) << 20) | (slots[0] == to.slot ? to.offset : 0);
  d.extra = static_cast<u32>(bytes);
}

// Constants lie in the same memory as everything else: these are the module's.
void Builder::lower_is_constant(const Instruction& ins) {
  const int address = source(ins.operands.at(1), 'd', "u64");
  const int to = result(ins.operands.at(0), 'p', false);
  emit("mov.pred", {to, constant(Width::kPredicate, 0)});
  for (const Variable& v : module_.variables) {
    const auto at = v.space == Space::kConst ? symbols_(v.name) : std::nullopt;
    if (!at) continue;
    const int distance = new_slot(Width::kDouble);
    const int inside = new_slot(Width::kPredicate);
    emit("sub.u64", {distance, address, constant(Width::kDouble, *at)});
    emit("setp.lt.u64", {inside, distance, constant(Width::kDouble, v.bytes)});
    emit("or.pred", {to, to, inside});
  }
}

void Builder::lower_cvta(const Instruction& ins) {
  const Parts& parts = ins.parts;
  if (parts[0] == "isspacep") {
    const std::string space = find_space(parts);
    const u64 window = space == "shared" ? kSharedWindow : space == "local" ? kLocalWindow : 0;
    if (space == "param" || space == "generic") unknown();
    if (has(parts, "const")) {
      lower_is_constant(ins);
      return;
    }
    const int to = result(ins.operands.at(0), 'p', false);
    emit("isspacep", {to, source(ins.operands.at(1), 'd', "u64")}).imm = static_cast<s64>(window);
    return;
  }
  const std::string space = has(parts, "shared::cluster") ? "shared" : find_space(parts);
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

}  // namespace vgpu::ptx
