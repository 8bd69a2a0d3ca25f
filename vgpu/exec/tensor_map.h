// The 128 bytes that a program keeps as a CUtensorMap. NVIDIA does not say what a GPU has in them;
// ours are these fields, which bulk tensor copies read from memory as they find them.
#pragma once

#include <string>

#include "exec/types.h"

namespace vgpu {

inline constexpr u32 kTensorMapBytes = 128;
inline constexpr u64 kTensorMapMark = 0x50414d5475706776ull;  // "vgpuTMAP"
inline constexpr int kMostRank = 5;

// Numbers of CUtensorMapDataType (cuda.h).
enum class TensorType : u8 {
  kU8,
  kU16,
  kU32,
  kS32,
  kU64,
  kS64,
  kF16,
  kF32,
  kF64,
  kBF16,
  kF32Flushed,
  kTF32,
  kTF32Flushed,
  kPackedU4,  // 16U4_ALIGN8B
  kCount
};

struct TensorMap {
  u64 mark;
  u64 free;  // CUTLASS 4.7 clears bit 21 of this word where the driver is CUDA 13.0's or older
  u64 address;
  u64 strides[4];  // bytes, of dimensions 1 to 4
  u32 dims[5];
  u16 box[5];
  u16 channels;  // of im2col: of a pixel,
  u16 pixels;    // and pixels of a column
  s16 lower[3];  // corners of the box of pixels: W, H, D
  s16 upper[3];
  u8 element_strides[5];
  TensorType type;
  u8 rank;
  u8 interleave;  // 0, 1: 16 bytes, 2: 32 bytes
  u8 swizzle;     // 0, 1: 32 bytes, 2: 64, 3: 128
  bool nan_fill;
  bool im2col;
  u8 unused[3];
  u32 seal;  // see seal_of
  u8 rest[8];
};
static_assert(sizeof(TensorMap) == kTensorMapBytes);

// A checksum of all but the free word: whoever writes a map seals it, and a copy by a map that
// something else has changed is a fault.
u32 seal_of(TensorMap map);
u32 element_bytes(TensorType type);  // of kPackedU4: none, see in_bytes
// A map of elements of four bits as one of their bytes, which has half of everything along
// dimension 0; other maps as they are.
TensorMap in_bytes(TensorMap map);
bool is_float(TensorType type);

// What a copy cannot do with the map; empty where it is fine. The driver's calls ask this of the
// arguments, and copies ask it again: a kernel may have changed fields.
std::string wrong_with(const TensorMap& map);

// What tensormap.replace changes.
enum class MapField : u8 {
  kAddress,
  kRank,
  kBox,
  kDim,
  kStride,
  kElementStride,
  kType,
  kInterleave,
  kSwizzle,
  kFill
};
// Values are PTX's: a rank less one, types in PTX's order. False where the field cannot hold it.
bool set_field(TensorMap& map, MapField field, u32 ordinal, u64 value);

}  // namespace vgpu
