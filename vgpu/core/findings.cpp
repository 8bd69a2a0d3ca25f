#include "core/findings.h"

#include <cstdio>
#include <mutex>

namespace vgpu {
namespace {

constexpr size_t kFindingsKept = 1000;

struct Kept {
  std::mutex mutex;
  std::vector<Finding> list;
};
Kept& kept() {
  static Kept* const k = new Kept;  // leaks are found after static destructors
  return *k;
}

}  // namespace

void add_finding(Finding finding, bool print) {
  const std::lock_guard lock(kept().mutex);
  const auto same_place = [&](const Finding& f) {
    if (!finding.cause.empty()) return true;
    return f.ptx_line == finding.ptx_line && (f.ptx_line || f.allocation == finding.allocation);
  };
  for (Finding& f : kept().list) {
    if (f.check == finding.check && f.kind == finding.kind && f.kernel == finding.kernel &&
        f.cause == finding.cause && same_place(f)) {
      ++f.count;
      return;
    }
  }
  if (print) std::fprintf(stderr, "vgpu: %s: %s\n", finding.check.c_str(), finding.message.c_str());
  if (kept().list.size() < kFindingsKept) kept().list.push_back(std::move(finding));
}

std::vector<Finding> findings() {
  const std::lock_guard lock(kept().mutex);
  return kept().list;
}

void clear_findings() {
  const std::lock_guard lock(kept().mutex);
  kept().list.clear();
}

}  // namespace vgpu
