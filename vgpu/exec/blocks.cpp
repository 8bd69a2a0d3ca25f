#include "exec/blocks.h"

#include <array>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

#include "exec/types.h"

namespace vgpu {
namespace {

constexpr std::size_t kPage = 4096;
// Blocks have sizes that are powers of two; a page before each tells which. Of those up to a
// megabyte some are kept.
constexpr std::size_t kSmallest = 12, kLargestKept = 20, kKeptOfEach = 32;

struct Kept {
  std::mutex mutex;
  std::array<std::vector<u8*>, kLargestKept + 1> free;
};
Kept& kept() {
  static Kept* const k = new Kept;  // launches come as late as static destructors
  return *k;
}

}  // namespace

void* take_block(std::size_t bytes) {
  const std::size_t size =
      bytes <= kPage ? kSmallest : static_cast<std::size_t>(std::bit_width(bytes - 1));
  if (size <= kLargestKept) {
    const std::lock_guard lock(kept().mutex);
    std::vector<u8*>& free = kept().free[size];
    if (!free.empty()) {
      u8* const block = free.back();
      free.pop_back();
      return block;
    }
  }
  void* whole = nullptr;
  const std::size_t room = size <= kLargestKept ? std::size_t{1} << size : bytes;
  if (posix_memalign(&whole, kPage, kPage + room) != 0) throw std::bad_alloc();
  u8* const block = static_cast<u8*>(whole) + kPage;
  reinterpret_cast<std::size_t*>(block)[-1] = size;
  return block;
}

void give_block(void* block) {
  const std::size_t size = static_cast<std::size_t*>(block)[-1];
  if (size <= kLargestKept) {
    const std::lock_guard lock(kept().mutex);
    std::vector<u8*>& free = kept().free[size];
    if (free.size() < kKeptOfEach) {
      free.push_back(static_cast<u8*>(block));
      return;
    }
  }
  std::free(static_cast<u8*>(block) - kPage);
}

}  // namespace vgpu
