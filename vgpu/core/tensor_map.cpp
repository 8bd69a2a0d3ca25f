#include "exec/tensor_map.h"

#include <cstring>
#include <iterator>

namespace vgpu {
namespace {

constexpr const char* kInterleaves[] = {"none", "16B", "32B"};
constexpr const char* kSwizzles[] = {"none", "32B", "64B", "128B"};

std::string at(const char* array, int k) {
  return std::string(array) + "[" + std::to_string(k) + "]";
}

std::string is(const std::string& name, u64 value, const std::string& wanted) {
  return name + " is " + std::to_string(value) + " and must be " + wanted;
}

std::string wrong_strides(const TensorMap& m) {
  const u64 unit = m.interleave == 2 ? 32 : 16;
  for (int k = 0; k + 1 < m.rank; ++k) {
    if (m.strides[k] % unit || m.strides[k] >= 1ull << 40) {
      return is(at("globalStrides", k), m.strides[k],
                "a multiple of " + std::to_string(unit) + " bytes below 2^40");
    }
  }
  return "";
}

std::string wrong_tile(const TensorMap& m) {
  const u32 bytes = element_bytes(m.type);
  for (int k = 0; k < m.rank; ++k) {
    if (m.box[k] == 0 || m.box[k] > 256) return is(at("boxDim", k), m.box[k], "1 to 256");
  }
  const u32 inner = m.box[0] * bytes;
  if (m.interleave == 0 && inner % 16) {
    return is("boxDim[0]", m.box[0], "a multiple of 16 bytes; it is " + std::to_string(inner));
  }
  const u32 span = 16u << m.swizzle;
  if (m.interleave == 0 && m.swizzle && inner > span) {
    return is("boxDim[0]", m.box[0],
              "at most " + std::to_string(span / bytes) + " elements, the " + std::to_string(span) +
                  " bytes of the swizzle");
  }
  return "";
}

// Source: CUDA driver API, cuTensorMapEncodeIm2col: ranges of the corners by rank.
std::string wrong_im2col(const TensorMap& m) {
  if (m.rank < 3) return is("tensorRank", m.rank, "3, 4 or 5 for im2col");
  if (m.channels == 0 || m.channels > 256) return is("channelsPerPixel", m.channels, "1 to 256");
  if (m.pixels == 0 || m.pixels > 1024) return is("pixelsPerColumn", m.pixels, "1 to 1024");
  const int least = m.rank == 3 ? -32768 : m.rank == 4 ? -128 : -16;
  for (int k = 0; k < m.rank - 2; ++k) {
    for (const bool low : {true, false}) {
      const int corner = low ? m.lower[k] : m.upper[k];
      if (corner < least || corner > -least - 1) {
        return at(low ? "pixelBoxLowerCorner" : "pixelBoxUpperCorner", k) + " is " +
               std::to_string(corner) + " and must be " + std::to_string(least) + " to " +
               std::to_string(-least - 1) + " for rank " + std::to_string(m.rank);
      }
    }
    if (s64{m.dims[k + 1]} + m.upper[k] <= m.lower[k]) {
      return at("pixelBoxUpperCorner", k) + " is " + std::to_string(m.upper[k]) +
             " and must be more: with pixelBoxLowerCorner " + std::to_string(m.lower[k]) +
             " and globalDim " + std::to_string(m.dims[k + 1]) + " the box of pixels is empty";
    }
  }
  const u32 inner = m.channels * element_bytes(m.type);
  if (m.interleave == 0 && inner % 16) {
    return is("channelsPerPixel", m.channels,
              "a multiple of 16 bytes; it is " + std::to_string(inner));
  }
  const u32 span = 16u << m.swizzle;
  if (m.interleave == 0 && m.swizzle && inner > span)
    return is("channelsPerPixel", m.channels,
              "at most the " + std::to_string(span) + " bytes of the swizzle");
  return "";
}

}  // namespace

u32 element_bytes(TensorType type) {
  switch (type) {
    case TensorType::kU8:
      return 1;
    case TensorType::kU16:
    case TensorType::kF16:
    case TensorType::kBF16:
      return 2;
    case TensorType::kU64:
    case TensorType::kS64:
    case TensorType::kF64:
      return 8;
    default:
      return 4;
  }
}

u32 seal_of(TensorMap m) {
  m.free = 0;
  m.seal = 0;
  u8 bytes[sizeof(m)];
  std::memcpy(bytes, &m, sizeof(m));
  u32 hash = 2166136261u;  // FNV-1a
  for (const u8 byte : bytes) hash = (hash ^ byte) * 16777619u;
  return hash;
}

bool is_float(TensorType type) {
  return type >= TensorType::kF16 && type <= TensorType::kTF32Flushed;
}

TensorMap in_bytes(TensorMap m) {
  if (m.type != TensorType::kPackedU4) return m;
  m.type = TensorType::kU8;
  m.dims[0] /= 2;
  m.box[0] /= 2;
  return m;
}

bool set_field(TensorMap& m, MapField field, u32 ordinal, u64 value) {
  // Source: PTX ISA, tensormap.replace, values of .elemtype: .f32.ftz stands before .f64.
  constexpr TensorType kTypes[] = {
      TensorType::kU8,          TensorType::kU16,     TensorType::kU32,  TensorType::kS32,
      TensorType::kU64,         TensorType::kS64,     TensorType::kF16,  TensorType::kF32,
      TensorType::kF32Flushed,  TensorType::kF64,     TensorType::kBF16, TensorType::kTF32,
      TensorType::kTF32Flushed, TensorType::kPackedU4};
  const u32 word = static_cast<u32>(value);
  switch (field) {
    case MapField::kAddress:
      m.address = value;
      return true;
    case MapField::kRank:
      m.rank = static_cast<u8>(word + 1);
      return word < kMostRank;
    case MapField::kBox:
      m.box[ordinal] = static_cast<u16>(word);
      return word <= 256;
    case MapField::kDim:
      m.dims[ordinal] = word;
      return true;
    case MapField::kStride:
      if (ordinal > 3) return false;
      m.strides[ordinal] = value;
      return true;
    case MapField::kElementStride:
      m.element_strides[ordinal] = static_cast<u8>(word);
      return word >= 1 && word <= 8;
    case MapField::kType:
      if (word >= std::size(kTypes)) return false;
      m.type = kTypes[word];
      return true;
    case MapField::kInterleave:
      m.interleave = static_cast<u8>(word);
      return word <= 2;
    case MapField::kSwizzle:
      m.swizzle = static_cast<u8>(word);
      return word <= 3;
    case MapField::kFill:
      m.nan_fill = word == 1;
      return word <= 1;
  }
  return false;
}

std::string wrong_with(const TensorMap& m) {
  if (m.mark != kTensorMapMark) return "these 128 bytes are no tensor map";
  if (m.type >= TensorType::kCount)
    return is("tensorDataType", static_cast<u64>(m.type),
              "a type of 8 to 64 bits (0 to 12), or packed ones of 4 (13)");
  // Source: CUDA driver API, cuTensorMapEncodeTiled: 16U4_ALIGN8B.
  if (m.type == TensorType::kPackedU4) {
    if (m.im2col || m.interleave) return "tensorDataType is 13 and must be another one here";
    if (m.dims[0] % 2) return is("globalDim[0]", m.dims[0], "even for elements of 4 bits");
    if (m.box[0] > 256) return is("boxDim[0]", m.box[0], "1 to 256");
    return wrong_with(in_bytes(m));
  }
  if (m.rank < 1 || m.rank > kMostRank) return is("tensorRank", m.rank, "1 to 5");
  if (m.interleave > 2) return is("interleave", m.interleave, "0, 1 or 2 (none, 16B, 32B)");
  if (m.swizzle > 3) return is("swizzle", m.swizzle, "0 to 3 (none, 32B, 64B, 128B)");
  if (m.interleave && m.rank < 3)
    return is("tensorRank", m.rank,
              "3 or more with interleave " + std::string(kInterleaves[m.interleave]));
  if (m.interleave == 2 && m.swizzle != 1) {
    return "swizzle is " + std::string(kSwizzles[m.swizzle]) +
           " and must be 32B with interleave 32B";
  }
  const u64 unit = m.interleave == 2 ? 32 : 16;
  if (m.address % unit) {
    return "globalAddress is not a multiple of " + std::to_string(unit) + " and must be";
  }
  for (int k = 0; k < m.rank; ++k) {
    if (m.dims[k] == 0) return is(at("globalDim", k), 0, "1 to 2^32");
    if (m.element_strides[k] < 1 || m.element_strides[k] > 8)
      return is(at("elementStrides", k), m.element_strides[k], "1 to 8");
  }
  if (m.nan_fill && !is_float(m.type)) return "oobFill asks for NaN and must be zeros for integers";
  if (const std::string wrong = wrong_strides(m); !wrong.empty()) return wrong;
  return m.im2col ? wrong_im2col(m) : wrong_tile(m);
}

}  // namespace vgpu
