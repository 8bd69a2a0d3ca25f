// The container that nvcc embeds: a header, then entries, each with a header of its own.
#include <cstring>
#include <vector>

#include "core/module.h"
#include "core/options.h"

namespace vgpu {
namespace {

struct FatbinHeader {
  u32 magic;  // 0xba55ed50
  u16 version;
  u16 header_bytes;
  u64 bytes;  // of all entries
};
struct EntryHeader {
  u16 kind;  // 1 PTX, 2 cubin
  u16 version;
  u32 header_bytes;
  u64 payload_bytes;
  u32 compressed_bytes;
  u32 unknown;
  u16 minor;
  u16 major;
  u32 capability;
  u32 name_offset;
  u32 name_bytes;
  u64 flags;
  u64 zero;
  u64 uncompressed_bytes;
};
constexpr u32 kFatbinMagic = 0xba55ed50;
constexpr u64 kCompressedFlags = 0xf000;

}  // namespace

Code ptx_from_fatbin(const void* fatbin, int capability, std::string* text, int* found) {
  FatbinHeader header;
  std::memcpy(&header, fatbin, sizeof(header));
  if (header.magic != kFatbinMagic) return fail(Code::kInvalidImage, "the image is no fatbin");
  const char* at = static_cast<const char*>(fatbin) + header.header_bytes;
  const char* const end = at + header.bytes;
  int best = 0;
  bool compressed = false;
  std::string present;
  while (at + sizeof(EntryHeader) <= end) {
    EntryHeader entry;
    std::memcpy(&entry, at, sizeof(entry));
    const bool is_ptx = entry.kind == 1;
    const int arch = static_cast<int>(entry.capability);
    if (is_ptx || entry.kind == 2) {
      present += (present.empty() ? "" : ", ") + std::string(is_ptx ? "compute_" : "sm_") +
                 std::to_string(arch);
    }
    if (is_ptx && arch <= capability && arch > best) {
      compressed = (entry.flags & kCompressedFlags) != 0;
      best = arch;
      const char* payload = at + entry.header_bytes;
      if (!compressed) text->assign(payload, strnlen(payload, entry.payload_bytes));
    }
    at += entry.header_bytes + entry.payload_bytes;
  }
  if (best == 0) {
    return fail(Code::kNoBinaryForDevice,
                "the fatbin holds no PTX for sm_" + std::to_string(capability) +
                    " or below (it holds " + (present.empty() ? "nothing" : present) +
                    "); compile with -gencode arch=compute_" + std::to_string(capability) +
                    ",code=[sm_" + std::to_string(capability) + ",compute_" +
                    std::to_string(capability) + "]");
  }
  if (compressed) {
    return fail(Code::kNoBinaryForDevice,
                "the PTX in the fatbin is compressed; compile with nvcc --no-compress");
  }
  *found = best;
  return Code::kSuccess;
}

}  // namespace vgpu
