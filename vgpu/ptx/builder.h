// What lowering works on: instructions over virtual slots, before slots get their offsets.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "exec/bulk.h"
#include "ptx/lower.h"

namespace vgpu::ptx {

inline u64 align_up(u64 value, u64 align) { return (value + align - 1) / align * align; }

using Width = Constant::Width;

// What is added to a constant: an address of shared memory is known when a CTA starts.
enum class Base : u8 { kNone, kShared, kDynamicShared };

struct Slot {
  enum class Kind : u8 { kVirtual, kConstant, kSpecial };
  Width width;
  Kind kind;
  u64 value;  // of a constant, or the Special
  Base base;  // of a constant
  u32 offset = kNoSlot;
  bool unset = false;  // may be read before anything wrote it
};

struct Draft {  // an Ins in the making
  const OpInfo* info = nullptr;
  std::vector<int> slots;  // -1 where an operand is absent
  int guard = -1;
  bool guard_negated = false;
  s64 imm = 0;
  u32 extra = 0;
  u32 control = 0;  // MXCSR bits
  Kind kind = Kind::kPlain;
  int label = -1;  // target of a branch or call
  int target = -1;
  int reconverge = -1;
  bool joins = false;
  bool ends = false;      // a return or a trap: what follows is not reached from here
  bool strong = false;    // volatile, relaxed, acquire or release
  bool release = false;   // of an atomic
  bool constant = false;  // a load from constant memory
  u32 line = 0;
  CountInfo count;
};

// An operation whose number of operands is not the table's to know.
struct OpVariant {
  OpInfo info;
  std::string results, sources;
};

// Fills in the targets of branches.
void resolve_targets(std::vector<Draft>& code, const std::vector<int>& label_position);
// The same, and reconvergence points and `joins`.
void analyse_flow(std::vector<Draft>& code, const std::vector<int>& label_position);

// Gives every slot its offset, sharing one between values that are never alive together.
void allocate_slots(const std::vector<Draft>& code, std::vector<Slot>& slots, Program& program);

// With checks: tests of a branch's condition, before every guarded branch; and then, when all have
// their offsets, the wrappers.
void watch_branches(std::vector<Draft>& code, std::vector<int>& label_position,
                    const OpInfo& guard);
// Calls check_before for every instruction, and puts what it returns before that.
void insert_checks(std::vector<Draft>& code, std::vector<int>& label_position,
                   const std::function<std::optional<Draft>(size_t)>& check_before);
void attach_watches(const std::vector<Draft>& code, const std::vector<Slot>& slots, u32 checks,
                    Program& program);

// Sets Ins::run.
void fuse_runs(const std::vector<Draft>& code, Program& program);

// Local memory of the kernel, or of a function that is called and not inlined: then its addresses
// count from where the call's frame begins.
struct LocalSpace {
  u32 bytes = 0;
  bool relative = false;
};

// The body of one function, inlined at one place or called.
struct Frame {
  const Function* function = nullptr;
  LocalSpace* space = nullptr;
  std::vector<int> registers;  // slot of each, -1 until it is used
  std::vector<s64> storage;    // place of each variable in its space, -1 until it is used
  std::map<std::pair<int, std::string>, int> labels;  // (scope, name)
  int end_label = -1;                                 // where `ret` goes; -1 in the kernel itself
  int carry = -1;                                     // the carry flag
};

class Unsupported : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Builder {
 public:
  Builder(const Module& module, const Function& kernel, const Isa& isa,
          const SymbolAddress& symbols, u32 checks);
  std::unique_ptr<Program> run();

 private:
  struct Address {
    int slot = -1;
    s64 offset = 0;
    bool entry_parameter = false;
    bool local_storage = false;  // a .param variable of a call, kept in local memory
  };

  // A matrix in memory whose elements lie side by side in one direction, and a stride apart in the
  // other.
  struct Strided {
    Address base;
    std::string space;
    int bits;         // of an element
    int count;        // elements in a register
    bool together;    // those lie side by side
    s64 stride;       // elements
    int stride_slot;  // where it is known at run time only; else -1
    int mine;         // bytes to the lane's first element
  };

