// What goes wrong in a launch, told with kernel, block, thread, lines and address.
#pragma once

#include <string>

#include "core/launch.h"
#include "core/memory.h"
#include "exec/check.h"
#include "exec/scheduler.h"

namespace vgpu {

std::string triple(u32 x, u32 y, u32 z);

// What the checks saw of one launch becomes findings.
class Reporter {
 public:
  Reporter(Kernel& kernel, const Program& program, const LaunchShape& shape,
           const AllocationIndex& index)
      : kernel_(kernel), program_(program), shape_(shape), index_(index) {}

  void report(const Sighting& s) const;
  // Undefined bytes of global memory remember who read them first.
  u8 remember(const Origin& o) const;

 private:
  u32 line_of(s32 pc) const { return program_.code[static_cast<size_t>(pc)].line; }

  Kernel& kernel_;
  const Program& program_;
  const LaunchShape& shape_;
  const AllocationIndex& index_;
};

// A fault ends the launch, and every later call fails.
void report_fault(Kernel& kernel, const Program& program, const LaunchShape& shape,
                  const FaultReport& seen, const AllocationIndex& index);

}  // namespace vgpu
