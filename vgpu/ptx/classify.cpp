// What the counters call a PTX instruction, and which unit of a multiprocessor computes it.
#include <map>
#include <set>

#include "ptx/opcode.h"

namespace vgpu::ptx {

Category category_of(const Parts& parts) {
  static const std::map<std::string, Category> kByName = {{"mma", Category::kMma},
                                                          {"ldmatrix", Category::kMatrixLoad},
                                                          {"wmma", Category::kMma},
                                                          {"wgmma", Category::kMma},
                                                          {"stmatrix", Category::kStore},
                                                          {"cp", Category::kAsyncCopy},
                                                          {"ld", Category::kLoad},
                                                          {"ldu", Category::kLoad},
                                                          {"st", Category::kStore},
                                                          {"atom", Category::kAtomic},
                                                          {"red", Category::kAtomic},
                                                          {"bar", Category::kBarrier},
                                                          {"barrier", Category::kBarrier},
                                                          {"mbarrier", Category::kMbarrier},
                                                          {"tensormap", Category::kOther},
                                                          {"mapa", Category::kConvert},
                                                          {"getctarank", Category::kConvert},
                                                          {"bra", Category::kControl},
                                                          {"brx", Category::kControl},
                                                          {"ret", Category::kControl},
                                                          {"exit", Category::kControl},
                                                          {"call", Category::kControl},
                                                          {"trap", Category::kControl},
                                                          {"shfl", Category::kWarp},
                                                          {"vote", Category::kWarp},
                                                          {"match", Category::kWarp},
                                                          {"redux", Category::kWarp},
                                                          {"elect", Category::kWarp},
                                                          {"movmatrix", Category::kWarp},
                                                          {"activemask", Category::kWarp},
                                                          {"cvt", Category::kConvert},
                                                          {"cvta", Category::kConvert},
                                                          {"mov", Category::kMove},
                                                          {"setp", Category::kCompare},
                                                          {"set", Category::kCompare},
                                                          {"selp", Category::kCompare},
                                                          {"slct", Category::kCompare},
                                                          {"membar", Category::kOther},
                                                          {"fence", Category::kOther},
                                                          {"nanosleep", Category::kOther},
                                                          {"createpolicy", Category::kOther},
                                                          {"isspacep", Category::kOther}};
  if (parts[0] == "wgmma" && !has(parts, "mma_async")) return Category::kOther;
  if (const auto it = kByName.find(parts[0]); it != kByName.end()) return it->second;
  const std::string& type = parts[type_part(parts)];
  return !is_float(type)   ? Category::kInteger
         : type == "f32"   ? Category::kFloat
         : type == "f32x2" ? Category::kFloatPair
         : type == "f64"   ? Category::kDouble
                           : Category::kHalf;
}

namespace {

using Work = std::pair<Unit, u8>;

// Sources: the SASS of each conversion for sm_75 to sm_120, by nvdisasm 13.0; Nsight Compute's
// list of pipelines: the ALU narrows FP32 to FP16, the pipeline of FP16 widens it, and XU makes all
// other conversions between integers and floats.
Work work_of_conversion(const Parts& parts) {
  const std::string& from = parts.back();
  const std::string& to = parts.at(parts.size() - 2);
  const bool whole =
      has(parts, "rni") || has(parts, "rzi") || has(parts, "rmi") || has(parts, "rpi");
  const auto is_integer = [](const std::string& type) { return type[0] == 's' || type[0] == 'u'; };
  if (has(parts, "pack") || whole) return {Unit::kSpecial, 1};  // I2IP, F2I, FRND
  if (is_integer(from) && is_integer(to)) {
    if (has(parts, "sat")) return {Unit::kSpecial, 1};  // I2I
    const bool extends = from[0] == 's' && type_bytes(from) < type_bytes(to);
    const bool bytes = type_bytes(from) == 1 || type_bytes(to) == 1;
    if (extends || bytes) return {Unit::kInteger, 1};  // PRMT, LOP3, SHF
    return {Unit::kNone, 0};                           // another name of the same register
  }
  if (from == "f32") {
    if (is_half(to)) return {Unit::kInteger, 1};   // F2FP
    if (to == "tf32") return {Unit::kInteger, 3};  // FSETP, IADD, LOP3
    if (to == "f32") return {Unit::kFloat, 1};     // FADD
  }
  if (from == "f16" && (to == "f32" || to == "f16")) return {Unit::kHalf, 2};  // HADD2
  if (from == "bf16" && to == "f32") return {Unit::kInteger, 1};               // SHF
  return {Unit::kSpecial, 1};  // I2F, F2F, and F2FP of 8 bits
}

}  // namespace

Work work_of(const Parts& parts) {
  static const std::set<std::string> kSpecial = {"ex2", "lg2", "rcp",  "rsqrt", "sqrt",
                                                 "sin", "cos", "tanh", "div"};
  const std::string& base = parts[0];
  const std::string& type = parts[type_part(parts)];
  if (base == "cvt") return work_of_conversion(parts);
  if (base == "mapa" || base == "getctarank") return {Unit::kInteger, 1};
  switch (category_of(parts)) {
    case Category::kInteger:
    case Category::kCompare:
      return {Unit::kInteger, 1};
    case Category::kFloat:
      if (kSpecial.count(base)) return {Unit::kSpecial, 1};            // MUFU
      if (base == "min" || base == "max") return {Unit::kInteger, 1};  // FMNMX
      return {Unit::kFloat, 1};
    case Category::kFloatPair:
      return {Unit::kFloat, 2};
    case Category::kHalf:
      if (kSpecial.count(base)) return {Unit::kSpecial, type.find("x2") == type.npos ? 1 : 2};
      return {Unit::kHalf, 2};
    case Category::kDouble:
      return {Unit::kDouble, 1};
    default:
      return {Unit::kNone, 0};
  }
}

}  // namespace vgpu::ptx
