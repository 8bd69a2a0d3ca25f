// Bulk copies, stores that complete at an mbarrier, and descriptors of tensors.
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

const std::map<std::string, Reduce> kReductions = {
    {"add", Reduce::kAdd}, {"min", Reduce::kMin}, {"max", Reduce::kMax}, {"inc", Reduce::kInc},
    {"dec", Reduce::kDec}, {"and", Reduce::kAnd}, {"or", Reduce::kOr},   {"xor", Reduce::kXor}};

std::set<std::string> with_reductions(std::set<std::string> known) {
  for (const auto& [name, reduction] : kReductions) known.insert(name);
  return known;
}

}  // namespace

void Builder::lower_async_store(const Instruction& ins) {
  const Parts& parts = ins.parts;
  const auto& o = ins.operands;
  const bool reduces = parts[0] == "red";
  static const std::set<std::string> kKnown = with_reductions(
      {"async", "weak", "relaxed", "cluster", "shared::cluster", "mbarrier::complete_tx::bytes",
       "v2", "v4", "b32", "b64", "u32", "u64", "s32", "s64", "f32", "f64"});
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
  static const std::set<std::string> kKnown = with_reductions({"async",
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
                                                               "L2"});
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
  static const std::set<std::string> kKnown = with_reductions({"async",
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
                                                               "prefetch",
                                                               "L2"});
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

Reduce Builder::reduction_of(const Parts& parts) const {
  for (size_t k = 1; k < parts.size(); ++k) {
    if (const auto it = kReductions.find(parts[k]); it != kReductions.end()) return it->second;
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

}  // namespace vgpu::ptx
