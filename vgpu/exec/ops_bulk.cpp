// Bulk copies: what issues them, and what waits for their groups.
#include "exec/access.h"
#include "exec/async.h"

namespace vgpu {
namespace {

using namespace generic;

constexpr u32 kMostBytes = kMostTransactions;

// Shared memory of the cluster that a copy uses; the CTA is null after a fault.
Cta* shared_at(Warp& w, u32 address, u32 bytes, u32 alignment, bool store, int lane) {
  Cta* cta = cta_at(w, address);
  const u32 at = address & (kSharedSpan - 1);
  if (at % alignment) {
    refuse(w, lane, "a bulk copy at offset %u of shared memory, which must be a multiple of %u", at,
           alignment);
    return nullptr;
  }
  if (!cta || !fits(at, bytes, 0, cta->shared_bytes) || cta->warps_done == cta->warps) {
    raise(w, FaultKind::kIllegalAddress, Where::kShared, store, at, bytes, lane);
    return nullptr;
  }
  return cta;
}

bool check_size(Warp& w, u32 bytes, int lane) {
  if (bytes % 16 == 0 && bytes <= kMostBytes) return true;
  refuse(w, lane, "a bulk copy of %u bytes, which must be a multiple of 16 of at most %u", bytes,
         kMostBytes);
  return false;
}

bool check_global(Warp& w, u64 address, u32 bytes, bool store, int lane) {
  if (address % 16) {
    raise(w, FaultKind::kMisaligned, Where::kGlobal, store, address, 16, lane);
    return false;
  }
  if (bytes == 0 || lookup_global(w, address, bytes, store)) return true;
  raise(w, FaultKind::kIllegalAddress, Where::kGlobal, store, address, bytes, lane);
  return false;
}

bool check_barrier(Warp& w, BulkCopy& copy) {
  Mbarrier b;
  const Cta& cta = *copy.barrier_cta;
  if (copy.barrier_at % 8 == 0 && fits(copy.barrier_at, 8, 0, cta.shared_bytes) &&
      load(cta, copy.barrier_at, &b)) {
    copy.phase = b.parity;
    return true;
  }
  refuse(w, copy.lane,
         "a bulk copy completes at offset %u of shared memory of CTA %u, where no mbarrier is",
         copy.barrier_at, cta.rank);
  return false;
}

BulkCopy new_copy(Warp& w, BulkCopy::Kind kind, int lane) {
  BulkCopy copy = {};
  copy.kind = kind;
  copy.byte_mask = 0xffff;
  copy.issuer = &w;
  copy.pc = w.pc;
  copy.lane = lane;
  copy.group = w.bulk_group[lane];
  std::memset(copy.marks, 1, sizeof(copy.marks));
  return copy;
}

// A copy that completes at an mbarrier goes on its way.
bool issue(Warp& w, BulkCopy& copy) {
  if (!check_barrier(w, copy)) return false;
  if (w.launch->checks) watch::bulk_issued(w, copy);
  if (!w.launch->late_copies) return complete(w, copy);
  w.cta->cluster->loads.push_back(copy);
  wake(w, copy.barrier_cta->shared + copy.barrier_at);
  return true;
}

// The same for each CTA of a multicast; the copy's own offsets serve in all of them.
bool multicast(Warp& w, BulkCopy& copy, u32 ranks) {
  Cluster& cluster = *w.cta->cluster;
  if (ranks >> cluster.size || ranks == 0) {
    refuse(w, copy.lane, "a multicast to CTAs 0x%x of a cluster of %u", ranks, cluster.size);
    return false;
  }
  for (; ranks; ranks &= ranks - 1) {
    copy.cta = copy.barrier_cta = &cluster.ctas[__builtin_ctz(ranks)];
    if (copy.cta->warps_done == copy.cta->warps) {
      refuse(w, copy.lane, "a multicast to CTA %u of the cluster, which has ended", copy.cta->rank);
      return false;
    }
    if (!issue(w, copy)) return false;
  }
  return true;
}

// The same at the mbarrier of this address, which is in the CTA that is written.
bool issue_at(Warp& w, BulkCopy& copy, u32 barrier) {
  copy.barrier_at = barrier & (kSharedSpan - 1);
  copy.barrier_cta = cta_at(w, barrier);
  if (copy.barrier_cta == copy.cta) return issue(w, copy);
  refuse(
      w, copy.lane, "%s and its mbarrier lie in different CTAs",
      copy.kind == BulkCopy::Kind::kValue ? "an asynchronous store" : "a bulk copy's destination");
  return false;
}

// Rows lie far apart, where the hardware does not look ahead.
bool fetch_row(void*, const BoxRow& row) {
  for (u32 line = 0; row.global && line < row.bytes; line += 64)
    __builtin_prefetch(row.global + line, 0, 2);
  return true;
}

// A load from global memory: operand `ranks` has the CTAs of a multicast, or is absent.
bool issue_load(Warp& w, const Ins& i, BulkCopy& copy, u32 barrier, int ranks) {
  if (copy.tensor && w.launch->late_copies) walk_box(copy.box, fetch_row, nullptr);
  if (!has(i, ranks)) {
    count_bulk(w, copy, 1);
    return issue_at(w, copy, barrier);
  }
  const u32 to = words(w, i, ranks)[copy.lane];
  count_bulk(w, copy, to);
  copy.barrier_at = barrier & (kSharedSpan - 1);
  return multicast(w, copy, to);
}

void issue_store(Warp& w, BulkCopy& copy) {
  if (w.launch->checks) watch::bulk_issued(w, copy);
  if (w.launch->late_copies) {
    w.cta->cluster->stores.push_back(copy);
    return;
  }
  if (w.launch->checks) watch::bulk_landed(w, copy);
  land(copy);
}

// Operands: shared destination, global source, bytes, mbarrier, ranks of a multicast (or none).
Status bulk_load(Warp& w, const Ins& i, u32 mask) {
  for (u32 left = mask; left; left &= left - 1) {
    const int l = __builtin_ctz(left);
    BulkCopy copy = new_copy(w, BulkCopy::Kind::kLoad, l);
    const u32 to = words(w, i, 0)[l];
    copy.global = doubles(w, i, 1)[l];
    copy.bytes = words(w, i, 2)[l];
    copy.at = to & (kSharedSpan - 1);
    copy.cta = shared_at(w, to, copy.bytes, 16, true, l);
    if (!copy.cta || !check_size(w, copy.bytes, l) ||
        !check_global(w, copy.global, copy.bytes, false, l))
      return Status::kFault;
    if (!issue_load(w, i, copy, words(w, i, 3)[l], 4)) return Status::kFault;
  }
  return Status::kNext;
}

// Operands: shared destination, shared source, bytes, mbarrier.
Status bulk_between(Warp& w, const Ins& i, u32 mask) {
  for (u32 left = mask; left; left &= left - 1) {
    const int l = __builtin_ctz(left);
    BulkCopy copy = new_copy(w, BulkCopy::Kind::kBetween, l);
    const u32 to = words(w, i, 0)[l];
    const u32 from = words(w, i, 1)[l];
    copy.bytes = words(w, i, 2)[l];
    copy.at = to & (kSharedSpan - 1);
    copy.source_at = from & (kSharedSpan - 1);
    copy.reduce = static_cast<Reduce>(i.extra >> 8);
    copy.type = static_cast<TensorType>(i.extra & 0xff);
    copy.cta = shared_at(w, to, copy.bytes, 16, true, l);
    copy.source = copy.cta ? shared_at(w, from, copy.bytes, 16, false, l) : nullptr;
    if (!copy.source || !check_size(w, copy.bytes, l)) return Status::kFault;
    count_bulk(w, copy, 1);
    if (!issue_at(w, copy, words(w, i, 3)[l])) return Status::kFault;
  }
  return Status::kNext;
}

// st.async and red.async. Operands: shared destination, mbarrier, up to four values. extra has the
// bytes of a value above the reduction.
template <class Lane>
Status value_store(Warp& w, const Ins& i, u32 mask) {
  for (u32 left = mask; left; left &= left - 1) {
    const int l = __builtin_ctz(left);
    BulkCopy copy = new_copy(w, BulkCopy::Kind::kValue, l);
    const u32 to = words(w, i, 0)[l];
    for (int k = 0; k < 4 && has(i, 2 + k); ++k) {
      const Lane value = slot<Lane>(w, i, 2 + k)[l];
      std::memcpy(copy.value + copy.bytes, &value, sizeof(Lane));
      copy.bytes += sizeof(Lane);
    }
    copy.at = to & (kSharedSpan - 1);
    copy.reduce = static_cast<Reduce>(i.extra >> 8);
    copy.type = static_cast<TensorType>(i.extra & 0xff);
    copy.cta = shared_at(w, to, copy.bytes, copy.bytes, true, l);
    if (!copy.cta) return Status::kFault;
    count_remote(w, *copy.cta, copy.bytes);
    if (!issue_at(w, copy, words(w, i, 1)[l])) return Status::kFault;
  }
  return Status::kNext;
}

// Counts a store, unless a lane before wants the same one: the hardware does it once for a warp
// (UTMASTG), but adds as often as lanes want it.
void count_store(Warp& w, const Ins& i, u32 mask, const BulkCopy& copy, int operands) {
  const int lane = copy.lane;
  for (u32 before = mask & ((1u << lane) - 1); before && copy.reduce == Reduce::kNone;
       before &= before - 1) {
    const int l = __builtin_ctz(before);
    bool same = doubles(w, i, 0)[l] == doubles(w, i, 0)[lane];
    for (int k = 1; same && k < operands && has(i, k); ++k)
      same = words(w, i, k)[l] == words(w, i, k)[lane];
    if (same) return;
  }
  count_bulk(w, copy, 1);
}

// Operands: global destination, shared source, bytes, mask of bytes (or none).
Status bulk_store(Warp& w, const Ins& i, u32 mask) {
  for (u32 left = mask; left; left &= left - 1) {
    const int l = __builtin_ctz(left);
    BulkCopy copy = new_copy(w, BulkCopy::Kind::kStore, l);
    const u32 from = words(w, i, 1)[l];
    copy.global = doubles(w, i, 0)[l];
    copy.bytes = words(w, i, 2)[l];
    copy.at = from & (kSharedSpan - 1);
    copy.reduce = static_cast<Reduce>(i.extra >> 8);
    copy.type = static_cast<TensorType>(i.extra & 0xff);
    if (has(i, 3)) copy.byte_mask = static_cast<u16>(words(w, i, 3)[l]);
    copy.cta = shared_at(w, from, copy.bytes, 16, false, l);
    if (!copy.cta || !check_size(w, copy.bytes, l) ||
        !check_global(w, copy.global, copy.bytes, true, l))
      return Status::kFault;
    count_store(w, i, mask, copy, 4);
    issue_store(w, copy);
  }
  return Status::kNext;
}

// --- tensors -------------------------------------------------------------------------------------

constexpr u32 kRankBits = 0xff;

// A row at a time, where the tensor is not in one allocation as a whole.
struct RowCheck {
  Warp& w;
  bool store;
  int lane;
};
bool check_row(void* context, const BoxRow& row) {
  const RowCheck& c = *static_cast<RowCheck*>(context);
  const u64 address = reinterpret_cast<u64>(row.global);
  if (!row.global || lookup_global(c.w, address, row.bytes, c.store)) return true;
  raise(c.w, FaultKind::kIllegalAddress, Where::kGlobal, c.store, address, row.bytes, c.lane);
  return false;
}

// Reads the map behind an address and checks it against the instruction.
bool read_box(Warp& w, const Ins& i, u64 map, int first, bool store, int lane, Box* box) {
  const u64 window = map & kWindowMask;
  const bool parameter =
      fits(map, kTensorMapBytes, reinterpret_cast<u64>(w.launch->params), w.launch->param_bytes);
  if (map % 64) {
    refuse(w, lane, "a tensor map at address 0x%llx, which must be a multiple of 64",
           static_cast<unsigned long long>(map));
    return false;
  }
  if (window || (!parameter && !lookup_global(w, map, kTensorMapBytes, false))) {
    raise(w, FaultKind::kIllegalAddress, Where::kGlobal, false, map, kTensorMapBytes, lane);
    return false;
  }
  std::memcpy(&box->map, reinterpret_cast<const void*>(map), sizeof(box->map));
  const TensorMap& m = box->map;
  if (const std::string why = wrong_with(m); !why.empty()) {
    refuse(w, lane, "a bulk tensor copy with a map that is not valid: %s", why.c_str());
    return false;
  }
  if (m.seal != seal_of(m)) {
    refuse(w, lane,
           "a bulk tensor copy with a map that neither the driver nor tensormap.replace has "
           "written so: its bytes were changed");
    return false;
  }
  const u32 rank = i.extra & kRankBits;
  box->mode = static_cast<BoxMode>(i.extra >> 8 & 0xff);
  if (m.rank != rank) {
    refuse(w, lane, "a bulk tensor copy of %u dimensions with a map of rank %u", rank, m.rank);
    return false;
  }
  if (m.im2col != (box->mode != BoxMode::kTile)) {
    refuse(w, lane, "a bulk tensor copy in %s mode with a map that was encoded for %s",
           m.im2col ? "tile" : "im2col", m.im2col ? "im2col" : "tiles");
    return false;
  }
  for (u32 k = 0; k < rank; ++k)
    box->coordinates[k] = static_cast<s32>(words(w, i, first + static_cast<int>(k))[lane]);
  for (int k = 0; box->mode == BoxMode::kIm2col && k + 2 < m.rank; ++k)
    box->offsets[k] = static_cast<u16>(words(w, i, first + 5 + k)[lane]);
  if (m.type == TensorType::kPackedU4) {
    if (box->coordinates[0] % 2) {
      refuse(w, lane, "a bulk tensor copy from element %d of 4 bits, which must be an even one",
             box->coordinates[0]);
      return false;
    }
    box->coordinates[0] /= 2;
    box->map = in_bytes(box->map);
  }
  const u32 slice = m.interleave * 16u / element_bytes(m.type);
  if (slice && box->coordinates[0] % static_cast<s32>(slice)) {
    refuse(w, lane,
           "a bulk tensor copy from channel %d of an interleaved tensor, which must be a multiple "
           "of %u",
           box->coordinates[0], slice);
    return false;
  }
  u64 extent = m.dims[0] * static_cast<u64>(element_bytes(m.type));
  for (u32 k = 1; k < rank; ++k) extent += (m.dims[k] - 1ull) * m.strides[k - 1];
  if (m.interleave == 0 && lookup_global(w, m.address, extent, store)) return true;
  RowCheck check = {w, store, lane};
  return walk_box(*box, check_row, &check);
}

// Operands: shared destination, map, mbarrier, ranks of a multicast (or none), 5 coordinates, 3
// offsets.
Status tensor_load(Warp& w, const Ins& i, u32 mask) {
  for (u32 left = mask; left; left &= left - 1) {
    const int l = __builtin_ctz(left);
    BulkCopy copy = new_copy(w, BulkCopy::Kind::kLoad, l);
    copy.tensor = true;
    if (!read_box(w, i, doubles(w, i, 1)[l], 4, false, l, &copy.box)) return Status::kFault;
    const u32 to = words(w, i, 0)[l];
    copy.bytes = box_bytes(copy.box);
    copy.at = to & (kSharedSpan - 1);
    copy.cta = shared_at(w, to, box_span(copy.box), 128, true, l);
    if (!copy.cta || !issue_load(w, i, copy, words(w, i, 2)[l], 3)) return Status::kFault;
  }
  return Status::kNext;
}

// Operands: map, shared source, 5 coordinates. extra has the reduction from bit 16 on.
Status tensor_store(Warp& w, const Ins& i, u32 mask) {
  for (u32 left = mask; left; left &= left - 1) {
    const int l = __builtin_ctz(left);
    BulkCopy copy = new_copy(w, BulkCopy::Kind::kStore, l);
    copy.tensor = true;
    if (!read_box(w, i, doubles(w, i, 0)[l], 2, true, l, &copy.box)) return Status::kFault;
    const u32 from = words(w, i, 1)[l];
    copy.reduce = static_cast<Reduce>(i.extra >> 16);
    copy.type = copy.box.map.type;
    copy.bytes = box_bytes(copy.box);
    copy.at = from & (kSharedSpan - 1);
    copy.cta = shared_at(w, from, box_span(copy.box), 128, false, l);
    if (!copy.cta) return Status::kFault;
    count_store(w, i, mask, copy, 7);
    issue_store(w, copy);
  }
  return Status::kNext;
}

// A prefetch moves nothing that could be seen, but wants a map: operands as of a store.
Status tensor_prefetch(Warp& w, const Ins& i, u32 mask) {
  for (u32 left = mask; left; left &= left - 1) {
    const int l = __builtin_ctz(left);
    Box box = {};
    if (!read_box(w, i, doubles(w, i, 0)[l], 2, false, l, &box)) return Status::kFault;
  }
  return Status::kNext;
}

// --- groups --------------------------------------------------------------------------------------

Status commit(Warp& w, const Ins&, u32 mask) {
  for_lanes(mask, [&](int l) { ++w.bulk_group[l]; });
  return Status::kNext;
}
// A wait for the reads alone writes as well, which a GPU may do.
Status wait_group(Warp& w, const Ins& i, u32 mask) {
  land_stores(w, mask, i.extra);
  return Status::kNext;
}

}  // namespace

void register_bulk(OpTable& t) {
  add_function(t, "bulk.load", &bulk_load, "", "wdwww");
  add_function(t, "bulk.between", &bulk_between, "", "wwww");
  add_function(t, "bulk.store", &bulk_store, "", "dwww");
  add_function(t, "bulk.value.32", &value_store<u32>, "", "wwwwww");
  add_function(t, "bulk.value.64", &value_store<u64>, "", "wwdddd");
  add_function(t, "bulk.tensor.load", &tensor_load, "", "wdwwwwwwwwww");
  add_function(t, "bulk.tensor.store", &tensor_store, "", "dwwwwww");
  add_function(t, "bulk.tensor.prefetch", &tensor_prefetch, "", "dwwwwwwwww");
  add_function(t, "bulk.commit_group", &commit, "", "");
  add_function(t, "bulk.wait_group", &wait_group, "", "");
}

}  // namespace vgpu
