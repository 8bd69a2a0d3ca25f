// Host threads that wait for work between launches.
#pragma once

#include <functional>

namespace vgpu {

// Runs `job` on `threads` threads, the calling one among them; returns when all have finished.
void run_on_threads(int threads, const std::function<void()>& job);

}  // namespace vgpu
