// What a launch did, counted instruction by instruction. Nothing here runs unless counters are on:
// then warps run through a second copy of the interpreter's loop, which calls count().
#pragma once

#include <string>

#include "exec/types.h"

namespace vgpu {

struct Warp;
struct Ins;
enum class Status : u32;

enum class Category : u8 {
  kNone,  // of no PTX instruction
  kInteger,
  kHalf,
  kFloat,
  kFloatPair,
  kDouble,
  kConvert,
  kCompare,
  kMove,
  kLoad,
  kStore,
  kAtomic,
  kAsyncCopy,
  kMatrixLoad,
  kMma,
  kWarp,
  kBarrier,
  kMbarrier,
  kControl,
  kOther,
  kCount
};
const char* name_of(Category category);

// Units of a multiprocessor whose time a model charges, besides tensor cores and shared memory.
// kSpecial computes transcendental functions, and converts what kInteger and kHalf do not.
enum class Unit : u8 { kNone, kInteger, kHalf, kFloat, kDouble, kSpecial, kCount };

enum class Touches : u8 { kNothing, kGlobal, kShared, kGeneric, kAsyncCopy, kMatrix };

// What there is to count about one instruction of a program.
struct CountInfo {
  Category category = Category::kNone;
  Unit unit = Unit::kNone;
  u8 results = 0;        // of that unit, in a lane
  bool is_step = false;  // a further operation of an instruction that is counted already
  Touches touches = Touches::kNothing;
  Category access = Category::kLoad;  // or kStore, kAtomic
  u8 address = 0;                     // operand
  u8 bytes = 0;                       // a lane
  u8 rows = 0;                        // of ldmatrix
  u32 mma_operations = 0;
  u32 mma_cost = 0;
  u32 wgmma_cost = 0;
  int form = -1;       // of wgmma: in Program::forms
  bool polls = false;  // follows a load that another block may be waited for with
  bool looks = false;  // at a phase of an mbarrier, which may not be over yet
  bool retried =
      false;           // it looks again, in a loop that does nothing else, until the phase is over
  bool waits = false;  // in a loop that does nothing but wait: how often it runs means nothing
  bool acts = false;   // a product, or what others than the block could see: exec/empty.h
};
// Sixteenths of the time of FP16 operations that those of other types take on tensor cores.
u32 sixteenths(const std::string& mma);
// From the name of an operation; its category is that of the PTX instruction.
CountInfo count_info(const std::string& operation);

struct Traffic {
  u64 requests = 0;  // instructions of warps
  u64 bytes = 0;     // of all active lanes
  u64 sectors = 0;   // 32-byte pieces, each once a request
};

inline constexpr int kCountedForms = 16;

struct Counters {
  u64 instructions[static_cast<int>(Category::kCount)] = {};  // of warps
  // Ticks of the host's time-stamp counter inside operations.
  u64 host_cycles[static_cast<int>(Category::kCount)] = {};
  u64 results[static_cast<int>(Unit::kCount)] = {};  // of units, in one lane of each warp
  u64 predicated_off = 0;                            // for all lanes
  u64 thread_instructions = 0;
  u64 mma_operations = 0;         // multiplications and additions
  u64 mma_cost = 0;               // those, in sixteenths of what FP16 operations take
  u64 wgmma_cost = 0;             // the same of wgmma, whose rate is another
  u64 wgmma[kCountedForms] = {};  // instructions of warps, by form; the last has all others
  Traffic loads, stores, atomics;
  u64 shared_requests = 0;
  u64 shared_bytes = 0;
  u64 shared_wavefronts = 0;
  u64 bank_conflicts = 0;  // wavefronts beyond those that the width of the access needs
  u64 bulk_requests = 0;   // of the tensor memory accelerator: copies, by threads
  u64 bulk_bytes = 0;
  u64 multicast_bytes = 0;  // that they delivered, where there was more than one receiver
  u64 mbarrier_waits = 0;   // that ended
  u64 remote_requests = 0;  // of another CTA's shared memory
  u64 remote_bytes = 0;
  void add(const Counters& other);
  // Every count becomes by / of times what it is.
  void scale(u64 by, u64 of);
};

// `mask` are the lanes that take part; the instruction has not run yet.
void count(Warp& w, const Ins& i, u32 mask);
// Counts it, runs it and takes the time.
Status run_counted(Warp& w, const Ins& i, u32 mask);

}  // namespace vgpu
