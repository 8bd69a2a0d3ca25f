// Products of floats of four to eight bits with a scale for each block of k (sm_120a): put together
// from products of halves, which hold every such number exactly. The sum of a block is multiplied
// by the scales of its row and column in f64 and added to the accumulator, rounded once to f32.
//
// Fragments are those of exec/fragments.h, of bytes or nibbles. Source of the scales' places: PTX
// ISA 9.0, "Block Scaling for mma.sync", and CUTLASS's cute/atom/mma_traits_sm120.hpp: of A, lane
// 4g + 2 thread-id + r has that of row g + 8r; of B, lane 4n + thread-id that of column n; byte-id
// is the first block's byte in the register.
#include <array>
#include <map>
#include <set>

#include "ptx/builder.h"
#include "ptx/opcode.h"

namespace vgpu::ptx {
namespace {

struct Product {
  std::string a, b, sum;
  std::string scale;  // its type; empty where there is none
  int blocks = 1;     // of k
  bool nibbles = false;
};

// kind::, the types of A, B and the sums, and of the scales with their number, where they are
// allowed. Source: PTX ISA 9.0, mma, Table 36.
bool read(const Parts& parts, Product* p) {
  static const std::map<std::string, int> kBlocks = {
      {"scale_vec::1X", 1}, {"scale_vec::2X", 2}, {"scale_vec::4X", 4}};
  static const std::set<std::string> kNarrow = {"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"};
  std::string kind, shape, factors, sums;
  std::vector<std::string> layouts;
  int blocks = 0;
  bool scaled = false;
  for (size_t k = 1; k < parts.size(); ++k) {
    const std::string& part = parts[k];
    if (part.rfind("kind::", 0) == 0) {
      kind = part.substr(6);
    } else if (part[0] == 'm') {
      shape = part;
    } else if (part == "row" || part == "col") {
      layouts.push_back(part);
    } else if (part == "block_scale") {
      scaled = true;
    } else if (kBlocks.count(part)) {
      blocks = kBlocks.at(part);
    } else if (kNarrow.count(part)) {
      factors += (factors.empty() ? "" : ".") + part;
    } else if (part == "f32" || part == "f16") {
      sums += (sums.empty() ? "" : ".") + part;
    } else if (part == "ue8m0" || part == "ue4m3") {
      p->scale = part;
    } else if (part != "sync" && part != "aligned") {
      return false;
    }
  }
  if (layouts != std::vector<std::string>{"row", "col"} || factors.size() != 9) return false;
  p->a = factors.substr(0, 4);
  p->b = factors.substr(5);
  p->sum = sums.substr(0, 3);
  p->nibbles = shape == "m16n8k64";
  if (sums != p->sum + "." + p->sum || scaled == p->scale.empty()) return false;
  if (kind == "f8f6f4") return shape == "m16n8k32" && !scaled && !blocks;
  if (!scaled || p->sum != "f32") return false;
  if (kind == "mxf8f6f4") {
    return shape == "m16n8k32" && blocks <= 1 && p->scale == "ue8m0";
  }
  if (!p->nibbles || factors != "e2m1.e2m1") return false;
  p->blocks = blocks ? blocks : 2;
  if (kind == "mxf4") return p->blocks == 2 && p->scale == "ue8m0";
  return kind == "mxf4nvf4" && blocks && (blocks == 4 || (blocks == 2 && p->scale == "ue8m0"));
}

}  // namespace

// Two numbers of a fragment's register, as halves: its `pair`-th. Bytes hold six bits at their
// lower end, and four in their middle.
int Builder::narrow_pair(int from, const std::string& type, int pair, bool nibbles) {
  const auto part = [&](int shift, u32 mask) {
    const int moved =
        shift ? word("shr.u32", {from, constant(Width::kWord, static_cast<u64>(shift))}) : from;
    return word("and.u32", {moved, constant(Width::kWord, mask)});
  };
  int bits = -1;
  if (nibbles) {
    bits = part(8 * pair, 0xff);
  } else if (type == "e2m1") {
    bits = word("or.u32", {part(16 * pair + 2, 0xf), part(16 * pair + 6, 0xf0)});
  } else {
    bits = part(16 * pair, 0xffff);
  }
  return word("cvt.f16x2." + type + "x2", {bits});
}

// The scales of all blocks, as f64, of the lanes that `lane` names.
std::vector<int> Builder::block_scales(const std::string& type, int scales, int lane, int byte,
                                       int blocks) {
  const int all = new_slot(Width::kWord);
  emit("shfl.idx",
       {all, -1, scales, lane, constant(Width::kWord, 31), constant(Width::kWord, 0xffffffffu)});
  std::vector<int> found;
  for (int block = 0; block < blocks; ++block) {
    const int number = word("add.u32", {byte, constant(Width::kWord, static_cast<u64>(block))});
    const int shift = word("shl.u32", {number, constant(Width::kWord, 3)});
    const int moved = word("shr.u32", {all, shift});
    const int to = new_slot(Width::kDouble);
    if (type == "ue4m3") {  // as e4m3 without its sign
      const int bits = word("and.u32", {moved, constant(Width::kWord, 0x7f)});
      const int halves = word("cvt.f16x2.e4m3x2", {bits});
      emit("cvt.f64.f32", {to, word("cvt.f32.f16", {halves})});
    } else {  // an exponent with a bias of 127; 255 is NaN
      const int bits = word("and.u32", {moved, constant(Width::kWord, 0xff)});
      const int exponent = new_slot(Width::kDouble);
      const int none = new_slot(Width::kPredicate);
      emit("extend.u", {exponent, word("add.u32", {bits, constant(Width::kWord, 1023 - 127)})});
      emit("shl.u64", {exponent, exponent, constant(Width::kWord, 52)});
      emit("setp.eq.u32", {none, bits, constant(Width::kWord, 0xff)});
      emit("selp.u64", {to, constant(Width::kDouble, 0x7ff8000000000000ull), exponent, none});
    }
    found.push_back(to);
  }
  return found;
}

// Adds the product of two register pairs of A and B, both given as halves, to the sums.
std::vector<int> Builder::multiply_halves(const std::array<int, 4>& a, const std::array<int, 2>& b,
                                          const std::vector<int>& sums) {
  std::vector<int> slots;
  for (int k = 0; k < 4; ++k) slots.push_back(new_slot(Width::kWord));
  const std::vector<int> to = slots;
  slots.insert(slots.end(), a.begin(), a.end());
  slots.insert(slots.end(), b.begin(), b.end());
  slots.insert(slots.end(), sums.begin(), sums.end());
  emit("mma.m16n8k16.f32.f16.f16", slots);
  return to;
}

void Builder::lower_scaled_mma(const Instruction& ins) {
  Product p;
  const auto& o = ins.operands;
  if (!has(ins.parts, "sync") || !has(ins.parts, "aligned") || !read(ins.parts, &p)) unknown();
  if (o.size() != (p.scale.empty() ? 4 : 8)) unknown();
  if (module_.target.rfind("sm_12", 0) != 0)
    throw Unsupported("it is an instruction of sm_120a, the PTX is for " + module_.target);
  const auto registers = [&](size_t operand, size_t count) {
    std::vector<int> slots;
    const std::vector<Operand> one = {o[operand]};
    for (const Operand& e : o[operand].kind == Operand::Kind::kVector ? elements(o[operand]) : one)
      slots.push_back(source(e, 'w', "u32"));
    if (slots.size() != count) throw Unsupported("the fragments have other lengths");
    return slots;
  };
  const bool wide = p.sum == "f32";
  const std::vector<int> a = registers(1, 4);
  const std::vector<int> b = registers(2, 2);
  std::vector<int> sums = registers(3, wide ? 4 : 2);
  if (!wide) sums = widened(sums);
  std::vector<int> rows[2], columns[2];  // scales
  if (!p.scale.empty()) {
    const std::vector<int> of_a = registers(5, 2), of_b = registers(7, 2);  // byte and thread
    const int quad = word("and.u32", {special(Special::kLaneId), constant(Width::kWord, 28)});
    const int pair = word("shl.u32", {of_a[1], constant(Width::kWord, 1)});
    const int column = word("shl.u32", {lane_remainder(4), constant(Width::kWord, 3)});
    for (u32 n = 0; n < 2; ++n) {
      const int row_lane =
          word("add.u32", {word("add.u32", {quad, pair}), constant(Width::kWord, n)});
      const int column_lane =
          word("add.u32", {word("add.u32", {column, of_b[1]}), constant(Width::kWord, 4 * n)});
      rows[n] = block_scales(p.scale, registers(4, 1)[0], row_lane, of_a[0], p.blocks);
      columns[n] = block_scales(p.scale, registers(6, 1)[0], column_lane, of_b[0], p.blocks);
    }
  }
  const int zero = constant(Width::kWord, 0);
  const int pairs = p.nibbles ? 4 : 2;
  std::vector<int> part = p.scale.empty() ? sums : std::vector<int>(4, zero);
  for (int block = 0; block < p.blocks; ++block) {
    // Which of a fragment's registers hold it, and where those hold two: in which lanes.
    const int first = p.blocks == 1 ? 0 : 2 * block / p.blocks;
    const int last = p.blocks == 1 ? 1 : first;
    int mine = -1;
    if (p.blocks == 4) {
      mine = new_slot(Width::kPredicate);
      const int half = word("and.u32", {special(Special::kLaneId), constant(Width::kWord, 2)});
      emit("setp.eq.u32", {mine, half, constant(Width::kWord, static_cast<u64>(2 * (block % 2)))});
    }
    const auto left = [&](int from, int pair) {
      const int all = narrow_pair(from, p.a, pair, p.nibbles);
      return mine < 0 ? all : word("selp.u32", {all, zero, mine});
    };
    const auto right = [&](int from, int pair) { return narrow_pair(from, p.b, pair, p.nibbles); };
    for (int h = first; h <= last; ++h) {
      const int top = a[static_cast<size_t>(2 * h)], bottom = a[static_cast<size_t>(2 * h + 1)];
      const int of_b = b[static_cast<size_t>(h)];
      for (int pair = 0; pair < pairs; pair += 2) {
        part = multiply_halves(
            {left(top, pair), left(bottom, pair), left(top, pair + 1), left(bottom, pair + 1)},
            {right(of_b, pair), right(of_b, pair + 1)}, part);
      }
    }
    if (p.scale.empty()) continue;
    for (size_t n = 0; n < 4; ++n) {
      const size_t number = static_cast<size_t>(block);
      const int product = new_slot(Width::kDouble), before = new_slot(Width::kDouble);
      emit("cvt.f64.f32", {product, part[n]});
      emit("mul.f64", {product, product, rows[n / 2][number]});
      emit("mul.f64", {product, product, columns[n % 2][number]});
      emit("cvt.f64.f32", {before, sums[n]});
      emit("add.f64", {product, product, before});
      sums[n] = word("cvt.f32.f64", {product});
      part[n] = zero;
    }
  }
  if (p.scale.empty()) sums = part;
  if (!wide) sums = narrowed(sums);
  const auto& d = elements(o.at(0));
  if (d.size() != sums.size()) throw Unsupported("the fragments have other lengths");
  for (size_t k = 0; k < d.size(); ++k) emit("mov.u32", {result(d[k], 'w', false), sums[k]});
}

}  // namespace vgpu::ptx
