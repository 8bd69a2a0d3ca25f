// Copies and fills that the host asks for.
#pragma once

#include <vector>

#include "core/error.h"
#include "exec/types.h"

namespace vgpu {

// Where the caller says that a pointer points.
enum class Side { kAny, kDevice, kHost };

struct Copy2d {
  void* to;
  u64 to_pitch;
  const void* from;
  u64 from_pitch;
  u64 width;  // bytes of a row
  u64 height;
  Side to_side = Side::kAny;
  Side from_side = Side::kAny;
};

// A plain copy is one row.
inline Copy2d copy_of(void* to, Side to_side, const void* from, Side from_side, u64 bytes) {
  return {to, bytes, from, bytes, bytes, 1, to_side, from_side};
}

struct Fill2d {
  void* to;
  u64 pitch;
  u32 value;
  u32 element;  // bytes: 1, 2 or 4
  u64 width;    // elements of a row
  u64 height;
};

// The sides that a direction names, CUDA's number (cudaMemcpyKind): 0 host to host, 1 host to
// device, 2 device to host, 3 device to device, 4 whatever the pointers say.
Code set_direction(int direction, Copy2d* copy);
// What a node of a graph does, after the checks that need no device.
struct Work;
Code copy_work(std::vector<Copy2d> slices, Work* work);
Code fill_work(const Fill2d& fill, Work* work);
// In stream order, or into the graph that the stream is capturing.
Code copy_async(const Copy2d& copy, void* stream);
Code fill_async(const Fill2d& fill, void* stream);
// As the calls that wait: they must not be made while a stream is capturing.
Code copy_now(const Copy2d& copy);
Code fill_now(const Fill2d& fill);

}  // namespace vgpu
