// The CTAs of a cluster, which run together and see each other's shared memory. A launch without
// clusters has one CTA in each.
#pragma once

#include <vector>

#include "exec/bulk.h"
#include "exec/warp.h"

namespace vgpu {

struct Cluster {
  u32 size;
  u32 id[3];
  Cta* ctas;
  Warp* warps;  // of all CTAs, in the order of their ranks
  u32 warp_count;
  // barrier.cluster: lanes that have arrived, and how often it has opened.
  u32 arrived;
  u32 generation;
  // Bulk copies under way, oldest first.
  std::vector<BulkCopy> loads;        // until their mbarrier is waited for
  std::vector<BulkCopy> stores;       // until their group is
  std::vector<CopyArrival> arrivals;  // of cp.async.mbarrier.arrive

  bool done() const {
    for (u32 k = 0; k < size; ++k) {
      if (ctas[k].warps_done < ctas[k].warps) return false;
    }
    return true;
  }
};

// The CTA behind an address of the cluster's shared window, or null.
inline Cta* cta_at(const Warp& w, u64 address) {
  Cluster& c = *w.cta->cluster;
  const u64 rank = address >> kSharedSpanBits;
  return rank < c.size ? &c.ctas[rank] : nullptr;
}

// Whether a warp that waits for an mbarrier may go on.
inline bool parked(const Warp& w) {
  return w.parked && !w.gave_up && *w.parked >> 63 == w.parked_parity;
}

}  // namespace vgpu
