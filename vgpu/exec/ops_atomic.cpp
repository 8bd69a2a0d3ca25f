// atom and red. CTAs run on several host threads, so these are host atomics in every space.
#include "exec/access.h"
#include "exec/math.h"

#include <type_traits>

namespace vgpu::VGPU_ISA {
namespace {

// Both kinds of lane hold the operand in their low bits.
template <class T>
using LaneOf = std::conditional_t<sizeof(T) == 8, u64, u32>;

// Operands: old value (or none), address, operand, second operand of cas (or none).
template <class T, class F, Where kWhere>
Status atomic(Warp& w, const Ins& i, u32 mask) {
  auto* old = has(i, 0) ? slot<LaneOf<T>>(w, i, 0) : nullptr;
  const auto* a = slot<LaneOf<T>>(w, i, 2);
  const auto* b = has(i, 3) ? slot<LaneOf<T>>(w, i, 3) : a;
  for (u32 left = mask; left; left &= left - 1) {
    const int l = __builtin_ctz(left);
    const u64 address = kWhere == Where::kShared
                            ? words(w, i, 1)[l] + static_cast<u32>(i.imm) - w.shared_base
                            : doubles(w, i, 1)[l] + static_cast<u64>(i.imm);
    u8* at = resolve(w, kWhere, address, sizeof(T), true, l);
    if (!at) return Status::kFault;
    T* cell = reinterpret_cast<T*>(at);
    T seen = __atomic_load_n(cell, __ATOMIC_RELAXED);
    T wanted;
    do {
      if constexpr (std::is_invocable_v<F, T, T, T, bool>) {  // it asks whether memory is global
        const bool shared = kWhere == Where::kShared ||
                            (kWhere == Where::kGeneric && (address & kWindowMask) == kSharedWindow);
        wanted = F{}(seen, static_cast<T>(a[l]), static_cast<T>(b[l]), !shared);
      } else {
        wanted = F{}(seen, static_cast<T>(a[l]), static_cast<T>(b[l]));
      }
    } while (!__atomic_compare_exchange_n(cell, &seen, wanted, false, __ATOMIC_SEQ_CST,
                                          __ATOMIC_RELAXED));
    if (old) old[l] = seen;
  }
  return Status::kNext;
}

template <class T, class F>
void add_atomic(OpTable& t, const char* op, const char* type, F) {
  constexpr bool kWide = sizeof(T) == 8;
  add_function(t, Name("atom.global", op, type).text, &atomic<T, F, Where::kGlobal>,
               kWide ? "d" : "w", kWide ? "ddd" : "dww");
  add_function(t, Name("atom.shared", op, type).text, &atomic<T, F, Where::kShared>,
               kWide ? "d" : "w", kWide ? "wdd" : "www");
  add_function(t, Name("atom.generic", op, type).text, &atomic<T, F, Where::kGeneric>,
               kWide ? "d" : "w", kWide ? "ddd" : "dww");
}

template <class T>
void bitwise(OpTable& t, const char* type) {
  add_atomic<T>(t, "and", type, [](T x, T a, T) { return T(x & a); });
  add_atomic<T>(t, "or", type, [](T x, T a, T) { return T(x | a); });
  add_atomic<T>(t, "xor", type, [](T x, T a, T) { return T(x ^ a); });
  add_atomic<T>(t, "exch", type, [](T, T a, T) { return a; });
  add_atomic<T>(t, "cas", type, [](T x, T a, T b) { return x == a ? b : x; });
  add_atomic<T>(t, "add", type, [](T x, T a, T) { return T(x + a); });
  add_atomic<T>(t, "min", type, [](T x, T a, T) { return x < a ? x : a; });
  add_atomic<T>(t, "max", type, [](T x, T a, T) { return x > a ? x : a; });
}

template <class S, class T>
void signed_extremes(OpTable& t, const char* type) {
  add_atomic<T>(t, "min", type, [](T x, T a, T) { return S(x) < S(a) ? x : a; });
  add_atomic<T>(t, "max", type, [](T x, T a, T) { return S(x) > S(a) ? x : a; });
}

template <class N>
u32 add_pair(u32 x, u32 a) {
  return N::store(N::load(x & 0xffff) + N::load(a & 0xffff)) |
         N::store(N::load(x >> 16) + N::load(a >> 16)) << 16;
}

u32 flush(u32 x) { return x & 0x7f800000u ? x : x & 0x80000000u; }

template <class N, class F>
u32 each_half(u32 x, u32 a, F f) {
  return N::store(f(N::load(x & 0xffff), N::load(a & 0xffff))) |
         N::store(f(N::load(x >> 16), N::load(a >> 16))) << 16;
}
template <class N>
void extremes(OpTable& t, const char* type, const char* pair) {
  add_atomic<u16>(t, "min", type, [](u16 x, u16 a, u16) {
    return static_cast<u16>(N::store(minimum(N::load(x), N::load(a))));
  });
  add_atomic<u16>(t, "max", type, [](u16 x, u16 a, u16) {
    return static_cast<u16>(N::store(maximum(N::load(x), N::load(a))));
  });
  add_atomic<u32>(t, "min", pair, [](u32 x, u32 a, u32) {
    return each_half<N>(x, a, [](float p, float q) { return minimum(p, q); });
  });
  add_atomic<u32>(t, "max", pair, [](u32 x, u32 a, u32) {
    return each_half<N>(x, a, [](float p, float q) { return maximum(p, q); });
  });
}

}  // namespace

void register_atomic(OpTable& t) {
  bitwise<u32>(t, "u32");
  bitwise<u64>(t, "u64");
  signed_extremes<s32, u32>(t, "s32");
  signed_extremes<s64, u64>(t, "s64");
  add_atomic<u16>(t, "cas", "u16", [](u16 x, u16 a, u16 b) { return x == a ? b : x; });
  add_atomic<u16>(t, "exch", "u16", [](u16, u16 a, u16) { return a; });
  add_atomic<u32>(t, "inc", "u32", [](u32 x, u32 a, u32) { return x >= a ? 0u : x + 1; });
  add_atomic<u32>(t, "dec", "u32", [](u32 x, u32 a, u32) { return x == 0 || x > a ? a : x - 1; });
  // PTX ISA, atom: in global memory subnormal numbers become zero, in shared memory they do not.
  add_atomic<u32>(t, "add", "f32", [](u32 x, u32 a, u32, bool global) {
    if (!global) return F32::store(F32::load(x) + F32::load(a));
    return flush(F32::store(F32::load(flush(x)) + F32::load(flush(a))));
  });
  add_atomic<u64>(t, "add", "f64",
                  [](u64 x, u64 a, u64) { return F64::store(F64::load(x) + F64::load(a)); });
  add_atomic<u16>(t, "add", "f16", [](u16 x, u16 a, u16) {
    return static_cast<u16>(F16::store(F16::load(x) + F16::load(a)));
  });
  add_atomic<u16>(t, "add", "bf16", [](u16 x, u16 a, u16) {
    return static_cast<u16>(BF16::store(BF16::load(x) + BF16::load(a)));
  });
  add_atomic<u32>(t, "add", "f16x2", [](u32 x, u32 a, u32) { return add_pair<F16>(x, a); });
  extremes<F16>(t, "f16", "f16x2");
  extremes<BF16>(t, "bf16", "bf16x2");
  add_atomic<u32>(t, "add", "bf16x2", [](u32 x, u32 a, u32) { return add_pair<BF16>(x, a); });
}

}  // namespace vgpu::VGPU_ISA
