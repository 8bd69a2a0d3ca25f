// The counters of launches as text.
#include <map>
#include <sstream>

#include "core/launch.h"

namespace vgpu {
namespace {

void put_traffic(std::ostream& out, const char* name, const Traffic& t) {
  out << ", \"" << name << "\": {\"requests\": " << t.requests << ", \"bytes\": " << t.bytes
      << ", \"sectors\": " << t.sectors << "}";
}

void put_classes(std::ostream& out, const char* name, const u64* count) {
  out << ", \"" << name << "\": {";
  for (int k = 1; k < static_cast<int>(Category::kCount); ++k) {
    out << (k > 1 ? ", \"" : "\"") << name_of(static_cast<Category>(k)) << "\": " << count[k];
  }
  out << "}";
}

// Of wgmma, by shape and types: instructions that its warps executed, and their operations.
void put_forms(std::ostream& out, const LaunchRecord& r) {
  std::map<std::string, std::pair<u64, u64>> by_name;
  for (size_t k = 0; k < r.forms.size() && k < kCountedForms; ++k) {
    const bool rest = k + 1 == kCountedForms && r.forms.size() > kCountedForms;
    auto& [warps, operations] = by_name[rest ? "others" : r.forms[k].name];
    warps += r.counters->wgmma[k];
    operations += rest ? 0 : r.counters->wgmma[k] * r.forms[k].operations;
  }
  out << ", \"wgmma\": {";
  const char* separator = "";
  for (const auto& [name, count] : by_name) {
    out << separator << "\"" << name << "\": {\"instructions\": " << count.first
        << ", \"operations\": " << count.second << "}";
    separator = ", ";
  }
  out << "}";
}

void put(std::ostream& out, const LaunchRecord& r) {
  const Counters& c = *r.counters;
  const auto triple = [&](const char* name, const u32* v) {
    out << ", \"" << name << "\": [" << v[0] << ", " << v[1] << ", " << v[2] << "]";
  };
  out << "{\"kernel\": \"" << r.kernel << "\"";
  triple("grid", r.grid);
  triple("block", r.block);
  put_classes(out, "instructions", c.instructions);
  put_classes(out, "host_cycles", c.host_cycles);
  out << ", \"predicated_off\": " << c.predicated_off
      << ", \"thread_instructions\": " << c.thread_instructions
      << ", \"mma_operations\": " << c.mma_operations;
  put_forms(out, r);
  put_traffic(out, "global_load", c.loads);
  put_traffic(out, "global_store", c.stores);
  put_traffic(out, "global_atomic", c.atomics);
  out << ", \"shared\": {\"requests\": " << c.shared_requests << ", \"bytes\": " << c.shared_bytes
      << ", \"wavefronts\": " << c.shared_wavefronts << ", \"bank_conflicts\": " << c.bank_conflicts
      << "}, \"tma\": {\"requests\": " << c.bulk_requests << ", \"bytes\": " << c.bulk_bytes
      << ", \"multicast_bytes\": " << c.multicast_bytes
      << "}, \"mbarrier_waits\": " << c.mbarrier_waits
      << ", \"cluster_shared\": {\"requests\": " << c.remote_requests
      << ", \"bytes\": " << c.remote_bytes
      << "}, \"barriers\": " << c.instructions[static_cast<int>(Category::kBarrier)]
      << ", \"registers\": " << r.registers << ", \"static_shared_bytes\": " << r.static_shared
      << ", \"dynamic_shared_bytes\": " << r.dynamic_shared
      << ", \"resident_blocks\": " << r.resident_blocks
      << ", \"resident_warps\": " << r.resident_warps << ", \"occupancy\": " << r.occupancy
      << ", \"modelled\": {\"us\": " << static_cast<double>(r.time.ns) * 1e-3
      << ", \"bound_by\": \"" << r.time.bound_by << "\", \"waves\": " << r.time.waves
      << ", \"dram_bytes\": " << r.time.dram_bytes << "}}";
}

}  // namespace

std::string counters_json() {
  std::ostringstream out;
  const char* separator = "[";
  for (const LaunchRecord& r : launch_records()) {
    if (!r.counters) continue;
    out << separator;
    put(out, r);
    separator = ",\n";
  }
  if (*separator == '[') out << separator;
  out << "]";
  return out.str();
}

}  // namespace vgpu
