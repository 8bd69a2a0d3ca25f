// printf of device code. The arguments lie in local memory, each aligned to its size.
#include "core/print.h"

#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>

#include "exec/warp.h"

namespace vgpu {

namespace {

// An entry holds the arguments, and what says which format they belong to. How a GPU lays them out
// is not documented.
constexpr u64 kEntryHeader = 16;
constexpr u64 kDefaultRoom = 1 << 20;  // CUDA's

struct PrintEntry {
  std::string text;
  u64 bytes;
};

struct PrintRing {
  std::mutex mutex;
  std::deque<PrintEntry> entries;
  u64 bytes = 0;
  u64 room = kDefaultRoom;
  u64 lost = 0;
  bool used = false;
};

PrintRing& ring() {
  static PrintRing* const r = new PrintRing;  // modules are unloaded late
  return *r;
}

void enter(PrintEntry entry) {
  PrintRing& r = ring();
  const std::lock_guard lock(r.mutex);
  r.bytes += entry.bytes;
  r.entries.push_back(std::move(entry));
  for (; r.bytes > r.room; ++r.lost) {
    r.bytes -= r.entries.front().bytes;
    r.entries.pop_front();
  }
}

template <class T>
void append(std::string* out, const std::string& spec, T value) {
  const int length = std::snprintf(nullptr, 0, spec.c_str(), value);
  if (length < 0) return;
  const size_t before = out->size();
  out->resize(before + static_cast<size_t>(length) + 1);
  std::snprintf(out->data() + before, static_cast<size_t>(length) + 1, spec.c_str(), value);
  out->pop_back();
}

}  // namespace

void device_print(const Warp&, int, const char* format, const u8* arguments) {
  std::string out;
  size_t at = 0;
  const auto take = [&](size_t bytes) {
    at = (at + bytes - 1) / bytes * bytes;
    u64 value = 0;
    if (arguments) std::memcpy(&value, arguments + at, bytes);
    at += bytes;
    return value;
  };
  for (const char* p = format; *p; ++p) {
    if (*p != '%') {
      out += *p;
      continue;
    }
    const char* end = p + 1;
    while (*end && std::strchr("-+ #0123456789.hlzjt", *end)) ++end;
    if (!*end || *end == '%') {
      out += '%';
      p = *end ? end : end - 1;
      continue;
    }
    std::string spec(p, end + 1);
    const bool wide = spec.find_first_of("lzjt") != spec.npos;
    if (std::strchr("eEfFgGaA", *end)) {
      const u64 bits = take(8);
      double value;
      std::memcpy(&value, &bits, 8);
      append(&out, spec, value);
    } else if (*end == 's') {
      append(&out, spec, reinterpret_cast<const char*>(take(8)));
    } else if (*end == 'p') {
      append(&out, spec, reinterpret_cast<void*>(take(8)));
    } else if (wide) {
      append(&out, spec, take(8));
    } else {
      append(&out, spec, static_cast<u32>(take(4)));
    }
    p = end;
  }
  enter({std::move(out), kEntryHeader + (at + 7) / 8 * 8});
}

void begin_printing() {
  const std::lock_guard lock(ring().mutex);
  ring().used = true;
}

void flush_prints(const std::string& kernel) {
  PrintRing& r = ring();
  const std::lock_guard lock(r.mutex);
  for (const PrintEntry& e : r.entries) std::fwrite(e.text.data(), 1, e.text.size(), stdout);
  std::fflush(stdout);
  if (r.lost) {
    std::fprintf(stderr,
                 "vgpu: kernel '%s' printed more than the %llu bytes of cudaLimitPrintfFifoSize "
                 "hold: the first %llu of its %llu calls of printf are lost, as on a GPU\n",
                 kernel.c_str(), static_cast<unsigned long long>(r.room),
                 static_cast<unsigned long long>(r.lost),
                 static_cast<unsigned long long>(r.lost + r.entries.size()));
  }
  r.entries.clear();
  r.bytes = r.lost = 0;
}

Code resize_print_ring(u64 bytes) {
  PrintRing& r = ring();
  const std::lock_guard lock(r.mutex);
  if (r.used) {
    return fail(Code::kInvalidValue,
                "the size of printf's buffer (cudaLimitPrintfFifoSize) cannot change after a "
                "kernel that prints was launched: set it before");
  }
  r.room = bytes;
  return Code::kSuccess;
}

void reset_print_ring() {
  PrintRing& r = ring();
  const std::lock_guard lock(r.mutex);
  r.used = false;
  r.room = kDefaultRoom;
}

u64 print_ring_bytes() {
  const std::lock_guard lock(ring().mutex);
  return ring().room;
}

}  // namespace vgpu
