// Operands: registers, constants, special registers, variables and addresses become slots.
#include <algorithm>
#include <cstring>

#include "ptx/builder.h"
#include "ptx/opcode.h"

namespace vgpu::ptx {
namespace {

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
    {"cluster_ctaid.x", Special::kClusterCtaidX},
    {"cluster_ctaid.y", Special::kClusterCtaidY},
    {"cluster_ctaid.z", Special::kClusterCtaidZ},
    {"cluster_nctaid.x", Special::kClusterNctaidX},
    {"cluster_nctaid.y", Special::kClusterNctaidY},
    {"cluster_nctaid.z", Special::kClusterNctaidZ},
    {"clusterid.x", Special::kClusterIdX},
    {"clusterid.y", Special::kClusterIdY},
    {"clusterid.z", Special::kClusterIdZ},
    {"nclusterid.x", Special::kNclusterIdX},
    {"nclusterid.y", Special::kNclusterIdY},
    {"nclusterid.z", Special::kNclusterIdZ},
    {"cluster_ctarank", Special::kClusterRank},
    {"cluster_nctarank", Special::kClusterSize},
    {"dynamic_smem_size", Special::kDynamicSmem},
    {"total_smem_size", Special::kTotalSmem},
    {"envreg1", Special::kWorkspaceHigh},
    {"envreg2", Special::kWorkspaceLow},
};

}  // namespace

int Builder::new_slot(Width width) {
  slots_.push_back({width, Slot::Kind::kVirtual, 0, Base::kNone});
  return static_cast<int>(slots_.size()) - 1;
}

int Builder::constant(Width width, u64 value, Base base) {
  if (width == Width::kWord) value &= 0xffffffffu;
  auto [it, is_new] = constants_.try_emplace({width, value, base}, static_cast<int>(slots_.size()));
  if (is_new) slots_.push_back({width, Slot::Kind::kConstant, value, base});
  return it->second;
}

int Builder::special(Special which) {
  auto [it, is_new] = specials_.try_emplace(which, static_cast<int>(slots_.size()));
  if (is_new) {
    slots_.push_back({which == Special::kParamBase ? Width::kDouble : Width::kWord,
                      Slot::Kind::kSpecial, static_cast<u64>(which), Base::kNone});
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
  } else if (name == "clock64" || name.rfind("globaltimer", 0) == 0) {
    slot = new_slot(Width::kDouble);
    emit(name == "clock64" ? name : "globaltimer", {slot});
    if (wide) return slot;
    return word(name == "globaltimer_hi" ? "high.64" : "truncate", {slot});
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

// The offset of a variable in its space, or in its function's frame. Entry parameters got theirs at
// the start.
s64 Builder::storage_of(int index) {
  s64& place = frame_->storage[index];
  if (place >= 0) return place;
  const Variable& v = frame_->function->variables[index];
  constexpr u64 kMost = 1 << 28;
  u32& end = v.space == Space::kShared ? shared_bytes_ : frame_->space->bytes;
  // Locals, and the .param variables of calls.
  end = align_up(end, std::max(v.align, 1u));
  if (end + v.bytes > kMost) throw Unsupported("variable " + v.name + " finds no room");
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
    const bool in_frame = !entry_parameter && v.space != Space::kShared && frame_->space->relative;
    const Base shared = v.space == Space::kShared ? Base::kShared : Base::kNone;
    if (!entry_parameter && !in_frame) return constant(width, static_cast<u64>(place), shared);
    const int base = in_frame ? frame_slot() : special(Special::kParamBase);
    const int to = new_slot(Width::kDouble);
    emit("add.u64", {to, base, constant(Width::kDouble, static_cast<u64>(place))});
    return to;
  }
  for (const Variable& v : module_.variables) {
    if (v.name != o.name || v.space != Space::kShared) continue;
    if (v.is_extern && v.bytes == 0) {
      dynamic_align_ = std::max(dynamic_align_, v.align);
      return constant(width, static_cast<u64>(o.offset), Base::kDynamicShared);
    }
    auto it = shared_offsets_.find(v.name);
    if (it == shared_offsets_.end()) {
      shared_bytes_ = align_up(shared_bytes_, v.align);
      it = shared_offsets_.emplace(v.name, shared_bytes_).first;
      shared_bytes_ += static_cast<u32>(v.bytes);
    }
    return constant(width, it->second + static_cast<u64>(o.offset), Base::kShared);
  }
  if (const auto found = symbols_(o.name)) {
    return constant(Width::kDouble, *found + static_cast<u64>(o.offset));
  }
  if (find_body(o.name)) return constant(Width::kDouble, module_.function_address(o.name));
  throw Unsupported("symbol " + o.name + " is not defined");
}

int Builder::source(const Operand& o, char code, const std::string& type) {
  const Width width = width_of(code);
  const bool sign = type[0] == 's';
  const bool truth = o.kind == Operand::Kind::kRegister || o.kind == Operand::Kind::kInteger;
  if (code == 'p' && o.kind == Operand::Kind::kSpecial && o.name == "is_explicit_cluster") {
    const int to = new_slot(Width::kPredicate);
    emit("setp.ne.u32", {to, special(Special::kExplicitCluster), constant(Width::kWord, 0)});
    return to;
  }
  if (code == 'p' && !truth) throw Unsupported("a predicate is expected");
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
      a.slot = a.local_storage ? frame_slot() : constant(Width::kDouble, 0);
      return a;
    }
  }
  a.slot = source(base, code, "u64");
  return a;
}

}  // namespace vgpu::ptx
