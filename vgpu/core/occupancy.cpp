// What a kernel takes of a multiprocessor, by the rules of the CUDA occupancy calculator.
#include <algorithm>

#include "core/launch.h"
#include "core/options.h"

namespace vgpu {
namespace {

// Registers are handed out to warps in pieces of 256, and to four schedulers alike.
u64 warps_by_registers(const DeviceModel& d, u32 registers) {
  const u64 of_warp = (static_cast<u64>(registers) * 32 + 255) / 256 * 256;
  return static_cast<u64>(d.registers_per_sm) / of_warp / 4 * 4;
}

u64 shared_of_block(const DeviceModel& d, u64 bytes) {
  const u64 piece = d.capability >= 80 ? 128 : 256;
  return (bytes + static_cast<u64>(d.shared_reserved) + piece - 1) / piece * piece;
}

}  // namespace

Code resources(Kernel& kernel, KernelResources* out) {
  Code code = Code::kSuccess;
  const Program* p = kernel.unchecked(&code);
  if (!p) return code;
  const DeviceModel& d = options().device;
  out->static_shared = p->static_shared_bytes;
  out->local_bytes = p->local_bytes;
  // An estimate: a few more than are alive at once in the PTX's order, which ptxas may change.
  const u32 wanted = (p->live_registers + 8 + 7) / 8 * 8;
  out->registers = std::min(wanted, kernel.register_limit(static_cast<u32>(d.registers_per_sm)));
  out->max_threads = kernel.max_threads();
  const u32 rest = static_cast<u32>(kSharedPerBlock) > p->static_shared_bytes
                       ? static_cast<u32>(kSharedPerBlock) - p->static_shared_bytes
                       : 0;
  out->max_dynamic_shared = std::max(rest, kernel.max_dynamic_shared);
  out->capability = kernel.module().capability();
  return Code::kSuccess;
}

Code set_max_dynamic_shared(Kernel& kernel, int bytes) {
  Code code = Code::kSuccess;
  const Program* p = kernel.unchecked(&code);
  if (!p) return code;
  const DeviceModel& d = options().device;
  if (bytes < 0 || static_cast<u64>(bytes) + p->static_shared_bytes >
                       static_cast<u64>(d.shared_per_block_optin)) {
    return fail(Code::kInvalidValue, "kernel '" + kernel.short_name() + "' asks for " +
                                         std::to_string(bytes) + " bytes of dynamic beside " +
                                         std::to_string(p->static_shared_bytes) +
                                         " of static shared memory; a block of " + d.name +
                                         " has " + std::to_string(d.shared_per_block_optin));
  }
  kernel.max_dynamic_shared = static_cast<u32>(bytes);
  return Code::kSuccess;
}

Code occupancy(Kernel& kernel, int block_threads, u64 dynamic_shared, int* blocks) {
  KernelResources r;
  if (const Code code = resources(kernel, &r); code != Code::kSuccess) return code;
  const DeviceModel& d = options().device;
  if (block_threads < 1 || !blocks)
    return fail(Code::kInvalidValue,
                "occupancy of a block of " + std::to_string(block_threads) + " threads");
  const u64 warps = (static_cast<u64>(block_threads) + 31) / 32;
  u64 fit = std::min<u64>(static_cast<u64>(d.blocks_per_sm),
                          static_cast<u64>(d.threads_per_sm) / 32 / warps);
  if (r.registers) fit = std::min(fit, warps_by_registers(d, r.registers) / warps);
  fit = std::min(fit, static_cast<u64>(d.shared_per_sm) /
                          std::max<u64>(shared_of_block(d, r.static_shared + dynamic_shared), 1));
  if (warps * 32 > (r.max_threads + 31) / 32 * 32) fit = 0;
  *blocks = static_cast<int>(fit);
  return Code::kSuccess;
}

Code available_shared(Kernel& kernel, int blocks, int block_threads, size_t* bytes) {
  int fit = 0;
  KernelResources r;
  Code code = resources(kernel, &r);
  if (code == Code::kSuccess) code = occupancy(kernel, block_threads, 0, &fit);
  if (code != Code::kSuccess) return code;
  const DeviceModel& d = options().device;
  const u64 share = static_cast<u64>(d.shared_per_sm) / static_cast<u64>(blocks);
  const u64 taken = r.static_shared + static_cast<u64>(d.shared_reserved);
  const u64 most = static_cast<u64>(d.shared_per_block_optin) - r.static_shared;
  *bytes = fit < blocks || share < taken ? 0 : std::min(share / 128 * 128 - taken, most);
  return Code::kSuccess;
}

}  // namespace vgpu
