// printf of device code. The arguments lie in local memory, each aligned to its size.
#include <cstdio>
#include <cstring>
#include <string>

#include "exec/warp.h"

namespace vgpu {

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
    const bool wide =
        spec.find('l') != spec.npos || spec.find('z') != spec.npos || spec.find('j') != spec.npos;
    char text[512] = "";
    if (std::strchr("eEfFgGaA", *end)) {
      const u64 bits = take(8);
      double value;
      std::memcpy(&value, &bits, 8);
      std::snprintf(text, sizeof(text), spec.c_str(), value);
    } else if (*end == 's') {
      std::snprintf(text, sizeof(text), spec.c_str(), reinterpret_cast<const char*>(take(8)));
    } else if (*end == 'p') {
      std::snprintf(text, sizeof(text), spec.c_str(), reinterpret_cast<void*>(take(8)));
    } else if (wide) {
      std::snprintf(text, sizeof(text), spec.c_str(), take(8));
    } else {
      std::snprintf(text, sizeof(text), spec.c_str(), static_cast<u32>(take(4)));
    }
    out += text;
    p = end;
  }
  std::fputs(out.c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace vgpu
