#include "core/launch.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>

#include "core/launch_report.h"
#include "core/limits.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/print.h"
#include "core/timeline.h"
#include "exec/call_stack.h"
#include "exec/check.h"
#include "exec/scheduler.h"

namespace vgpu {
namespace {

constexpr size_t kRecordsKept = 100000;
constexpr u64 kWorkspaceBytes = 64;
// Source: CUDA C++ Programming Guide, "__global__ Function Argument Processing": from CUDA 12.1 and
// sm_70 on.
constexpr u32 kMostParameterBytes = 32764;

std::mutex records_mutex;
std::deque<LaunchRecord> records;

Code refuse(Code code, Kernel& kernel, const std::string& why) {
  return fail(code, "launch of kernel '" + kernel.short_name() + "': " + why);
}

// Shared memory that one block may have in all, and how to get more.
Code check_shared(Kernel& kernel, u64 static_bytes, u64 dynamic) {
  const DeviceModel& d = options().device;
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

// A compiler that is not told the block's size takes as many registers as are alive at once: an
// estimate, so nothing is refused where the PTX sets a limit that it has to keep.
Code check_registers(Kernel& kernel, const Program& p, u64 threads) {
  const DeviceModel& d = options().device;
  const u64 rounded = (threads + kWarpSize - 1) / kWarpSize * kWarpSize;
  const u64 wanted =
      std::min(p.live_registers, kernel.register_limit(static_cast<u32>(d.registers_per_sm)));
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
  // Texts for those who are refused: making them takes longer than a small launch.
  const auto block = [&] { return triple(s.block[0], s.block[1], s.block[2]); };
  const auto grid = [&] { return triple(s.grid[0], s.grid[1], s.grid[2]); };
  if (threads == 0 || !s.grid[0] || !s.grid[1] || !s.grid[2]) {
    return refuse(Code::kInvalidConfiguration, kernel,
                  "grid " + grid() + ", block " + block() + ": a dimension is zero");
  }
  if (threads > 1024 || s.block[0] > 1024 || s.block[1] > 1024 || s.block[2] > 64) {
    return refuse(Code::kInvalidConfiguration, kernel,
                  "block " + block() + " is larger than (1024,1024,64) or 1024 threads");
  }
  if (kernel.required_threads() && threads != kernel.required_threads()) {
    return refuse(Code::kInvalidValue, kernel,
                  "block " + block() + " has not the " + std::to_string(kernel.required_threads()) +
                      " threads that the kernel was compiled for (.reqntid)");
  }
  if (threads > kernel.max_threads()) {
    return refuse(Code::kInvalidValue, kernel,
                  "block " + block() + " has more threads than the kernel's __launch_bounds__ " +
                      std::to_string(kernel.max_threads()));
  }
  if (s.grid[0] > 0x7fffffffu || s.grid[1] > 65535 || s.grid[2] > 65535) {
    return refuse(Code::kInvalidConfiguration, kernel,
                  "grid " + grid() + " is larger than (2147483647,65535,65535)");
  }
  if (const Code code = check_cluster(kernel, s); code != Code::kSuccess) return code;
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
            static_cast<u64>(options().device.multiprocessors);
  if (code != Code::kSuccess || !s.cooperative) return code;
  const u64 wanted = static_cast<u64>(s.grid[0]) * s.grid[1] * s.grid[2];
  if (wanted <= *blocks) return code;
  return refuse(Code::kCooperativeTooLarge, kernel,
                "a cooperative grid of " + std::to_string(wanted) + " blocks; " +
                    options().device.name + " runs " + std::to_string(*blocks) + " at once");
}

// What a profiler would say of the launch.
void describe(Kernel& kernel, const Program& program, const LaunchShape& shape,
              const Counters& counters, LaunchRecord* out) {
  KernelResources r;
  resources(kernel, &r);
  const u32 threads = shape.block[0] * shape.block[1] * shape.block[2];
  int blocks = 0;
  occupancy(kernel, static_cast<int>(threads), shape.dynamic_shared, &blocks);
  out->counters = std::make_shared<const Counters>(counters);
  out->forms = program.form_names;
  out->registers = r.registers;
  out->static_shared = r.static_shared;
  out->resident_blocks = blocks;
  out->resident_warps = blocks * static_cast<int>((threads + kWarpSize - 1) / kWarpSize);
  out->occupancy = static_cast<double>(out->resident_warps) * kWarpSize /
                   static_cast<double>(options().device.threads_per_sm);
}

void warn_of_samples() {
  static std::once_flag once;
  std::call_once(once, [] {
    std::fprintf(stderr,
                 "vgpu: counters=sampled: of each grid only %u blocks run, to be counted; what "
                 "kernels compute is WRONG\n",
                 kSampledBlocks);
  });
}

// Where tensors start: the parameters that are addresses of device memory.
std::vector<u64> pointers_among(const u8* params, u32 bytes, const AllocationIndex& index) {
  std::vector<u64> found;
  for (u32 at = 0; at + sizeof(u64) <= bytes; at += sizeof(u64)) {
    u64 value;
    std::memcpy(&value, params + at, sizeof(value));
    if (find_allocation(index, value, 1)) found.push_back(value);
  }
  return found;
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
  const Options& o = options();
  Code unneeded = Code::kSuccess;  // the kernel has been lowered
  if (o.checks & kInitcheck) notice_host_writes();
  if (o.checks & kRacecheck) watch_accesses();
  const auto index = allocations();
  LaunchState state = {};
  state.resident = static_cast<u32>(std::min<u64>(resident, 0xffffffffu));
  state.workspace = reinterpret_cast<u64>(workspace);
  state.early_start = shape.early_start;
  state.program = &program;
  state.unchecked = kernel.unchecked(&unneeded);
  state.code = program.code.data();
  std::memcpy(state.grid, shape.grid, sizeof(state.grid));
  std::memcpy(state.block, shape.block, sizeof(state.block));
  cluster_of(kernel, shape, state.cluster);
  state.explicit_cluster = shape.cluster[0] != 0 || kernel.cluster().required;
  state.dynamic_shared = static_cast<u32>(shape.dynamic_shared);
  if (kernel.limits_registers()) {
    // Registers are handed out by eights. Source: CUDA C++ Programming Guide, compute capabilities.
    state.register_limit =
        (kernel.register_limit(static_cast<u32>(options().device.registers_per_sm)) + 7) / 8 * 8;
  }
  state.stack_bytes = stack_bytes();
  state.params = params;
  state.param_bytes = param_bytes;
  state.allocations = index.get();
  state.counting = o.counting;
  const bool modelled = o.model_times && (o.counting || times_are_wanted());
  state.samples = modelled || o.only_samples ? kSampledBlocks : 0;
  state.only_samples = o.only_samples;
  if (o.only_samples) warn_of_samples();
  state.late_copies = o.late_copies;
  static std::atomic<u32> grids{0};
  const u32 grid_id = ++grids;
  state.seed = o.seed;
  state.timeout_s = o.timeout_s;
  state.find_deadlock = o.checks & kDeadlock;
  if (program.prints) begin_printing();
  const Reporter reporter(kernel, program, shape, *index);
  CheckRun checks(
      o.checks, static_cast<u16>(1 + grid_id % 0xffff),
      [&](const Sighting& s) { reporter.report(s); },
      [&](const Origin& from) { return reporter.remember(from); });
  if (!program.watches.empty()) state.checks = &checks;
  state.local_bytes = local_bytes_of(state);
  // Races are followed, and a seed is obeyed, by one host thread.
  const int threads = o.seed || (o.checks & kRacecheck) ? 1 : o.threads;
  const auto begin = std::chrono::steady_clock::now();
  GridResult result =
      run_grid(state, *o.isa, threads, static_cast<u32>(o.device.multiprocessors), grid_id);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (program.prints) flush_prints(kernel.short_name());
  if (workspace) release(workspace, MemoryKind::kModule);
  ModelledTime time;
  if (modelled && !result.fault) {
    LaunchWork work;
    work.blocks = result.live_blocks;
    work.warps = (shape.block[0] * shape.block[1] * shape.block[2] + kWarpSize - 1) / kWarpSize;
    work.resident = static_cast<int>(resident / static_cast<u64>(o.device.multiprocessors));
    work.samples = std::move(result.samples);
    work.pointers = pointers_among(params, param_bytes, *index);
    time = model_time(o.device, work);
    pass_ns(launch_gap_ns() + time.ns, time.share);
  }
  {
    const std::lock_guard lock(records_mutex);
    LaunchRecord r = {};
    r.kernel = kernel.name();
    r.dynamic_shared = shape.dynamic_shared;
    r.warp_instructions = result.instructions;
    r.seconds = seconds.count();
    r.time = time;
    r.cpu_seconds = result.cpu_seconds;
    if (state.counting) describe(kernel, program, shape, result.counters, &r);
    std::memcpy(r.grid, shape.grid, sizeof(r.grid));
    std::memcpy(r.block, shape.block, sizeof(r.block));
    records.push_back(std::move(r));
    if (records.size() > kRecordsKept) records.pop_front();
  }
  // As on a GPU the launch itself went well; what follows it finds the error.
  if (result.fault) report_fault(kernel, program, shape, *result.fault, *index);
  return Code::kSuccess;
}

Code prepare(Kernel& kernel, const LaunchShape& shape, const Program** program) {
  if (const Code sticky = sticky_error(); sticky != Code::kSuccess) return sticky;
  Code code = Code::kSuccess;
  *program = kernel.program(&code);
  if (!*program) return code;
  return check_shape(kernel, shape, *kernel.unchecked(&code));
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
  alignas(128) u8 params[kMostParameterBytes + 64];
  if (kernel.param_bytes() > kMostParameterBytes) {
    return refuse(Code::kInvalidValue, kernel,
                  "more than " + std::to_string(kMostParameterBytes) + " bytes of parameters");
  }
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
