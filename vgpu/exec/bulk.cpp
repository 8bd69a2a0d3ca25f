// How bulk copies land: when the mbarrier or the group that they complete at is waited for.
#include "exec/bulk.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "exec/async.h"
#include "exec/lanes.h"
#include "exec/mbarrier.h"

namespace vgpu {
namespace {

template <class T>
void integers(Reduce op, u8* to, const u8* from, u32 bytes) {
  for (u32 k = 0; k < bytes; k += sizeof(T)) {
    T x;
    T a;
    std::memcpy(&x, to + k, sizeof(T));
    std::memcpy(&a, from + k, sizeof(T));
    switch (op) {
      case Reduce::kAdd:
        x = static_cast<T>(static_cast<u64>(x) + static_cast<u64>(a));
        break;
      case Reduce::kMin:
        x = std::min(x, a);
        break;
      case Reduce::kMax:
        x = std::max(x, a);
        break;
      case Reduce::kInc:
        x = x >= a ? T{0} : static_cast<T>(x + 1);
        break;
      case Reduce::kDec:
        x = x == 0 || x > a ? a : static_cast<T>(x - 1);
        break;
      case Reduce::kAnd:
        x = x & a;
        break;
      case Reduce::kOr:
        x = x | a;
        break;
      case Reduce::kXor:
        x = x ^ a;
        break;
      case Reduce::kNone:
        x = a;
        break;
    }
    std::memcpy(to + k, &x, sizeof(T));
  }
}

// Of NaN and a number the number is the smaller and the larger one.
template <class V>
V chosen(Reduce op, V x, V a) {
  if (op == Reduce::kAdd) return x + a;
  return op == Reduce::kMin ? std::fmin(x, a) : std::fmax(x, a);
}

template <class N, class Bits>
void floats(Reduce op, u8* to, const u8* from, u32 bytes) {
  for (u32 k = 0; k < bytes; k += sizeof(Bits)) {
    Bits x;
    Bits a;
    std::memcpy(&x, to + k, sizeof(Bits));
    std::memcpy(&a, from + k, sizeof(Bits));
    x = static_cast<Bits>(N::store(chosen(op, N::load(x), N::load(a))));
    std::memcpy(to + k, &x, sizeof(Bits));
  }
}

// What a tensor has outside of its bounds.
void fill(const TensorMap& m, u8* to, u32 bytes) {
  if (!m.nan_fill) {
    std::memset(to, 0, bytes);
    return;
  }
  const u32 size = element_bytes(m.type);
  const u64 nan = size == 2 ? 0x7fffu : size == 4 ? 0x7fffffffu : 0x7fffffffffffffffull;
  for (u32 k = 0; k < bytes; k += size) std::memcpy(to + k, &nan, size);
}

// Types that are rounded or flushed on their way to shared memory.
bool rounds(TensorType type) {
  return type == TensorType::kTF32 || type == TensorType::kTF32Flushed;
}
bool flushes(TensorType type) {
  return type == TensorType::kF32Flushed || type == TensorType::kTF32Flushed;
}
void convert(TensorType type, u8* at, u32 bytes) {
  const bool round = rounds(type);
  const bool flush = flushes(type);
  for (u32 k = 0; k < bytes; k += 4) {
    u32 x;
    std::memcpy(&x, at + k, 4);
    const u32 exponent = x & 0x7f800000u;
    if (flush && exponent == 0) x &= 0x80000000u;
    if (round && exponent != 0x7f800000u) x = (x + 0x1000u) & ~0x1fffu;
    std::memcpy(at + k, &x, 4);
  }
}

bool load_row(void* context, const BoxRow& row) {
  const BulkCopy& copy = *static_cast<const BulkCopy*>(context);
  const TensorMap& m = copy.box.map;
  u8* const shared = copy.cta->shared;
  if (!row.global) {
    pieces_of(copy, row, [&](u32 at, u32, u32 bytes) { fill(m, shared + at, bytes); });
    return true;
  }
  pieces_of(copy, row, [&](u32 at, u32 offset, auto bytes) {
    std::memcpy(shared + at, row.global + offset, bytes);
  });
  if (rounds(m.type) || flushes(m.type))
    pieces_of(copy, row, [&](u32 at, u32, u32 bytes) { convert(m.type, shared + at, bytes); });
  return true;
}

bool store_row(void* context, const BoxRow& row) {
  if (!row.global) return true;
  const BulkCopy& copy = *static_cast<const BulkCopy*>(context);
  const u8* const shared = copy.cta->shared;
  if (copy.reduce == Reduce::kNone) {
    pieces_of(copy, row, [&](u32 at, u32 offset, auto bytes) {
      std::memcpy(row.global + offset, shared + at, bytes);
    });
    return true;
  }
  pieces_of(copy, row, [&](u32 at, u32 offset, u32 bytes) {
    combine(copy.reduce, copy.box.map.type, row.global + offset, shared + at, bytes);
  });
  return true;
}

void move(const BulkCopy& copy, u8* to, const u8* from) {
  if (copy.reduce != Reduce::kNone) {
    combine(copy.reduce, copy.type, to, from, copy.bytes);
  } else if (copy.byte_mask == 0xffff) {
    std::memcpy(to, from, copy.bytes);
  } else {
    for (u32 k = 0; k < copy.bytes; ++k) {
      if (copy.byte_mask >> k % 16 & 1) to[k] = from[k];
    }
  }
}

void perform(const AsyncCopy& copy, u8* shared) {
  for (u32 left = copy.mask; left; left &= left - 1) {
    const int l = __builtin_ctz(left);
    u8* to = shared + copy.destination[l];
    std::memset(to, 0, copy.bytes);
    std::memcpy(to, reinterpret_cast<const u8*>(copy.source[l]), copy.source_bytes[l]);
  }
}

// Performs the oldest of the warp's cp.async copies, up to the one of this number.
void land_copies(Warp& w, u32 number) {
  while (w.copy_count && static_cast<s32>(w.copies_issued - w.copy_count - number) < 0) {
    const AsyncCopy& oldest = w.copies[w.copy_head];
    perform(oldest, w.shared);
    if (w.launch->checks) watch::finish_copy(w, oldest);
    w.copy_head = (w.copy_head + 1) & (w.copy_capacity - 1);
    --w.copy_count;
  }
}

}  // namespace

void combine(Reduce op, TensorType type, u8* to, const u8* from, u32 bytes) {
  switch (type) {
    case TensorType::kU8:
      return integers<u8>(op, to, from, bytes);
    case TensorType::kU16:
      return integers<u16>(op, to, from, bytes);
    case TensorType::kU32:
      return integers<u32>(op, to, from, bytes);
    case TensorType::kS32:
      return integers<s32>(op, to, from, bytes);
    case TensorType::kU64:
      return integers<u64>(op, to, from, bytes);
    case TensorType::kS64:
      return integers<s64>(op, to, from, bytes);
    case TensorType::kF16:
      return floats<generic::F16, u16>(op, to, from, bytes);
    case TensorType::kBF16:
      return floats<generic::BF16, u16>(op, to, from, bytes);
    case TensorType::kF64:
      return floats<generic::F64, u64>(op, to, from, bytes);
    default:
      return floats<generic::F32, u32>(op, to, from, bytes);
  }
}

void land(const BulkCopy& copy) {
  u8* const shared = copy.cta->shared;
  if (copy.tensor) {
    walk_box(copy.box, copy.kind == BulkCopy::Kind::kStore ? store_row : load_row,
             const_cast<BulkCopy*>(&copy));
    return;
  }
  u8* const global = reinterpret_cast<u8*>(copy.global);
  switch (copy.kind) {
    case BulkCopy::Kind::kLoad:
      return move(copy, shared + copy.at, global);
    case BulkCopy::Kind::kBetween:
      return move(copy, shared + copy.at, copy.source->shared + copy.source_at);
    case BulkCopy::Kind::kStore:
      return move(copy, global, shared + copy.at);
    case BulkCopy::Kind::kValue:
      return move(copy, shared + copy.at, copy.value);
  }
}

bool complete(Warp& w, const BulkCopy& copy) {
  if (w.launch->checks) watch::bulk_landed(w, copy);
  land(copy);
  Change c;
  c.bytes = -static_cast<s32>(copy.bytes);
  return change(w, *copy.barrier_cta, copy.barrier_at, c, copy.lane, nullptr);
}

bool land_for(Warp& w, const Cta* cta, u32 at) {
  Cluster& cluster = *w.cta->cluster;
  bool fine = true;
  if (!cluster.loads.empty()) {
    std::erase_if(cluster.loads, [&](const BulkCopy& copy) {
      const bool mine = copy.barrier_cta == cta && copy.barrier_at == at;
      if (mine) fine &= complete(w, copy);
      return mine;
    });
  }
  if (!cluster.arrivals.empty()) {
    std::erase_if(cluster.arrivals, [&](const CopyArrival& a) {
      const bool mine = a.cta == cta && a.at == at;
      if (!mine) return false;
      land_copies(*a.warp, a.copies);
      if (w.launch->checks) watch::mbarrier_arrives(*a.warp, *a.cta, a.at, true);
      Change c;
      c.arrivals = static_cast<u32>(__builtin_popcount(a.lanes));
      fine &= change(w, *a.cta, a.at, c, __builtin_ctz(a.lanes), nullptr);
      return true;
    });
  }
  return fine;
}

void land_stores(Warp& w, u32 lanes, u32 leave) {
  std::erase_if(w.cta->cluster->stores, [&](const BulkCopy& copy) {
    if (copy.issuer != &w || !(lanes >> copy.lane & 1)) return false;
    if (static_cast<s32>(copy.group - (w.bulk_group[copy.lane] - leave)) >= 0) return false;
    if (w.launch->checks) watch::bulk_landed(w, copy);
    land(copy);
    return true;
  });
}

void finish_stores(Warp& w) {
  for (const BulkCopy& copy : w.cta->cluster->stores) {
    if (copy.issuer == &w && w.launch->checks) watch::bulk_never_waited_for(w, copy);
  }
  for (u32& group : w.bulk_group) ++group;
  land_stores(w, kFullMask, 0);
}

}  // namespace vgpu
