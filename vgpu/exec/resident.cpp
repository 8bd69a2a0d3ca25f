#include "exec/resident.h"

#include <cstring>
#include <utility>

#include "exec/call_stack.h"

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
  threads_ = launch.block[0] * launch.block[1] * launch.block[2];
  warps_.resize((threads_ + kWarpSize - 1) / kWarpSize);
  shared_bytes_ = p.static_shared_bytes + launch.dynamic_shared;
  const bool shadows = launch.checks && launch.checks->has(kInitcheck);
  warp_bytes_ = static_cast<size_t>(p.register_bytes) * (shadows ? 2 : 1);
  registers_ = make_buffer(warp_bytes_ * warps_.size());
  shared_ = make_buffer(shared_bytes_ + 64);
  const size_t warp_local = static_cast<size_t>(launch.local_bytes) * kWarpSize;
  local_ = make_buffer(warp_local * warps_.size());
  const u32 paths = kDivergenceDepth + most_calls(launch);
  paths_ = make_buffer(paths * warps_.size() * sizeof(DivergenceEntry));
  for (size_t k = 0; k < warps_.size(); ++k) {
    Warp& w = warps_[k];
    w.registers = registers_.get() + k * warp_bytes_;
    w.shared = shared_.get();
    w.shared_bytes = shared_bytes_;
    w.local_bytes = launch.local_bytes;
    w.local = local_.get() + k * warp_local;
    w.stack = reinterpret_cast<DivergenceEntry*>(paths_.get()) + k * paths;
    w.stack_room = paths;
    w.index = static_cast<u32>(k);
    w.cta = &cta_;
    w.launch = const_cast<LaunchState*>(&launch_);
    set_constants(w, multiprocessors, grid_id);
  }
  if (launch.checks) make_checks();
}

Resident::~Resident() {
  for (Warp& w : warps_) std::free(w.copies);
}

void Resident::make_checks() {
  const Program& p = *launch_.program;
  warp_checks_.resize(warps_.size());
  slots_.resize(warps_.size() * p.watched_slots);
  const size_t warp_local = static_cast<size_t>(launch_.local_bytes) * kWarpSize;
  local_written_ = make_buffer(warp_local * warps_.size());
  shared_written_ = make_buffer(shared_bytes_ + 64);
  cta_check_.shared_written = shared_written_.get();
  if (launch_.checks->has(kRacecheck)) {
    cells_ = make_buffer(shared_bytes_ * sizeof(SharedCell));
    std::memset(cells_.get(), 0, shared_bytes_ * sizeof(SharedCell));
    cta_check_.cells = reinterpret_cast<SharedCell*>(cells_.get());
  }
  for (size_t k = 0; k < warps_.size(); ++k) {
    WarpCheck& check = warp_checks_[k];
    check.slots = slots_.data() + k * p.watched_slots;
    check.shadow = p.register_bytes;
    check.local_written = local_written_.get() + k * warp_local;
    warps_[k].check = &check;
  }
}

void Resident::start(u64 linear) {
  cta_ = Cta();
  cta_.warps = static_cast<u32>(warps_.size());
  cta_.id[0] = static_cast<u32>(linear % launch_.grid[0]);
  cta_.id[1] = static_cast<u32>(linear / launch_.grid[0] % launch_.grid[1]);
  cta_.id[2] = static_cast<u32>(linear / launch_.grid[0] / launch_.grid[1]);
  still = 0;
  // Shared memory holds whatever was there: make a read before a write visible.
  std::memset(shared_.get(), 0xff, shared_bytes_);
  for (Warp& w : warps_) {
    const u32 first = w.index * kWarpSize;
    const u32 count = threads_ - first;
    w.mask = w.live = count >= kWarpSize ? kFullMask : (1u << count) - 1;
    w.pc = 0;
    w.reconverge = -1;
    w.depth = 0;
    w.waiting = w.done = false;
    w.copy_head = w.copy_count = w.group = 0;
    fill(w.registers, Special::kCtaidX, cta_.id[0]);
    fill(w.registers, Special::kCtaidY, cta_.id[1]);
    fill(w.registers, Special::kCtaidZ, cta_.id[2]);
  }
  if (!launch_.checks) return;
  cta_.check = &cta_check_;
  start_checks(cta_, warps_.data(), shared_bytes_);
}

void Resident::count_into(Counters& counters, std::unique_ptr<BlockSample> sample) {
  sample_ = std::move(sample);
  for (Warp& w : warps_) {
    w.sample = sample_.get();
    w.counters = sample_ ? &sample_->counters : &counters;
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
  }
  uniform(Special::kWarpId, w.index);
  uniform(Special::kNwarpId, static_cast<u32>(warps_.size()));
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
    for (int l = 0; l < kWarpSize; ++l) {
      if (c.width == Constant::Width::kWord) {
        reinterpret_cast<u32*>(at)[l] = static_cast<u32>(c.value);
      } else {
        reinterpret_cast<u64*>(at)[l] = c.value;
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
      return o.done == w.done && o.waiting == w.waiting && o.pc == w.pc &&
             (!w.waiting || o.barrier_id == w.barrier_id);
    };
    while (end < warps_.size() && same(warps_[end])) ++end;
    text += text.empty() ? "" : "; ";
    text += end == k + 1 ? "warp " + std::to_string(k)
                         : "warps " + std::to_string(k) + " to " + std::to_string(end - 1);
    const std::string line = std::to_string(launch_.code[w.pc].line);
    if (w.done) {
      text += end == k + 1 ? " has ended" : " have ended";
    } else if (w.waiting) {
      const Barrier& b = cta_.barriers[w.barrier_id];
      const u32 expected = b.all ? (cta_.warps - cta_.warps_done) * kWarpSize : b.expected;
      text += " at barrier " + std::to_string(w.barrier_id) + ", where " +
              std::to_string(b.arrived) + " of " + std::to_string(expected) +
              " threads have come, PTX line " + line;
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
  hash = mix(hash, shared_.get(), shared_bytes_);
  hash = mix(hash, local_.get(), static_cast<size_t>(launch_.local_bytes) * threads_);
  still = hash == signature_ ? still + 1 : 0;
  signature_ = hash;
  return still > 0;
}

}  // namespace vgpu
