// The operations of one instruction set, by name.
//
// A name is a normalised PTX opcode ("add.u32", "setp.lt.f32") or an internal one
// ("ld.shared.32x4"). Lowering finds the operation, its operand widths and its number of results
// here, so an opcode that is not in the table is an unknown instruction and nothing else has to
// know it.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "exec/program.h"

namespace vgpu {

// One letter per operand: p predicate, w 32-bit slot (also 8 and 16 bits), d 64-bit slot.
struct OpInfo {
  OpFn fn = nullptr;
  const char* results = "";
  const char* sources = "";
  bool lanewise = false;  // lane l of the result depends on lane l only, written after it is read
  bool sign = false;      // the result is signed: what a wider destination register receives
  bool runs = false;      // executes Ins::run instructions of its kind, one behind the other
  const char* name = "";  // in the table
};

class OpTable {
 public:
  void put(const char* name, const OpInfo& info);
  const OpInfo* find(const std::string& name) const;

 private:
  std::map<std::string, OpInfo, std::less<>> ops_;
};

using RunFn = Status (*)(Warp&);

// One compiled variant of the executor.
struct Isa {
  const char* name;
  bool (*usable)();
  void (*register_ops)(OpTable&);
  RunFn run;  // until the warp blocks, yields, faults or is done
  RunFn run_counting;
  OpFn control_word;  // wrapper: sets MXCSR from Ins::extra around Ins::inner
};

// A variant that is compiled in and that this CPU can execute; "auto" is the best one. Else null.
const Isa* find_isa(const std::string& name);
const Isa& best_isa();                    // where there is none, the process ends
const OpTable& op_table(const Isa& isa);  // built on first use

}  // namespace vgpu
