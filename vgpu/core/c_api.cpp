#include <algorithm>
#include <cstring>

#include "core/launch.h"
#include "core/memory.h"
#include "core/options.h"
#include "include/vgpu.h"

extern "C" {

int vgpu_set_option(const char* name, const char* value) {
  return static_cast<int>(vgpu::set_option(name ? name : "", value ? value : ""));
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
  }
  return kept.size();
}

const char* vgpu_counters(void) {
  static thread_local std::string text;
  text = vgpu::counters_json();
  return text.c_str();
}

void vgpu_clear_launches(void) { vgpu::clear_launch_records(); }

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
