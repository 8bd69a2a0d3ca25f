#include <algorithm>
#include <cstring>

#include "core/findings.h"
#include "core/launch.h"
#include "core/memory.h"
#include "core/options.h"
#include "include/vgpu.h"

extern "C" {

int vgpu_set_option(const char* name, const char* value) {
  return static_cast<int>(vgpu::set_option(name ? name : "", value ? value : ""));
}

int vgpu_check_options(const char* text) {
  return static_cast<int>(vgpu::check_options(text ? text : ""));
}

const char* vgpu_last_error(void) {
  static thread_local std::string text;
  text = vgpu::last_message();
  return text.c_str();
}

uint64_t vgpu_launches(vgpu_launch* out, uint64_t capacity) {
  static thread_local std::vector<vgpu::LaunchRecord> kept;
  kept = vgpu::launch_records();
  for (size_t k = 0; out && k < std::min<uint64_t>(kept.size(), capacity); ++k) {
    const vgpu::LaunchRecord& r = kept[k];
    out[k].kernel = r.kernel.c_str();
    std::memcpy(out[k].grid, r.grid, sizeof(r.grid));
    std::memcpy(out[k].block, r.block, sizeof(r.block));
    out[k].dynamic_shared_bytes = r.dynamic_shared;
    out[k].warp_instructions = r.warp_instructions;
    out[k].seconds = r.seconds;
    out[k].modelled_seconds = static_cast<double>(r.time.ns) * 1e-9;
    out[k].cpu_seconds = r.cpu_seconds;
  }
  return kept.size();
}

const char* vgpu_counters(void) {
  static thread_local std::string text;
  text = vgpu::counters_json();
  return text.c_str();
}

void vgpu_clear_launches(void) { vgpu::clear_launch_records(); }

uint64_t vgpu_findings(vgpu_finding* out, uint64_t capacity) {
  static thread_local std::vector<vgpu::Finding> kept;
  kept = vgpu::findings();
  for (size_t k = 0; out && k < std::min<uint64_t>(kept.size(), capacity); ++k) {
    const vgpu::Finding& f = kept[k];
    out[k] = {f.check.c_str(),
              f.kind.c_str(),
              f.kernel.c_str(),
              f.ptx.c_str(),
              f.source_file.c_str(),
              f.space.c_str(),
              f.message.c_str(),
              {f.block[0], f.block[1], f.block[2]},
              {f.thread[0], f.thread[1], f.thread[2]},
              f.ptx_line,
              f.source_line,
              f.bytes,
              f.address,
              f.allocation,
              f.count};
  }
  return kept.size();
}

void vgpu_clear_findings(void) { vgpu::clear_findings(); }

uint64_t vgpu_allocations(vgpu_allocation* out, uint64_t capacity) {
  const std::vector<vgpu::Allocation> live = vgpu::live_allocations();
  for (size_t k = 0; out && k < std::min<uint64_t>(live.size(), capacity); ++k) {
    out[k] = {live[k].base, live[k].bytes, live[k].id};
  }
  return live.size();
}

void vgpu_register_memory(const void* base, uint64_t bytes) {
  vgpu::register_memory_range(base, bytes, false);
}
void vgpu_unregister_memory(const void* base) { vgpu::unregister_memory_range(base); }

const char* vgpu_isa(void) { return vgpu::options().isa->name; }

void vgpu_reset_error(void) {
  vgpu::clear_sticky_error();
  vgpu::clear_message();
}

}  // extern "C"
