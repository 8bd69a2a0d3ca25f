// The operations of clusters, mbarriers and bulk copies: in the table of every instruction set, but
// compiled once.
#pragma once

#include "exec/check.h"
#include "exec/mbarrier.h"
#include "exec/op_table.h"

namespace vgpu {

// Bits of Ins::extra of mbarrier.arrive.
inline constexpr u32 kOnlyBytes = 1;       // expect_tx or complete_tx alone
inline constexpr u32 kCompletesBytes = 2;  // complete_tx
inline constexpr u32 kDrops = 4;
inline constexpr u32 kNoComplete = 8;
// Of barrier.cluster.arrive.
inline constexpr u32 kAligned = 1;
inline constexpr u32 kRelaxed = 2;

// Warps that are parked at an mbarrier look again: something that completes there was issued.
void wake(Warp& w, const u8* mbarrier);

// For the counters, where they are on: a copy to CTAs of these ranks, an access to another CTA's
// shared memory, and a wait that has ended.
void count_bulk(Warp& w, const BulkCopy& copy, u32 ranks);
void count_remote(Warp& w, const Cta& to, u32 bytes);
void count_mbarrier_wait(Warp& w);

void register_cluster(OpTable&);
void register_bulk(OpTable&);
void register_tensor_map(OpTable&);

namespace watch {
void mbarrier_made(Warp& w, Cta& cta, u32 at, int lane);
void mbarrier_arrives(Warp& w, Cta& cta, u32 at, bool counts);
void mbarrier_passed(Warp& w, Cta& cta, u32 at, u32 parity);
// A copy that completes there is issued, by the async proxy or not.
void mbarrier_completes(Warp& w, Cta& cta, u32 at, bool proxy, int lane);
void async_fence(Warp& w, MadeVisible made);
void cluster_arrives(Warp& w, bool releases);
void cluster_waited(Warp& w);
}  // namespace watch

}  // namespace vgpu
