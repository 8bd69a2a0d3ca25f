#include "core/launch_report.h"

#include <cstring>
#include <sstream>

#include "core/findings.h"
#include "core/limits.h"

namespace vgpu {

std::string triple(u32 x, u32 y, u32 z) {
  return "(" + std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + ")";
}

namespace {

// A finding at an instruction; the check, what it is and the message are still to be filled in.
Finding finding_at(Kernel& kernel, u32 line, const u32* block, u32 thread, const LaunchShape& s) {
  Finding f;
  f.kernel = kernel.name();
  std::memcpy(f.block, block, sizeof(f.block));
  f.thread[0] = thread % s.block[0];
  f.thread[1] = thread / s.block[0] % s.block[1];
  f.thread[2] = thread / s.block[0] / s.block[1];
  f.ptx_line = line;
  f.ptx = kernel.module().source_line(line);
  f.source_line = kernel.module().source_location(line, &f.source_file);
  return f;
}

std::string where_of(const Kernel& kernel, const Finding& f) {
  std::string text = " in kernel '" + kernel.short_name() + "', block " +
                     triple(f.block[0], f.block[1], f.block[2]) + ", thread " +
                     triple(f.thread[0], f.thread[1], f.thread[2]);
  if (f.source_line) text += ", " + f.source_file + ":" + std::to_string(f.source_line);
  return text + ", PTX line " + std::to_string(f.ptx_line) + ": " + f.ptx;
}

// What is known of an address, put into the finding and returned as text.
std::string place_of(Finding& f, Place place, u64 address, u32 bytes,
                     const AllocationIndex& index) {
  f.space = name_of(place);
  f.address = address;
  f.bytes = bytes;
  if (f.space.empty()) return "";
  if (f.space == "global") {
    f.allocation = nearest_allocation(index, address);
    return "; " + describe_address(index, address, bytes);
  }
  return "; offset " + std::to_string(address) + " of " + f.space + " memory";
}

}  // namespace

void Reporter::report(const Sighting& s) const {
  Finding f = finding_at(kernel_, line_of(s.pc), s.block, s.thread, shape_);
  f.check = s.check == kInitcheck ? "initcheck" : s.check == kRacecheck ? "racecheck" : "synccheck";
  f.kind = s.kind;
  if (s.cause) f.cause = s.cause;
  f.message = f.kind + ": " + s.text + where_of(kernel_, f);
  if (s.origin >= 0) {
    const u32 line = line_of(s.origin);
    f.message += "; it was first read at PTX line " + std::to_string(line) + ": " +
                 kernel_.module().source_line(line);
  }
  f.message += place_of(f, s.place, s.address, s.bytes, index_);
  add_finding(std::move(f));
}

u8 Reporter::remember(const Origin& o) const {
  if (o.pc < 0) return 255;
  Finding f = finding_at(kernel_, line_of(o.pc), o.block, o.thread, shape_);
  f.check = "initcheck";
  f.kind = "uninitialised result";
  const bool is_register = o.place == Place::kNone;
  f.message = std::string("a result is computed from ") +
              (is_register ? "a register" : std::string(name_of(o.place)) + " memory") +
              " that nothing wrote, read" + where_of(kernel_, f);
  f.message += place_of(f, o.place, o.address, o.bytes, index_);
  return remember_undefined(f);
}

void report_fault(Kernel& kernel, const Program& p, const LaunchShape& s, const FaultReport& r,
                  const AllocationIndex& index) {
  const Fault& f = r.fault;
  const u32 thread = r.warp * kWarpSize + static_cast<u32>(f.lane);
  Finding found = finding_at(kernel, p.code[static_cast<size_t>(r.pc)].line, r.block, thread, s);
  const std::string where = where_of(kernel, found);
  std::ostringstream text;
  const std::string access = std::string(f.space) + (f.store ? " write" : " read") + " of " +
                             std::to_string(f.bytes) + " bytes";
  Code code = Code::kLaunchFailure;
  found.check = "memcheck";
  found.space = f.space;
  found.address = f.address;
  found.bytes = f.bytes;
  if (found.space == "global") found.allocation = nearest_allocation(index, f.address);
  switch (f.kind) {
    case FaultKind::kIllegalAddress:
      code = Code::kIllegalAddress;
      found.kind = "out of bounds";
      text << "out-of-bounds " << access << where << "; ";
      if (found.space == "global") {
        text << describe_address(index, f.address, f.bytes);
      } else {
        text << "offset " << f.address << " of "
             << (found.space == "shared" ? p.static_shared_bytes + s.dynamic_shared : p.local_bytes)
             << " bytes of " << found.space << " memory";
      }
      break;
    case FaultKind::kMisaligned:
      code = Code::kMisalignedAddress;
      found.kind = "misaligned";
      text << "misaligned " << access << " at address 0x" << std::hex << f.address << std::dec
           << where;
      break;
    case FaultKind::kAssert:
      code = Code::kAssert;
      found.kind = "assertion";
      text << "assertion failed: " << f.detail << " ("
           << (f.address ? reinterpret_cast<const char*>(f.address) : "?") << ":" << f.bytes << ")"
           << where;
      break;
    case FaultKind::kBarrier:
      found.check = "synccheck";
      found.kind = "divergence";
      text << f.detail << where;
      break;
    case FaultKind::kAsync:
      found.check = "memcheck";
      found.kind = "asynchronous operation";
      text << f.detail << where;
      break;
    case FaultKind::kDeadlock:
      found.check = "deadlock";
      found.kind = "deadlock";
      text << r.waits << "; seen" << where;
      break;
    case FaultKind::kStack:
      code = Code::kHardwareStack;
      found.kind = "stack overflow";
      found.space = "local";
      text << "stack overflow: " << f.bytes << " nested calls need " << f.address
           << " bytes of a thread's stack of " << stack_bytes()
           << " (cudaDeviceSetLimit(cudaLimitStackSize, ...))" << where;
      break;
    case FaultKind::kTrap:
    case FaultKind::kNone:
      found.kind = "trap";
      text << (*f.detail ? f.detail : "trap") << where;
      break;
  }
  found.message = text.str();
  add_finding(found, /*print=*/false);  // the error below is printed
  fail_sticky(code, text.str());
}

}  // namespace vgpu
