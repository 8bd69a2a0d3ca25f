// wgmma and what orders it; and setmaxnreg, which the same kernels use.
#include <cstring>

#include "exec/counters.h"
#include "ptx/builder.h"
#include "ptx/graph.h"
#include "ptx/opcode.h"

namespace vgpu::ptx {
namespace {

using Element = WgmmaForm::Element;
using Sum = WgmmaForm::Sum;

const std::map<std::string, Element> kElements = {
    {"f16", Element::kF16},   {"bf16", Element::kBf16}, {"tf32", Element::kTf32},
    {"e4m3", Element::kE4m3}, {"e5m2", Element::kE5m2}, {"s8", Element::kS8},
    {"u8", Element::kU8},     {"b1", Element::kB1}};

bool is_whole(Element e) { return e == Element::kS8 || e == Element::kU8 || e == Element::kB1; }
bool is_eight_bits(Element e) { return e == Element::kE4m3 || e == Element::kE5m2; }
bool is_half_wide(Element e) { return e == Element::kF16 || e == Element::kBf16; }

u32 bits_of(Element e) {
  return is_half_wide(e) ? 16 : e == Element::kTf32 ? 32 : e == Element::kB1 ? 1 : 8;
}

// The types that go together. Source: PTX ISA, wgmma.mma_async.
bool fits_together(const WgmmaForm& f) {
  const bool f16_or_f32 = f.sum == Sum::kF16 || f.sum == Sum::kF32;
  if (f.a == Element::kF16) return f.b == f.a && f16_or_f32;
  if (is_eight_bits(f.a)) return is_eight_bits(f.b) && f16_or_f32;
  if (f.a == Element::kBf16 || f.a == Element::kTf32) return f.b == f.a && f.sum == Sum::kF32;
  if (f.a == Element::kB1) return f.b == f.a && f.sum == Sum::kS32 && !f.sparse;
  return is_whole(f.b) && f.b != Element::kB1 && (f.sum == Sum::kS32 || f.sum == Sum::kClamped);
}

// "m64n128k16": N, or 0 where the instruction does not exist.
u32 columns_of(const std::string& shape, const WgmmaForm& f) {
  const u32 depth = 256 / bits_of(f.a) * (f.sparse ? 2 : 1);
  const size_t k = shape.find('k');
  if (shape.rfind("m64n", 0) != 0 || k == shape.npos) return 0;
  const u32 n = static_cast<u32>(std::strtoul(shape.c_str() + 4, nullptr, 10));
  if (shape != "m64n" + std::to_string(n) + "k" + std::to_string(depth)) return 0;
  if (n == 0 || n > kMostColumns || n % 8) return 0;
  // Integers have every second one only, from 32 on.
  return is_whole(f.a) && n % 16 && n != 8 && n != 24 ? 0 : n;
}

}  // namespace

const OpInfo* Builder::variant(const std::string& name, std::string results, std::string sources) {
  variants_.push_back({op(name), std::move(results), std::move(sources)});
  OpVariant& v = variants_.back();
  v.info.results = v.results.c_str();
  v.info.sources = v.sources.c_str();
  return &v.info;
}

void Builder::lower_warpgroup(const Instruction& ins) {
  const std::string text = ins.text();
  const std::string& target = module_.target;
  // Source: PTX ISA 9.0: wgmma is sm_90a's alone, setmaxnreg is in every later a and f as well.
  const bool later = target.rfind("sm_1", 0) == 0 && (target.back() == 'a' || target.back() == 'f');
  const bool registers = ins.parts[0] == "setmaxnreg";
  if (target.rfind("sm_90a", 0) != 0 && !(registers && later))
    throw Unsupported("it needs the target sm_90a");
  if (registers) {
    lower_register_limit(ins);
  } else if (text == "wgmma.fence.sync.aligned") {
    emit("wgmma.fence", {});
  } else if (text == "wgmma.commit_group.sync.aligned") {
    emit("wgmma.commit_group", {});
  } else if (text == "wgmma.wait_group.sync.aligned") {
    const Operand& groups = ins.operands.at(0);
    if (groups.kind != Operand::Kind::kInteger) throw Unsupported("its operand is no constant");
    emit("wgmma.wait_group", {}).extra = static_cast<u32>(groups.bits);
  } else {
    lower_wgmma(ins);
  }
}

void Builder::lower_register_limit(const Instruction& ins) {
  const std::string text = ins.text();
  const bool more = text == "setmaxnreg.inc.sync.aligned.u32";
  const Operand& count = ins.operands.at(0);
  if (!more && text != "setmaxnreg.dec.sync.aligned.u32") unknown();
  if (count.kind != Operand::Kind::kInteger || count.bits < 24 || count.bits > 256 ||
      count.bits % 8)
    throw Unsupported("its operand is no multiple of 8 from 24 to 256");
  emit(more ? "setmaxnreg.inc" : "setmaxnreg.dec", {}).extra = static_cast<u32>(count.bits);
}

// wgmma.mma_async[.sp].sync.aligned.SHAPE.D.A.B[.satfinite | .and.popc], with
//   D, A or its descriptor, descriptor of B[, metadata, selector], scale-d
//   [, sign of A, sign of B[, transposed A (in memory)], transposed B]
void Builder::lower_wgmma(const Instruction& ins) {
  WgmmaForm form = {};
  Parts rest;
  Parts types;
  bool clamps = false;
  std::string shape;
  for (size_t k = 1; k < ins.parts.size(); ++k) {
    const std::string& part = ins.parts[k];
    if (k > 1 && part == "sp") {
      form.sparse = true;
    } else if (part[0] == 'm' && part.find('n') != part.npos && part != "mma_async") {
      shape = part;
    } else if (part == "satfinite") {
      clamps = true;
    } else if (part == "f32" || part == "s32" || kElements.count(part)) {
      types.push_back(part);
    } else {
      rest.push_back(part);
    }
  }
  if (types.size() != 3 || !kElements.count(types[1]) || !kElements.count(types[2])) unknown();
  form.a = kElements.at(types[1]);
  form.b = kElements.at(types[2]);
  form.sum = types[0] == "f32"   ? Sum::kF32
             : types[0] == "f16" ? Sum::kF16
             : types[0] != "s32" ? Sum(255)
             : clamps            ? Sum::kClamped
                                 : Sum::kS32;
  Parts wanted = {"mma_async", "sync", "aligned"};
  if (form.a == Element::kB1) wanted.insert(wanted.end(), {"and", "popc"});
  form.columns = columns_of(shape, form);
  if (rest != wanted || !fits_together(form) || !form.columns ||
      (clamps && form.sum != Sum::kClamped))
    unknown();

  const auto& o = ins.operands;
  form.a_in_registers = o.at(1).kind == Operand::Kind::kVector;
  size_t next = form.sparse ? 5 : 3;
  const auto immediate = [&](size_t k) {
    if (o.at(k).kind != Operand::Kind::kInteger) throw Unsupported("an operand is no constant");
    return static_cast<s64>(o.at(k).bits);
  };
  const auto sign = [&] {
    const s32 value = static_cast<s32>(immediate(next++));
    if (value != 1 && value != -1) throw Unsupported("a sign is neither 1 nor -1");
    return value < 0;
  };
  const auto transposed = [&] {
    const s64 value = immediate(next++);
    if (value != 0 && value != 1) throw Unsupported("a transposition is neither 0 nor 1");
    return value == 1;
  };
  const int scale = source(o.at(next++), 'p', "pred");
  if (!is_whole(form.a)) {
    form.negated = sign();
    form.negated ^= sign();
  }
  if (is_half_wide(form.a)) {
    form.a_by_columns = !form.a_in_registers && transposed();
    form.b_by_rows = transposed();
  }
  if (o.size() != next) throw Unsupported("the number of operands is not expected");

  std::vector<int> slots;
  std::vector<int> sources;
  const auto vector = [&](const Operand& v, size_t count) -> const std::vector<Operand>& {
    if (v.kind != Operand::Kind::kVector || elements(v).size() != count)
      throw Unsupported("the fragments have other lengths");
    return elements(v);
  };
  for (const Operand& d : vector(o.at(0), form.sums())) {
    if (d.kind != Operand::Kind::kRegister) throw Unsupported("a sum must be a register");
    slots.push_back(result(d, 'w', false));
  }
  if (!pending_.empty()) throw Unsupported("a sum's register has 64 bits");
  std::string codes(form.sums(), 'w');
  sources = slots;
  const std::string results = codes;
  if (form.a_in_registers) {
    for (const Operand& a : vector(o.at(1), 4)) sources.push_back(source(a, 'w', "u32"));
    codes += "wwww";
  } else {
    sources.push_back(source(o.at(1), 'd', "u64"));
    codes += 'd';
  }
  sources.push_back(source(o.at(2), 'd', "u64"));
  codes += 'd';
  if (form.sparse) {
    sources.push_back(source(o.at(3), 'w', "u32"));
    codes += 'w';
    const s64 selector = immediate(4);
    if (selector < 0 || selector > (bits_of(form.a) == 8 ? 0 : 1))
      throw Unsupported("the selector of the metadata is out of its range");
    form.selector = static_cast<u8>(selector);
  }
  sources.push_back(scale);
  codes += 'p';
  slots.insert(slots.end(), sources.begin(), sources.end());

  auto& forms = program_->forms;
  const auto known = std::find(forms.begin(), forms.end(), form);
  const size_t number = static_cast<size_t>(known - forms.begin());
  const u32 depth = 256 / bits_of(form.a);
  const u32 operations = 2 * kRowsOfWarp * form.columns * depth * (form.sparse ? 2 : 1);
  if (known == forms.end()) {
    forms.push_back(form);
    const std::string name = (form.sparse ? "sp." : "") + shape;
    program_->form_names.push_back(
        {name + "." + types[0] + "." + types[1] + "." + types[2], operations});
  }
  Draft& d = emit("wgmma", slots);
  d.info = variant("wgmma", results, codes);
  d.extra = static_cast<u32>(number);
  d.count.form = static_cast<int>(number);
  d.count.mma_operations = operations;
  // Half of A is not there, and is not multiplied.
  d.count.wgmma_cost = 2 * kRowsOfWarp * form.columns * depth * sixteenths(types[1]);
}

// Under racecheck: a test before every instruction that touches a register of some wgmma, of those
// that it writes (first), and of those that may be under way.
void Builder::watch_registers() {
  std::set<int> used;
  for (const Draft& d : code_) {
    if (d.info->name != op("wgmma").name) continue;
    for (size_t k = 0; k < d.slots.size(); ++k) {
      const size_t results = std::strlen(d.info->results);
      if (k < results || d.info->sources[k - results] == 'w') used.insert(d.slots[k]);
    }
  }
  if (used.empty()) return;
  resolve_targets(code_, label_position_);
  const std::vector<int> touching = find_in_flight(code_).touching;
  insert_checks(code_, label_position_, [&](size_t k) -> std::optional<Draft> {
    const Draft& d = code_[k];
    if (d.info->name == op("wgmma").name) return std::nullopt;
    Draft check;
    const size_t results = std::strlen(d.info->results);
    for (size_t n = 0; n < d.slots.size(); ++n) {
      if (!used.count(d.slots[n])) continue;
      check.slots.push_back(d.slots[n]);
      check.extra += n < results;
    }
    check.imm = std::binary_search(touching.begin(), touching.end(), static_cast<int>(k));
    if (check.slots.empty() || (!check.extra && !check.imm)) return std::nullopt;
    check.info = variant("check.registers", "", std::string(check.slots.size(), 'w'));
    check.guard = d.guard;
    check.guard_negated = d.guard_negated;
    return check;
  });
}

}  // namespace vgpu::ptx
