// What checks know of mbarriers, clusters and bulk copies.
#include "exec/async.h"
#include "exec/watch.h"

namespace vgpu::watch {

void mbarrier_made(Warp&, Cta&, u32, int) {}
void mbarrier_arrives(Warp&, Cta&, u32, bool) {}
void mbarrier_passed(Warp&, Cta&, u32, u32) {}
void async_fence(Warp&) {}
void cluster_arrives(Warp&) {}
void cluster_waited(Warp&) {}
void bulk_issued(Warp&, const BulkCopy&) {}
void bulk_landed(Warp&, const BulkCopy&) {}

}  // namespace vgpu::watch
