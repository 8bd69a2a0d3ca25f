#pragma once

#include <time.h>

#include "exec/types.h"

namespace vgpu {

// Time that the calling thread has had a core. Asking the system takes as long as a small launch,
// so the first moments are taken to have been its own.
class CpuClock {
 public:
  void tick() {
    if (asked_ || __builtin_ia32_rdtsc() - cycles_ < kMoment) return;
    before_ns_ = now(CLOCK_MONOTONIC) - begin_ns_;
    cpu_ns_ = now(CLOCK_THREAD_CPUTIME_ID);
    asked_ = true;
  }
  u64 elapsed_ns() const {
    return asked_ ? before_ns_ + now(CLOCK_THREAD_CPUTIME_ID) - cpu_ns_
                  : now(CLOCK_MONOTONIC) - begin_ns_;
  }

 private:
  static constexpr u64 kMoment = 100'000;  // cycles
  static u64 now(clockid_t clock) {
    timespec t;
    clock_gettime(clock, &t);
    return static_cast<u64>(t.tv_sec) * 1'000'000'000 + static_cast<u64>(t.tv_nsec);
  }

  u64 cycles_ = __builtin_ia32_rdtsc();
  u64 begin_ns_ = now(CLOCK_MONOTONIC);
  u64 before_ns_ = 0;
  u64 cpu_ns_ = 0;
  bool asked_ = false;
};

}  // namespace vgpu
