#include "exec/mbarrier.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace vgpu {
namespace {

constexpr u64 kMark = 1;  // 0 is cleared memory, 3 is what fresh memory holds
constexpr u64 kField = (1ull << 20) - 1;

}  // namespace

bool unpack(u64 word, Mbarrier* out) {
  out->parity = static_cast<u32>(word >> 63);
  out->expected = static_cast<u32>(word >> 41 & kField);
  out->missing = static_cast<u32>(word >> 21 & kField);
  out->bytes = static_cast<s32>(static_cast<u32>(word) << 11) >> 11;
  return (word >> 61 & 3) == kMark;
}

u64 pack(const Mbarrier& b) {
  return static_cast<u64>(b.parity) << 63 | kMark << 61 | static_cast<u64>(b.expected) << 41 |
         static_cast<u64>(b.missing) << 21 | (static_cast<u32>(b.bytes) & 0x1fffffu);
}

bool load(const Cta& cta, u32 at, Mbarrier* out) {
  u64 word;
  std::memcpy(&word, cta.shared + at, sizeof(word));
  return unpack(word, out);
}

Status refuse(Warp& w, int lane, const char* format, ...) {
  static thread_local char text[256];  // Fault has room for a pointer only
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  w.fault.kind = FaultKind::kAsync;
  w.fault.detail = text;
  w.fault.space = "shared";
  w.fault.lane = lane;
  return Status::kFault;
}

bool change(Warp& w, Cta& cta, u32 at, const Change& c, int lane, u64* before) {
  u64 word;
  std::memcpy(&word, cta.shared + at, sizeof(word));
  if (before) *before = word;
  Mbarrier b;
  if (!unpack(word, &b)) {
    refuse(w, lane, "no mbarrier at offset %u of shared memory: not initialised, or overwritten",
           at);
    return false;
  }
  b.missing += c.joined;
  if (b.missing > kMostArrivals || c.arrivals > b.missing) {
    refuse(w, lane,
           "mbarrier at offset %u of shared memory: %u arrivals in a phase that misses %u of %u",
           at, c.arrivals, b.missing, b.expected);
    return false;
  }
  b.missing -= c.arrivals;
  b.expected -= c.dropped > b.expected ? b.expected : c.dropped;
  const s64 bytes = s64{b.bytes} + c.bytes;
  if (bytes > kMostTransactions || bytes < -kMostTransactions) {
    refuse(w, lane, "mbarrier at offset %u of shared memory: transaction count %s, %lld bytes", at,
           bytes > 0 ? "overflow" : "underflow", static_cast<long long>(bytes));
    return false;
  }
  b.bytes = static_cast<s32>(bytes);
  if (b.missing == 0 && b.bytes == 0) {
    if (!c.completes) {
      refuse(w, lane,
             "mbarrier at offset %u of shared memory: arrive.noComplete completes the phase", at);
      return false;
    }
    b.parity ^= 1;
    b.missing = b.expected;
  }
  word = pack(b);
  std::memcpy(cta.shared + at, &word, sizeof(word));
  return true;
}

std::string describe_wait(const Warp& w) {
  const Cta* cta = cta_at(w, w.parked_at);
  if (!cta) return "";
  const u32 at = w.parked_at & (kSharedSpan - 1);
  Mbarrier b;
  std::string text = "for phase " + std::to_string(w.parked_parity) +
                     " of the mbarrier at offset " + std::to_string(at) + " of shared memory";
  if (cta != w.cta) text += " of CTA " + std::to_string(cta->rank) + " of the cluster";
  if (!load(*cta, at, &b)) return text + ", which is none any more";
  return text + ", which misses " + std::to_string(b.missing) + " of " +
         std::to_string(b.expected) + " arrivals and " +
         (b.bytes < 0 ? "has had " + std::to_string(-b.bytes) + " bytes more than expect_tx told"
                      : std::to_string(b.bytes) + " bytes");
}

}  // namespace vgpu
