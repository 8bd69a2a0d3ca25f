#include "exec/resident.h"

#include <cstring>
#include <utility>

#include "exec/call_stack.h"
#include "exec/mbarrier.h"

namespace vgpu {
namespace {

void fill(u8* registers, Special which, u32 value) {
  u32* to = reinterpret_cast<u32*>(registers + special_offset(which));
  for (int l = 0; l < kWarpSize; ++l) to[l] = value;
}

// FNV-1a over 64-bit words.
u64 mix(u64 hash, const void* from, size_t bytes) {
  const u8* p = static_cast<const u8*>(from);
  for (; bytes >= 8; bytes -= 8, p += 8) {
    u64 word;
    std::memcpy(&word, p, 8);
    hash = (hash ^ word) * 0x100000001b3ull;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

Resident::Buffer Resident::make_buffer(size_t bytes) {
  return Buffer(static_cast<u8*>(take_block(bytes)));
}

Resident::Resident(const LaunchState& launch, u32 multiprocessors, u32 grid_id) : launch_(launch) {
  const Program& p = *launch.program;
  const u32* shape = launch.cluster;
  threads_ = launch.block[0] * launch.block[1] * launch.block[2];
  cta_warps_ = (threads_ + kWarpSize - 1) / kWarpSize;
  ctas_.resize(shape[0] * shape[1] * shape[2]);
  warps_.resize(cta_warps_ * ctas_.size());
  shared_bytes_ = p.static_shared_bytes + launch.dynamic_shared;
  shared_stride_ = (shared_bytes_ + 64 + 1023) / 1024 * 1024;
  const bool shadows = launch.checks && launch.checks->has(kInitcheck);
  warp_bytes_ = static_cast<size_t>(p.register_bytes) * (shadows ? 2 : 1);
  registers_ = make_buffer(warp_bytes_ * warps_.size());
  shared_ = make_buffer(shared_stride_ * ctas_.size());
  const size_t warp_local = static_cast<size_t>(launch.local_bytes) * kWarpSize;
  local_ = make_buffer(warp_local * warps_.size());
  const u32 paths = kDivergenceDepth + most_calls(launch);
  paths_ = make_buffer(paths * warps_.size() * sizeof(DivergenceEntry));
  cluster_.size = static_cast<u32>(ctas_.size());
  cluster_.ctas = ctas_.data();
  cluster_.warps = warps_.data();
  cluster_.warp_count = static_cast<u32>(warps_.size());
  for (size_t k = 0; k < warps_.size(); ++k) {
    Warp& w = warps_[k];
    const size_t rank = k / cta_warps_;
    w.registers = registers_.get() + k * warp_bytes_;
    w.shared = shared_.get() + rank * shared_stride_;
    w.shared_bytes = shared_bytes_;
    w.shared_base = static_cast<u32>(rank) << kSharedSpanBits;
    w.local_bytes = launch.local_bytes;
    w.local = local_.get() + k * warp_local;
    w.stack = reinterpret_cast<DivergenceEntry*>(paths_.get()) + k * paths;
    w.stack_room = paths;
    w.index = static_cast<u32>(k % cta_warps_);
    w.cta = &ctas_[rank];
    w.launch = const_cast<LaunchState*>(&launch_);
    w.cta->rank = static_cast<u32>(rank);
    set_constants(w, multiprocessors, grid_id);
  }
  if (launch.checks) make_checks();
}

Resident::~Resident() {
  for (Warp& w : warps_) {
    std::free(w.copies);
    std::free(w.wgmma.ring);
  }
}

void Resident::make_checks() {
  const Program& p = *launch_.program;
  warp_checks_.resize(warps_.size());
  slots_.resize(warps_.size() * p.watched_slots);
  const size_t warp_local = static_cast<size_t>(launch_.local_bytes) * kWarpSize;
  local_written_ = make_buffer(warp_local * warps_.size());
  shared_written_ = make_buffer(shared_stride_ * ctas_.size());
  cta_checks_.resize(ctas_.size());
  const size_t cells = shared_bytes_ * sizeof(SharedCell) * ctas_.size();
  if (launch_.checks->has(kRacecheck)) {
    cells_ = make_buffer(cells);
    std::memset(cells_.get(), 0, cells);
  }
  for (size_t k = 0; k < ctas_.size(); ++k) {
    cta_checks_[k].cluster = &cluster_check_;
    cta_checks_[k].shared_written = shared_written_.get() + k * shared_stride_;
    if (cells_)
      cta_checks_[k].cells = reinterpret_cast<SharedCell*>(cells_.get()) + k * shared_bytes_;
  }
  for (size_t k = 0; k < warps_.size(); ++k) {
    WarpCheck& check = warp_checks_[k];
    check.slots = slots_.data() + k * p.watched_slots;
    check.number = static_cast<u32>(k);
    check.shadow = p.register_bytes;
    check.local_written = local_written_.get() + k * warp_local;
    warps_[k].check = &check;
  }
}

void Resident::start(u64 linear) {
  const u32* shape = launch_.cluster;
  const u32 clusters[2] = {launch_.grid[0] / shape[0], launch_.grid[1] / shape[1]};
  cluster_.id[0] = static_cast<u32>(linear % clusters[0]);
  cluster_.id[1] = static_cast<u32>(linear / clusters[0] % clusters[1]);
  cluster_.id[2] = static_cast<u32>(linear / clusters[0] / clusters[1]);
  cluster_.generation = 0;
  cluster_.loads.clear();
  cluster_.stores.clear();
  cluster_.arrivals.clear();
  for (u32 rank = 0; rank < cluster_.size; ++rank) {
    Cta& cta = ctas_[rank];
    cta = Cta();
    cta.cluster = &cluster_;
    cta.rank = rank;
    cta.shared = shared_.get() + rank * shared_stride_;
    cta.shared_bytes = shared_bytes_;
    cta.warps = cta_warps_;
    const u32 place[3] = {rank % shape[0], rank / shape[0] % shape[1], rank / shape[0] / shape[1]};
    for (u32 d = 0; d < 3; ++d) cta.id[d] = cluster_.id[d] * shape[d] + place[d];
    // Shared memory holds whatever was there: make a read before a write visible.
    std::memset(cta.shared, 0xff, shared_bytes_);
  }
  still = idle = 0;
  for (Warp& w : warps_) {
    const u32 first = w.index * kWarpSize;
    const u32 count = threads_ - first;
    w.mask = w.live = count >= kWarpSize ? kFullMask : (1u << count) - 1;
    w.pc = 0;
    w.reconverge = -1;
    w.depth = 0;
    w.waiting = w.done = w.gave_up = w.woken = w.looked = w.in_cluster_wait = false;
    w.parked = nullptr;
    w.cluster_arrived = 0;
    w.copy_head = w.copy_count = w.group = w.copies_issued = 0;
    std::memset(w.bulk_group, 0, sizeof(w.bulk_group));
    set_cluster_registers(w);
    w.wgmma = {w.wgmma.ring, w.wgmma.capacity, 0, 0, 0, 0};
    w.register_limit = launch_.register_limit;
  }
  if (!launch_.checks) return;
  for (u32 rank = 0; rank < cluster_.size; ++rank) ctas_[rank].check = &cta_checks_[rank];
  start_checks(cluster_, shared_bytes_);
}

void Resident::set_cluster_registers(Warp& w) {
  const u64 read = launch_.program->specials;
  for (u32 d = 0; d < 3; ++d) {
    const auto uniform = [&](Special first, u32 value) {
      const u32 which = static_cast<u32>(first) + d;
      if (read >> which & 1) fill(w.registers, static_cast<Special>(which), value);
    };
    uniform(Special::kCtaidX, w.cta->id[d]);
    uniform(Special::kClusterIdX, cluster_.id[d]);
  }
}

void Resident::count_into(Counters& counters, std::vector<std::unique_ptr<BlockSample>> samples) {
  samples_ = std::move(samples);
  for (Warp& w : warps_) {
    w.sample = samples_.empty() ? nullptr : samples_[w.cta->rank].get();
    w.counters = w.sample ? &w.sample->counters : &counters;
  }
}

void Resident::set_constants(Warp& w, u32 multiprocessors, u32 grid_id) {
  const auto lanes = [&](Special s) {
    return reinterpret_cast<u32*>(w.registers + special_offset(s));
  };
  // Most kernels read a few of these, and a small one would wait longer for the others than it
  // runs.
  const u64 read = launch_.program->specials;
  const auto uniform = [&](Special s, u32 value) {
    if (read >> static_cast<u32>(s) & 1) fill(w.registers, s, value);
  };
  const u32 first = w.index * kWarpSize;
  u32 x = first % launch_.block[0];
  u32 y = first / launch_.block[0] % launch_.block[1];
  u32 z = first / launch_.block[0] / launch_.block[1];
  for (u32 l = 0; read && l < kWarpSize; ++l) {
    lanes(Special::kTidX)[l] = x;
    lanes(Special::kTidY)[l] = y;
    lanes(Special::kTidZ)[l] = z;
    if (++x == launch_.block[0]) {
      x = 0;
      if (++y == launch_.block[1]) {
        y = 0;
        ++z;
      }
    }
    lanes(Special::kLaneId)[l] = l;
    lanes(Special::kLaneMaskEq)[l] = 1u << l;
    lanes(Special::kLaneMaskLt)[l] = (1u << l) - 1;
    lanes(Special::kLaneMaskLe)[l] = (2u << l) - 1;
    lanes(Special::kLaneMaskGt)[l] = ~((2u << l) - 1);
    lanes(Special::kLaneMaskGe)[l] = ~((1u << l) - 1);
    reinterpret_cast<u64*>(lanes(Special::kParamBase))[l] = reinterpret_cast<u64>(launch_.params);
  }
  for (u32 d = 0; d < 3; ++d) {
    uniform(static_cast<Special>(static_cast<u32>(Special::kNtidX) + d), launch_.block[d]);
    uniform(static_cast<Special>(static_cast<u32>(Special::kNctaidX) + d), launch_.grid[d]);
    const u32 shape[3] = {launch_.cluster[0], launch_.cluster[1], launch_.cluster[2]};
    const u32 row = d == 1 ? shape[0] : d == 2 ? shape[0] * shape[1] : 1;
    uniform(static_cast<Special>(static_cast<u32>(Special::kClusterCtaidX) + d),
            w.cta->rank / row % shape[d]);
    uniform(static_cast<Special>(static_cast<u32>(Special::kClusterNctaidX) + d), shape[d]);
    uniform(static_cast<Special>(static_cast<u32>(Special::kNclusterIdX) + d),
            launch_.grid[d] / shape[d]);
  }
  uniform(Special::kWarpId, w.index);
  uniform(Special::kNwarpId, cta_warps_);
  uniform(Special::kClusterRank, w.cta->rank);
  uniform(Special::kClusterSize, static_cast<u32>(ctas_.size()));
  uniform(Special::kExplicitCluster, launch_.explicit_cluster);
  uniform(Special::kSmId, 0);
  uniform(Special::kNsmId, multiprocessors);
  uniform(Special::kGridId, grid_id);
  uniform(Special::kDynamicSmem, launch_.dynamic_shared);
  uniform(Special::kTotalSmem, shared_bytes_);
  uniform(Special::kZero, 0);
  uniform(Special::kWorkspaceHigh, static_cast<u32>(launch_.workspace >> 32));
  uniform(Special::kWorkspaceLow, static_cast<u32>(launch_.workspace));
  for (const Constant& c : launch_.program->constants) {
    u8* at = w.registers + c.offset;
    if (c.width == Constant::Width::kPredicate) {
      *reinterpret_cast<u32*>(at) = static_cast<u32>(c.value);
      continue;
    }
    const u64 value = c.value + (c.shared ? w.shared_base : 0);
    for (int l = 0; l < kWarpSize; ++l) {
      if (c.width == Constant::Width::kWord) {
        reinterpret_cast<u32*>(at)[l] = static_cast<u32>(value);
      } else {
        reinterpret_cast<u64*>(at)[l] = value;
      }
    }
  }
}

std::string Resident::where() const {
  std::string text;
  for (size_t k = 0; k < warps_.size();) {
    const Warp& w = warps_[k];
    size_t end = k + 1;
    const auto same = [&](const Warp& o) {
      return o.cta == w.cta && o.done == w.done && o.waiting == w.waiting && o.pc == w.pc &&
             (!w.waiting || o.barrier_id == w.barrier_id) && o.parked == w.parked;
    };
    while (end < warps_.size() && same(warps_[end])) ++end;
    text += text.empty() ? "" : "; ";
    if (w.index == 0 && cluster_.size > 1) text += "CTA " + std::to_string(w.cta->rank) + ": ";
    const u32 last = warps_[end - 1].index;
    text += end == k + 1 ? "warp " + std::to_string(w.index)
                         : "warps " + std::to_string(w.index) + " to " + std::to_string(last);
    const std::string line = std::to_string(launch_.code[w.pc].line);
    if (w.done) {
      text += end == k + 1 ? " has ended" : " have ended";
    } else if (w.waiting && w.barrier_id == kWaitsForWarpgroup) {
      text += " at a wgmma wait for other warps of the warpgroup, PTX line " + line;
    } else if (w.waiting && w.barrier_id == kWaitsForRegisters) {
      text += " at setmaxnreg.inc for " +
              std::to_string(launch_.code[w.pc].extra - w.register_limit) +
              " registers a thread more, where " + std::to_string(w.cta->free_registers) +
              " are free, PTX line " + line;
    } else if (w.waiting) {
      const Barrier& b = w.cta->barriers[w.barrier_id];
      const u32 expected = b.all ? (w.cta->warps - w.cta->warps_done) * kWarpSize : b.expected;
      text += " at barrier " + std::to_string(w.barrier_id) + ", where " +
              std::to_string(b.arrived) + " of " + std::to_string(expected) +
              " threads have come, PTX line " + line;
    } else if (w.parked || w.looked) {
      text += (end == k + 1 ? " waits " : " wait ") + describe_wait(w) + ", PTX line " + line;
    } else if (w.in_cluster_wait) {
      text += " at barrier.cluster.wait, PTX line " + line;
    } else {
      text += " in a loop at PTX line " + line;
    }
    k = end;
  }
  return text;
}

bool Resident::stands_still() {
  u64 hash = 0xcbf29ce484222325ull;
  for (const Warp& w : warps_) {
    const u64 place[] = {static_cast<u64>(w.pc), w.mask, w.live, w.depth, w.done, w.copy_count};
    hash = mix(hash, place, sizeof(place));
    hash = mix(hash, w.registers, launch_.program->register_bytes);
  }
  for (const Cta& cta : ctas_) hash = mix(hash, cta.shared, shared_bytes_);
  const u64 under_way[] = {cluster_.generation, cluster_.loads.size(), cluster_.stores.size()};
  hash = mix(hash, under_way, sizeof(under_way));
  hash =
      mix(hash, local_.get(), static_cast<size_t>(launch_.local_bytes) * kWarpSize * warps_.size());
  still = hash == signature_ ? still + 1 : 0;
  signature_ = hash;
  return still > 0;
}

}  // namespace vgpu
