// Loads, stores, matrix loads and asynchronous copies.
#include "exec/access.h"
#include "exec/core_matrix.h"

namespace vgpu::VGPU_ISA {
namespace {

// Slots hold 8 and 16-bit values in 32-bit lanes; a signed one is sign-extended.
template <class T>
using LaneOf = std::conditional_t<sizeof(T) == 8, u64, u32>;

template <class T>
VGPU_INLINE LaneOf<T> extend(T value) {
  if constexpr (static_cast<T>(-1) < static_cast<T>(0)) {
    return static_cast<LaneOf<T>>(static_cast<s64>(value));
  } else {
    return value;
  }
}

template <class T, int N>
VGPU_INLINE void load_lane(Warp& w, const Ins& i, const u8* from, int lane) {
  T value[N];
  __builtin_memcpy(value, from, sizeof(value));
  for (int n = 0; n < N; ++n) {
    if (N == 1 || has(i, n)) slot<LaneOf<T>>(w, i, n)[lane] = extend(value[n]);
  }
}
template <class T, int N>
VGPU_INLINE void store_lane(Warp& w, const Ins& i, u8* to, int lane) {
  T value[N];
  for (int n = 0; n < N; ++n) value[n] = static_cast<T>(slot<LaneOf<T>>(w, i, n + 1)[lane]);
  __builtin_memcpy(to, value, sizeof(value));
}

// The same place for every lane.
template <class T, int N>
VGPU_INLINE void load_once(Warp& w, const Ins& i, const u8* from, u32 mask) {
  T value[N];
  __builtin_memcpy(value, from, sizeof(value));
  for (int n = 0; n < N; ++n) {
    if (!has(i, n)) continue;
    auto* to = slot<LaneOf<T>>(w, i, n);
    const LaneOf<T> v = extend(value[n]);
    for (int l = 0; l < kWarpSize; ++l) to[l] = (mask >> l & 1u) ? v : to[l];
  }
}

// Neighbouring lanes have neighbouring addresses.
template <class A>
VGPU_INLINE bool in_order(const A* address, u32 bytes) {
  A differs = 0;
  for (u32 l = 0; l < kWarpSize; ++l) differs |= address[l] ^ (address[0] + l * bytes);
  return differs == 0;
}

// All lanes at once, of which the first is `at`.
template <class T, bool kStore>
VGPU_INLINE void copy_row(Warp& w, const Ins& i, u8* at) {
  if constexpr (kStore) {
    __builtin_memcpy(at, slot<T>(w, i, 1), kWarpSize * sizeof(T));
  } else {
    __builtin_memcpy(slot<T>(w, i, 0), at, kWarpSize * sizeof(T));
  }
}

// The address operand is last in a load and first in a store.
template <class T, int N, Where kWhere, bool kStore>
Status access(Warp& w, const Ins& i, u32 mask) {
  constexpr u32 kBytes = sizeof(T) * N;
  constexpr int kAddress = kStore ? 0 : N;
  // A lane's bytes in memory are those in its slot.
  constexpr bool kRows = N == 1 && sizeof(T) >= sizeof(u32);
  const auto perform = [&](u8* at, int lane) {
    if constexpr (kStore) {
      store_lane<T, N>(w, i, at, lane);
    } else {
      load_lane<T, N>(w, i, at, lane);
    }
  };
  if constexpr (kWhere == Where::kShared) {
    const u32* address = words(w, i, kAddress);
    const u32 offset = static_cast<u32>(i.imm) - w.shared_base;
    if (shared_ok(w, address, offset, kBytes, mask)) {
      u8* const base = w.shared;
      if (mask == kFullMask) {
        if constexpr (kRows) {
          if (in_order(address, kBytes)) {
            copy_row<LaneOf<T>, kStore>(w, i, base + (address[0] + offset));
            return Status::kNext;
          }
        }
        for (int l = 0; l < kWarpSize; ++l) perform(base + (address[l] + offset), l);
      } else {
        for_lanes(mask, [&](int l) { perform(base + (address[l] + offset), l); });
      }
      return Status::kNext;
    }
    for (u32 left = mask; left; left &= left - 1) {
      const int l = __builtin_ctz(left);
      if (!resolve(w, kWhere, address[l] + offset, kBytes, kStore, l)) return Status::kFault;
    }
    return Status::kNext;
  } else {
    const u64* address = doubles(w, i, kAddress);
    const u64 offset = static_cast<u64>(i.imm);
    const Range range = range_of(address, offset, mask);
    const bool ok = kWhere == Where::kLocal   ? local_ok(w, range, kBytes)
                    : kWhere == Where::kParam ? parameter_ok(w, range, kBytes)
                                              : global_ok(w, range, kBytes, kStore);
    if (ok) {
      if constexpr (kWhere != Where::kLocal) {
        if (range.low == range.high) {
          if constexpr (kStore) {
            // One lane writes, as on a GPU: another CTA that has seen the value may have written
            // the next one before a second lane's turn. Source: CUDA C++ Programming Guide, SIMT
            // architecture: of lanes that write to one place only one performs its write.
            const int last = 31 - __builtin_clz(mask);
            store_lane<T, N>(w, i, reinterpret_cast<u8*>(range.low), last);
          } else {
            load_once<T, N>(w, i, reinterpret_cast<const u8*>(range.low), mask);
          }
          return Status::kNext;
        }
      }
      const auto place = [&](int l) {
        const u64 at = address[l] + offset;
        return kWhere == Where::kLocal ? w.local + static_cast<u64>(l) * w.local_bytes + at
                                       : reinterpret_cast<u8*>(at);
      };
      if (mask == kFullMask) {
        if constexpr (kRows && kWhere != Where::kLocal) {
          if (range.high - range.low == (kWarpSize - 1) * kBytes && in_order(address, kBytes)) {
            copy_row<LaneOf<T>, kStore>(w, i, reinterpret_cast<u8*>(range.low));
            return Status::kNext;
          }
        }
        for (int l = 0; l < kWarpSize; ++l) perform(place(l), l);
      } else {
        for_lanes(mask, [&](int l) { perform(place(l), l); });
      }
      return Status::kNext;
    }
    for (u32 left = mask; left; left &= left - 1) {
      const int l = __builtin_ctz(left);
      u8* at = resolve(w, kWhere, address[l] + offset, kBytes, kStore, l);
      if (!at) return Status::kFault;
      perform(at, l);
    }
    return Status::kNext;
  }
}

// A parameter by name: the same bytes for every lane, and the offset is known to be right.
template <class T, int N>
Status load_parameter(Warp& w, const Ins& i, u32 mask) {
  load_once<T, N>(w, i, w.launch->params + i.imm, mask);
  return Status::kNext;
}

template <class T, int N, Where kWhere>
void add_space(OpTable& t, const char* space, const char* type) {
  char count[2] = {static_cast<char>('0' + N), '\0'};
  const char code = sizeof(T) == 8 ? 'd' : 'w';
  // Signatures live as long as the table.
  static char values[N + 1];
  static char stored[N + 2];
  for (int n = 0; n < N; ++n) values[n] = stored[n + 1] = code;
  const char* address = kWhere == Where::kShared ? "w" : "d";
  stored[0] = *address;
  constexpr bool kSign = static_cast<T>(-1) < static_cast<T>(0);
  add_function(t, Name("ld", space, type, count).text, &access<T, N, kWhere, false>, values,
               address, kSign);
  if constexpr (!kSign && kWhere != Where::kParam) {
    add_function(t, Name("st", space, type, count).text, &access<T, N, kWhere, true>, "", stored);
  }
  if constexpr (kWhere == Where::kParam) {
    add_function(t, Name("ld.parameter", type, count).text, &load_parameter<T, N>, values, "",
                 kSign);
  }
}

template <class T, int N>
void add_access(OpTable& t, const char* type) {
  add_space<T, N, Where::kGlobal>(t, "global", type);
  add_space<T, N, Where::kShared>(t, "shared", type);
  add_space<T, N, Where::kLocal>(t, "local", type);
  add_space<T, N, Where::kGeneric>(t, "generic", type);
  add_space<T, N, Where::kParam>(t, "param", type);
}

template <class T>
void add_widths(OpTable& t, const char* type) {
  add_access<T, 1>(t, type);
  add_access<T, 2>(t, type);
  if constexpr (sizeof(T) < 8) add_access<T, 4>(t, type);
  // 256 bits at once are for global memory only. Source: PTX ISA 9.0, ld.
  if constexpr (sizeof(T) == 8) add_space<T, 4, Where::kGlobal>(t, "global", type);
  if constexpr (sizeof(T) == 4) add_space<T, 8, Where::kGlobal>(t, "global", type);
}

// --- ldmatrix -----------------------------------------------------------------------------------

template <int N, bool kTranspose>
Status load_matrix(Warp& w, const Ins& i, u32 mask) {
  const u32* address = words(w, i, N);
  const u32 offset = static_cast<u32>(i.imm) - w.shared_base;
  constexpr u32 kRows = N == 4 ? kFullMask : (1u << (8 * N & 31)) - 1;
  if (!shared_ok(w, address, offset, 16, kRows)) {
    for (int l = 0; l < 8 * N; ++l) {
      if (!resolve(w, Where::kShared, address[l] + offset, 16, false, l)) return Status::kFault;
    }
  }
  const u8* row[8 * N];
  for (int r = 0; r < 8 * N; ++r) row[r] = w.shared + (address[r] + offset);
  for (int n = 0; n < N; ++n) {
    u32* to = words(w, i, n);
    if (mask == kFullMask) {
      gather_matrix<kTranspose>(row + 8 * n, to);
    } else {
      alignas(64) u32 fragment[kWarpSize];
      gather_matrix<kTranspose>(row + 8 * n, fragment);
      blend(to, fragment, mask);
    }
  }
  return Status::kNext;
}

// --- cp.async -----------------------------------------------------------------------------------

template <u32 kBytes>
VGPU_INLINE void copy_lane(u8* to, const u8* from, u32 wanted) {
  if (wanted == kBytes) {
    __builtin_memcpy(to, from, kBytes);
  } else {
    __builtin_memset(to, 0, kBytes);
    std::memcpy(to, from, wanted);
  }
}

template <u32 kBytes>
void perform_all(Warp& w, const AsyncCopy& copy) {
  for_lanes(copy.mask, [&](int l) {
    copy_lane<kBytes>(w.shared + copy.destination[l], reinterpret_cast<const u8*>(copy.source[l]),
                      copy.source_bytes[l]);
  });
}

void perform(Warp& w, const AsyncCopy& copy) {
  switch (copy.bytes) {
    case 4:
      return perform_all<4>(w, copy);
    case 8:
      return perform_all<8>(w, copy);
    default:
      return perform_all<16>(w, copy);
  }
}

// Performs, in order, the pending copies of all groups before `group`.
void complete_before(Warp& w, u32 group) {
  while (w.copy_count) {
    const AsyncCopy& oldest = w.copies[w.copy_head];
    if (static_cast<s32>(oldest.group - group) >= 0) return;
    perform(w, oldest);
    w.copy_head = (w.copy_head + 1) & (w.copy_capacity - 1);
    --w.copy_count;
  }
}

// Operands: shared address, global address, bytes to read (or none), "read nothing" (or none).
// extra is the size of the copy; imm holds the global offset above the 20 bits of the shared one.
Status async_copy(Warp& w, const Ins& i, u32 mask) {
  const u32* destination = words(w, i, 0);
  const u64* source = doubles(w, i, 1);
  const u32 bytes = i.extra;
  const u32 to_offset = (static_cast<u32>(i.imm) & 0xfffffu) - w.shared_base;
  const u64 from_offset = static_cast<u64>(i.imm >> 20);
  if (w.copy_count == w.copy_capacity) grow_copies(w);
  AsyncCopy& copy = w.copies[(w.copy_head + w.copy_count) & (w.copy_capacity - 1)];
  copy.mask = mask;
  copy.bytes = bytes;
  copy.group = w.group;
  copy.pc = w.pc;
  const u32 nothing = has(i, 3) ? predicate(w, i, 3) : 0;
  const u32* wanted = has(i, 2) ? words(w, i, 2) : nullptr;
  u32 reading = mask & ~nothing;
  for (int l = 0; l < kWarpSize; ++l) {
    copy.destination[l] = destination[l] + to_offset;
    copy.source[l] = source[l] + from_offset;
    copy.source_bytes[l] = (nothing >> l & 1) ? 0 : bytes;
  }
  if (wanted) {
    u32 some = 0;
    for (int l = 0; l < kWarpSize; ++l) {
      const u32 n = wanted[l] < copy.source_bytes[l] ? wanted[l] : copy.source_bytes[l];
      copy.source_bytes[l] = n;
      some |= static_cast<u32>(n != 0) << l;
    }
    reading &= some;
  }
  if (!shared_ok(w, destination, to_offset, bytes, mask)) {
    for (u32 left = mask; left; left &= left - 1) {
      const int l = __builtin_ctz(left);
      if (!resolve(w, Where::kShared, copy.destination[l], bytes, true, l)) return Status::kFault;
    }
  }
  if (reading && !global_ok(w, range_of(source, from_offset, reading), bytes, false)) {
    for (u32 left = reading; left; left &= left - 1) {
      const int l = __builtin_ctz(left);
      if (copy.source[l] & (bytes - 1)) {
        return raise(w, FaultKind::kMisaligned, Where::kGlobal, false, copy.source[l], bytes, l);
      }
      if (!lookup_global(w, copy.source[l], copy.source_bytes[l], false)) {
        return raise(w, FaultKind::kIllegalAddress, Where::kGlobal, false, copy.source[l],
                     copy.source_bytes[l], l);
      }
    }
  }
  if (w.launch->late_copies) {
    ++w.copy_count;
    ++w.copies_issued;
    // Rows of a tile lie far apart, where the hardware does not look ahead.
    for_lanes(reading, [&](int l) { __builtin_prefetch(reinterpret_cast<void*>(copy.source[l])); });
  } else {
    perform(w, copy);
  }
  return Status::kNext;
}

// Groups are counted per warp. When only some lanes commit, the lanes' groups would part:
// everything is performed then, which a GPU may do as well.
Status commit_group(Warp& w, const Ins&, u32 mask) {
  ++w.group;
  if (mask != w.live) complete_before(w, w.group);
  return Status::kNext;
}
Status wait_group(Warp& w, const Ins& i, u32) {
  complete_before(w, w.group - i.extra);
  return Status::kNext;
}
Status wait_all(Warp& w, const Ins&, u32) {
  complete_before(w, ++w.group);
  return Status::kNext;
}

}  // namespace

void register_memory(OpTable& t) {
  add_widths<u8>(t, "u8");
  add_widths<s8>(t, "s8");
  add_widths<u16>(t, "u16");
  add_widths<s16>(t, "s16");
  add_widths<u32>(t, "u32");
  add_widths<u64>(t, "u64");
  add_function(t, "ldmatrix.x1", &load_matrix<1, false>, "w", "w");
  add_function(t, "ldmatrix.x2", &load_matrix<2, false>, "ww", "w");
  add_function(t, "ldmatrix.x4", &load_matrix<4, false>, "wwww", "w");
  add_function(t, "ldmatrix.x1.trans", &load_matrix<1, true>, "w", "w");
  add_function(t, "ldmatrix.x2.trans", &load_matrix<2, true>, "ww", "w");
  add_function(t, "ldmatrix.x4.trans", &load_matrix<4, true>, "wwww", "w");
  add_function(t, "cp.async", &async_copy, "", "wdwp");
  add_function(t, "cp.async.commit_group", &commit_group, "", "");
  add_function(t, "cp.async.wait_group", &wait_group, "", "");
  add_function(t, "cp.async.wait_all", &wait_all, "", "");
}

}  // namespace vgpu::VGPU_ISA
