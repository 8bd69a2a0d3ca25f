// Launches into streams.
#include <utility>

#include "core/graph.h"
#include "core/launch.h"
#include "core/stream.h"

namespace vgpu {
namespace {

Code put(void* stream, Kernel& kernel, const LaunchShape& shape, std::vector<u8> buffer) {
  Stream* s = nullptr;
  if (const Code code = find_stream(stream, &s); code != Code::kSuccess) return code;
  // A launch that no GPU takes does not become a node.
  if (s->capture) {
    if (const Code code = check_launch(kernel, shape); code != Code::kSuccess) return code;
  }
  return submit(stream, kKernelNode, [&kernel, shape, buffer = std::move(buffer)] {
    return launch_packed(kernel, shape, buffer.data(), buffer.size());
  });
}

}  // namespace

Code enqueue(void* stream, Kernel& kernel, const LaunchShape& shape, void** arguments) {
  std::vector<u8> buffer;
  if (const Code code = pack_arguments(kernel, arguments, &buffer); code != Code::kSuccess)
    return code;
  return put(stream, kernel, shape, std::move(buffer));
}

Code enqueue_packed(void* stream, Kernel& kernel, const LaunchShape& shape, const void* buffer,
                    u64 bytes) {
  const u8* from = static_cast<const u8*>(buffer);
  return put(stream, kernel, shape, std::vector<u8>(from, from + bytes));
}

}  // namespace vgpu
