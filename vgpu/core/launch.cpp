#include "core/launch.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <sstream>

#include "core/memory.h"
#include "core/options.h"
#include "exec/scheduler.h"

namespace vgpu {
namespace {

constexpr size_t kRecordsKept = 100000;
constexpr u64 kWorkspaceBytes = 64;

std::mutex records_mutex;
std::deque<LaunchRecord> records;

std::string triple(u32 x, u32 y, u32 z) {
  return "(" + std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + ")";
}

Code refuse(Code code, Kernel& kernel, const std::string& why) {
  return fail(code, "launch of kernel '" + kernel.short_name() + "': " + why);
}

// Shared memory that one block may have in all, and how to get more.
Code check_shared(Kernel& kernel, u64 static_bytes, u64 dynamic) {
  const DeviceModel& d = *options().device;
  const u64 total = static_bytes + dynamic;
  const u64 optin = static_cast<u64>(d.shared_per_block_optin);
  if (total > optin) {
    return refuse(Code::kInvalidValue, kernel,
                  std::to_string(total) + " bytes of shared memory a block; " + d.name + " has " +
                      std::to_string(optin));
  }
  if (total > static_cast<u64>(kSharedPerBlock) && dynamic > kernel.max_dynamic_shared) {
    return refuse(
        Code::kInvalidValue, kernel,
        std::to_string(dynamic) +
            " bytes of dynamic shared memory; above 48 KB they must be asked for with "
            "cudaFuncSetAttribute(cudaFuncAttributeMaxDynamicSharedMemorySize), which allows " +
            std::to_string(kernel.max_dynamic_shared) + " now");
  }
  return Code::kSuccess;
}

// A compiler that is not told the block's size takes as many registers as are alive at once.
Code check_registers(Kernel& kernel, const Program& p, u64 threads) {
  const DeviceModel& d = *options().device;
  const u64 rounded = (threads + kWarpSize - 1) / kWarpSize * kWarpSize;
  const u64 wanted = std::min(p.live_registers, 255u);
  if (kernel.bounded() || wanted * rounded <= static_cast<u64>(d.registers_per_sm))
    return Code::kSuccess;
  return refuse(Code::kLaunchOutOfResources, kernel,
                std::to_string(wanted) + " registers are alive at once, in " +
                    std::to_string(rounded) + " threads; " + d.name + " has " +
                    std::to_string(d.registers_per_sm) +
                    " registers: say __launch_bounds__, so that the compiler spills");
}

Code check_shape(Kernel& kernel, const LaunchShape& s, const Program& p) {
  const u64 threads = static_cast<u64>(s.block[0]) * s.block[1] * s.block[2];
  const std::string block = triple(s.block[0], s.block[1], s.block[2]);
  const std::string grid = triple(s.grid[0], s.grid[1], s.grid[2]);
  if (threads == 0 || !s.grid[0] || !s.grid[1] || !s.grid[2]) {
    return refuse(Code::kInvalidConfiguration, kernel,
                  "grid " + grid + ", block " + block + ": a dimension is zero");
  }
  if (threads > 1024 || s.block[0] > 1024 || s.block[1] > 1024 || s.block[2] > 64) {
    return refuse(Code::kInvalidConfiguration, kernel,
                  "block " + block + " is larger than (1024,1024,64) or 1024 threads");
  }
  if (threads > kernel.max_threads()) {
    return refuse(Code::kInvalidValue, kernel,
                  "block " + block + " has more threads than the kernel's __launch_bounds__ " +
                      std::to_string(kernel.max_threads()));
  }
  if (s.grid[0] > 0x7fffffffu || s.grid[1] > 65535 || s.grid[2] > 65535) {
    return refuse(Code::kInvalidConfiguration, kernel,
                  "grid " + grid + " is larger than (2147483647,65535,65535)");
  }
  if (s.cluster[0] * s.cluster[1] * s.cluster[2] != 1) {
    return refuse(Code::kNotSupported, kernel, "clusters are not modelled");
  }
  if (const Code code = check_registers(kernel, p, threads); code != Code::kSuccess) return code;
  return check_shared(kernel, p.static_shared_bytes, s.dynamic_shared);
}

// Blocks that the device would run at once.
Code resident_blocks(Kernel& kernel, const LaunchShape& s, u64* blocks) {
  int per_multiprocessor = 0;
  const u32 threads = s.block[0] * s.block[1] * s.block[2];
  const Code code =
      occupancy(kernel, static_cast<int>(threads), s.dynamic_shared, &per_multiprocessor);
  *blocks = static_cast<u64>(std::max(per_multiprocessor, 1)) *
            static_cast<u64>(options().device->multiprocessors);
  if (code != Code::kSuccess || !s.cooperative) return code;
  const u64 wanted = static_cast<u64>(s.grid[0]) * s.grid[1] * s.grid[2];
  if (wanted <= *blocks) return code;
  return refuse(Code::kCooperativeTooLarge, kernel,
                "a cooperative grid of " + std::to_string(wanted) + " blocks; " +
                    options().device->name + " runs " + std::to_string(*blocks) + " at once");
}

std::string thread_of(const FaultReport& r, const LaunchShape& s) {
  const u32 t = r.warp * kWarpSize + static_cast<u32>(r.fault.lane);
  return triple(t % s.block[0], t / s.block[0] % s.block[1], t / s.block[0] / s.block[1]);
}

void report(Kernel& kernel, const Program& p, const LaunchShape& s, const FaultReport& r,
            const AllocationIndex& index) {
  const Fault& f = r.fault;
  const u32 line = p.code[static_cast<size_t>(r.pc)].line;
  std::ostringstream where;
  where << " in kernel '" << kernel.short_name() << "', block "
        << triple(r.block[0], r.block[1], r.block[2]) << ", thread " << thread_of(r, s)
        << ", PTX line " << line << ": " << kernel.module().source_line(line);
  std::ostringstream text;
  const std::string space = f.space;
  switch (f.kind) {
    case FaultKind::kIllegalAddress:
      text << "out-of-bounds " << space << (f.store ? " write" : " read") << " of " << f.bytes
           << " bytes" << where.str() << "; ";
      if (space == "global") {
        text << describe_address(index, f.address, f.bytes);
      } else {
        text << "offset " << f.address << " of "
             << (space == "shared" ? p.static_shared_bytes + s.dynamic_shared : p.local_bytes)
             << " bytes of " << space << " memory";
      }
      fail_sticky(Code::kIllegalAddress, text.str());
      break;
    case FaultKind::kMisaligned:
      text << "misaligned " << space << (f.store ? " write" : " read") << " of " << f.bytes
           << " bytes at address 0x" << std::hex << f.address << std::dec << where.str();
      fail_sticky(Code::kMisalignedAddress, text.str());
      break;
    case FaultKind::kAssert:
      text << "assertion failed: " << f.detail << " ("
           << (f.address ? reinterpret_cast<const char*>(f.address) : "?") << ":" << f.bytes << ")"
           << where.str();
      fail_sticky(Code::kAssert, text.str());
      break;
    case FaultKind::kBarrier:
      text << f.detail << where.str();
      fail_sticky(Code::kLaunchFailure, text.str());
      break;
    case FaultKind::kTrap:
    case FaultKind::kNone:
      text << (*f.detail ? f.detail : "trap") << where.str();
      fail_sticky(Code::kLaunchFailure, text.str());
      break;
  }
}

// What a profiler would say of the launch.
void describe(Kernel& kernel, const LaunchShape& shape, const Counters& counters,
              LaunchRecord* out) {
  KernelResources r;
  resources(kernel, &r);
  const u32 threads = shape.block[0] * shape.block[1] * shape.block[2];
  int blocks = 0;
  occupancy(kernel, static_cast<int>(threads), shape.dynamic_shared, &blocks);
  out->counted = true;
  out->counters = counters;
  out->registers = r.registers;
  out->static_shared = r.static_shared;
  out->resident_blocks = blocks;
  out->resident_warps = blocks * static_cast<int>((threads + kWarpSize - 1) / kWarpSize);
  out->occupancy = static_cast<double>(out->resident_warps) * kWarpSize /
                   static_cast<double>(options().device->threads_per_sm);
}

Code run(Kernel& kernel, const LaunchShape& shape, const Program& program, const u8* params,
         u32 param_bytes) {
  u64 resident = 0;
  if (const Code code = resident_blocks(kernel, shape, &resident); code != Code::kSuccess)
    return code;
  void* workspace = nullptr;  // cooperative_groups: a size, and the barrier
  if (shape.cooperative) {
    if (const Code code = allocate(kWorkspaceBytes, MemoryKind::kModule, &workspace);
        code != Code::kSuccess)
      return code;
    std::memset(workspace, 0, kWorkspaceBytes);
  }
  const auto index = allocations();
  LaunchState state = {};
  state.resident = static_cast<u32>(std::min<u64>(resident, 0xffffffffu));
  state.workspace = reinterpret_cast<u64>(workspace);
  state.program = &program;
  state.code = program.code.data();
  std::memcpy(state.grid, shape.grid, sizeof(state.grid));
  std::memcpy(state.block, shape.block, sizeof(state.block));
  state.dynamic_shared = static_cast<u32>(shape.dynamic_shared);
  state.params = params;
  state.param_bytes = param_bytes;
  state.allocations = index.get();
  state.counting = options().counting;
  state.late_copies = options().late_copies;
  static std::atomic<u32> grids{0};
  const auto begin = std::chrono::steady_clock::now();
  const GridResult result = run_grid(state, *options().isa, options().threads,
                                     static_cast<u32>(options().device->multiprocessors), ++grids);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (workspace) release(workspace, MemoryKind::kModule);
  {
    const std::lock_guard lock(records_mutex);
    LaunchRecord r = {};
    r.kernel = kernel.name();
    r.dynamic_shared = shape.dynamic_shared;
    r.warp_instructions = result.instructions;
    r.seconds = seconds.count();
    if (state.counting) describe(kernel, shape, result.counters, &r);
    std::memcpy(r.grid, shape.grid, sizeof(r.grid));
    std::memcpy(r.block, shape.block, sizeof(r.block));
    records.push_back(std::move(r));
    if (records.size() > kRecordsKept) records.pop_front();
  }
  // As on a GPU the launch itself went well; what follows it finds the error.
  if (result.fault) report(kernel, program, shape, *result.fault, *index);
  return Code::kSuccess;
}

Code prepare(Kernel& kernel, const LaunchShape& shape, const Program** program) {
  if (const Code sticky = sticky_error(); sticky != Code::kSuccess) return sticky;
  Code code = Code::kSuccess;
  *program = kernel.program(&code);
  if (!*program) return code;
  return check_shape(kernel, shape, **program);
}

}  // namespace

Code launch_packed(Kernel& kernel, const LaunchShape& shape, const void* buffer, u64 bytes) {
  const Program* program = nullptr;
  if (const Code code = prepare(kernel, shape, &program); code != Code::kSuccess) return code;
  if (bytes < kernel.param_bytes()) {
    return refuse(Code::kInvalidValue, kernel,
                  "a parameter buffer of " + std::to_string(bytes) + " bytes, want " +
                      std::to_string(kernel.param_bytes()));
  }
  alignas(128) u8 params[4096 + 64];
  if (kernel.param_bytes() > 4096)
    return refuse(Code::kInvalidValue, kernel, "more than 4096 bytes of parameters");
  std::memcpy(params, buffer, kernel.param_bytes());
  return run(kernel, shape, *program, params, kernel.param_bytes());
}

Code check_launch(Kernel& kernel, const LaunchShape& shape) {
  const Program* program = nullptr;
  return prepare(kernel, shape, &program);
}

Code pack_arguments(Kernel& kernel, void** arguments, std::vector<u8>* buffer) {
  buffer->assign(kernel.param_bytes(), 0);
  for (size_t k = 0; k < kernel.params().size(); ++k) {
    const Param& p = kernel.params()[k];
    if (!arguments || !arguments[k])
      return refuse(Code::kInvalidValue, kernel, "argument " + std::to_string(k) + " is null");
    std::memcpy(buffer->data() + p.offset, arguments[k], p.bytes);
  }
  return Code::kSuccess;
}

std::vector<LaunchRecord> launch_records() {
  const std::lock_guard lock(records_mutex);
  return {records.begin(), records.end()};
}

void clear_launch_records() {
  const std::lock_guard lock(records_mutex);
  records.clear();
}

}  // namespace vgpu