  // Places of the caller's .param variables, in its local memory.
  struct CallSite {
    struct Block {
      s64 place;
      u64 bytes;
    };
    std::vector<Block> arguments;
    std::vector<Block> results;
  };
  struct Outlined {
    int label = -1;
    LocalSpace space;
    std::vector<s64> storage;  // of the parameters and results
  };

  // lower.cpp: structure
  void inline_function(Frame& frame);
  void refuse(const Instruction& ins, const std::string& why);
  int guard_slot(int index);

  // lower_calls.cpp
  void call(const Instruction& ins);
  void call_function(const std::string& name, const CallSite& site);
  void call_through_pointer(const Operand& pointer, const CallSite& site);
  void call_outlined(const Function& callee, const CallSite& site);
  bool call_builtin(const std::string& name, const CallSite& site);
  void lower_outlined();
  Outlined& outline(const Function& callee);
  void copy_local(s64 from, s64 to, u64 bytes, bool into_callee);
  bool matches(const Function& callee, const CallSite& site) const;
  bool calls_itself(const Function& function);
  std::vector<const Function*> callees_of(const Function& function);
  const std::vector<const Function*>& address_taken();
  const Function* find_body(const std::string& name) const;
  int frame_slot();
  int call_slot(int& slot, Width width);
  int new_label();
  int jump_around();

  // lower_operands.cpp
  int new_slot(Width width);
  int constant(Width width, u64 value, Base base = Base::kNone);
  int special(Special which);
  int special_register(const std::string& name, bool wide);
  int register_slot(int index);
  int label_of(const Instruction& ins, const std::string& name);
  void place_label(int label);
  s64 storage_of(int variable);
  int symbol_slot(const Operand& operand, Width width);
  int source(const Operand& operand, char code, const std::string& type);
  // A slot for the result; `finish_results` moves it on where the register is wider or narrower.
  int result(const Operand& operand, char code, bool sign);
  void finish_results();
  Address address(const Operand& operand, char code);
  Draft& emit(const std::string& name, std::vector<int> slots);
  const OpInfo& op(const std::string& name);
  void begin(const Instruction& ins) {
    current_ = &ins;
    counted_ = false;
  }
  [[noreturn]] void unknown() const;
  void needs(int capability) const;  // of the PTX's target

  // lower_cluster.cpp and lower_bulk.cpp
  bool lower_cluster(const Instruction& ins);
  void lower_mbarrier(const Instruction& ins);
  void lower_proxy_fence(const Instruction& ins);
  static MadeVisible made_visible(const Parts& parts);
  void lower_async_store(const Instruction& ins);
  void lower_bulk(const Instruction& ins);
  void lower_bulk_tensor(const Instruction& ins);
  void lower_tensor_map(const Instruction& ins);
  void tensor_operand(const Operand& operand, u32 rank, int* map, std::vector<int>* to);
  int cluster_address(const Operand& operand, const Parts& parts);
  int moved(const Address& a);
  int whole_address(const Operand& operand, char code);
  Address cluster_generic(const Operand& operand);
  Reduce reduction_of(const Parts& parts) const;
  u32 reduction_code(const Parts& parts) const;

