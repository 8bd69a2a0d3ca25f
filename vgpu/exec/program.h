// A lowered kernel: a flat array of instructions over slots of a warp's register file.
//
// Nothing here depends on the instruction set of the host: only the function pointers do.
#pragma once

#include <string>
#include <vector>

#include "exec/counters.h"
#include "exec/types.h"
#include "exec/warpgroup.h"

namespace vgpu {

struct Warp;
struct Ins;
struct Watch;

enum class Status : u32 {
  kNext,   // go on with the next instruction
  kBlock,  // not done: run the same instruction again when the scheduler comes back
  kYield,  // done, but let other warps run first
  kFault,  // the launch failed; Warp::fault says why
};

using OpFn = Status (*)(Warp&, const Ins&, u32 mask);

enum class Kind : u8 { kPlain, kBranch, kExit };

inline constexpr u32 kNoSlot = 0xffffffffu;

struct Ins {
  OpFn fn;         // what runs: the operation, or a wrapper that sets the rounding mode
  OpFn inner;      // the operation under the wrapper
  const u32* ops;  // byte offsets into the warp's register file; kNoSlot where an operand is absent
  s64 imm;         // address offset, or whatever the operation wants
  u32 guard;       // offset of the guard predicate, or kNoSlot
  s32 target;      // branch target
  s32 reconverge;  // immediate post-dominator of a branch, or -1
  u32 line;        // line of the PTX text
  u32 extra;       // second immediate: a mode, a count, MXCSR bits
  Kind kind;
  bool guard_negated : 1;
  bool joins : 1;      // some branch reconverges here
  bool special : 1;    // kind, guard or joins need the slow path of the loop
  u16 run;             // instructions that fn executes: itself and those behind it (fuse_runs)
  const Watch* watch;  // what the checks need to know; null where nothing is watched
};
static_assert(sizeof(Ins) == 64, "an instruction fills one cache line");

// A value that fills a slot before the kernel starts.
struct Constant {
  enum class Width : u8 { kPredicate, kWord, kDouble };
  u32 offset;
  Width width;
  u64 value;
  bool shared = false;  // an address: that of the CTA's shared memory is added
};

// Slots at the start of every register file, in this order, one word per lane.
enum class Special : u32 {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneId,
  kWarpId,
  kNwarpId,
  kSmId,
  kNsmId,
  kGridId,
  kLaneMaskEq,
  kLaneMaskLt,
  kLaneMaskLe,
  kLaneMaskGt,
  kLaneMaskGe,
  kDynamicSmem,
  kTotalSmem,
  kZero,
  kClusterCtaidX,
  kClusterCtaidY,
  kClusterCtaidZ,
  kClusterNctaidX,
  kClusterNctaidY,
  kClusterNctaidZ,
  kClusterIdX,
  kClusterIdY,
  kClusterIdZ,
  kNclusterIdX,
  kNclusterIdY,
  kNclusterIdZ,
  kClusterRank,
  kClusterSize,
  kWorkspaceHigh,  // address of the grid barrier's words
  kWorkspaceLow,
  kParamBase,  // 64 bits a lane: two words
  kExplicitCluster = kParamBase + 2,
  kCount,
};
inline constexpr u32 special_offset(Special s) { return static_cast<u32>(s) * 128; }
inline constexpr u32 kSpecialBytes = static_cast<u32>(Special::kCount) * 128;

// Which rows and columns the lanes of a matrix instruction hold (exec/fragments.h): 8 or 16 rows,
// or Volta's four products, with matrices by rows or by columns.
struct Fragments {
  u8 rows;  // 8 or 16
  bool volta;
  bool a_by_rows;
  bool b_by_rows;
};

enum class Place : u8 { kNone, kGlobal, kShared, kLocal, kGeneric, kParam };

// Of which mbarriers a fence shows the initialisation to other CTAs and to the async proxy: none,
// its thread's own, or all that it has seen.
enum class MadeVisible : u32 { kNone, kOwn, kSeen };

// One instruction as the checks see it. Operands are those of Ins::ops.
struct Watch {
  OpFn op;             // the operation, or the wrapper that sets its rounding mode
  const u32* slots;    // number of the slot behind each operand; 0: always defined, or absent
  const u32* shadows;  // Ins::ops with data operands moved to the shadow registers, or null
  u32 guard;           // slot number
  u8 results;
  u16 operands;  // results among them
  u8 address;    // operand with the address
  u8 bytes;      // of one element in memory
  u8 count;      // elements a lane
  Place place;
  bool wide;      // results, other than predicates, are 64 bits wide
  u8 predicates;  // bit r: result r is a predicate
  char decisive;  // '&', '|'; 'x' for an exchange
  u8 members;     // operand that names the lanes which take part; 0: none
  bool store;     // of loads and stores
  bool strong;    // volatile, relaxed, acquire or release: ordered by the memory model
  bool release;   // makes earlier writes visible
  bool atomic;
  bool constant;        // of loads: from constant memory, which no kernel writes
  bool halves;          // two 16-bit values a lane, independent of each other
  bool packs;           // makes two 16-bit values: the high one of its first source
  bool transpose;       // ldmatrix.trans
  Fragments fragments;  // of mma
};

struct Param {
  std::string name;
  u32 offset = 0;
  u32 bytes = 0;
};

struct WgmmaName {
  std::string name;    // "m64n128k16.f32.f16.f16"
  u32 operations = 0;  // multiplications and additions of one warp
};

struct Program {
  std::string name;  // mangled
  std::vector<Ins> code;
  std::vector<CountInfo> counted;  // one for each of code
  std::vector<u32> operands;       // Ins::ops points in here
  std::vector<Constant> constants;
  std::vector<WgmmaForm> forms;
  std::vector<WgmmaName> form_names;  // for people
  u32 register_bytes = 0;             // of one warp, specials and constants included
  u64 specials = 0;                   // a bit for each Special that the program reads
  u32 constant_end = 0;               // specials and constants lie below this offset
  u32 static_shared_bytes = 0;
  u32 local_bytes = 0;     // per thread, without what calls need
  u32 live_registers = 0;  // 32-bit registers that a thread needs at once: for occupancy
  // For the checks, where any watches this program.
  std::vector<Watch> watches;
  std::vector<u32> watch_operands;  // Watch::slots and Watch::shadows point in here
  u32 watched_slots = 0;
  struct Unset {  // a register that may be read before anything wrote it
    u32 slot;
    u32 offset;
    u32 bytes;  // 0: a predicate
  };
  std::vector<Unset> unset;
  bool calls = false;                    // has functions that are not inlined
  bool prints = false;                   // has calls of vprintf
  std::vector<std::string> unsupported;  // messages; a launch is refused when there is one
};

}  // namespace vgpu
