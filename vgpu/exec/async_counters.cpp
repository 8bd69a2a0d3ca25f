// What the tensor memory accelerator and distributed shared memory do, for the counters.
#include <bit>
#include <vector>

#include "exec/async.h"
#include "exec/sample.h"

namespace vgpu {
namespace {

struct Rows {
  std::vector<u64> sectors;
};

void add_sectors(std::vector<u64>& to, u64 address, u64 bytes) {
  const u64 last = (address + bytes - 1) / kSectorBytes;
  for (u64 s = address / kSectorBytes; s <= last; ++s) to.push_back(s);
}
bool add_row(void* context, const BoxRow& row) {
  if (row.global)
    add_sectors(static_cast<Rows*>(context)->sectors, reinterpret_cast<u64>(row.global), row.bytes);
  return true;
}

}  // namespace

void count_bulk(Warp& w, const BulkCopy& copy, u32 ranks) {
  if (!w.sample && !w.launch->counting) return;
  Counters& c = *w.counters;
  const u64 targets = static_cast<u64>(std::popcount(ranks));
  ++c.bulk_requests;
  c.bulk_bytes += copy.bytes;
  if (targets > 1) c.multicast_bytes += copy.bytes * targets;
  c.shared_wavefronts += (copy.bytes + 127) / 128 * targets;
  if (copy.kind == BulkCopy::Kind::kBetween) {
    count_remote(w, *copy.cta, copy.bytes);
    return;
  }
  Rows rows;
  if (copy.tensor) {
    walk_box(copy.box, add_row, &rows);
  } else {
    add_sectors(rows.sectors, copy.global, copy.bytes);
  }
  const bool store = copy.kind == BulkCopy::Kind::kStore;
  Traffic& t = store ? c.stores : c.loads;
  ++t.requests;
  t.bytes += copy.bytes;
  t.sectors += rows.sectors.size();
  if (w.sample)
    (store ? w.sample->written : w.sample->read)
        .add(rows.sectors.data(), static_cast<int>(rows.sectors.size()));
}

void count_remote(Warp& w, const Cta& to, u32 bytes) {
  if ((!w.sample && !w.launch->counting) || &to == w.cta) return;
  ++w.counters->remote_requests;
  w.counters->remote_bytes += bytes;
}

void count_mbarrier_wait(Warp& w) {
  if (w.sample || w.launch->counting) ++w.counters->mbarrier_waits;
}

}  // namespace vgpu
