// wmma: matrices of 16x16 and their like, as several mma each.
//
// PTX leaves open which lane holds what of a wmma fragment. Here it is what mma wants: a factor is
// a list of registers of mma fragments (exec/fragments.h), in blocks of 8 lines (rows of A, columns
// of B), and the sums are tiles of 16 lines of one factor by 8 of the other. The factor with 16 or
// 32 lines is the tall one; in m8n32k16 that is B, so transposed tiles are computed there. Where a
// fragment has more registers than its elements need (halves), the rest repeat the first.
#include "ptx/builder.h"
#include "ptx/opcode.h"

namespace vgpu::ptx {
namespace {

struct Shape {
  int m, n, k;
  const char* tile;  // of the mma
};

const Shape* find_shape(const std::string& name) {
  static const std::map<std::string, Shape> kShapes = {
      {"m16n16k16", {16, 16, 16, "m16n8k16"}}, {"m32n8k16", {32, 8, 16, "m16n8k16"}},
      {"m8n32k16", {8, 32, 16, "m16n8k16"}},   {"m16n16k8", {16, 16, 8, "m16n8k8"}},
      {"m8n8k4", {8, 8, 4, "m8n8k4"}},         {"m8n8k32", {8, 8, 32, "m8n8k32"}},
      {"m8n8k128", {8, 8, 128, "m8n8k128"}}};
  const auto it = kShapes.find(name);
  return it == kShapes.end() ? nullptr : &it->second;
}

int bits_of(const std::string& type) {
  return type == "b1"                   ? 1
         : type == "s4" || type == "u4" ? 4
         : type == "tf32"               ? 32
                                        : static_cast<int>(8 * type_bytes(type));
}

// A register of a fragment: it begins at this line (or row of the sums) and at this depth (or
// column), to which the lane's own offsets are added.
struct Piece {
  int line, depth;
};

// A fragment, and where its elements lie: lane l has `pieces`, at line + l / 4 and
// depth + step * (l % 4), each with `count` neighbours along the depth in one register.
struct Layout {
  std::vector<Piece> pieces;
  int count = 1;
  int step = 1;
};

Layout factor_layout(int lines, int k, int bits, bool tall) {
  Layout layout;
  layout.count = bits == 64 ? 1 : 32 / bits;
  layout.step = layout.count;
  const int block = 4 * layout.count;
  const int together = tall ? 16 : 8;
  for (int first = 0; first < lines; first += together) {
    for (int depth = 0; depth < k; depth += block) {
      for (int line = first; line < first + together; line += 8)
        layout.pieces.push_back({line, depth});
    }
  }
  return layout;
}

// Lines of the tall factor by lines of the other one.
Layout sum_layout(int tall, int other, int bits) {
  Layout layout;
  layout.count = bits == 16 ? 2 : 1;
  layout.step = 2;
  const int together = tall < 16 ? 8 : 16;
  for (int first = 0; first < tall; first += together) {
    for (int column = 0; column < other; column += 8) {
      for (int line = first; line < first + together; line += 8) {
        for (int c = 0; c < 2; c += layout.count) layout.pieces.push_back({line, column + c});
      }
    }
  }
  return layout;
}

}  // namespace

// wmma.load.a|b|c.sync.aligned.LAYOUT.SHAPE[.SPACE].TYPE {...}, [address], stride, and
// wmma.store.d with the first two operands exchanged. The stride is in elements.
void Builder::lower_wmma_memory(const Instruction& ins, bool store) {
  const Parts& parts = ins.parts;
  const Shape* shape = parts.size() >= 8 ? find_shape(parts.at(6)) : nullptr;
  if (!shape || parts.at(3) != "sync" || parts.at(4) != "aligned") unknown();
  const std::string& which = parts.at(2);
  const bool by_rows = parts.at(5) == "row";
  const bool swapped = shape->n > 16;
  const int bits = bits_of(parts.back());
  const std::string space = find_space(parts);
  if (bits == 0 || (!by_rows && parts.at(5) != "col") || (store != (which == "d"))) unknown();
  const auto& fragment = elements(ins.operands.at(store ? 1 : 0));
  const Address at = address(ins.operands.at(store ? 0 : 1), space == "shared" ? 'w' : 'd');
  if (at.entry_parameter || at.local_storage) unknown();

  Layout layout;
  bool along_depth;  // neighbours along the depth are neighbours in memory
  int line_default = shape->k;
  if (which == "a") {
    layout = factor_layout(shape->m, shape->k, bits, shape->m >= 16);
    along_depth = by_rows;
    if (!by_rows) line_default = shape->m;
  } else if (which == "b") {
    layout = factor_layout(shape->n, shape->k, bits, swapped);
    along_depth = !by_rows;
    if (by_rows) line_default = shape->n;
  } else {
    layout = sum_layout(swapped ? shape->n : shape->m, swapped ? shape->m : shape->n, bits);
    along_depth = by_rows != swapped;
    line_default = by_rows ? shape->n : shape->m;
  }
  if (fragment.size() % layout.pieces.size() != 0) throw Unsupported("the fragment is too short");
  if (bits < 8 && !along_depth) unknown();

  emit("whole_warp", {});
  const bool has_stride = ins.operands.size() > 2;
  const Operand* stride = has_stride ? &ins.operands.at(2) : nullptr;
  Strided memory = {at, space, bits, layout.count, along_depth, line_default, -1, -1};
  if (stride && stride->kind == Operand::Kind::kInteger) {
    memory.stride = static_cast<s64>(stride->bits);
  } else if (stride) {
    memory.stride_slot = source(*stride, 'w', "u32");
  }
  const int lane = lane_quotient(4);
  const int depth = word("mul.lo.u32", {lane_remainder(4), constant(Width::kWord, layout.step)});
  memory.mine = byte_offset(memory, along_depth ? lane : depth, along_depth ? depth : lane);
  const char code = bits == 64 ? 'd' : 'w';
  std::vector<int> loaded;
  for (size_t k = 0; k < layout.pieces.size(); ++k) {
    const Piece& piece = layout.pieces[k];
    const int strided = along_depth ? piece.line : piece.depth;
    const int straight = along_depth ? piece.depth : piece.line;
    if (store) {
      store_strided(memory, strided, straight, source(fragment[k], code, "u32"));
    } else {
      loaded.push_back(load_strided(memory, strided, straight));
    }
  }
  for (size_t k = 0; !store && k < fragment.size(); ++k) {
    emit(code == 'd' ? "mov.u64" : "mov.u32",
         {result(fragment[k], code, false), loaded[k % loaded.size()]});
  }
}

// Bytes to (strided, straight), which are slots of 32 bits.
int Builder::byte_offset(const Strided& memory, int strided, int straight) {
  const int stride = memory.stride_slot >= 0
                         ? memory.stride_slot
                         : constant(Width::kWord, static_cast<u64>(memory.stride));
  const int wide = new_slot(Width::kDouble);
  emit("extend.u", {wide, straight});
  const int at = new_slot(Width::kDouble);
  emit("mad.wide.u32", {at, strided, stride, wide});
  const int bytes = new_slot(Width::kDouble);
  const bool small = memory.bits < 8;
  const int ratio = small ? 8 / memory.bits : memory.bits / 8;
  emit(small ? "shr.u64" : "shl.u64",
       {bytes, at, constant(Width::kWord, static_cast<u64>(__builtin_ctz(ratio)))});
  return bytes;
}

// The address of a lane's element that lies this many strides and elements behind its first one.
Builder::Address Builder::strided_address(const Strided& memory, int strided, int straight) {
  Address at = memory.base;
  int offset = memory.mine;
  if (memory.stride_slot < 0) {
    at.offset += (strided * memory.stride + straight) * memory.bits / 8;
  } else {
    const int more = byte_offset(memory, constant(Width::kWord, static_cast<u64>(strided)),
                                 constant(Width::kWord, static_cast<u64>(straight)));
    offset = new_slot(Width::kDouble);
    emit("add.u64", {offset, memory.mine, more});
  }
  const bool narrow = memory.space == "shared";
  at.slot = new_slot(narrow ? Width::kWord : Width::kDouble);
  if (narrow) {
    emit("add.u32", {at.slot, memory.base.slot, word("truncate", {offset})});
  } else {
    emit("add.u64", {at.slot, memory.base.slot, offset});
  }
  return at;
}

int Builder::load_strided(const Strided& memory, int strided, int straight) {
  const int pieces = memory.together ? 1 : memory.count;
  const int bits = memory.bits * memory.count / pieces;
  std::vector<int> slots = {new_slot(bits == 64 ? Width::kDouble : Width::kWord)};
  for (int k = 0; k < pieces; ++k) {
    const Address at = strided_address(memory, strided + k, straight);
    const int part = pieces == 1 ? slots[0] : new_slot(Width::kWord);
    emit("ld." + memory.space + ".u" + std::to_string(bits) + ".1", {part, at.slot}).imm =
        at.offset;
    if (pieces > 1) slots.push_back(part);
  }
  if (pieces > 1) emit(pieces == 4 ? "pack.32x4" : "pack.32", slots);
  return slots[0];
}

void Builder::store_strided(const Strided& memory, int strided, int straight, int value) {
  const int pieces = memory.together ? 1 : memory.count;
  const int bits = memory.bits * memory.count / pieces;
  for (int k = 0; k < pieces; ++k) {
    const Address at = strided_address(memory, strided + k, straight);
    emit("st." + memory.space + ".u" + std::to_string(bits) + ".1",
         {at.slot, k ? word("high.32", {value}) : value})
        .imm = at.offset;
  }
}

// wmma.mma[.xor.popc|.and.popc].sync.aligned.ALAYOUT.BLAYOUT.SHAPE.TYPES[.satfinite|.rn] d, a, b,
// c. Fragments do not depend on the layouts. Of halves only the types of D and C are written.
void Builder::lower_wmma_product(const Instruction& ins) {
  Parts parts = ins.parts;
  std::string operation;
  if (parts.back() == "rn" || parts.back() == "satfinite") {
    if (parts.back() == "satfinite") operation = ".satfinite";
    parts.pop_back();
  }
  size_t next = 2;
  if (parts.size() > 4 && parts.at(3) == "popc") {
    operation = "." + parts.at(2) + ".popc";
    next = 4;
  }
  if (parts.size() < next + 7 || ins.operands.size() != 4) unknown();
  const Shape* shape = find_shape(parts[next + 4]);
  const Parts types(parts.begin() + static_cast<s64>(next) + 5, parts.end());
  if (!shape || parts[next] != "sync" || (types.size() != 2 && types.size() != 4)) unknown();
  const std::string& d_type = types.front();
  const std::string& c_type = types.back();
  const std::string a_type = types.size() == 2 ? "f16" : types[1];
  const std::string b_type = types.size() == 2 ? "f16" : types[2];
  const bool mixed = d_type != c_type;
  if (mixed && !(types.size() == 2 && (d_type == "f32" || c_type == "f32"))) unknown();

  const auto read = [&](size_t operand, const std::string& type) {
    std::vector<int> slots;
    for (const Operand& e : elements(ins.operands.at(operand)))
      slots.push_back(source(e, code_of(type), "u32"));
    return slots;
  };
  const bool swapped = shape->n > 16;
  const std::vector<int> tall = read(swapped ? 2 : 1, swapped ? b_type : a_type);
  const std::vector<int> other = read(swapped ? 1 : 2, swapped ? a_type : b_type);
  const std::vector<int> c = read(3, c_type);
  const int tall_lines = swapped ? shape->n : shape->m;
  const int other_lines = swapped ? shape->m : shape->n;
  const int bits = bits_of(a_type);
  const auto count = [&](int lines, bool is_tall) {
    return static_cast<int>(factor_layout(lines, shape->k, bits, is_tall).pieces.size());
  };
  const int tall_tiles = std::max(tall_lines / 16, 1);
  const int other_tiles = other_lines / 8;
  const int tall_each = count(tall_lines, tall_lines >= 16) / tall_tiles;
  const int other_each = count(other_lines, false) / other_tiles;
  const int tiles = tall_tiles * other_tiles;
  const std::string sum_type = mixed ? "f32" : d_type;
  const std::string name = std::string("mma.") + shape->tile + operation + "." + sum_type + "." +
                           (swapped ? b_type + "." + a_type : a_type + "." + b_type);
  const size_t sums = std::string(op(name).results).size();
  const auto& d = elements(ins.operands.at(0));
  const auto expected = [&](const std::string& type) {
    return tiles * sums / (sum_type == "f32" && type == "f16" ? 2 : 1);
  };
  if (d.size() != expected(d_type) || c.size() != expected(c_type) ||
      static_cast<int>(tall.size()) < tall_each * tall_tiles ||
      static_cast<int>(other.size()) < other_each * other_tiles)
    throw Unsupported("the fragments have other lengths");

  std::vector<int> from = mixed && c_type == "f16" ? widened(c) : c;
  std::vector<int> to;
  for (int tile = 0; tile < tiles; ++tile) {
    std::vector<int> slots;
    for (size_t k = 0; k < sums; ++k)
      slots.push_back(new_slot(sum_type == "f64" ? Width::kDouble : Width::kWord));
    to.insert(to.end(), slots.begin(), slots.end());
    const auto part = [&](const std::vector<int>& of, int each, int which) {
      slots.insert(slots.end(), of.begin() + each * which, of.begin() + each * (which + 1));
    };
    part(tall, tall_each, tile / other_tiles);
    part(other, other_each, tile % other_tiles);
    part(from, static_cast<int>(sums), tile);
    emit(name, slots);
  }
  if (mixed && d_type == "f16") to = narrowed(to);
  for (size_t k = 0; k < d.size(); ++k) {
    emit(sum_type == "f64" ? "mov.u64" : "mov.u32", {result(d[k], code_of(d_type), false), to[k]});
  }
}

// Sums as pairs of f16, and one by one as f32.
std::vector<int> Builder::widened(const std::vector<int>& pairs) {
  std::vector<int> to;
  for (const int pair : pairs) {
    to.push_back(word("cvt.f32.f16", {pair}));
    to.push_back(word("cvt.f32.f16", {word("high.32", {pair})}));
  }
  return to;
}
std::vector<int> Builder::narrowed(const std::vector<int>& sums) {
  std::vector<int> to;
  for (size_t k = 0; k < sums.size(); k += 2)
    to.push_back(word("cvt.f16x2.f32", {sums[k + 1], sums[k]}));
  return to;
}

}  // namespace vgpu::ptx
