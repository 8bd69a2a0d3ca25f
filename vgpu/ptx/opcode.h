// Reading the parts of an opcode.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "exec/counters.h"
#include "ptx/ast.h"

namespace vgpu::ptx {

inline bool has(const Parts& parts, const std::string& what) {
  return std::find(parts.begin() + 1, parts.end(), what) != parts.end();
}
// Every modifier must be known: one that is not could change what the instruction does.
inline bool only(const Parts& parts, const std::set<std::string>& known) {
  return std::all_of(parts.begin() + 1, parts.end(),
                     [&](const std::string& p) { return known.count(p) != 0; });
}
inline bool is_float(const std::string& type) {
  return type == "f16" || type == "f32" || type == "f64" || type == "bf16" || type == "f16x2" ||
         type == "bf16x2" || type == "f32x2";
}
// Where the type stands: last, or before a modifier of floats that was put behind it.
inline size_t type_part(const Parts& parts) {
  const bool behind = parts.back() == "relu" || parts.back() == "sat";
  return behind && parts.size() > 2 && is_float(parts[parts.size() - 2]) ? parts.size() - 2
                                                                         : parts.size() - 1;
}
// The unsigned type of the same width, for operations that do not look at the sign.
inline std::string unsigned_of(const std::string& type) {
  switch (type_bytes(type)) {
    case 1:
      return "u8";
    case 2:
      return "u16";
    case 4:
      return "u32";
    case 8:
      return "u64";
    default:
      return type;
  }
}
inline std::string untyped_to_unsigned(const std::string& type) {
  return type[0] == 'b' && type[1] != 'f' ? unsigned_of(type) : type;
}
inline char code_of(const std::string& type) {
  return type == "pred" ? 'p' : type_bytes(type) == 8 ? 'd' : 'w';
}

// Types that are computed in f32.
inline bool is_half(const std::string& type) {
  return type == "f16" || type == "bf16" || type == "f16x2" || type == "bf16x2";
}

inline constexpr u32 kFlushBits = 0x8040;
// MXCSR bits of .ftz and of the rounding modes that are not to nearest.
inline u32 control_of(const Parts& parts) {
  u32 bits = 0;
  for (size_t k = 1; k < parts.size(); ++k) {
    if (parts[k] == "ftz") bits |= kFlushBits;
    if (parts[k] == "rm") bits |= 0x2000;
    if (parts[k] == "rp") bits |= 0x4000;
    if (parts[k] == "rz") bits |= 0x6000;
  }
  return bits;
}

// What the counters call an instruction.
Category category_of(const Parts& parts);
// The unit that computes it, and the results that it makes in a lane.
std::pair<Unit, u8> work_of(const Parts& parts);

inline const std::set<std::string> kSpaces = {"global", "shared", "local", "const", "param"};

// "shared" of "shared::cluster".
inline std::string space_base(const std::string& part) { return part.substr(0, part.find("::")); }

// "shared::cta" is the shared memory of this CTA.
inline std::string space_name(const std::string& part) {
  const std::string base = part.substr(0, part.find("::"));
  if (!kSpaces.count(base)) return "";
  return part == "shared::cluster" ? "" : base;
}
inline std::string find_space(const Parts& parts) {
  for (size_t k = 1; k < parts.size(); ++k) {
    const std::string space = space_name(parts[k]);
    if (!space.empty()) return space == "const" ? "global" : space;
  }
  return "generic";
}
inline int vector_size(const Parts& parts) {
  return has(parts, "v2") ? 2 : has(parts, "v4") ? 4 : has(parts, "v8") ? 8 : 1;
}

inline const std::vector<Operand>& elements(const Operand& o) { return o.elements; }

}  // namespace vgpu::ptx
