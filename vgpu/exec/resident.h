// A cluster's memory and warps, nearly always those of one CTA; used again for one cluster after
// the other.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "exec/blocks.h"
#include "exec/check.h"
#include "exec/cluster.h"
#include "exec/sample.h"
#include "exec/warp.h"

namespace vgpu {

class Resident {
 public:
  Resident(const LaunchState& launch, u32 multiprocessors, u32 grid_id);
  ~Resident();
  Resident(const Resident&) = delete;

  // `linear` counts clusters.
  void start(u64 linear);
  std::vector<Warp>& warps() { return warps_; }
  Cluster& cluster() { return cluster_; }
  // From now on until the next start: what counters are added to, and the sample, or null.
  void count_into(Counters& counters, std::vector<std::unique_ptr<BlockSample>> samples);
  std::vector<std::unique_ptr<BlockSample>>& samples() { return samples_; }

  // Where every warp stands, for people.
  std::string where() const;
  // True when nothing that the CTA can see of itself has changed since the last call.
  bool stands_still();
  int still = 0;  // how often that was so in a row
  int idle = 0;   // rounds in a row in which warps only looked at mbarriers

 private:
  struct FreeDeleter {
    void operator()(void* p) const { give_block(p); }
  };
  using Buffer = std::unique_ptr<u8, FreeDeleter>;
  static Buffer make_buffer(size_t bytes);

  void set_constants(Warp& w, u32 multiprocessors, u32 grid_id);
  void set_cluster_registers(Warp& w);
  void make_checks();

  const LaunchState& launch_;
  u32 threads_ = 0;    // of a CTA
  u32 cta_warps_ = 0;  // of a CTA
  u32 shared_bytes_ = 0;
  size_t shared_stride_ = 0;
  size_t warp_bytes_ = 0;  // registers, and their shadows
  u64 signature_ = 0;
  Cluster cluster_ = {};
  std::vector<Cta> ctas_;
  std::vector<std::unique_ptr<BlockSample>> samples_;  // of each CTA, or none
  std::vector<Warp> warps_;
  Buffer registers_, shared_, local_;
  Buffer paths_;
  // Only where something is watched:
  ClusterCheck cluster_check_;
  std::vector<CtaCheck> cta_checks_;
  std::vector<WarpCheck> warp_checks_;
  std::vector<SlotShadow> slots_;
  Buffer shared_written_, local_written_, cells_;
};

}  // namespace vgpu
