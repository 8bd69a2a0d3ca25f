#include "core/host_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace vgpu {

u64 copy_mapped(void* to, const void* from, u64 bytes) {
  constexpr u64 kPiece = 1ull << 30;
  u64 done = 0;
  while (done < bytes) {
    const u64 piece = std::min(kPiece, bytes - done);
    char* const target = static_cast<char*>(to) + done;
    char* const source = static_cast<char*>(const_cast<void*>(from)) + done;
    iovec local = {target, piece};
    iovec remote = {source, piece};
    const ssize_t moved = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (moved > 0) {
      done += static_cast<u64>(moved);
      continue;
    }
    if (moved == 0 || errno == EFAULT) break;
    std::memcpy(target, source, piece);  // a sandbox without this call
    done += piece;
  }
  return done;
}

std::string read_mapped(const void* from, u64 bytes) {
  std::string found;
  constexpr u64 kPiece = 1 << 20;
  while (found.size() < bytes) {
    const u64 before = found.size();
    const u64 piece = std::min(kPiece, bytes - before);
    found.resize(before + piece);
    const u64 got =
        copy_mapped(found.data() + before, static_cast<const char*>(from) + before, piece);
    found.resize(before + got);
    if (got < piece) break;
  }
  return found;
}

std::string read_text(const char* from) {
  constexpr u64 kPage = 4096;
  std::string found;
  while (true) {
    const u64 piece = kPage - (reinterpret_cast<u64>(from) + found.size()) % kPage;
    const std::string more = read_mapped(from + found.size(), piece);
    const size_t end = more.find('\0');
    found.append(more, 0, end);
    if (end != more.npos || more.size() < piece) return found;
  }
}

}  // namespace vgpu
