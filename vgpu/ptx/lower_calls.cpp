// Calls. Most are inlined; a function that may call itself, or is called through a pointer, has its
// code once (exec/ops_call.cpp).
#include <algorithm>

#include "ptx/builder.h"
#include "ptx/opcode.h"

namespace vgpu::ptx {
namespace {

// Where inlining has made a program this long, calls are no longer inlined.
constexpr size_t kLongestInlined = 100'000;

// Symbols anywhere in an operand.
template <class F>
void each_symbol(const Operand& o, F visit) {
  if (o.kind == Operand::Kind::kSymbol) visit(o.name);
  for (const Operand& e : o.elements) each_symbol(e, visit);
}

// What a call calls: the first operand that is no list.
const Operand* target_of(const Instruction& call) {
  for (const Operand& o : call.operands) {
    if (o.kind != Operand::Kind::kList) return &o;
  }
  return nullptr;
}

}  // namespace

const Function* Builder::find_body(const std::string& name) const {
  const Function* found = module_.find(name);
  return found && found->has_body && !found->is_entry ? found : nullptr;
}

const std::vector<const Function*>& Builder::address_taken() {
  if (address_taken_known_) return address_taken_;
  address_taken_known_ = true;
  const auto take = [&](const std::string& name) {
    const Function* f = find_body(name);
    if (f && std::find(address_taken_.begin(), address_taken_.end(), f) == address_taken_.end())
      address_taken_.push_back(f);
  };
  for (const Function& f : module_.functions) {
    for (const Instruction& ins : f.body) {
      if (ins.parts[0] == "call") continue;
      for (const Operand& o : ins.operands) each_symbol(o, take);
    }
  }
  for (const Variable& v : module_.variables) {
    for (const Variable::Reference& r : v.references) take(r.symbol);
  }
  return address_taken_;
}

std::vector<const Function*> Builder::callees_of(const Function& function) {
  std::vector<const Function*> found;
  for (const Instruction& ins : function.body) {
    const Operand* target = ins.parts[0] == "call" ? target_of(ins) : nullptr;
    if (!target) continue;
    if (target->kind != Operand::Kind::kSymbol) {
      const auto& all = address_taken();
      found.insert(found.end(), all.begin(), all.end());
    } else if (const Function* callee = find_body(target->name)) {
      found.push_back(callee);
    }
  }
  return found;
}

bool Builder::calls_itself(const Function& function) {
  const auto [it, is_new] = calls_itself_.try_emplace(&function, false);
  if (!is_new) return it->second;
  std::vector<const Function*> open = callees_of(function);
  std::set<const Function*> seen;
  while (!open.empty()) {
    const Function* f = open.back();
    open.pop_back();
    if (f == &function) return calls_itself_[&function] = true;
    if (!seen.insert(f).second) continue;
    const auto more = callees_of(*f);
    open.insert(open.end(), more.begin(), more.end());
  }
  return false;
}

// call (results), function, (arguments)[, prototype]: the callee's parameters are variables of the
// caller.
void Builder::call(const Instruction& ins) {
  const Operand* target = target_of(ins);
  if (!target) throw Unsupported("a call has no function");
  CallSite site;
  for (const Operand& o : ins.operands) {
    if (o.kind != Operand::Kind::kList) continue;
    for (const Operand& e : o.elements) {
      if (e.kind != Operand::Kind::kVariable)
        throw Unsupported("an argument is no .param variable");
      const u64 bytes = frame_->function->variables[e.index].bytes;
      (&o < target ? site.results : site.arguments).push_back({storage_of(e.index), bytes});
    }
  }
  const int around = guard_ >= 0 ? jump_around() : -1;
  if (target->kind == Operand::Kind::kSymbol) {
    call_function(target->name, site);
  } else {
    call_through_pointer(*target, site);
  }
  if (around >= 0) place_label(around);
}

int Builder::new_label() {
  label_position_.push_back(-1);
  return static_cast<int>(label_position_.size()) - 1;
}

// What follows is guarded no more: where the guard is false, a jump leads around it.
int Builder::jump_around() {
  const int around = new_label();
  Draft& skip = emit("nothing", {});
  skip.kind = Kind::kBranch;
  skip.guard_negated = !skip.guard_negated;
  skip.label = around;
  guard_ = -1;
  guard_negated_ = false;
  return around;
}

bool Builder::matches(const Function& callee, const CallSite& site) const {
  const auto same = [&](const std::vector<int>& variables, const auto& blocks) {
    return std::equal(variables.begin(), variables.end(), blocks.begin(), blocks.end(),
                      [&](int v, const auto& b) { return callee.variables[v].bytes == b.bytes; });
  };
  return same(callee.params, site.arguments) && same(callee.results, site.results);
}

void Builder::call_function(const std::string& name, const CallSite& site) {
  if (call_builtin(name, site)) return;
  const Function* callee = find_body(name);
  if (!callee) throw Unsupported("function " + name + " has no body in this module");
  if (!matches(*callee, site))
    throw Unsupported("the call does not match the parameters of " + name);
  if (calls_itself(*callee) || code_.size() > kLongestInlined) {
    call_outlined(*callee, site);
    return;
  }
  Frame frame;
  frame.function = callee;
  frame.space = frame_->space;
  frame.registers.assign(callee->registers.size(), -1);
  frame.storage.assign(callee->variables.size(), -1);
  for (size_t k = 0; k < site.arguments.size(); ++k)
    frame.storage[callee->params[k]] = site.arguments[k].place;
  for (size_t k = 0; k < site.results.size(); ++k)
    frame.storage[callee->results[k]] = site.results[k].place;
  frame.end_label = new_label();
  inline_function(frame);
  place_label(frame.end_label);
}

// A chain of comparisons with all functions that the pointer may point to.
void Builder::call_through_pointer(const Operand& pointer, const CallSite& site) {
  const int address = source(pointer, 'd', "u64");
  const int found = new_slot(Width::kPredicate);
  emit("mov.pred", {found, constant(Width::kPredicate, 0)});
  for (const Function* callee : address_taken()) {
    if (!matches(*callee, site)) continue;
    const int hit = new_slot(Width::kPredicate);
    emit("setp.eq.u64",
         {hit, address, constant(Width::kDouble, module_.function_address(callee->name))});
    emit("or.pred", {found, found, hit});
    guard_ = hit;
    const int around = jump_around();
    call_outlined(*callee, site);
    place_label(around);
  }
  guard_ = found;
  guard_negated_ = true;
  emit("call.nowhere", {});
  guard_ = -1;
  guard_negated_ = false;
}

Builder::Outlined& Builder::outline(const Function& callee) {
  const auto [it, is_new] = outlined_.try_emplace(&callee);
  Outlined& o = it->second;
  if (!is_new) return o;
  o.label = new_label();
  o.space.relative = true;
  o.storage.assign(callee.variables.size(), -1);
  for (const auto* variables : {&callee.params, &callee.results}) {
    for (const int v : *variables) {
      const Variable& variable = callee.variables[v];
      o.space.bytes = static_cast<u32>(align_up(o.space.bytes, std::max(variable.align, 1u)));
      o.storage[v] = o.space.bytes;
      o.space.bytes += static_cast<u32>(variable.bytes);
    }
  }
  to_outline_.push_back(&callee);
  return o;
}

void Builder::call_outlined(const Function& callee, const CallSite& site) {
  Outlined& o = outline(callee);
  for (size_t k = 0; k < site.arguments.size(); ++k) {
    const auto& [place, bytes] = site.arguments[k];
    copy_local(place, o.storage[callee.params[k]], bytes, true);
  }
  const int start = call_slot(frame_start_, Width::kDouble);
  const int level = call_slot(call_level_, Width::kWord);
  emit("call", {start, level}).label = o.label;
  patches_.push_back({code_.size() - 1, frame_->space, &o.space});
  emit("call.restore", {start, level});
  patches_.push_back({code_.size() - 1, frame_->space, nullptr});
  for (size_t k = 0; k < site.results.size(); ++k) {
    const auto& [place, bytes] = site.results[k];
    copy_local(o.storage[callee.results[k]], place, bytes, false);
  }
}

// Between the caller's frame and that of the callee, which begins where the caller's ends.
void Builder::copy_local(s64 from, s64 to, u64 bytes, bool into_callee) {
  for (u64 at = 0; at < bytes;) {
    const u64 source = static_cast<u64>(from) + at;
    const u64 target = static_cast<u64>(to) + at;
    u64 n = 8;
    while (n > bytes - at || source % n || target % n) n /= 2;
    const std::string access = ".local.u" + std::to_string(8 * n) + ".1";
    const int value = new_slot(n == 8 ? Width::kDouble : Width::kWord);
    emit("ld" + access, {value, frame_slot()}).imm = static_cast<s64>(source);
    if (!into_callee) patches_.push_back({code_.size() - 1, frame_->space, nullptr});
    emit("st" + access, {frame_slot(), value}).imm = static_cast<s64>(target);
    if (into_callee) patches_.push_back({code_.size() - 1, frame_->space, nullptr});
    at += n;
  }
}

// The code of functions that are not inlined, behind the kernel's.
void Builder::lower_outlined() {
  while (!to_outline_.empty()) {
    const Function& function = *to_outline_.back();
    to_outline_.pop_back();
    Outlined& o = outlined_[&function];
    Frame frame;
    frame.function = &function;
    frame.space = &o.space;
    frame.registers.assign(function.registers.size(), -1);
    frame.storage = o.storage;
    frame.end_label = new_label();
    place_label(o.label);
    inline_function(frame);
    place_label(frame.end_label);
    emit("return", {}).ends = true;
  }
  for (const Patch& p : patches_) {
    code_[p.draft].imm += static_cast<s64>(align_up(p.caller->bytes, 16));
    if (p.callee) code_[p.draft].extra = static_cast<u32>(align_up(p.callee->bytes, 16));
  }
  program_->local_bytes = static_cast<u32>(align_up(kernel_space_.bytes, 16));
  program_->calls = !outlined_.empty();
}

// Slots that calls change and that are saved by none: constants, each of its own.
int Builder::call_slot(int& slot, Width width) {
  if (slot < 0) {
    slots_.push_back({width, Slot::Kind::kConstant, 0, Base::kNone});
    slot = static_cast<int>(slots_.size()) - 1;
  }
  return slot;
}

// Where the local memory of the function begins.
int Builder::frame_slot() {
  return frame_->space->relative ? call_slot(frame_start_, Width::kDouble)
                                 : constant(Width::kDouble, 0);
}

bool Builder::call_builtin(const std::string& name, const CallSite& site) {
  const auto load = [&](size_t k, char code) {
    if (k >= site.arguments.size()) throw Unsupported("the call does not match " + name);
    const int to = new_slot(code == 'd' ? Width::kDouble : Width::kWord);
    emit(code == 'd' ? "ld.local.u64.1" : "ld.local.u32.1", {to, frame_slot()}).imm =
        site.arguments[k].place;
    return to;
  };
  const auto deliver = [&](const char* operation, int value) {
    if (!site.results.empty()) emit(operation, {frame_slot(), value}).imm = site.results[0].place;
  };
  if (name == "vprintf") {
    program_->prints = true;
    const int status = new_slot(Width::kWord);
    const int format = load(0, 'd');
    emit("vprintf", {status, format, load(1, 'd')});
    deliver("st.local.u32.1", status);
  } else if (name == "__assertfail") {
    const int message = load(0, 'd');
    const int file = load(1, 'd');
    const int line = load(2, 'w');
    emit("assertfail", {message, file, line, load(3, 'd')}).ends = true;
  } else if (name == "cudaGraphSetConditional" && !find_body(name)) {
    const int handle = load(0, 'd');
    emit("st.global.u32.1", {handle, load(1, 'w')});
  } else if ((name == "malloc" || name == "free") && !find_body(name)) {
    if (!symbols_(kDeviceHeap)) throw Unsupported("there is no memory for the heap of " + name);
    const int value = load(0, 'd');
    if (name == "free") {
      emit("free", {value});
    } else {
      const int to = new_slot(Width::kDouble);
      emit("malloc", {to, value});
      deliver("st.local.u64.1", to);
    }
  } else {
    return false;
  }
  return true;
}

}  // namespace vgpu::ptx
