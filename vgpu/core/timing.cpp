#include "core/timing.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

namespace vgpu {
namespace {

constexpr double kPartitions = 4;          // schedulers of a multiprocessor, each with its units
constexpr double kIntegerResults = 64;     // each clock, on every device here
constexpr double kWavefrontsPerClock = 1;  // of shared memory: 32 banks of 4 bytes

struct Bound {
  const char* name;
  double clocks;
};

// What all samples counted, as of one block.
class Average {
 public:
  Average(const Counters& sum, size_t samples) : c_(sum), n_(static_cast<double>(samples)) {}
  double of(u64 count) const { return static_cast<double>(count) / n_; }
  double lanes(Unit unit) const { return kWarpSize * of(c_.results[static_cast<int>(unit)]); }
  double mma() const { return of(c_.mma_cost) / 16; }
  double wgmma() const { return of(c_.wgmma_cost) / 16; }
  double issued() const {
    double n = of(c_.predicated_off);
    for (int k = 1; k < static_cast<int>(Category::kCount); ++k) n += of(c_.instructions[k]);
    return n;
  }
  double wavefronts() const { return of(c_.shared_wavefronts) / kWavefrontsPerClock; }
  bool loads() const { return c_.loads.requests != 0; }

 private:
  const Counters& c_;
  double n_;
};

// Clocks that a block keeps each unit of a multiprocessor busy, all partitions working.
std::vector<Bound> units(const Rates& rates, const Average& block) {
  return {{"tensor", block.mma() / rates.mma_flop + block.wgmma() / rates.wgmma_flop},
          {"issue", block.issued() / kPartitions},
          {"fp32", block.lanes(Unit::kFloat) / rates.fp32_results},
          {"fp16", block.lanes(Unit::kHalf) / rates.half_results},
          {"fp64", block.lanes(Unit::kDouble) / rates.fp64_results},
          {"integer", block.lanes(Unit::kInteger) / kIntegerResults},
          {"special", block.lanes(Unit::kSpecial) / rates.special_results},
          {"shared memory", block.wavefronts()}};
}

// Sectors that L2 moves for a block: L1 keeps what the block has read, and stores go through it.
double sectors_of_block(LaunchWork& work, const Counters& sum) {
  u64 sectors = sum.stores.sectors + sum.atomics.sectors;
  for (BlockSample& s : work.samples) sectors += s.read.sorted().size();
  return static_cast<double>(sectors) / static_cast<double>(work.samples.size());
}

// Bytes that the grid touches of one side (read or written), each once. Sectors are told apart by
// the tensor that they belong to; a tensor's part is what lies between the first and the last
// sector that any sample touched, unless all blocks together touch less.
u64 footprint(LaunchWork& work, Sectors BlockSample::* side) {
  std::sort(work.pointers.begin(), work.pointers.end());
  struct Span {
    u64 first, last, touched;
  };
  std::map<std::ptrdiff_t, Span> spans;
  for (BlockSample& s : work.samples) {
    for (const u64 sector : (s.*side).sorted()) {
      const auto tensor = std::upper_bound(work.pointers.begin(), work.pointers.end(),
                                           sector * kSectorBytes + kSectorBytes - 1) -
                          work.pointers.begin();
      Span& span = spans.try_emplace(tensor, Span{sector, sector, 0}).first->second;
      span.first = std::min(span.first, sector);
      span.last = std::max(span.last, sector);
      ++span.touched;
    }
  }
  double sectors = 0;
  for (const auto& [tensor, span] : spans) {
    const double all = static_cast<double>(span.touched) * static_cast<double>(work.blocks) /
                       static_cast<double>(work.samples.size());
    sectors += std::min(static_cast<double>(span.last - span.first + 1), all);
  }
  return static_cast<u64>(sectors) * kSectorBytes;
}

}  // namespace

ModelledTime model_time(const DeviceModel& device, LaunchWork& work) {
  ModelledTime t;
  if (work.samples.empty()) return t;
  Counters sum;
  for (const BlockSample& s : work.samples) sum.add(s.counters);
  const Average block(sum, work.samples.size());
  const double sms = device.multiprocessors;
  const double blocks = static_cast<double>(work.blocks);
  const double resident = std::max(work.resident, 1);

  const std::vector<Bound> bounds = units(device.rates, block);
  const Bound slowest =
      *std::max_element(bounds.begin(), bounds.end(),
                        [](const Bound& a, const Bound& b) { return a.clocks < b.clocks; });
  // A warp issues at most one instruction a clock, and waits for memory at least once.
  const Bound alone = {
      "latency", block.issued() / work.warps + (block.loads() ? device.rates.memory_clocks : 0)};
  t.bound_by = alone.name;
  const auto wave = [&](double on_one) {
    const double partitions = std::min(kPartitions, on_one * work.warps);
    const double busy = on_one * slowest.clocks * kPartitions / partitions;
    if (busy >= alone.clocks) t.bound_by = slowest.name;
    return std::max(busy, alone.clocks);
  };
  const double most = std::ceil(blocks / sms);  // blocks of the busiest multiprocessor
  const double full = std::floor(most / resident);
  const double rest = most - full * resident;
  double clocks = rest ? wave(rest) : 0;
  if (full) clocks += full * wave(resident);

  const double sectors = sectors_of_block(work, sum);
  const double l2 = blocks * sectors * kSectorBytes / device.rates.l2_bytes;
  if (l2 > clocks) t.bound_by = "l2";
  double seconds = std::max(clocks, l2) / (device.clock_khz * 1e3);
  t.dram_bytes = footprint(work, &BlockSample::read) + footprint(work, &BlockSample::written);
  const double dram = static_cast<double>(t.dram_bytes) / device.dram_bandwidth();
  if (dram > seconds) t.bound_by = "dram";
  seconds = std::max(seconds, dram);
  t.ns = static_cast<u64>(std::llround(seconds * 1e9));
  t.waves = blocks / (sms * resident);
  t.share = std::min(1.0, t.waves);
  return t;
}

u64 copy_ns(const DeviceModel& device, u64 bytes, bool over_pcie) {
  // A copy inside of the device reads and writes.
  const double bandwidth =
      over_pcie ? device.rates.host_mb_per_s * 1e6 : device.dram_bandwidth() / 2;
  return static_cast<u64>(std::llround(static_cast<double>(bytes) / bandwidth * 1e9));
}

}  // namespace vgpu
