// The interpreter loop of one instruction set, and its entry in the list of variants.
#include "exec/lanes.h"

#include <xmmintrin.h>

namespace vgpu {

void register_cluster(OpTable&);
void register_bulk(OpTable&);
void register_tensor_map(OpTable&);

}  // namespace vgpu

namespace vgpu::VGPU_ISA {

void register_call(OpTable&);
void register_matrix_sparse(OpTable&);
void register_vote(OpTable&);
void register_narrow(OpTable&);

namespace {

// Continues with the topmost path that still has threads. False when none has.
bool pop_path(Warp& w) {
  while (w.depth) {
    const DivergenceEntry& e = w.stack[--w.depth];
    const u32 mask = e.mask & w.live;
    if (!mask) continue;
    w.pc = e.pc;
    w.reconverge = e.reconverge;
    w.mask = mask;
    return true;
  }
  return false;
}

bool push_path(Warp& w, s32 pc, s32 reconverge, u32 mask) {
  if (w.depth == w.stack_room) {
    w.fault.kind = FaultKind::kTrap;
    w.fault.detail = "more nested divergent branches than the virtual GPU keeps";
    return false;
  }
  w.stack[w.depth++] = {pc, reconverge, mask};
  return true;
}

// `taken` lanes jump, the other active ones go on; all meet again at the post-dominator.
bool branch(Warp& w, const Ins& i, u32 taken) {
  const u32 staying = w.mask & ~taken;
  if (!taken) {
    ++w.pc;
    return true;
  }
  if (!staying) {
    w.pc = i.target;
    return true;
  }
  // In a loop the path that waits at the same place is there already.
  if (i.reconverge != w.reconverge && i.reconverge >= 0) {
    if (!push_path(w, i.reconverge, w.reconverge, w.mask)) return false;
    w.reconverge = i.reconverge;
  }
  const s32 next = w.pc + 1;
  if (i.target == w.reconverge) {
    w.mask = staying;
    w.pc = next;
  } else if (next == w.reconverge) {
    w.mask = taken;
    w.pc = i.target;
  } else {
    if (!push_path(w, i.target, w.reconverge, taken)) return false;
    w.mask = staying;
    w.pc = next;
  }
  return true;
}

template <bool kCounting>
Status run(Warp& w) {
  const Ins* const code = w.launch->code;
  for (;;) {
    const Ins& i = code[w.pc];
    u32 mask = w.mask;
    if (__builtin_expect(i.special, 0)) {
      if (i.joins && w.pc == w.reconverge) {
        pop_path(w);
        continue;
      }
      if (i.guard != kNoSlot) {
        const u32 p = *reinterpret_cast<const u32*>(w.registers + i.guard);
        mask &= i.guard_negated ? ~p : p;
      }
      if (i.kind != Kind::kPlain) {
        if (kCounting) count(w, i, w.mask);
        ++w.instructions;
        if (i.kind == Kind::kExit) {
          w.live &= ~mask;
          if (w.mask & w.live) {
            w.mask &= w.live;
            ++w.pc;
          } else if (!pop_path(w)) {
            w.done = true;
            return Status::kNext;
          }
          continue;
        }
        const bool backward = i.target <= w.pc;
        if (!branch(w, i, mask)) return Status::kFault;
        if (backward && w.instructions > w.budget) return Status::kYield;
        continue;
      }
      if (!mask) {
        if (kCounting) count(w, i, mask);
        ++w.pc;
        ++w.instructions;
        continue;
      }
    }
    const Status status = kCounting ? run_counted(w, i, mask) : i.fn(w, i, mask);
    if (__builtin_expect(status != Status::kNext, 0)) {
      if (status != Status::kYield) return status;
      ++w.pc;
      ++w.instructions;
      return status;
    }
    w.pc += i.run;
    w.instructions += i.run;
  }
}

// Rounding and subnormal handling of one instruction: extra holds the MXCSR bits to set.
Status control_word(Warp& w, const Ins& i, u32 mask) {
  const u32 usual = _mm_getcsr();
  _mm_setcsr(usual | i.extra);
  const Status status = i.inner(w, i, mask);
  _mm_setcsr(usual);
  return status;
}

bool usable() {
#if defined(__AVX512F__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("f16c");
#elif defined(__AVX2__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("lzcnt");
#else
  return true;
#endif
}

void register_ops(OpTable& t) {
  register_integer(t);
  register_packed(t);
  register_float(t);
  register_convert(t);
  register_narrow(t);
  register_memory(t);
  register_atomic(t);
  register_warp(t);
  register_vote(t);
  register_call(t);
  register_matrix(t);
  register_matrix_integer(t);
  register_matrix_sparse(t);
  register_matrix_volta(t);
  vgpu::register_cluster(t);
  vgpu::register_bulk(t);
  vgpu::register_tensor_map(t);
  register_warpgroup(t);
  register_registers(t);
}

#define VGPU_TEXT(name) #name
#define VGPU_STRING(name) VGPU_TEXT(name)

}  // namespace

extern const Isa kIsa;
const Isa kIsa = {VGPU_STRING(VGPU_ISA), &usable,    &register_ops,
                  &run<false>,           &run<true>, &control_word};

}  // namespace vgpu::VGPU_ISA
