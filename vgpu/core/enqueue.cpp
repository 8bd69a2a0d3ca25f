// Launches into streams, and as nodes of graphs.
#include <utility>

#include "core/capture.h"
#include "core/launch.h"

namespace vgpu {
namespace {

Work work_of(KernelCall what) {
  const auto call = std::make_shared<KernelCall>(std::move(what));
  for (const Param& p : call->kernel->params())
    call->arguments.push_back(call->parameters.data() + p.offset);
  Work work;
  work.kind = kKernelNode;
  work.made_of = std::shared_ptr<const KernelCall>(call);
  work.run = [call] {
    return launch_packed(*call->kernel, call->shape, call->parameters.data(),
                         call->parameters.size());
  };
  return work;
}

Code put(void* stream, KernelCall call) {
  Stream* s = nullptr;
  if (const Code code = find_stream(stream, &s); code != Code::kSuccess) return code;
  // A launch that no GPU takes does not become a node.
  if (s->capture) {
    if (const Code code = check_launch(*call.kernel, call.shape); code != Code::kSuccess)
      return code;
  }
  return submit(stream, work_of(std::move(call)));
}

}  // namespace

Code kernel_work(const void* function, Kernel& kernel, const LaunchShape& shape, void** arguments,
                 Work* work) {
  KernelCall call = {function, &kernel, shape, {}, {}};
  Code code = check_launch(kernel, shape);
  if (code == Code::kSuccess) code = pack_arguments(kernel, arguments, &call.parameters);
  if (code == Code::kSuccess) *work = work_of(std::move(call));
  return code;
}

Code enqueue(void* stream, const void* function, Kernel& kernel, const LaunchShape& shape,
             void** arguments) {
  KernelCall call = {function, &kernel, shape, {}, {}};
  const Code code = pack_arguments(kernel, arguments, &call.parameters);
  return code == Code::kSuccess ? put(stream, std::move(call)) : code;
}

Code enqueue_packed(void* stream, const void* function, Kernel& kernel, const LaunchShape& shape,
                    const void* buffer, u64 bytes) {
  const u8* from = static_cast<const u8*>(buffer);
  return put(stream, {function, &kernel, shape, std::vector<u8>(from, from + bytes), {}});
}

}  // namespace vgpu
