// Joins instructions that are executed together.
#include <algorithm>
#include <cstring>

#include "ptx/builder.h"

namespace vgpu::ptx {
namespace {

constexpr size_t kLongestRun = 256;

// What an instruction writes, and what it reads: offsets into the register file.
struct Access {
  const u32* written;
  const u32* read;
  const u32* end;
};
Access access_of(const Draft& d, const Ins& i) {
  return {i.ops, i.ops + std::strlen(d.info->results), i.ops + d.slots.size()};
}

}  // namespace

// An operation that takes whole runs (mma) may unpack an operand once for all the instructions that
// read it: so nothing in a run reads what another one in it has written. That ends a run early
// where sums are chained, and costs nothing there.
void fuse_runs(const std::vector<Draft>& code, Program& program) {
  const auto plain = [&](size_t k) {
    return code[k].info->runs && program.code[k].guard == kNoSlot;
  };
  for (size_t first = 0; first < code.size();) {
    size_t end = first + 1;
    if (plain(first)) {
      std::vector<u32> written;
      for (size_t k = first; end - first < kLongestRun && end < code.size(); ++k, ++end) {
        const Access before = access_of(code[k], program.code[k]);
        written.insert(written.end(), before.written, before.read);
        const Access next = access_of(code[end], program.code[end]);
        const bool reads =
            std::find_first_of(next.read, next.end, written.begin(), written.end()) != next.end;
        if (code[end].info != code[first].info || !plain(end) || program.code[end].special || reads)
          break;
      }
    }
    program.code[first].run = static_cast<u16>(end - first);
    first = end;
  }
}

}  // namespace vgpu::ptx
