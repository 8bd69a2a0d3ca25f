// What the host side of a kernel remembers of the devices that it was launched on.

#pragma once

#include <cuda_runtime_api.h>

#include <atomic>

namespace boltgen {

/// What a kernel has found out about each device, so that only its first launch there asks.
///
/// `Facts` take at most 8 bytes and are zeros until they are `known()`. Threads that ask at the
/// same time find the same. Failures are not remembered.
template <typename Facts>
class PerDevice {
 public:
  /// The current device's facts; `ask(device, facts)` finds them out.
  template <typename Ask>
  cudaError_t get(Facts& facts, Ask const& ask) {
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error != cudaSuccess) {
      return error;
    }
    bool const has_place = device < kPlaces;
    facts = has_place ? known_[device].load(std::memory_order_acquire) : Facts{};
    if (facts.known()) {
      return cudaSuccess;
    }
    error = ask(device, facts);
    if (error == cudaSuccess && has_place) {
      known_[device].store(facts, std::memory_order_release);
    }
    return error;
  }

  /// Makes the next launches ask again: after a cudaDeviceReset what was asked for is gone.
  void forget() {
    for (auto& facts : known_) {
      facts.store(Facts{}, std::memory_order_release);
    }
  }

 private:
  static constexpr int kPlaces = 64;
  static_assert(sizeof(Facts) <= 8, "one access reads them");

  std::atomic<Facts> known_[kPlaces]{};
};

}  // namespace boltgen
