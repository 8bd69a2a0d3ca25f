// Clusters, mbarriers and bulk copies.
#include "exec/async.h"
#include "exec/bulk.h"
#include "ptx/builder.h"
#include "ptx/opcode.h"

namespace vgpu::ptx {
namespace {

// PTX's numbers of element types, in tensormap.replace.
const std::map<std::string, MapField> kMapFields = {{"global_address", MapField::kAddress},
                                                    {"rank", MapField::kRank},
                                                    {"box_dim", MapField::kBox},
                                                    {"global_dim", MapField::kDim},
                                                    {"global_stride", MapField::kStride},
                                                    {"element_stride", MapField::kElementStride},
                                                    {"elemtype", MapField::kType},
                                                    {"interleave_layout", MapField::kInterleave},
                                                    {"swizzle_mode", MapField::kSwizzle},
                                                    {"fill_mode", MapField::kFill}};

// Every modifier must be known: one that is not could change what the instruction does.
bool only(const Parts& parts, const std::set<std::string>& known) {
  return std::all_of(parts.begin() + 1, parts.end(),
                     [&](const std::string& p) { return known.count(p) != 0; });
}
void add(std::set<std::string>& to, std::initializer_list<const char*> more) {
  to.insert(more.begin(), more.end());
}

const std::set<std::string> kOrders = {
    "release", "acquire",     "relaxed",         "cta", "cluster", "gpu", "sys",
    "shared",  "shared::cta", "shared::cluster", "b64"};

}  // namespace

// A shared address as 32 bits of the cluster's window, its offset added. `space` is that of the
// operand; a generic one is looked at when the instruction runs.
int Builder::cluster_address(const Operand& operand, const Parts& parts) {
  const bool shared =
      has(parts, "shared") || has(parts, "shared::cta") || has(parts, "shared::cluster");
  const Address a = address(operand, shared ? 'w' : 'd');
  if (a.entry_parameter || a.local_storage)
    throw Unsupported("its address is none of shared memory");
  if (!shared) {
    const int to = new_slot(Width::kWord);
    emit("shared_of_generic", {to, a.slot}).imm = a.offset;
    return to;
  }
  return moved(a);
}

// The address of an operand that lies in this space whatever the instruction's parts say.
int Builder::moved(const Address& a) {
  if (a.offset == 0) return a.slot;
  const bool wide = slots_[static_cast<size_t>(a.slot)].width == Width::kDouble;
  const int to = new_slot(wide ? Width::kDouble : Width::kWord);
  emit(wide ? "add.u64" : "add.u32",
       {to, a.slot, constant(wide ? Width::kDouble : Width::kWord, static_cast<u64>(a.offset))});
  return to;
}
int Builder::whole_address(const Operand& operand, char code) {
  const Address a = address(operand, code);
  if (a.local_storage) throw Unsupported("its address is that of a parameter of a call");
  if (!a.entry_parameter) return moved(a);
  const int to = new_slot(Width::kDouble);
  emit("add.u64",
       {to, special(Special::kParamBase), constant(Width::kDouble, static_cast<u64>(a.offset))});
  return to;
}

// ld, st, atom and red of .shared::cluster go through generic addresses.
Builder::Address Builder::cluster_generic(const Operand& operand) {
  Address a = address(operand, 'w');
  const int wide = new_slot(Width::kDouble);
  emit("extend.u", {wide, a.slot});
  a.slot = new_slot(Width::kDouble);
  emit("add.u64", {a.slot, wide, constant(Width::kDouble, kSharedWindow)});
  return a;
}

bool Builder::lower_cluster(const Instruction& ins) {
  const Parts& parts = ins.parts;
  const std::string& base = parts[0];
  const auto& o = ins.operands;
  if (base == "mbarrier") {
    needs(80);
    lower_mbarrier(ins);
  } else if (base == "tensormap") {
    lower_tensor_map(ins);
  } else if (base == "mapa") {
    needs(90);
    if (!only(parts, {"shared::cluster", "u32", "u64"})) unknown();
    const bool wide = parts.back() == "u64";
    const char code = wide ? 'd' : 'w';
    const Width width = wide ? Width::kDouble : Width::kWord;
    const std::string type = "." + parts.back();
    // Of the address what lies in its CTA, and the other CTA's place in the window.
    const int from = source(o.at(1), code, parts.back());
    const int rank = source(o.at(2), 'w', "u32");
    int high = new_slot(Width::kWord);
    emit("shl.u32", {high, rank, constant(Width::kWord, kSharedSpanBits)});
    if (wide) {
      const int extended = new_slot(Width::kDouble);
      emit("extend.u", {extended, high});
      high = extended;
    }
    const int low = new_slot(width);
    const u64 keep = (wide && !has(parts, "shared::cluster") ? kWindowMask : 0) | (kSharedSpan - 1);
    emit("and" + type, {low, from, constant(width, keep)});
    emit("or" + type, {result(o.at(0), code, false), low, high});
  } else if (base == "getctarank") {
    if (!only(parts, {"shared::cluster", "u32", "u64"})) unknown();
    const bool wide = parts.back() == "u64";
    int address = source(o.at(1), wide ? 'd' : 'w', parts.back());
    if (wide) {
      const int low = new_slot(Width::kWord);
      emit("truncate", {low, address});
      address = low;
    }
    emit("shr.u32",
         {result(o.at(0), 'w', false), address, constant(Width::kWord, kSharedSpanBits)});
  } else if (base == "barrier" && has(parts, "cluster")) {
    needs(90);
    if (!only(parts, {"cluster", "arrive", "wait", "release", "relaxed", "acquire", "aligned"}))
      unknown();
    emit("barrier.cluster." + parts.at(2), {}).extra = has(parts, "aligned") ? 1 : 0;
  } else if (base == "isspacep" && space_base(parts.back()) == "shared") {
    const int to = result(o.at(0), 'p', false);
    emit("isspacep.shared", {to, source(o.at(1), 'd', "u64")}).extra =
        parts.back() == "shared::cluster" ? 1 : 0;
  } else if (base == "fence" && parts.size() > 1) {
    lower_proxy_fence(ins);
  } else if (base == "cp" && has(parts, "mbarrier")) {
    if (!only(parts, {"async", "mbarrier", "arrive", "noinc", "shared", "shared::cta", "b64"}))
      unknown();
    emit("cp.async.mbarrier.arrive", {cluster_address(o.at(0), parts)}).extra =
        has(parts, "noinc") ? 1 : 0;
  } else if (base == "cp" && has(parts, "bulk")) {
    needs(90);
    lower_bulk(ins);
  } else if ((base == "st" || base == "red") && has(parts, "async")) {
    needs(90);
    lower_async_store(ins);
  } else {
    return false;
  }
  return true;
}

// What follows the generic proxy's accesses, or those of another proxy.
void Builder::lower_proxy_fence(const Instruction& ins) {
  const Parts& parts = ins.parts;
  static const std::set<std::string> kKnown = {"proxy",
                                               "async",
                                               "async::generic",
                                               "alias",
                                               "tensormap::generic",
                                               "tensormap",
                                               "mbarrier_init",
                                               "global",
                                               "shared::cta",
                                               "shared::cluster",
                                               "acquire",
                                               "release",
                                               "acq_rel",
                                               "sc",
                                               "relaxed",
                                               "cta",
                                               "cluster",
                                               "gpu",
                                               "sys",
                                               "sync_restrict::shared::cta",
                                               "sync_restrict::shared::cluster"};
  if (!only(parts, kKnown)) unknown();
  emit(has(parts, "proxy") && has(parts, "async") ? "fence.async" : "fence", {});
}

void Builder::lower_mbarrier(const Instruction& ins) {
  const Parts& parts = ins.parts;
  const auto& o = ins.operands;
  const std::string& what = parts.at(1);
  std::set<std::string> known = kOrders;
  known.insert(what);
  const auto number = [&](size_t k) { return source(o.at(k), 'w', "u32"); };
  if (what == "init" || what == "inval") {
    if (!only(parts, known)) unknown();
    const int at = cluster_address(o.at(0), parts);
    if (what == "init") {
      emit("mbarrier.init", {at, number(1)});
    } else {
      emit("mbarrier.inval", {at});
    }
  } else if (what == "expect_tx" || what == "complete_tx") {
    if (!only(parts, known)) unknown();
    const int at = cluster_address(o.at(0), parts);
    emit("mbarrier.arrive", {-1, at, -1, number(1)}).extra =
        kOnlyBytes | (what == "complete_tx" ? kCompletesBytes : 0);
  } else if (what == "arrive" || what == "arrive_drop") {
    add(known, {"expect_tx", "noComplete"});
    if (!only(parts, known)) unknown();
    // The state is left out where the mbarrier may lie in another CTA.
    const size_t first = o.at(0).kind == Operand::Kind::kAddress ? 0 : 1;
    const int at = cluster_address(o.at(first), parts);
    const int value = o.size() > first + 1 ? number(first + 1) : -1;
    const bool expects = has(parts, "expect_tx");
    const bool wanted = first == 1 && o.at(0).kind != Operand::Kind::kSink;
    const int state = wanted ? result(o.at(0), 'd', false) : -1;
    emit("mbarrier.arrive", {state, at, expects ? -1 : value, expects ? value : -1}).extra =
        (what == "arrive_drop" ? kDrops : 0) | (has(parts, "noComplete") ? kNoComplete : 0);
  } else if (what == "test_wait" || what == "try_wait") {
    add(known, {"parity"});
    if (!only(parts, known)) unknown();
    const bool parity = has(parts, "parity");
    const int at = cluster_address(o.at(1), parts);
    const int phase = source(o.at(2), parity ? 'w' : 'd', parity ? "u32" : "u64");
    emit("mbarrier." + what + (parity ? ".parity" : ""), {result(o.at(0), 'p', false), at, phase});
  } else if (what == "pending_count") {
    const int state = source(o.at(1), 'd', "u64");
    emit("mbarrier.pending_count", {result(o.at(0), 'w', false), state});
  } else {
    unknown();
  }
}

Reduce Builder::reduction_of(const Parts& parts) const {
  static const std::map<std::string, Reduce> kOps = {
      {"add", Reduce::kAdd}, {"min", Reduce::kMin}, {"max", Reduce::kMax}, {"inc", Reduce::kInc},
      {"dec", Reduce::kDec}, {"and", Reduce::kAnd}, {"or", Reduce::kOr},   {"xor", Reduce::kXor}};
  for (size_t k = 1; k < parts.size(); ++k) {
    if (const auto it = kOps.find(parts[k]); it != kOps.end()) return it->second;
  }
  unknown();
}

// The type that a reduction computes in. Tensors have theirs in the map.
u32 Builder::reduction_code(const Parts& parts) const {
  static const std::map<std::string, TensorType> kTypes = {
      {"u32", TensorType::kU32}, {"s32", TensorType::kS32},   {"u64", TensorType::kU64},
      {"s64", TensorType::kS64}, {"b32", TensorType::kU32},   {"b64", TensorType::kU64},
      {"f16", TensorType::kF16}, {"bf16", TensorType::kBF16}, {"f32", TensorType::kF32},
      {"f64", TensorType::kF64}};
  const auto type = kTypes.find(parts.back());
  if (type == kTypes.end()) unknown();
  return static_cast<u32>(reduction_of(parts)) << 8 | static_cast<u32>(type->second);
}

void Builder::lower_async_store(const Instruction& ins) {
  const Parts& parts = ins.parts;
  const auto& o = ins.operands;
  const bool reduces = parts[0] == "red";
  static const std::set<std::string> kKnown = {"async",
                                               "weak",
                                               "relaxed",
                                               "cluster",
                                               "shared::cluster",
                                               "mbarrier::complete_tx::bytes",
                                               "v2",
                                               "v4",
                                               "b32",
                                               "b64",
                                               "u32",
                                               "u64",
                                               "s32",
                                               "s64",
                                               "f32",
                                               "f64",
                                               "add",
                                               "min",
                                               "max",
                                               "inc",
                                               "dec",
                                               "and",
                                               "or",
                                               "xor"};
  if (!only(parts, kKnown) || !has(parts, "mbarrier::complete_tx::bytes")) unknown();
  const u32 bytes = type_bytes(parts.back());
  const char code = bytes == 8 ? 'd' : 'w';
  std::vector<int> slots = {whole_address(o.at(0), 'w'), whole_address(o.at(2), 'w')};
  if (o.at(1).kind == Operand::Kind::kVector) {
    for (const Operand& e : elements(o.at(1))) slots.push_back(source(e, code, parts.back()));
  } else {
    slots.push_back(source(o.at(1), code, parts.back()));
  }
  if (static_cast<int>(slots.size()) != 2 + vector_size(parts) || slots.size() > 6) unknown();
  slots.resize(6, -1);
  emit(bytes == 8 ? "bulk.value.64" : "bulk.value.32", slots).extra =
      reduces ? reduction_code(parts) : 0;
}

void Builder::lower_bulk(const Instruction& ins) {
  const Parts& parts = ins.parts;
  const auto& o = ins.operands;
  if (parts.back() == "commit_group") {
    emit("bulk.commit_group", {});
    return;
  }
  if (has(parts, "wait_group")) {
    emit("bulk.wait_group", {}).extra = static_cast<u32>(o.at(0).bits);
    return;
  }
  if (has(parts, "tensor")) {
    lower_bulk_tensor(ins);
    return;
  }
  static const std::set<std::string> kKnown = {"async",
                                               "reduce",
                                               "bulk",
                                               "shared::cluster",
                                               "shared::cta",
                                               "global",
                                               "mbarrier::complete_tx::bytes",
                                               "bulk_group",
                                               "multicast::cluster",
                                               "L2::cache_hint",
                                               "cp_mask",
                                               "noftz",
                                               "add",
                                               "min",
                                               "max",
                                               "inc",
                                               "dec",
                                               "and",
                                               "or",
                                               "xor",
                                               "f16",
                                               "bf16",
                                               "b32",
                                               "u32",
                                               "s32",
                                               "b64",
                                               "u64",
                                               "s64",
                                               "f32",
                                               "f64",
                                               "prefetch",
                                               "L2"};
  if (!only(parts, kKnown)) unknown();
  if (has(parts, "prefetch")) return;  // a hint
  const bool reduces = parts.at(1) == "reduce";
  const size_t direction = reduces ? 4 : 3;  // cp.async.bulk.DST.SRC, cp.reduce.async.bulk.DST.SRC
  const std::string& to = parts.at(direction);
  const std::string& from = parts.at(direction + 1);
  const auto size = [&](size_t k) { return source(o.at(k), 'w', "u32"); };
  size_t hints = has(parts, "L2::cache_hint") ? 1 : 0;
  if (to == "global" && from == "shared::cta") {
    const bool masked = has(parts, "cp_mask");
    if (o.size() != 3 + hints + masked) unknown();
    const int mask = masked ? source(o.back(), 'w', "u16") : -1;
    emit("bulk.store", {whole_address(o.at(0), 'd'), whole_address(o.at(1), 'w'), size(2), mask})
        .extra = reduces ? reduction_code(parts) : 0;
  } else if (space_base(to) == "shared" && from == "global" && !reduces) {
    const bool multicast = has(parts, "multicast::cluster");
    if (o.size() != 4 + hints + multicast) unknown();
    const int ranks = multicast ? source(o.at(4), 'w', "u16") : -1;
    emit("bulk.load", {whole_address(o.at(0), 'w'), whole_address(o.at(1), 'd'), size(2),
                       whole_address(o.at(3), 'w'), ranks});
  } else if (to == "shared::cluster" && from == "shared::cta") {
    if (o.size() != 4) unknown();
    emit("bulk.between", {whole_address(o.at(0), 'w'), whole_address(o.at(1), 'w'), size(2),
                          whole_address(o.at(3), 'w')})
        .extra = reduces ? reduction_code(parts) : 0;
  } else {
    unknown();
  }
}

// [map, {coordinates}]: the address of the map, and five coordinates.
void Builder::tensor_operand(const Operand& operand, u32 rank, int* map, std::vector<int>* to) {
  if (operand.kind != Operand::Kind::kAddress || operand.elements.size() != 2) unknown();
  Operand base = operand;
  base.elements.resize(1);
  *map = whole_address(base, 'd');
  const Operand& vector = operand.elements[1];
  if (vector.kind != Operand::Kind::kVector || vector.elements.size() != rank)
    throw Unsupported("it has not a coordinate for each dimension");
  for (const Operand& e : vector.elements) to->push_back(source(e, 'w', "s32"));
  to->resize(5, -1);
}

void Builder::lower_bulk_tensor(const Instruction& ins) {
  const Parts& parts = ins.parts;
  const auto& o = ins.operands;
  static const std::set<std::string> kKnown = {"async",
                                               "reduce",
                                               "bulk",
                                               "tensor",
                                               "1d",
                                               "2d",
                                               "3d",
                                               "4d",
                                               "5d",
                                               "shared::cluster",
                                               "shared::cta",
                                               "global",
                                               "tile",
                                               "im2col",
                                               "im2col_no_offs",
                                               "mbarrier::complete_tx::bytes",
                                               "bulk_group",
                                               "multicast::cluster",
                                               "L2::cache_hint",
                                               "add",
                                               "min",
                                               "max",
                                               "inc",
                                               "dec",
                                               "and",
                                               "or",
                                               "xor",
                                               "prefetch",
                                               "L2"};
  if (!only(parts, kKnown)) unknown();
  u32 rank = 0;
  for (const std::string& p : parts) {
    if (p.size() == 2 && p[1] == 'd') rank = static_cast<u32>(p[0] - '0');
  }
  const BoxMode mode = has(parts, "im2col")           ? BoxMode::kIm2col
                       : has(parts, "im2col_no_offs") ? BoxMode::kIm2colNoOffsets
                                                      : BoxMode::kTile;
  u32 extra = rank | static_cast<u32>(mode) << 8;
  if (rank == 0 || (mode != BoxMode::kTile && rank < 3)) unknown();
  const size_t hints = has(parts, "L2::cache_hint") ? 1 : 0;
  const auto offsets = [&](size_t k, std::vector<int>& slots) {
    if (mode == BoxMode::kIm2col) {
      const auto& given = elements(o.at(k));
      if (given.size() != rank - 2)
        throw Unsupported("it has not an offset for each of W, H and D");
      for (const Operand& e : given) slots.push_back(source(e, 'w', "u16"));
    }
  };
  int map = -1;
  std::vector<int> slots;
  if (has(parts, "prefetch")) {
    tensor_operand(o.at(0), rank, &map, &slots);
    if (mode == BoxMode::kIm2col) offsets(1, slots);
    slots.insert(slots.begin(), {map, -1});
    slots.resize(10, -1);
    emit("bulk.tensor.prefetch", slots).extra = extra;
  } else if (has(parts, "bulk_group")) {
    if (o.size() != 2 + hints || mode == BoxMode::kIm2col) unknown();
    if (parts.at(1) == "reduce") extra |= static_cast<u32>(reduction_of(parts)) << 16;
    tensor_operand(o.at(0), rank, &map, &slots);
    slots.insert(slots.begin(), {map, whole_address(o.at(1), 'w')});
    emit("bulk.tensor.store", slots).extra = extra;
  } else if (has(parts, "mbarrier::complete_tx::bytes")) {
    const bool multicast = has(parts, "multicast::cluster");
    const bool shifted = mode == BoxMode::kIm2col;
    if (o.size() != 3 + hints + multicast + shifted || mode == BoxMode::kIm2colNoOffsets) unknown();
    tensor_operand(o.at(1), rank, &map, &slots);
    offsets(3, slots);
    const int ranks = multicast ? source(o.at(shifted ? 4 : 3), 'w', "u16") : -1;
    slots.insert(slots.begin(),
                 {whole_address(o.at(0), 'w'), map, whole_address(o.at(2), 'w'), ranks});
    slots.resize(12, -1);
    emit("bulk.tensor.load", slots).extra = extra;
  } else {
    unknown();
  }
}

void Builder::lower_tensor_map(const Instruction& ins) {
  const Parts& parts = ins.parts;
  const auto& o = ins.operands;
  if (parts.at(1) == "cp_fenceproxy") {
    if (!has(parts, "global") || !has(parts, "shared::cta") || o.at(2).bits != kTensorMapBytes)
      unknown();
    emit("tensormap.copy", {whole_address(o.at(0), 'd'), whole_address(o.at(1), 'w')});
    emit("fence", {});
    return;
  }
  if (parts.at(1) != "replace" || parts.at(2) != "tile") unknown();
  const auto field = kMapFields.find(parts.at(3));
  if (field == kMapFields.end()) unknown();
  const bool numbered = o.size() == 3;
  const u32 ordinal = numbered ? static_cast<u32>(o.at(1).bits) : 0;
  if (ordinal > 4) throw Unsupported("a tensor map has five dimensions at most");
  const bool shared = has(parts, "shared::cta");
  const Address at = shared ? cluster_generic(o.at(0)) : address(o.at(0), 'd');
  if (at.entry_parameter || at.local_storage) unknown();
  emit("tensormap.replace", {at.slot, source(o.back(), 'd', "u64")}).imm = at.offset;
  code_.back().extra = static_cast<u32>(field->second) | ordinal << 8;
}

}  // namespace vgpu::ptx
