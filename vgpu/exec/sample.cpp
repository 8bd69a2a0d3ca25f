#include "exec/sample.h"

#include <algorithm>

#include "exec/program.h"

namespace vgpu {

void Sectors::add(const u64* numbers, int count) {
  numbers_.insert(numbers_.end(), numbers, numbers + count);
  if (numbers_.size() < limit_) return;
  sorted();
  limit_ = std::max(limit_, 2 * numbers_.size());
}

const std::vector<u64>& Sectors::sorted() {
  std::sort(numbers_.begin(), numbers_.end());
  numbers_.erase(std::unique(numbers_.begin(), numbers_.end()), numbers_.end());
  return numbers_;
}

void mark_waits(Program& program) {
  std::vector<CountInfo>& counted = program.counted;
  for (size_t end = 0; end < program.code.size(); ++end) {
    const Ins& branch = program.code[end];
    if (branch.kind != Kind::kBranch || branch.target > static_cast<s32>(end)) continue;
    bool polls = false;
    bool looks = false;
    bool works = false;
    for (size_t k = static_cast<size_t>(branch.target); k <= end; ++k) {
      const bool look = k < end && counted[k + 1].polls;
      polls |= look;
      looks |= counted[k].looks;
      works |= counted[k].mma_operations || (counted[k].touches != Touches::kNothing && !look);
    }
    if (works || (!polls && !looks)) continue;
    for (size_t k = static_cast<size_t>(branch.target); k <= end; ++k) {
      counted[k].waits |= polls;
      counted[k].retried |= counted[k].looks;
    }
  }
}

}  // namespace vgpu
