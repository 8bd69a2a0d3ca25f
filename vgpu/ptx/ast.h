// A PTX module as it is written: declarations and instructions, names resolved to indices.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "exec/types.h"

namespace vgpu::ptx {

struct SyntaxError : std::runtime_error {
  SyntaxError(u32 line, const std::string& what)
      : std::runtime_error("PTX line " + std::to_string(line) + ": " + what) {}
};

using Parts = std::vector<std::string>;  // of an opcode

struct Operand {
  enum class Kind {
    kRegister,  // index
    kInteger,   // bits
    kFloat32,   // bits: 0f...
    kFloat64,   // bits: 0d... or a decimal fraction
    kVector,    // elements
    kAddress,   // elements[0] + offset
    kSymbol,    // name: variable, function or label
    kVariable,  // index of a variable of the function; offset is added to its address
    kSpecial,   // name, without the %
    kSink,      // _
    kPair,      // elements: d|p
    kList,      // elements: ( ... ) of a call
  };
  Kind kind = Kind::kSink;
  int index = -1;
  u64 bits = 0;
  s64 offset = 0;
  bool negated = false;  // !p
  std::string name;
  std::vector<Operand> elements;
};

struct Register {
  std::string type;  // "pred", "b32", ...
};

enum class Space { kGlobal, kConst, kShared, kLocal, kParam };

struct Variable {
  std::string name;
  Space space = Space::kGlobal;
  u64 bytes = 0;  // of all elements; 0 for extern []
  u32 align = 1;
  bool is_extern = false;
  std::vector<u8> data;  // initial value, may be shorter than bytes
  struct Reference {     // an address inside the initial value
    u64 at;
    std::string symbol;
    s64 addend;
  };
  std::vector<Reference> references;
};

struct Instruction {
  std::vector<std::string> parts;  // the opcode, split at its dots
  std::vector<Operand> operands;
  int guard = -1;  // register index
  bool guard_negated = false;
  u32 line = 0;
  int scope = 0;
  std::string text() const;  // the opcode as written
};

struct Scope {
  int parent = -1;
  std::map<std::string, int> registers;
  std::map<std::string, int> variables;
  std::map<std::string, size_t> labels;  // index of the instruction that follows
  std::map<std::string, std::vector<std::string>> branch_targets;
};

struct Function {
  std::string name;
  bool is_entry = false;
  bool has_body = false;
  std::vector<int> params;  // variable or register indices, see param_is_register
  std::vector<int> results;
  std::vector<Register> registers;
  std::vector<Variable> variables;  // parameters first
  std::vector<Scope> scopes;        // [0] is the function's own
  std::vector<Instruction> body;
  u32 max_threads[3] = {0, 0, 0};  // .maxntid; 0 where not given
  u32 max_registers = 0;           // .maxnreg
  u32 min_blocks = 0;              // .minnctapersm
  u32 required_threads[3] = {0, 0, 0};
  u32 required_cluster[3] = {0, 0, 0};  // .reqnctapercluster; 0 where not given
  u32 max_cluster = 0;                  // .maxclusterrank
  bool explicit_cluster = false;        // .explicitcluster
};

// `.loc`: the source line of the instructions from a line of the PTX text on.
struct Location {
  u32 ptx_line = 0;
  int file = 0;
  u32 line = 0;
};

struct Module {
  std::string target;
  std::map<int, std::string> files;
  std::vector<Location> locations;  // in the order of the text; file 0 ends what came before
  std::vector<Variable> variables;
  std::vector<Function> functions;
  const Function* find(const std::string& name) const;
  // What a pointer to a device function holds: no address of memory. 0 when there is none of the
  // name.
  u64 function_address(const std::string& name) const;
};

// Bytes of a fundamental type without its dot: "b32" is 4. 0 when it is none.
u32 type_bytes(const std::string& type);

Module parse(const std::string& text);

}  // namespace vgpu::ptx
