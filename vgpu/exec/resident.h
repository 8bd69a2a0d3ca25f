// A CTA's memory and warps; used again for one CTA after the other.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "exec/blocks.h"
#include "exec/check.h"
#include "exec/sample.h"
#include "exec/warp.h"

namespace vgpu {

class Resident {
 public:
  Resident(const LaunchState& launch, u32 multiprocessors, u32 grid_id);
  ~Resident();
  Resident(const Resident&) = delete;

  void start(u64 linear);
  std::vector<Warp>& warps() { return warps_; }
  Cta& cta() { return cta_; }
  // From now on until the next start: what counters are added to, and the sample, or null.
  void count_into(Counters& counters, std::unique_ptr<BlockSample> sample);
  std::unique_ptr<BlockSample>& sample() { return sample_; }

  // Where every warp stands, for people.
  std::string where() const;
  // True when nothing that the CTA can see of itself has changed since the last call.
  bool stands_still();
  int still = 0;  // how often that was so in a row

 private:
  struct FreeDeleter {
    void operator()(void* p) const { give_block(p); }
  };
  using Buffer = std::unique_ptr<u8, FreeDeleter>;
  static Buffer make_buffer(size_t bytes);

  void set_constants(Warp& w, u32 multiprocessors, u32 grid_id);
  void make_checks();

  const LaunchState& launch_;
  u32 threads_ = 0;
  u32 shared_bytes_ = 0;
  size_t warp_bytes_ = 0;  // registers, and their shadows
  u64 signature_ = 0;
  Cta cta_ = {};
  std::unique_ptr<BlockSample> sample_;
  std::vector<Warp> warps_;
  Buffer registers_, shared_, local_;
  Buffer paths_;
  // Only where something is watched:
  CtaCheck cta_check_ = {};
  std::vector<WarpCheck> warp_checks_;
  std::vector<SlotShadow> slots_;
  Buffer shared_written_, local_written_, cells_;
};

}  // namespace vgpu