  // lower_ops.cpp, lower_memory.cpp, lower_matrix.cpp, lower_wmma.cpp, lower_values.cpp: one method
  // per kind of instruction
  void lower_instruction(const Instruction& ins);
  bool lower_control(const Instruction& ins);
  bool lower_memory(const Instruction& ins);
  bool lower_warp(const Instruction& ins);
  void lower_move(const Instruction& ins);
  void lower_load_store(const Instruction& ins, bool store);
  void lower_atomic(const Instruction& ins);
  void lower_async_copy(const Instruction& ins);
  bool lower_matrix(const Instruction& ins);
  void lower_matrix_load(const Instruction& ins);
  void lower_matrix_store(const Instruction& ins);
  void lower_mma(const Instruction& ins);
  void multiply_eight_bits(const Instruction& ins, const std::vector<std::string>& types);
  void lower_scaled_mma(const Instruction& ins);
  void lower_sparse_mma(const Instruction& ins);
  int narrow_pair(int from, const std::string& type, int pair, bool nibbles);
  std::vector<int> block_scales(const std::string& type, int scales, int lane, int byte,
                                int blocks);
  std::vector<int> multiply_halves(const std::array<int, 4>& a, const std::array<int, 2>& b,
                                   const std::vector<int>& sums);
  void lower_wmma_memory(const Instruction& ins, bool store);
  void lower_wmma_product(const Instruction& ins);
  void lower_warpgroup(const Instruction& ins);
  void lower_wgmma(const Instruction& ins);
  void lower_register_limit(const Instruction& ins);
  const OpInfo* variant(const std::string& name, std::string results, std::string sources);
  void watch_registers();
  int byte_offset(const Strided& memory, int strided, int straight);
  Address strided_address(const Strided& memory, int strided, int straight);
  int load_strided(const Strided& memory, int strided, int straight);
  void store_strided(const Strided& memory, int strided, int straight, int value);
  std::vector<int> widened(const std::vector<int>& pairs);
  std::vector<int> narrowed(const std::vector<int>& sums);
  int word(const std::string& operation, std::vector<int> sources);
  int lane_quotient(u32 by);
  int lane_remainder(u32 by);
  void lower_cvta(const Instruction& ins);
  void lower_is_constant(const Instruction& ins);
  void lower_setp(const Instruction& ins);
  void lower_set(const Instruction& ins);
  int compare(const std::string& cmp, const std::string& type, const Operand& a, const Operand& b,
              u32 control);
  void lower_cvt(const Instruction& ins);
  void lower_pack(const Instruction& ins);
  void lower_carry(const Instruction& ins);
  void lower_barrier(const Instruction& ins);
  void lower_generic(const Instruction& ins);
  void lower_float_pair(const Instruction& ins);
  void lower_lop3_with_predicate(const Instruction& ins);
  int flushed(int slot, const std::string& type);
  void lower_by_signature(const std::string& name, const std::vector<Operand>& operands,
                          const std::string& type, u32 control);

  const Module& module_;
  const Function& kernel_;
  const Isa& isa_;
  const OpTable& table_;
  const SymbolAddress& symbols_;
  const u32 checks_;
  std::unique_ptr<Program> program_;
  std::vector<Draft> code_;
  std::deque<OpVariant> variants_;  // what drafts point to
  std::vector<Slot> slots_;
  std::map<std::tuple<Width, u64, Base>, int> constants_;
  std::map<Special, int> specials_;
  std::vector<int> label_position_;
  std::map<std::string, u32> shared_offsets_;  // module-scope shared variables
  u32 shared_bytes_ = 0;
  u32 dynamic_align_ = 16;
  LocalSpace kernel_space_;
  std::map<const Function*, Outlined> outlined_;
  std::vector<const Function*> to_outline_;
  std::map<const Function*, bool> calls_itself_;
  std::vector<const Function*> address_taken_;
  bool address_taken_known_ = false;
  int frame_start_ = -1;  // slots of calls, from the first call on
  int call_level_ = -1;
  // The sizes of frames are known at the end only.
  struct Patch {
    size_t draft;
    const LocalSpace* caller;
    const LocalSpace* callee;  // null: the operation does not ask for it
  };
  std::vector<Patch> patches_;
  Frame* frame_ = nullptr;
  std::vector<const Function*> call_stack_;
  const Instruction* current_ = nullptr;
  bool counted_ = false;  // the first operation of an instruction stands for it in the counters
  int guard_ = -1;
  bool guard_negated_ = false;
  struct PendingResult {
    int from, to;
    const char* op;
  };
  std::vector<PendingResult> pending_;
};

}  // namespace vgpu::ptx
