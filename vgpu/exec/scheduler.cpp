// Every host thread takes CTAs in order. It runs one CTA at a time, its warps in turn, until each
// blocks or ends. A CTA that spins (on a semaphore of another CTA, say) is set aside and the next
// one started beside it, so a kernel makes progress whenever it would with its CTAs resident on a
// GPU.
#include "exec/scheduler.h"

#include <xmmintrin.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace vgpu {
namespace {

constexpr u64 kSlice = 1 << 18;  // instructions of a warp before others get a turn
constexpr int kLongSlices = 64;  // turns that a CTA may have before others get one

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<u8, FreeDeleter>;

Buffer make_buffer(size_t bytes) {
  void* p = nullptr;
  if (posix_memalign(&p, 4096, bytes ? bytes : 64) != 0) throw std::bad_alloc();
  return Buffer(static_cast<u8*>(p));
}

void fill(u8* registers, Special which, u32 value) {
  u32* to = reinterpret_cast<u32*>(registers + special_offset(which));
  for (int l = 0; l < kWarpSize; ++l) to[l] = value;
}

// A CTA's memory and warps; used again for one CTA after the other.
class Resident {
 public:
  Resident(const LaunchState& launch, u32 multiprocessors, u32 grid_id) : launch_(launch) {
    const Program& p = *launch.program;
    threads_ = launch.block[0] * launch.block[1] * launch.block[2];
    warps_.resize((threads_ + kWarpSize - 1) / kWarpSize);
    shared_bytes_ = p.static_shared_bytes + launch.dynamic_shared;
    registers_ = make_buffer(static_cast<size_t>(p.register_bytes) * warps_.size());
    shared_ = make_buffer(shared_bytes_ + 64);
    local_ = make_buffer(static_cast<size_t>(p.local_bytes) * kWarpSize * warps_.size());
    for (size_t k = 0; k < warps_.size(); ++k) {
      Warp& w = warps_[k];
      w.registers = registers_.get() + k * p.register_bytes;
      w.shared = shared_.get();
      w.shared_bytes = shared_bytes_;
      w.local_bytes = p.local_bytes;
      w.local = local_.get() + k * p.local_bytes * kWarpSize;
      w.index = static_cast<u32>(k);
      w.cta = &cta_;
      w.launch = const_cast<LaunchState*>(&launch_);
      set_constants(w, multiprocessors, grid_id);
    }
  }
  ~Resident() {
    for (Warp& w : warps_) std::free(w.copies);
  }
  Resident(const Resident&) = delete;

  void start(u64 linear) {
    cta_ = Cta();
    cta_.warps = static_cast<u32>(warps_.size());
    cta_.id[0] = static_cast<u32>(linear % launch_.grid[0]);
    cta_.id[1] = static_cast<u32>(linear / launch_.grid[0] % launch_.grid[1]);
    cta_.id[2] = static_cast<u32>(linear / launch_.grid[0] / launch_.grid[1]);
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
  }

  std::vector<Warp>& warps() { return warps_; }
  Cta& cta() { return cta_; }

