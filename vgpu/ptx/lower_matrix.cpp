// Matrix instructions. Those that have no operation of their own are put together from others: then
// the checks and counters know them as well.
#include <set>

#include "ptx/builder.h"
#include "ptx/opcode.h"

namespace vgpu::ptx {

bool Builder::lower_matrix(const Instruction& ins) {
  const std::string& base = ins.parts[0];
  if (base == "ldmatrix") {
    lower_matrix_load(ins);
  } else if (base == "stmatrix") {
    lower_matrix_store(ins);
  } else if (base == "movmatrix") {
    if (ins.text() != "movmatrix.sync.aligned.m8n8.trans.b16") unknown();
    const int from = source(ins.operands.at(1), 'w', "u32");
    emit("movmatrix", {result(ins.operands.at(0), 'w', false), from});
  } else if (base == "tcgen05") {
    throw Unsupported("tcgen05 and the tensor memory of sm_100a are not modelled");
  } else if (base == "mma") {
    lower_mma(ins);
  } else if (base == "wgmma" || base == "setmaxnreg") {
    lower_warpgroup(ins);
  } else if (base == "wmma") {
    const std::string kind = ins.parts.size() > 1 ? ins.parts.at(1) : "";
    if (kind == "load" || kind == "store") {
      lower_wmma_memory(ins, kind == "store");
    } else if (kind == "mma") {
      lower_wmma_product(ins);
    } else {
      unknown();
    }
  } else {
    return false;
  }
  return true;
}

void Builder::lower_matrix_load(const Instruction& ins) {
  const Parts& parts = ins.parts;
  std::string name = "ldmatrix";
  for (const char* count : {"x1", "x2", "x4"}) {
    if (has(parts, count)) name += std::string(".") + count;
  }
  if (has(parts, "trans")) name += ".trans";
  if (!has(parts, "m8n8") || parts.back() != "b16") unknown();
  const Address at = address(ins.operands.at(1), 'w');
  std::vector<int> slots;
  const Operand& to = ins.operands.at(0);
  if (to.kind == Operand::Kind::kVector) {
    for (const Operand& e : elements(to)) slots.push_back(result(e, 'w', false));
  } else {
    slots.push_back(result(to, 'w', false));
  }
  slots.push_back(at.slot);
  if (std::string(op(name).results).size() + 1 != slots.size())
    throw Unsupported("the vector has another length");
  emit(name, slots).imm = at.offset;
}

// Lane 8m + r has the address of row r of matrix m; lane l the elements of row l / 4 from column
// 2 (l % 4) on, or with .trans those of the transposed matrix.
void Builder::lower_matrix_store(const Instruction& ins) {
  const Parts& parts = ins.parts;
  const auto& o = ins.operands;
  const Address at = address(o.at(0), 'w');
  const std::vector<Operand> one = {o.at(1)};
  const auto& values = o.at(1).kind == Operand::Kind::kVector ? elements(o.at(1)) : one;
  const bool transposed = has(parts, "trans");
  if (!has(parts, "m8n8") || parts.back() != "b16" || find_space(parts) != "shared" ||
      !has(parts, "x" + std::to_string(values.size())))
    unknown();
  emit("whole_warp", {}).extra = 1;  // racecheck: it writes
  const int row = lane_quotient(4);
  const int column = lane_remainder(4);
  const auto store = [&](const char* width, int value, u32 matrix, int of_row, int byte) {
    const int lane = word("add.u32", {of_row, constant(Width::kWord, 8 * matrix)});
    const int base = new_slot(Width::kWord);
    emit("shfl.idx", {base, -1, at.slot, lane, constant(Width::kWord, 31),
                      constant(Width::kWord, 0xffffffffu)});
    emit(std::string("st.shared.") + width + ".1", {word("add.u32", {base, byte}), value}).imm =
        at.offset;
  };
  for (u32 m = 0; m < values.size(); ++m) {
    const int value = source(values[m], 'w', "u32");
    if (!transposed) {
      store("u32", value, m, row, word("shl.u32", {column, constant(Width::kWord, 2)}));
      continue;
    }
    const int first = word("shl.u32", {column, constant(Width::kWord, 1)});
    const int byte = word("shl.u32", {row, constant(Width::kWord, 1)});
    store("u16", value, m, first, byte);
    store("u16", word("high.32", {value}), m, word("add.u32", {first, constant(Width::kWord, 1)}),
          byte);
  }
}

// A new value of 32 bits.
int Builder::word(const std::string& operation, std::vector<int> sources) {
  const int to = new_slot(Width::kWord);
  sources.insert(sources.begin(), to);
  emit(operation, std::move(sources));
  return to;
}
int Builder::lane_quotient(u32 by) {
  return word("shr.u32", {special(Special::kLaneId),
                          constant(Width::kWord, static_cast<u64>(__builtin_ctz(by)))});
}
int Builder::lane_remainder(u32 by) {
  return word("and.u32", {special(Special::kLaneId), constant(Width::kWord, by - 1)});
}

// mma.sync.aligned.SHAPE.ROW.COL[.satfinite].D.A.B.C[.xor.popc|.and.popc]; .satfinite may also
// stand at the end.
void Builder::lower_mma(const Instruction& ins) {
  const Parts& parts = ins.parts;
  for (const std::string& part : parts) {
    if (part.rfind("kind::", 0) != 0) continue;
    lower_scaled_mma(ins);
    return;
  }
  if (parts.size() > 1 && parts[1].rfind("sp", 0) == 0) {
    lower_sparse_mma(ins);
    return;
  }
  if (parts.size() < 10 || parts.at(1) != "sync" || parts.at(2) != "aligned") unknown();
  std::string name = "mma." + parts.at(3);
  const bool volta = parts.at(3) == "m8n8k4" && parts.back() != "f64";  // layouts to choose from
  if (volta) {
    name += "." + parts.at(4) + "." + parts.at(5);
  } else if (parts.at(4) != "row" || parts.at(5) != "col") {
    unknown();
  }
  static const std::set<std::string> kTypes = {"f16", "f32", "f64", "bf16", "tf32", "s32", "s8",
                                               "u8",  "s4",  "u4",  "b1",   "e4m3", "e5m2"};
  Parts types;
  for (size_t k = 6; k < parts.size(); ++k) {
    if (kTypes.count(parts[k])) {
      types.push_back(parts[k]);
    } else {
      name += "." + parts[k];
    }
  }
  if (types.size() != 4) unknown();
  if (types[1][0] == 'e') {
    multiply_eight_bits(ins, types);
    return;
  }
  name += "." + types[0] + "." + types[1] + "." + types[2];
  if (types[3] != types[0]) name += "." + types[3];
  const OpInfo& info = op(name);
  std::vector<int> slots;
  for (size_t k = 0; k < ins.operands.size(); ++k) {
    const Operand& o = ins.operands.at(k);
    const std::vector<Operand> one = {o};
    for (const Operand& e : o.kind == Operand::Kind::kVector ? elements(o) : one) {
      slots.push_back(k == 0 ? result(e, code_of(types[0]), false)
                             : source(e, code_of(types[k]), "u32"));
    }
  }
  if (slots.size() != std::string(info.results).size() + std::string(info.sources).size()) {
    throw Unsupported("the fragments have other lengths");
  }
  emit(name, slots);
}

// mma.sp[::ordered_metadata].sync.aligned.SHAPE.row.col.D.A.B.C[.satfinite], with metadata and its
// selector as last operands. Sums in f16 are widened and narrowed again.
void Builder::lower_sparse_mma(const Instruction& ins) {
  Parts parts = ins.parts;
  const auto& o = ins.operands;
  needs(80);
  if (parts[1] != "sp" && parts[1] != "sp::ordered_metadata") unknown();
  std::string clamped;
  for (size_t k = 6; k < parts.size(); ++k) {
    if (parts[k] != "satfinite") continue;
    clamped = "satfinite.";
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(k));
  }
  if (parts.size() != 11 || parts[2] != "sync" || parts[3] != "aligned" || parts[5] != "row" ||
      parts[6] != "col" || parts[7] != parts[10] || o.size() != 6)
    unknown();
  const bool wide = parts[7] != "f16";
  const std::string name = "mma.sp." + parts[4] + "." + clamped + (wide ? parts[7] : "f32") + "." +
                           parts[8] + "." + parts[9];
  const size_t count = std::string(op(name).sources).size() == 13 ? 4 : 2;  // of A, and of B
  const auto read = [&](size_t operand, size_t length) {
    std::vector<int> slots;
    for (const Operand& e : elements(o[operand])) slots.push_back(source(e, 'w', "u32"));
    if (slots.size() != length) throw Unsupported("the fragments have other lengths");
    return slots;
  };
  const bool narrow = parts[8][0] != 'f' && parts[8][0] != 'b' && parts[8][0] != 't';
  const u64 selectors = (narrow ? 4 : 8) / count;
  if (o[5].kind != Operand::Kind::kInteger || o[5].bits >= selectors) {
    throw Unsupported("the selector of its metadata is to be a number below " +
                      std::to_string(selectors));
  }
  const std::vector<int> a = read(1, count), b = read(2, count);
  std::vector<int> sums = read(3, wide ? 4 : 2);
  if (!wide) sums = widened(sums);
  std::vector<int> slots;
  for (int k = 0; k < 4; ++k) slots.push_back(new_slot(Width::kWord));
  std::vector<int> to = slots;
  for (const std::vector<int>& part : {a, b, sums})
    slots.insert(slots.end(), part.begin(), part.end());
  slots.push_back(source(o[4], 'w', "u32"));
  emit(name, slots).imm = static_cast<s64>(o[5].bits);
  if (!wide) to = narrowed(to);
  const auto& d = elements(o[0]);
  if (d.size() != to.size()) throw Unsupported("the fragments have other lengths");
  for (size_t k = 0; k < d.size(); ++k) emit("mov.u32", {result(d[k], 'w', false), to[k]});
}

