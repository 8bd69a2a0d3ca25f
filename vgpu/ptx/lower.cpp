// Frames, labels, calls and operands. What each opcode becomes is in lower_ops.cpp.
#include "ptx/lower.h"

#include <algorithm>
#include <cstring>

#include "exec/sample.h"
#include "ptx/builder.h"
#include "ptx/opcode.h"

namespace vgpu::ptx {
namespace {

u32 align_up(u32 value, u32 align) { return (value + align - 1) / align * align; }

Width width_of(char code) {
  return code == 'p' ? Width::kPredicate : code == 'd' ? Width::kDouble : Width::kWord;
}
Width register_width(const std::string& type) {
  return type == "pred" ? Width::kPredicate : type_bytes(type) == 8 ? Width::kDouble : Width::kWord;
}

const std::map<std::string, Special> kSpecialRegisters = {
    {"tid.x", Special::kTidX},
    {"tid.y", Special::kTidY},
    {"tid.z", Special::kTidZ},
    {"ntid.x", Special::kNtidX},
    {"ntid.y", Special::kNtidY},
    {"ntid.z", Special::kNtidZ},
    {"ctaid.x", Special::kCtaidX},
    {"ctaid.y", Special::kCtaidY},
    {"ctaid.z", Special::kCtaidZ},
    {"nctaid.x", Special::kNctaidX},
    {"nctaid.y", Special::kNctaidY},
    {"nctaid.z", Special::kNctaidZ},
    {"laneid", Special::kLaneId},
    {"warpid", Special::kWarpId},
    {"nwarpid", Special::kNwarpId},
    {"smid", Special::kSmId},
    {"nsmid", Special::kNsmId},
    {"gridid", Special::kGridId},
    {"lanemask_eq", Special::kLaneMaskEq},
    {"lanemask_lt", Special::kLaneMaskLt},
    {"lanemask_le", Special::kLaneMaskLe},
    {"lanemask_gt", Special::kLaneMaskGt},
    {"lanemask_ge", Special::kLaneMaskGe},
    {"dynamic_smem_size", Special::kDynamicSmem},
    {"total_smem_size", Special::kTotalSmem},
    {"envreg1", Special::kWorkspaceHigh},
    {"envreg2", Special::kWorkspaceLow},
};

}  // namespace

Builder::Builder(const Module& module, const Function& kernel, const Isa& isa,
                 const SymbolAddress& symbols, u32 checks)
    : module_(module),
      kernel_(kernel),
      isa_(isa),
      table_(op_table(isa)),
      symbols_(symbols),
      checks_(checks),
      program_(std::make_unique<Program>()) {}

std::unique_ptr<Program> Builder::run() {
  program_->name = kernel_.name;
  Frame frame;
  frame.function = &kernel_;
  frame.registers.assign(kernel_.registers.size(), -1);
  frame.storage.assign(kernel_.variables.size(), -1);
  u32 offset = 0;
  for (int p : kernel_.params) {
    const Variable& v = kernel_.variables[p];
    offset = align_up(offset, v.align);
    frame.storage[p] = offset;
    offset += static_cast<u32>(v.bytes);
  }
  inline_function(frame);
  Draft& end = emit("nothing", {});
  end.kind = Kind::kExit;

  const u32 dynamic_base = align_up(shared_bytes_, dynamic_align_);
  for (Slot& s : slots_) {
    if (s.dynamic_base) s.value += dynamic_base;
  }
  program_->static_shared_bytes = dynamic_base;
  program_->local_bytes = align_up(local_bytes_, 16);
  if (!program_->unsupported.empty()) return std::move(program_);

  if (checks_) watch_branches(code_, label_position_, op("check.guard"));
  analyse_flow(code_, label_position_);
  allocate_slots(code_, slots_, *program_);
  size_t count = 0;
  for (const Draft& d : code_) count += d.slots.size();
  program_->operands.reserve(count);  // Ins::ops must not move
  for (const Draft& d : code_) {
    Ins ins = {};
    ins.fn = d.control ? isa_.control_word : d.info->fn;
    ins.inner = d.info->fn;
    ins.ops = program_->operands.data() + program_->operands.size();
    for (int s : d.slots) program_->operands.push_back(s < 0 ? kNoSlot : slots_[s].offset);
    ins.imm = d.imm;
    ins.guard = d.guard < 0 ? kNoSlot : slots_[d.guard].offset;
    ins.guard_negated = d.guard_negated;
    ins.target = d.target;
    ins.reconverge = d.reconverge;
    ins.line = d.line;
    ins.extra = d.control ? d.control : d.extra;
    ins.kind = d.kind;
    ins.joins = d.joins;
    ins.special = d.joins || d.guard >= 0 || d.kind != Kind::kPlain;
    program_->code.push_back(ins);
    program_->counted.push_back(d.count);
  }
  mark_waits(*program_);
  if (checks_) attach_watches(code_, slots_, checks_, *program_);
  return std::move(program_);
}

// --- structure
// ------------------------------------------------------------------------------------

void Builder::inline_function(Frame& frame) {
  Frame* const outer = frame_;
  frame_ = &frame;
  call_stack_.push_back(frame.function);
  const Function& f = *frame.function;
  // Labels stand before the instruction of their index.
  std::multimap<size_t, int> labels;
  for (size_t s = 0; s < f.scopes.size(); ++s) {
    for (const auto& [name, position] : f.scopes[s].labels) {
      const int label = static_cast<int>(label_position_.size());
      label_position_.push_back(-1);
      frame.labels[{static_cast<int>(s), name}] = label;
      labels.emplace(position, label);
    }
  }
  for (size_t n = 0; n <= f.body.size(); ++n) {
    const auto [first, last] = labels.equal_range(n);
    for (auto it = first; it != last; ++it) place_label(it->second);
    if (n == f.body.size()) break;
    const Instruction& ins = f.body[n];
    begin(ins);
    guard_ = ins.guard < 0 ? -1 : register_slot(ins.guard);
    guard_negated_ = ins.guard_negated;
    try {
      lower_instruction(ins);
      finish_results();
    } catch (const Unsupported& why) {
      pending_.clear();
      program_->unsupported.push_back("'" + ins.text() + "' (PTX line " + std::to_string(ins.line) +
                                      "): " + why.what());
    }
  }
  guard_ = -1;
  call_stack_.pop_back();
  frame_ = outer;
}

void Builder::unknown() const {
  throw Unsupported("the virtual GPU does not know this instruction");
}

void Builder::place_label(int label) { label_position_[label] = static_cast<int>(code_.size()); }

int Builder::label_of(const Instruction& ins, const std::string& name) {
  for (int s = ins.scope; s >= 0; s = frame_->function->scopes[s].parent) {
    auto it = frame_->labels.find({s, name});
    if (it != frame_->labels.end()) return it->second;
  }
  throw Unsupported("label " + name + " is not defined");
}

// call (results), function, (arguments): the callee's parameters are the caller's variables.
void Builder::call(const Instruction& ins) {
  std::vector<s64> arguments;
  std::vector<s64> results;
  std::string name;
  for (const Operand& o : ins.operands) {
    if (o.kind == Operand::Kind::kList) {
      for (const Operand& e : o.elements) {
        if (e.kind != Operand::Kind::kVariable)
          throw Unsupported("an argument is no .param variable");
        (name.empty() ? results : arguments).push_back(storage_of(e.index));
      }
    } else if (o.kind == Operand::Kind::kSymbol && name.empty()) {
      name = o.name;
    } else if (name.empty()) {
      throw Unsupported("calls through a function pointer are not supported");
    }
  }
  // A guarded call jumps around itself.
  int around = -1;
  if (guard_ >= 0) {
    around = static_cast<int>(label_position_.size());
    label_position_.push_back(-1);
    Draft& skip = emit("nothing", {});
    skip.kind = Kind::kBranch;
    skip.guard_negated = !skip.guard_negated;
    skip.label = around;
    guard_ = -1;
  }
  if (!call_builtin(ins, name, arguments, results)) {
    const Function* callee = module_.find(name);
    if (!callee || !callee->has_body)
      throw Unsupported("function " + name + " has no body in this module");
    if (std::find(call_stack_.begin(), call_stack_.end(), callee) != call_stack_.end()) {
      throw Unsupported("recursion (" + name + ") is not supported");
    }
    if (arguments.size() != callee->params.size() || results.size() != callee->results.size()) {
      throw Unsupported("the call does not match the parameters of " + name);
    }
    Frame frame;
    frame.function = callee;
    frame.registers.assign(callee->registers.size(), -1);
    frame.storage.assign(callee->variables.size(), -1);
    for (size_t k = 0; k < arguments.size(); ++k) frame.storage[callee->params[k]] = arguments[k];
    for (size_t k = 0; k < results.size(); ++k) frame.storage[callee->results[k]] = results[k];
    frame.end_label = static_cast<int>(label_position_.size());
    label_position_.push_back(-1);
    inline_function(frame);
    place_label(frame.end_label);
  }
  if (around >= 0) place_label(around);
}

bool Builder::call_builtin(const Instruction&, const std::string& name,
                           const std::vector<s64>& arguments, const std::vector<s64>& results) {
  const auto load = [&](size_t k, char code) {
    const int to = new_slot(width_of(code));
    emit(code == 'd' ? "ld.local.u64.1" : "ld.local.u32.1",
         {to, constant(Width::kDouble, static_cast<u64>(arguments.at(k)))});
    return to;
  };
  if (name == "vprintf") {
    const int status = new_slot(Width::kWord);
    const int format = load(0, 'd');
    emit("vprintf", {status, format, load(1, 'd')});
    if (!results.empty()) {
      emit("st.local.u32.1", {constant(Width::kDouble, static_cast<u64>(results[0])), status});
    }
    return true;
  }
  if (name == "__assertfail") {
    const int message = load(0, 'd');
    const int file = load(1, 'd');
    const int line = load(2, 'w');
    emit("assertfail", {message, file, line, load(3, 'd')});
    return true;
  }
  return false;
}

// --- slots and operands
// -----------------------------------------------------------------------------

int Builder::new_slot(Width width) {
  slots_.push_back({width, Slot::Kind::kVirtual, 0, false});
  return static_cast<int>(slots_.size()) - 1;
}

int Builder::constant(Width width, u64 value, bool dynamic_base) {
  if (width == Width::kWord) value &= 0xffffffffu;
  auto [it, is_new] =
      constants_.try_emplace({width, value, dynamic_base}, static_cast<int>(slots_.size()));
  if (is_new) slots_.push_back({width, Slot::Kind::kConstant, value, dynamic_base});
  return it->second;
}

int Builder::special(Special which) {
  auto [it, is_new] = specials_.try_emplace(which, static_cast<int>(slots_.size()));
  if (is_new) {
    slots_.push_back({which == Special::kParamBase ? Width::kDouble : Width::kWord,
                      Slot::Kind::kSpecial, static_cast<u64>(which), false});
  }
  return it->second;
}

int Builder::special_register(const std::string& name, bool wide) {
  int slot = -1;
  if (auto it = kSpecialRegisters.find(name); it != kSpecialRegisters.end()) {
    slot = special(it->second);
  } else if (name == "clock" || name == "clock_hi") {
    slot = new_slot(Width::kWord);
    emit("clock", {slot});
  } else if (name == "clock64" || name == "globaltimer") {
    slot = new_slot(Width::kDouble);
    emit(name, {slot});
    return slot;
  } else if (name.rfind("envreg", 0) == 0) {
    slot = special(Special::kZero);
  } else {
    throw Unsupported("register %" + name + " is not modelled");
  }
  if (!wide) return slot;
  const int to = new_slot(Width::kDouble);
  emit("extend.u", {to, slot});
  return to;
}

int Builder::register_slot(int index) {
  int& slot = frame_->registers[index];
  if (slot < 0) slot = new_slot(register_width(frame_->function->registers[index].type));
  return slot;
}

// The offset of a variable in its space. Entry parameters got theirs at the start.
s64 Builder::storage_of(int index) {
  s64& place = frame_->storage[index];
  if (place >= 0) return place;
  const Variable& v = frame_->function->variables[index];
  u32& end = v.space == Space::kShared ? shared_bytes_ : local_bytes_;
  // Locals, and the .param variables of calls.
  end = align_up(end, std::max(v.align, 1u));
  place = end;
  end += static_cast<u32>(v.bytes);
  return place;
}

// The address of a variable as a value of its own state space.
int Builder::symbol_slot(const Operand& o, Width width) {
  if (o.kind == Operand::Kind::kVariable) {
    const Variable& v = frame_->function->variables[o.index];
    const bool entry_parameter =
        v.space == Space::kParam && frame_->end_label < 0 &&
        std::find(kernel_.params.begin(), kernel_.params.end(), o.index) != kernel_.params.end();
    if (v.space == Space::kGlobal || v.space == Space::kConst) {
      throw Unsupported("module-space variable " + v.name + " declared inside a function");
    }
    const s64 place = storage_of(o.index) + o.offset;
    if (!entry_parameter) return constant(width, static_cast<u64>(place));
    const int to = new_slot(Width::kDouble);
    emit("add.u64",
         {to, special(Special::kParamBase), constant(Width::kDouble, static_cast<u64>(place))});
    return to;
  }
  for (const Variable& v : module_.variables) {
    if (v.name != o.name || v.space != Space::kShared) continue;
    if (v.is_extern && v.bytes == 0) {
      dynamic_align_ = std::max(dynamic_align_, v.align);
      return constant(width, static_cast<u64>(o.offset), true);
    }
    auto it = shared_offsets_.find(v.name);
    if (it == shared_offsets_.end()) {
      shared_bytes_ = align_up(shared_bytes_, v.align);
      it = shared_offsets_.emplace(v.name, shared_bytes_).first;
      shared_bytes_ += static_cast<u32>(v.bytes);
    }
    return constant(width, it->second + static_cast<u64>(o.offset));
  }
  if (const auto found = symbols_(o.name)) {
    return constant(Width::kDouble, *found + static_cast<u64>(o.offset));
  }
  if (module_.find(o.name))
    throw Unsupported("the address of function " + o.name + " is not supported");
  throw Unsupported("symbol " + o.name + " is not defined");
}

int Builder::source(const Operand& o, char code, const std::string& type) {
  const Width width = width_of(code);
  const bool sign = type[0] == 's';
  switch (o.kind) {
    case Operand::Kind::kRegister: {
      const int slot = register_slot(o.index);
      const Width have = slots_[slot].width;
      if (o.negated) {
        const int flipped = new_slot(Width::kPredicate);
        emit("not.pred", {flipped, slot});
        return flipped;
      }
      if (have == width) return slot;
      if (have == Width::kPredicate || width == Width::kPredicate) {
        throw Unsupported("a predicate and a number are mixed");
      }
      const int to = new_slot(width);
      emit(width == Width::kWord ? "truncate" : sign ? "extend.s" : "extend.u", {to, slot});
      return to;
    }
    case Operand::Kind::kInteger:
      if (code == 'p') return constant(width, o.bits ? 0xffffffffu : 0);
      return constant(width, o.bits);
    case Operand::Kind::kFloat32: {
      if (width == Width::kWord) return constant(width, o.bits);
      const u32 bits = static_cast<u32>(o.bits);
      float narrow;
      std::memcpy(&narrow, &bits, 4);
      const double wide = narrow;
      u64 wide_bits;
      std::memcpy(&wide_bits, &wide, 8);
      return constant(width, wide_bits);
    }
    case Operand::Kind::kFloat64: {
      if (width == Width::kDouble) return constant(width, o.bits);
      double wide;
      std::memcpy(&wide, &o.bits, 8);
      const float narrow = static_cast<float>(wide);
      u32 bits;
      std::memcpy(&bits, &narrow, 4);
      return constant(width, bits);
    }
    case Operand::Kind::kSpecial:
      return special_register(o.name, width == Width::kDouble);
    case Operand::Kind::kVariable:
    case Operand::Kind::kSymbol: {
      const int slot = symbol_slot(o, width);
      if (slots_[slot].width == width) return slot;
      const int to = new_slot(width);
      emit("truncate", {to, slot});
      return to;
    }
    default:
      throw Unsupported("an operand has a form that is not expected here");
  }
}

int Builder::result(const Operand& o, char code, bool sign) {
  const Width width = width_of(code);
  if (o.kind == Operand::Kind::kSink) return new_slot(width);
  if (o.kind != Operand::Kind::kRegister) throw Unsupported("a result must be a register");
  const int slot = register_slot(o.index);
  const Width have = slots_[slot].width;
  if (have == width) return slot;
  if (have == Width::kPredicate || width == Width::kPredicate) {
    throw Unsupported("a predicate and a number are mixed");
  }
  const int from = new_slot(width);
  pending_.push_back({from, slot,
                      have == Width::kWord ? "truncate"
                      : sign               ? "extend.s"
                                           : "extend.u"});
  return from;
}

void Builder::finish_results() {
  for (const PendingResult& p : pending_) emit(p.op, {p.to, p.from});
  pending_.clear();
}

Builder::Address Builder::address(const Operand& o, char code) {
  if (o.kind != Operand::Kind::kAddress || o.elements.size() != 1) {
    throw Unsupported("an address has a form that is not expected here");
  }
  const Operand& base = o.elements[0];
  Address a;
  a.offset = o.offset;
  if (base.kind == Operand::Kind::kVariable) {
    const Variable& v = frame_->function->variables[base.index];
    if (v.space == Space::kParam) {
      a.offset = storage_of(base.index) + base.offset;
      a.entry_parameter = frame_->end_label < 0 &&
                          std::find(kernel_.params.begin(), kernel_.params.end(), base.index) !=
                              kernel_.params.end();
      a.local_storage = !a.entry_parameter;
      a.slot = constant(Width::kDouble, 0);
      return a;
    }
  }
  a.slot = source(base, code, "u64");
  return a;
}

const OpInfo& Builder::op(const std::string& name) {
  const OpInfo* info = table_.find(name);
  if (!info) unknown();
  return *info;
}

Draft& Builder::emit(const std::string& name, std::vector<int> slots) {
  Draft d;
  d.info = &op(name);
  d.slots = std::move(slots);
  d.guard = guard_;
  d.guard_negated = guard_negated_;
  d.line = current_ ? current_->line : 0;
  d.count = count_info(name);
  if (current_ && !counted_) d.count.category = category_of(current_->parts);
  counted_ = true;
  code_.push_back(std::move(d));
  return code_.back();
}

std::unique_ptr<Program> lower(const Module& module, const Function& kernel, const Isa& isa,
                               const SymbolAddress& symbols, u32 checks) {
  return Builder(module, kernel, isa, symbols, checks).run();
}

}  // namespace vgpu::ptx
