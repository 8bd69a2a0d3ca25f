// What the checks found: records for programs, and text for people, once each.
#pragma once

#include <string>
#include <vector>

#include "exec/types.h"

namespace vgpu {

struct Finding {
  std::string check;   // "initcheck", ...
  std::string kind;    // "uninitialised branch", "race", ...
  std::string kernel;  // mangled; empty where no kernel was involved
  u32 block[3] = {};
  u32 thread[3] = {};
  u32 ptx_line = 0;
  std::string ptx;          // that line
  std::string source_file;  // where the PTX says so (-lineinfo)
  u32 source_line = 0;
  std::string space;  // "global", "shared", ...; empty where it is not about memory
  u64 address = 0;
  u32 bytes = 0;
  u64 allocation = 0;  // number of the allocation that it lies in or beside; 0: none
  std::string message;
  std::string cause;  // one mistake that many instructions meet; empty: the instruction's own
  u64 count = 1;      // how often it was seen: once by each launch and instruction
};

// Keeps one finding for each check, kind, kernel and cause (or PTX line, where there is no cause),
// and prints it to stderr then.
void add_finding(Finding finding, bool print = true);
std::vector<Finding> findings();
void clear_findings();

}  // namespace vgpu
