// Streams and events. Work is done when it is issued, in order, so a stream has nothing to hold; an
// event is the host's clock.
#pragma once

#include <chrono>

#include "core/error.h"

namespace vgpu {

struct Stream {
  unsigned flags = 0;
  int priority = 0;
};

struct Event {
  unsigned flags = 0;
  bool recorded = false;
  std::chrono::steady_clock::time_point when;
};

Code record(Event* event);
Code elapsed(const Event* begin, const Event* end, float* ms);

}  // namespace vgpu
