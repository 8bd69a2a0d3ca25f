// The container that nvcc embeds: a header, then entries, each with a header of its own.
#include <cstring>
#include <string_view>
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
constexpr u64 kMostBytes = 4ull << 30;
static_assert(sizeof(FatbinHeader) == 16 && sizeof(EntryHeader) == 64);

Code corrupt(const std::string& what) {
  return fail(Code::kInvalidImage, "the fatbin is corrupt: " + what);
}

// "sm_80" of ".target sm_80, ...".
std::string target_of(std::string_view ptx) {
  const size_t at = ptx.find(".target sm_");
  if (at == ptx.npos) return "sm_0";
  const size_t begin = at + 8;
  const size_t end = ptx.find_first_not_of("sm_0123456789af", begin);
  return std::string(ptx.substr(begin, end == ptx.npos ? end : end - begin));
}

}  // namespace

u64 fatbin_bytes(const std::string& start) {
  FatbinHeader header;
  if (start.size() < sizeof(header)) return 0;
  std::memcpy(&header, start.data(), sizeof(header));
  if (header.magic != kFatbinMagic || header.bytes > kMostBytes) return 0;
  return header.header_bytes + header.bytes;
}

Code ptx_from_fatbin(const std::string& image, int capability, std::string* text, int* found) {
  const u64 bytes = fatbin_bytes(image);
  FatbinHeader header;
  if (bytes == 0 || bytes > image.size()) {
    return corrupt(bytes == 0 ? "its header is none"
                              : "its header tells of " + std::to_string(bytes) +
                                    " bytes, there are " + std::to_string(image.size()));
  }
  std::memcpy(&header, image.data(), sizeof(header));
  int best = 0;
  bool compressed = false;
  std::string present;
  for (u64 at = header.header_bytes; at < bytes;) {
    EntryHeader entry;
    const u64 left = bytes - at;
    if (left < sizeof(entry))
      return corrupt("its last entry at byte " + std::to_string(at) + " is cut off");
    std::memcpy(&entry, image.data() + at, sizeof(entry));
    if (entry.header_bytes < sizeof(entry) || entry.header_bytes > left ||
        entry.payload_bytes > left - entry.header_bytes) {
      return corrupt("the entry at byte " + std::to_string(at) + " has " +
                     std::to_string(entry.header_bytes) + " bytes of header and " +
                     std::to_string(entry.payload_bytes) + " of contents; " + std::to_string(left) +
                     " are left");
    }
    const bool is_ptx = entry.kind == 1;
    const int arch = static_cast<int>(entry.capability);
    if (is_ptx || entry.kind == 2) {
      present += (present.empty() ? "" : ", ") + std::string(is_ptx ? "compute_" : "sm_") +
                 std::to_string(arch);
    }
    const std::string_view text_of_entry(image.data() + at + entry.header_bytes,
                                         entry.payload_bytes);
    if (is_ptx && arch <= capability && arch > best &&
        (entry.flags & kCompressedFlags || runs_on(target_of(text_of_entry), capability))) {
      compressed = (entry.flags & kCompressedFlags) != 0;
      best = arch;
      const char* payload = image.data() + at + entry.header_bytes;
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
