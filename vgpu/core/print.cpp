// printf of device code. The arguments lie in local memory, each aligned to its size.
#include <cstdio>
#include <cstring>
#include <string>

#include "exec/warp.h"

namespace vgpu {

namespace {

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
  std::fwrite(out.data(), 1, out.size(), stdout);
  std::fflush(stdout);
}

}  // namespace vgpu