 private:
  void set_constants(Warp& w, u32 multiprocessors, u32 grid_id) {
    const auto lanes = [&](Special s) {
      return reinterpret_cast<u32*>(w.registers + special_offset(s));
    };
    const auto uniform = [&](Special s, u32 value) { fill(w.registers, s, value); };
    for (u32 l = 0; l < kWarpSize; ++l) {
      const u32 t = w.index * kWarpSize + l;
      lanes(Special::kTidX)[l] = t % launch_.block[0];
      lanes(Special::kTidY)[l] = t / launch_.block[0] % launch_.block[1];
      lanes(Special::kTidZ)[l] = t / launch_.block[0] / launch_.block[1];
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

  const LaunchState& launch_;
  u32 threads_ = 0;
  u32 shared_bytes_ = 0;
  Cta cta_ = {};
  std::vector<Warp> warps_;
  Buffer registers_, shared_, local_;
};

class Grid {
 public:
  Grid(const LaunchState& launch, const Isa& isa, u32 multiprocessors, u32 grid_id)
      : launch_(launch),
        isa_(isa),
        multiprocessors_(multiprocessors),
        grid_id_(grid_id),
        total_(static_cast<u64>(launch.grid[0]) * launch.grid[1] * launch.grid[2]) {}

  // What one host thread does until no CTA is left.
  void work() {
    // The program may have set flushing or a rounding mode on its own thread.
    const u32 callers = _mm_getcsr();
    _mm_setcsr(0x1f80);
    run_ctas();
    _mm_setcsr(callers);
  }

  u64 total() const { return total_; }
  GridResult result() {
    GridResult r;
    r.instructions = instructions_;
    r.counters = counters_;
    if (stop_) r.fault = report_;
    return r;
  }

 private:
  enum class Turn { kDone, kSpinning, kFault };

  void run_ctas() {
    Counters counters;  // of this host thread
    std::vector<std::unique_ptr<Resident>> running;
    std::vector<std::unique_ptr<Resident>> idle;
    size_t current = 0;
    bool want_another = true;
    while (!stop_) {
      if (want_another && running.size() < launch_.resident) {
        const u64 next = next_.fetch_add(1);
        if (next < total_) {
          if (idle.empty())
            idle.push_back(std::make_unique<Resident>(launch_, multiprocessors_, grid_id_));
          running.push_back(std::move(idle.back()));
          idle.pop_back();
          running.back()->start(next);
          for (Warp& w : running.back()->warps()) w.counters = &counters;
          current = running.size() - 1;
        }
      }
      if (running.empty()) break;
      const Turn turn = take_turns(*running[current]);
      if (turn == Turn::kFault) break;
      if (turn == Turn::kDone) {
        idle.push_back(std::move(running[current]));
        running.erase(running.begin() + static_cast<std::ptrdiff_t>(current));
        current = 0;
        want_another = running.empty();
      } else {
        // It spins, or is long: let another CTA run, a waiting one or a new one.
        want_another = true;
        current = (current + 1) % running.size();
      }
    }
    if (launch_.counting) {
      const std::lock_guard lock(mutex_);
      counters_.add(counters);
    }
    for (auto* list : {&running, &idle}) {
      for (auto& r : *list) {
        for (Warp& w : r->warps()) instructions_ += w.instructions;
      }
    }
  }

  // Runs the warps of a CTA in turn until all are done, or one has used up its slice.
  Turn take_turns(Resident& r) {
    Cta& cta = r.cta();
    bool spinning = false;
    int slices = 0;
    while (cta.warps_done < cta.warps) {
      bool progress = false;
      for (Warp& w : r.warps()) {
        if (w.done) continue;
        const u64 before = w.instructions;
        const u32 polls = w.polls;
        w.budget = before + kSlice;
        const Status status = launch_.counting ? isa_.run_counting(w) : isa_.run(w);
        progress |= w.instructions != before || w.done;
        if (w.done) ++cta.warps_done;
        // Nobody waits without looking at memory in order; but what is long lets others run, too.
        if (status == Status::kYield) spinning |= w.polls != polls || ++slices >= kLongSlices;
        if (status == Status::kFault) {
          stop(w.fault, r, w);
          return Turn::kFault;
        }
        if (stop_) return Turn::kFault;
      }
      if (!progress) {
        for (Warp& w : r.warps()) {
          if (w.done) continue;
          Fault fault;
          fault.kind = FaultKind::kBarrier;
          fault.detail =
              "deadlock: every remaining warp of the block waits at a barrier that cannot open";
          stop(fault, r, w);
          return Turn::kFault;
        }
      }
      if (spinning) return Turn::kSpinning;
    }
    return Turn::kDone;
  }

  void stop(const Fault& fault, Resident& r, const Warp& w) {
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    report_ = {fault, {r.cta().id[0], r.cta().id[1], r.cta().id[2]}, w.index, w.pc};
    stop_ = true;
  }

  const LaunchState& launch_;
  const Isa& isa_;
  u32 multiprocessors_;
  u32 grid_id_;
  u64 total_;
  std::atomic<u64> next_{0};
  std::atomic<u64> instructions_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  Counters counters_;
  FaultReport report_ = {};
};

// Host threads that wait for work between launches.
class Pool {
 public:
  // Runs job on the calling thread and on `helpers` others; returns when all have finished.
  void run(int helpers, const std::function<void()>& job) {
    const std::lock_guard one_launch(serial_);
    std::unique_lock lock(mutex_);
    while (static_cast<int>(threads_) < helpers) {
      ++threads_;
      std::thread([this] { loop(); }).detach();  // ends with the process
    }
    job_ = &job;
    wanted_ = helpers;
    running_ = helpers;
    start_.notify_all();
    lock.unlock();
    job();
    lock.lock();
    finished_.wait(lock, [&] { return running_ == 0; });
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      start_.wait(lock, [&] { return wanted_ > 0; });
      --wanted_;
      const std::function<void()>* job = job_;
      lock.unlock();
      (*job)();
      lock.lock();
      if (--running_ == 0) finished_.notify_all();
    }
  }

  std::mutex serial_;  // host threads that launch at once take turns
  std::mutex mutex_;
  std::condition_variable start_, finished_;
  const std::function<void()>* job_ = nullptr;
  int threads_ = 0;
  int wanted_ = 0;
  int running_ = 0;
};

}  // namespace

void grow_copies(Warp& w) {
  const u32 capacity = w.copy_capacity ? 2 * w.copy_capacity : 64;
  auto* ring = static_cast<AsyncCopy*>(std::malloc(capacity * sizeof(AsyncCopy)));
  if (!ring) std::abort();
  for (u32 k = 0; k < w.copy_count; ++k)
    ring[k] = w.copies[(w.copy_head + k) & (w.copy_capacity - 1)];
  std::free(w.copies);
  w.copies = ring;
  w.copy_capacity = capacity;
  w.copy_head = 0;
}

GridResult run_grid(const LaunchState& launch, const Isa& isa, int threads, u32 multiprocessors,
                    u32 grid_id) {
  static Pool* const pool = new Pool;
  Grid grid(launch, isa, multiprocessors, grid_id);
  const u64 wanted = std::min<u64>(grid.total(), static_cast<u64>(threads));
  if (wanted <= 1) {
    grid.work();
  } else {
    pool->run(static_cast<int>(wanted) - 1, [&] { grid.work(); });
  }
  return grid.result();
}

}  // namespace vgpu
