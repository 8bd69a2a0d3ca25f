// Frames and labels. What each opcode becomes is in lower_ops.cpp, operands are in
// lower_operands.cpp and calls in lower_calls.cpp.
#include "ptx/lower.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <tuple>

#include "exec/check.h"
#include "exec/sample.h"
#include "ptx/builder.h"
#include "ptx/opcode.h"

namespace vgpu::ptx {
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
  frame.space = &kernel_space_;
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
  emit("nothing", {}).kind = Kind::kExit;
  lower_outlined();

  const u32 dynamic_base = align_up(shared_bytes_, dynamic_align_);
  for (Slot& s : slots_) {
    if (s.base == Base::kDynamicShared) s.value += dynamic_base;
  }
  program_->static_shared_bytes = dynamic_base;
  if (!program_->unsupported.empty()) return std::move(program_);

  if (checks_ & kRacecheck) watch_registers();
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
    ins.run = 1;
    ins.joins = d.joins;
    ins.special = d.joins || d.guard >= 0 || d.kind != Kind::kPlain;
    program_->code.push_back(ins);
    program_->counted.push_back(d.count);
  }
  for (const auto& [which, slot] : specials_) program_->specials |= 1ull << static_cast<u32>(which);
  mark_waits(*program_);
  if (checks_) attach_watches(code_, slots_, checks_, *program_);
  fuse_runs(code_, *program_);
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
    try {
      guard_ = ins.guard < 0 ? -1 : guard_slot(ins.guard);
      guard_negated_ = ins.guard_negated;
      lower_instruction(ins);
      finish_results();
    } catch (const Unsupported& why) {
      refuse(ins, why.what());
    } catch (const std::out_of_range&) {  // of Instruction::parts or operands
      refuse(ins, "it has too few parts or operands");
    }
  }
  guard_ = -1;
  call_stack_.pop_back();
  frame_ = outer;
}

void Builder::refuse(const Instruction& ins, const std::string& why) {
  pending_.clear();
  program_->unsupported.push_back("'" + ins.text() + "' (PTX line " + std::to_string(ins.line) +
                                  "): " + why);
}

int Builder::guard_slot(int index) {
  const int slot = register_slot(index);
  if (slots_[slot].width != Width::kPredicate) throw Unsupported("its guard is no predicate");
  return slot;
}

void Builder::unknown() const {
  throw Unsupported("the virtual GPU does not know this instruction");
}

void Builder::needs(int capability) const {
  // "sm_90a" and its like.
  if (module_.target.rfind("sm_", 0) == 0 && std::atoi(module_.target.c_str() + 3) >= capability)
    return;
  throw Unsupported("it needs the target sm_" + std::to_string(capability) + ", the PTX is for " +
                    module_.target);
}

void Builder::place_label(int label) { label_position_[label] = static_cast<int>(code_.size()); }

int Builder::label_of(const Instruction& ins, const std::string& name) {
  for (int s = ins.scope; s >= 0; s = frame_->function->scopes[s].parent) {
    auto it = frame_->labels.find({s, name});
    if (it != frame_->labels.end()) return it->second;
  }
  throw Unsupported("label " + name + " is not defined");
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
  if (current_) {
    d.count.category = category_of(current_->parts);
    std::tie(d.count.unit, d.count.results) = work_of(current_->parts);
  }
  d.count.is_step = counted_;
  counted_ = true;
  code_.push_back(std::move(d));
  return code_.back();
}

std::unique_ptr<Program> lower(const Module& module, const Function& kernel, const Isa& isa,
                               const SymbolAddress& symbols, u32 checks) {
  return Builder(module, kernel, isa, symbols, checks).run();
}

}  // namespace vgpu::ptx
