// Loaded PTX: modules, their variables, and kernels that are lowered on their first launch.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/error.h"
#include "exec/op_table.h"
#include "exec/program.h"
#include "ptx/ast.h"

namespace vgpu {

class Module;

class Kernel {
 public:
  Kernel(Module& module, const ptx::Function& function);

  const std::string& name() const { return function_.name; }
  std::string short_name() const;  // demangled, template arguments left out where long
  Module& module() const { return module_; }
  const std::vector<Param>& params() const { return params_; }
  u32 param_bytes() const { return param_bytes_; }
  // The lowered code for the instruction set and the checks in use, or null: then last_message()
  // says why.
  const Program* program(Code* why);
  // The same without checks: limits and times are those of this code, whatever is checked.
  const Program* unchecked(Code* why);
  u32 max_threads() const;  // .maxntid, or 1024
  bool bounded() const;
  bool limits_registers() const;  // what setmaxnreg wants          // the compiler knew how many
                                  // threads there are at most
  u32 required_threads() const;   // .reqntid, or 0
  u32 register_limit(u32 registers_per_sm) const;  // of a thread, by the limits that the PTX sets
  struct ClusterLimits {
    bool required;  // the kernel names a size, or asks that the launch does (.explicitcluster)
    u32 shape[3];   // .reqnctapercluster; zeros where the launch decides
    u32 most;       // .maxclusterrank, or 0
  };
  ClusterLimits cluster() const;

  u32 max_dynamic_shared = 0;  // set when the program opts in; 0: the default of 48 KB in all
  int shared_carveout = -1;
  bool non_portable_cluster = false;  // clusters of more than 8 blocks are allowed
  u32 wanted_cluster[3] = {0, 0, 0};  // set as attributes of the function

 private:
  Module& module_;
  const ptx::Function& function_;
  std::vector<Param> params_;
  u32 param_bytes_ = 0;
  struct Lowered {
    std::unique_ptr<Program> program;
    const Isa* isa = nullptr;
    u32 checks = 0;
    Code failed = Code::kSuccess;
    std::string failure;
  };
  const Program* lower(Lowered& kept, u32 checks, Code* why);

  std::mutex mutex_;
  Lowered unchecked_;
  Lowered checked_;
};

class Module {
 public:
  // PTX text, a fatbin (or the wrapper that nvcc puts around one), or a cubin, which is refused.
  static Code load(const void* image, std::unique_ptr<Module>* out);
  ~Module();

  Kernel* kernel(const std::string& name);
  // Address and size of a .global or .const variable.
  bool variable(const std::string& name, void** address, u64* bytes) const;
  // The line as it stands in the PTX text.
  std::string source_line(u32 line) const;
  // The CUDA source behind a PTX line, where the PTX says so (-lineinfo): file and line, or 0.
  u32 source_location(u32 ptx_line, std::string* file) const;
  std::string where() const { return "sm_" + std::to_string(capability_) + " PTX"; }
  int capability() const { return capability_; }
  const ptx::Module& ast() const { return ast_; }

 private:
  static Code read(const void* image, std::unique_ptr<Module>* out);
  Code parse(std::string text, int capability);
  Code place_variables();

  std::string text_;
  int capability_ = 0;
  ptx::Module ast_;
  std::map<std::string, std::unique_ptr<Kernel>> kernels_;
  struct Place {
    void* address;
    u64 bytes;
  };
  std::map<std::string, Place> variables_;
};

// The PTX in a fatbin that suits the device best. An error says what is wrong and what to do.
Code ptx_from_fatbin(const std::string& image, int capability, std::string* text, int* found);
// How long the fatbin is that starts so; 0 where it is none.
u64 fatbin_bytes(const std::string& start);

}  // namespace vgpu
