// The counters of launches as text.
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
  put_traffic(out, "global_load", c.loads);
  put_traffic(out, "global_store", c.stores);
  put_traffic(out, "global_atomic", c.atomics);
  out << ", \"shared\": {\"requests\": " << c.shared_requests << ", \"bytes\": " << c.shared_bytes
      << ", \"wavefronts\": " << c.shared_wavefronts << ", \"bank_conflicts\": " << c.bank_conflicts
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
