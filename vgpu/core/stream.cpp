#include "core/stream.h"

namespace vgpu {

Code record(Event* event) {
  if (!event) return fail(Code::kInvalidHandle, "an event is null");
  event->recorded = true;
  event->when = std::chrono::steady_clock::now();
  return sticky_error();
}

Code elapsed(const Event* begin, const Event* end, float* ms) {
  if (!begin || !end || !ms) return fail(Code::kInvalidHandle, "an event is null");
  if (!begin->recorded || !end->recorded) {
    return fail(Code::kInvalidHandle, "the time between two events needs both to be recorded");
  }
  *ms = std::chrono::duration<float, std::milli>(end->when - begin->when).count();
  return sticky_error();
}

}  // namespace vgpu
