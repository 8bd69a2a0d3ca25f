// The model of memory is that of the profiler's metrics: a global request moves the 32-byte sectors
// that its lanes touch; a shared one of up to 4 bytes a lane is one phase, of 8 two (half-warps),
// of 16 four (quarter-warps), ldmatrix one for each matrix. A phase takes as many wavefronts as
// there are different 4-byte words in the worst of the 32 banks.
#include "exec/counters.h"

#include <algorithm>
#include <cstdlib>

#include "exec/sample.h"
#include "exec/warp.h"

namespace vgpu {
namespace {

constexpr u32 kBanks = 32;

template <class Lane>
const Lane* operand(const Warp& w, const Ins& i, int k) {
  return reinterpret_cast<const Lane*>(w.registers + i.ops[k]);
}

Traffic& traffic_of(Counters& c, Category access) {
  return access == Category::kStore ? c.stores : access == Category::kAtomic ? c.atomics : c.loads;
}

void count_global(Counters& c, BlockSample* sample, Category access, const u64* address,
                  const u32* bytes, u32 mask) {
  Traffic& t = traffic_of(c, access);
  u64 sectors[2 * kWarpSize];
  int touched = 0;
  for (u32 left = mask; left; left &= left - 1) {
    const int l = __builtin_ctz(left);
    t.bytes += bytes[l];
    if (!bytes[l]) continue;
    sectors[touched++] = address[l] / kSectorBytes;
    sectors[touched++] = (address[l] + bytes[l] - 1) / kSectorBytes;
  }
  std::sort(sectors, sectors + touched);
  touched = static_cast<int>(std::unique(sectors, sectors + touched) - sectors);
  t.sectors += static_cast<u64>(touched);
  if (sample && access != Category::kStore) sample->read.add(sectors, touched);
  if (sample && access != Category::kLoad) sample->written.add(sectors, touched);
  ++t.requests;
}

// The wavefronts of one phase: lanes [first, first + lanes), each with `words` words.
u32 wavefronts(const u32* address, u32 mask, int first, int lanes, u32 words) {
  u32 word[kWarpSize * 4];
  int n = 0;
  for (int l = first; l < first + lanes; ++l) {
    for (u32 k = 0; k < words && (mask >> l & 1u); ++k) word[n++] = address[l] / 4 + k;
  }
  std::sort(word, word + n);
  n = static_cast<int>(std::unique(word, word + n) - word);
  u32 in_bank[kBanks] = {};
  u32 worst = 0;
  for (int k = 0; k < n; ++k) worst = std::max(worst, ++in_bank[word[k] % kBanks]);
  return worst;
}

void count_shared(Counters& c, const u32* address, u32 mask, u32 bytes) {
  const int lanes = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
  ++c.shared_requests;
  c.shared_bytes += bytes * static_cast<u64>(__builtin_popcount(mask));
  for (int first = 0; first < kWarpSize; first += lanes) {
    const u32 n = wavefronts(address, mask, first, lanes, bytes <= 4 ? 1 : bytes / 4);
    c.shared_wavefronts += n;
    c.bank_conflicts += n ? n - 1 : 0;
  }
}

// An access through 64-bit addresses, of which some may lie in shared memory.
void count_wide(Counters& c, const Warp& w, const Ins& i, const CountInfo& info, u32 mask) {
  const u64* base = operand<u64>(w, i, info.address);
  u64 address[kWarpSize];
  u32 offset[kWarpSize];
  u32 bytes[kWarpSize];
  u32 global = 0;
  u32 shared = 0;
  for (int l = 0; l < kWarpSize; ++l) {
    address[l] = base[l] + static_cast<u64>(i.imm);
    offset[l] = static_cast<u32>(address[l]);
    bytes[l] = info.bytes;
    const u64 window = address[l] & kWindowMask;
    global |= static_cast<u32>(window == 0) << l;
    shared |= static_cast<u32>(window == kSharedWindow) << l;
  }
  if (global & mask) count_global(c, w.sample, info.access, address, bytes, global & mask);
  if (shared & mask) count_shared(c, offset, shared & mask, info.bytes);
}

// Offsets of the lanes in shared memory.
void shared_offsets(const Warp& w, const Ins& i, int k, u32 offset, u32* to) {
  const u32* base = operand<u32>(w, i, k);
  for (int l = 0; l < kWarpSize; ++l) to[l] = base[l] + offset;
}

// See async_copy in ops_memory.cpp for the operands.
void count_async_copy(Counters& c, const Warp& w, const Ins& i, u32 mask) {
  u32 offset[kWarpSize];
  u64 address[kWarpSize];
  u32 bytes[kWarpSize];
  shared_offsets(w, i, 0, static_cast<u32>(i.imm) & 0xfffffu, offset);
  const u64* source = operand<u64>(w, i, 1);
  const u32* wanted = i.ops[2] == kNoSlot ? nullptr : operand<u32>(w, i, 2);
  const u32 nothing = i.ops[3] == kNoSlot ? 0 : *operand<u32>(w, i, 3);
  for (int l = 0; l < kWarpSize; ++l) {
    address[l] = source[l] + static_cast<u64>(i.imm >> 20);
    bytes[l] = (nothing >> l & 1u) ? 0 : wanted ? std::min(wanted[l], i.extra) : i.extra;
  }
  count_global(c, w.sample, Category::kLoad, address, bytes, mask);
  count_shared(c, offset, mask, i.extra);
}

// Eight addresses a matrix, from lanes that need not take part.
void count_matrix_load(Counters& c, const Warp& w, const Ins& i, const CountInfo& info) {
  u32 offset[kWarpSize];
  shared_offsets(w, i, info.address, static_cast<u32>(i.imm), offset);
  count_shared(c, offset, info.rows == 32 ? kFullMask : (1u << info.rows) - 1, 16);
}

bool starts_with(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

u32 number_after(const std::string& text, size_t at) {
  return static_cast<u32>(std::strtoul(text.c_str() + at, nullptr, 10));
}

// No operation takes so long (a tenth of a millisecond): the thread has lost its core.
constexpr u64 kLostCore = 200'000;

const CountInfo& info_of(const Warp& w, const Ins& i) {
  return w.launch->program->counted[static_cast<size_t>(&i - w.launch->code)];
}

}  // namespace

const char* name_of(Category category) {
  static const char* const kNames[] = {
      "none",    "integer", "half",    "float",    "float_pair", "double",     "convert",
      "compare", "move",    "load",    "store",    "atomic",     "async_copy", "matrix_load",
      "mma",     "warp",    "barrier", "mbarrier", "control",    "other"};
  static_assert(sizeof(kNames) / sizeof(*kNames) == static_cast<size_t>(Category::kCount));
  return kNames[static_cast<int>(category)];
}

// Tensor cores multiply as many bits each clock whatever the type; of doubles a sixteenth as many
// values as of halves. Source: NVIDIA's A100 white paper, peak rates.
u32 sixteenths(const std::string& mma) {
  const auto multiplies = [&](const char* type) { return mma.find(type) != mma.npos; };
  if (multiplies("f64")) return 16 * 16;
  if (multiplies("tf32")) return 2 * 16;
  for (const char* byte : {"s8", "u8", "e4m3", "e5m2"}) {
    if (multiplies(byte)) return 16 / 2;
  }
  if (multiplies("s4") || multiplies("u4")) return 16 / 4;
  return multiplies("b1") ? 1 : 16;
}

CountInfo count_info(const std::string& name) {
  CountInfo info;
  if (starts_with(name, "mma.sp.m")) {  // all of K counts, and takes half the time
    info = count_info("mma." + name.substr(7));
    info.mma_cost /= 2;
  } else if (starts_with(name, "mma.m")) {
    const size_t n = name.find('n', 5);
    const size_t k = name.find('k', n);
    info.mma_operations =
        2 * number_after(name, 5) * number_after(name, n + 1) * number_after(name, k + 1);
    if (starts_with(name, "mma.m8n8k4.") && !starts_with(name, "mma.m8n8k4.f64"))
      info.mma_operations *= 4;  // Volta's makes four products
    info.mma_cost = info.mma_operations * sixteenths(name);
  } else if (starts_with(name, "ldmatrix.x")) {
    info.touches = Touches::kMatrix;
    info.address = static_cast<u8>(number_after(name, 10));
    info.rows = static_cast<u8>(8 * info.address);
  } else if (name == "poll") {
    info.polls = true;
  } else if (starts_with(name, "mbarrier.t")) {  // try_wait, test_wait
    info.looks = true;
  } else if (name == "cp.async") {
    info.touches = Touches::kAsyncCopy;
  } else if (starts_with(name, "ld.") || starts_with(name, "st.") || starts_with(name, "atom.")) {
    const size_t space = name.find('.') + 1;
    const size_t after = name.find('.', space);
    const std::string where = name.substr(space, after - space);
    info.touches = where == "global"    ? Touches::kGlobal
                   : where == "shared"  ? Touches::kShared
                   : where == "generic" ? Touches::kGeneric
                                        : Touches::kNothing;
    info.access = name[0] == 'a'   ? Category::kAtomic
                  : name[0] == 's' ? Category::kStore
                                   : Category::kLoad;
    if (name[0] == 'a') {
      const size_t digits = name.find_first_of("0123456789", name.rfind('.'));
      const bool pair = name.size() > 2 && name.compare(name.size() - 2, 2, "x2") == 0;
      info.bytes = static_cast<u8>(number_after(name, digits) / (pair ? 4 : 8));
      info.address = 1;
    } else {
      const u32 elements = number_after(name, name.rfind('.') + 1);
      info.bytes = static_cast<u8>(number_after(name, after + 2) / 8 * elements);
      info.address = static_cast<u8>(name[0] == 'l' ? elements : 0);
    }
  }
  const bool wide = info.touches == Touches::kGlobal || info.touches == Touches::kGeneric;
  info.acts = info.mma_operations || (wide && info.access != Category::kLoad);
  for (const char* acting : {"wgmma", "cp.", "bulk.", "tensormap.", "vprintf", "malloc", "free"})
    info.acts |= starts_with(name, acting);
  return info;
}

namespace {

// Does something with every count of `to` and the same one of `from`.
template <class Do>
void with_each(Counters& to, const Counters& from, Do change) {
  for (int k = 0; k < static_cast<int>(Category::kCount); ++k) {
    change(to.instructions[k], from.instructions[k]);
    change(to.host_cycles[k], from.host_cycles[k]);
  }
  for (int k = 0; k < static_cast<int>(Unit::kCount); ++k) change(to.results[k], from.results[k]);
  for (int k = 0; k < kCountedForms; ++k) change(to.wgmma[k], from.wgmma[k]);
  for (Traffic Counters::* traffic : {&Counters::loads, &Counters::stores, &Counters::atomics}) {
    for (u64 Traffic::* count : {&Traffic::requests, &Traffic::bytes, &Traffic::sectors})
      change((to.*traffic).*count, (from.*traffic).*count);
  }
  for (u64 Counters::* count :
       {&Counters::predicated_off, &Counters::thread_instructions, &Counters::mma_operations,
        &Counters::mma_cost, &Counters::wgmma_cost, &Counters::shared_requests,
        &Counters::shared_bytes, &Counters::shared_wavefronts, &Counters::bank_conflicts,
        &Counters::bulk_requests, &Counters::bulk_bytes, &Counters::multicast_bytes,
        &Counters::mbarrier_waits, &Counters::remote_requests, &Counters::remote_bytes})
    change(to.*count, from.*count);
}

}  // namespace

void Counters::add(const Counters& other) {
  with_each(*this, other, [](u64& to, u64 from) { to += from; });
}

void Counters::scale(u64 by, u64 of) {
  with_each(*this, *this,
            [&](u64& count, u64) { count = static_cast<u64>(static_cast<u128>(count) * by / of); });
}

void count(Warp& w, const Ins& i, u32 mask) {
  // The second look of a warp at a barrier.
  if (w.waiting || w.parked || w.in_cluster_wait) return;
  const CountInfo& info = info_of(w, i);
  Counters& c = w.sample && info.waits ? w.sample->waiting : *w.counters;
  if (info.category != Category::kNone && !info.is_step) {
    if (!mask) {
      ++c.predicated_off;
    } else {
      ++c.instructions[static_cast<int>(info.category)];
      c.results[static_cast<int>(info.unit)] += info.results;
      c.thread_instructions += static_cast<u64>(__builtin_popcount(mask));
    }
  }
  if (!mask) return;
  c.mma_operations += info.mma_operations;
  c.mma_cost += info.mma_cost;
  c.wgmma_cost += info.wgmma_cost;
  if (info.form >= 0) ++c.wgmma[std::min(info.form, kCountedForms - 1)];
  u32 offset[kWarpSize];
  switch (info.touches) {
    case Touches::kNothing:
      break;
    case Touches::kGlobal:
    case Touches::kGeneric:
      count_wide(c, w, i, info, mask);
      break;
    case Touches::kShared:
      shared_offsets(w, i, info.address, static_cast<u32>(i.imm), offset);
      count_shared(c, offset, mask, info.bytes);
      break;
    case Touches::kAsyncCopy:
      count_async_copy(c, w, i, mask);
      break;
    case Touches::kMatrix:
      count_matrix_load(c, w, i, info);
      break;
  }
}

Status run_counted(Warp& w, const Ins& i, u32 mask) {
  if (w.acted && info_of(w, i).acts) {
    *w.acted = true;
    return Status::kYield;
  }
  for (const Ins* each = &i; each != &i + i.run; ++each) count(w, *each, mask);
  const u64 begin = __builtin_ia32_rdtsc();
  const Status status = i.fn(w, i, mask);
  const u64 ticks = __builtin_ia32_rdtsc() - begin;
  if (ticks < kLostCore) w.counters->host_cycles[static_cast<int>(info_of(w, i).category)] += ticks;
  return status;
}

}  // namespace vgpu