// Eight-bit floats become halves, two registers for one: register 2h + s has elements 2s and 2s + 1
// of register h. That changes the order of k, in both factors alike.
void Builder::multiply_eight_bits(const Instruction& ins, const std::vector<std::string>& types) {
  const bool wide = types[0] == "f32";
  const size_t steps = ins.parts.at(3) == "m16n8k32" ? 2 : ins.parts.at(3) == "m16n8k16" ? 1 : 0;
  const auto& o = ins.operands;
  if (steps == 0 || types[0] != types[3] || (!wide && types[0] != "f16") || types[2][0] != 'e' ||
      ins.parts.size() != 10 || o.size() != 4)
    unknown();
  const auto read = [&](size_t operand, size_t count) {
    std::vector<int> slots;
    const std::vector<Operand> one = {o[operand]};
    for (const Operand& e : o[operand].kind == Operand::Kind::kVector ? elements(o[operand]) : one)
      slots.push_back(source(e, 'w', "u32"));
    if (slots.size() != count) throw Unsupported("the fragments have other lengths");
    return slots;
  };
  const std::vector<int> a = read(1, 2 * steps);
  const std::vector<int> b = read(2, steps);
  std::vector<int> sums = read(3, wide ? 4 : 2);
  if (!wide) sums = widened(sums);
  const auto half = [&](int from, size_t operand, bool upper) {
    return word("cvt.f16x2." + types[operand] + "x2", {upper ? word("high.32", {from}) : from});
  };
  for (size_t h = 0; h < steps; ++h) {
    std::vector<int> slots;
    for (int k = 0; k < 4; ++k) slots.push_back(new_slot(Width::kWord));
    const std::vector<int> to = slots;
    for (const bool upper : {false, true}) {
      slots.push_back(half(a[2 * h], 1, upper));
      slots.push_back(half(a[2 * h + 1], 1, upper));
    }
    for (const bool upper : {false, true}) slots.push_back(half(b[h], 2, upper));
    slots.insert(slots.end(), sums.begin(), sums.end());
    emit("mma.m16n8k16.f32.f16.f16", slots);
    sums = to;
  }
  if (!wide) sums = narrowed(sums);
  const auto& d = elements(o.at(0));
  if (d.size() != sums.size()) throw Unsupported("the fragments have other lengths");
  for (size_t k = 0; k < d.size(); ++k) emit("mov.u32", {result(d[k], 'w', false), sums[k]});
}

}  // namespace vgpu::ptx
