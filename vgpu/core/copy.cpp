#include "core/copy.h"

#include <cstring>
#include <sstream>
#include <string>
#include <utility>

#include "core/capture.h"
#include "core/host_memory.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/stream.h"
#include "core/timeline.h"
#include "core/timing.h"

namespace vgpu {
namespace {

Code wrong_pointer(const char* what, const void* p, const char* why) {
  std::ostringstream text;
  text << what << ": " << p << " " << why;
  return fail(Code::kInvalidValue, text.str());
}

// Both ends of a row must be what the caller says, and lie inside of one allocation.
Code check_side(const void* p, u64 bytes, Side side, const char* what) {
  if (const Code code = check_range(p, bytes, what); code != Code::kSuccess) return code;
  const bool known = is_device_memory(p);
  if (side == Side::kDevice && !known)
    return wrong_pointer(what, p, "is host memory, or freed; the call says it is the device's");
  if (side == Side::kHost && known && kind_of(p) != MemoryKind::kHost &&
      kind_of(p) != MemoryKind::kManaged) {
    return wrong_pointer(what, p, "is device memory; the call says it is the host's");
  }
  return Code::kSuccess;
}

Code transfer(void* to, const void* from, u64 bytes) {
  const u64 done = copy_mapped(to, from, bytes);
  if (done == bytes) return Code::kSuccess;
  std::ostringstream text;
  text << "a copy of " << bytes << " bytes from " << from << " to " << to
       << ": the program has no memory there at byte " << done;
  return fail(Code::kInvalidValue, text.str());
}

bool on_host(const void* p) { return !is_device_memory(p) || kind_of(p) == MemoryKind::kHost; }

bool overlap(const void* a, const void* b, u64 bytes) {
  const u64 x = reinterpret_cast<u64>(a);
  const u64 y = reinterpret_cast<u64>(b);
  return x < y + bytes && y < x + bytes;
}

Code perform(const Copy2d& c) {
  for (u64 row = 0; row < c.height && c.width; ++row) {
    char* to = static_cast<char*>(c.to) + row * c.to_pitch;
    const char* from = static_cast<const char*>(c.from) + row * c.from_pitch;
    Code code = check_side(to, c.width, c.to_side, "copy, destination");
    if (code == Code::kSuccess) code = check_side(from, c.width, c.from_side, "copy, source");
    if (code != Code::kSuccess) return code;
    if (overlap(to, from, c.width)) {
      std::memmove(to, from, c.width);
    } else if (code = transfer(to, from, c.width); code != Code::kSuccess) {
      return code;
    }
    follow_copy(to, from, c.width);
  }
  pass_ns(copy_ns(options().device, c.width * c.height, on_host(c.to) || on_host(c.from)), 0);
  return Code::kSuccess;
}

Code perform(const Fill2d& f) {
  for (u64 row = 0; row < f.height && f.width; ++row) {
    u8* to = static_cast<u8*>(f.to) + row * f.pitch;
    const u64 bytes = f.width * f.element;
    if (const Code code = check_side(to, bytes, Side::kDevice, "memset"); code != Code::kSuccess)
      return code;
    follow_fill(to, bytes);
    if (f.element == 1) {
      std::memset(to, static_cast<int>(f.value), bytes);
      continue;
    }
    for (u64 k = 0; k < bytes; k += f.element) std::memcpy(to + k, &f.value, f.element);
  }
  // It writes only.
  pass_ns(copy_ns(options().device, f.width * f.element * f.height / 2, false), 0);
  return Code::kSuccess;
}

Code check_pitch(u64 pitch, u64 width, u64 height, const char* what) {
  if (height <= 1 || pitch >= width) return Code::kSuccess;
  return fail(Code::kInvalidPitch, std::string(what) + ": rows of " + std::to_string(width) +
                                       " bytes lie " + std::to_string(pitch) + " bytes apart");
}

Code check(const Copy2d& c) {
  const Code code = check_pitch(c.to_pitch, c.width, c.height, "copy, destination");
  return code != Code::kSuccess ? code
                                : check_pitch(c.from_pitch, c.width, c.height, "copy, source");
}

}  // namespace

Code set_direction(int direction, Copy2d* copy) {
  if (direction < 0 || direction > 4) {
    return fail(Code::kInvalidMemcpyDirection,
                "a copy's direction " + std::to_string(direction) + " is not defined");
  }
  if (direction == 4) return Code::kSuccess;
  copy->to_side = direction & 1 ? Side::kDevice : Side::kHost;
  copy->from_side = direction & 2 ? Side::kDevice : Side::kHost;
  return Code::kSuccess;
}

Code copy_work(std::vector<Copy2d> slices, Work* work) {
  for (const Copy2d& slice : slices) {
    if (const Code code = check(slice); code != Code::kSuccess) return code;
  }
  work->kind = kCopyNode;
  work->made_of = slices;
  work->run = [slices = std::move(slices)] {
    for (const Copy2d& slice : slices) {
      if (const Code code = perform(slice); code != Code::kSuccess) return code;
    }
    return Code::kSuccess;
  };
  return Code::kSuccess;
}

Code fill_work(const Fill2d& fill, Work* work) {
  if (fill.element != 1 && fill.element != 2 && fill.element != 4) {
    return fail(Code::kInvalidValue,
                "memset of elements of " + std::to_string(fill.element) + " bytes");
  }
  const Code code = check_pitch(fill.pitch, fill.width * fill.element, fill.height, "memset");
  work->kind = kFillNode;
  work->made_of = fill;
  work->run = [fill] { return perform(fill); };
  return code;
}

Code copy_async(const Copy2d& copy, void* stream) {
  Work work;
  const Code code = copy_work({copy}, &work);
  return code == Code::kSuccess ? submit(stream, std::move(work)) : code;
}

Code fill_async(const Fill2d& fill, void* stream) {
  Work work;
  const Code code = fill_work(fill, &work);
  return code == Code::kSuccess ? submit(stream, std::move(work)) : code;
}

Code copy_now(const Copy2d& copy) {
  Code code = unsafe_while_capturing("a copy that waits");
  if (code == Code::kSuccess) code = copy_async(copy, nullptr);
  return code == Code::kSuccess ? synchronize_stream(nullptr) : code;
}

Code fill_now(const Fill2d& fill) {
  const Code code = unsafe_while_capturing("a memset in the default stream");
  return code == Code::kSuccess ? fill_async(fill, nullptr) : code;
}

}  // namespace vgpu
