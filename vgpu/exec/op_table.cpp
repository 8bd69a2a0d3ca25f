#include "exec/op_table.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace vgpu {

// VGPU_ISAS(do) is do(isa) for each variant that is compiled in, the best one first.
#define DECLARE_ISA(name) \
  namespace name {        \
  extern const Isa kIsa;  \
  }
VGPU_ISAS(DECLARE_ISA)

void OpTable::put(const char* name, const OpInfo& info) {
  auto it = ops_.insert_or_assign(name, info).first;
  it->second.name = it->first.c_str();
}

const OpInfo* OpTable::find(const std::string& name) const {
  auto it = ops_.find(name);
  return it == ops_.end() ? nullptr : &it->second;
}

const Isa* find_isa(const std::string& name) {
#define POINT_AT_ISA(name) &name::kIsa,
  for (const Isa* isa : {VGPU_ISAS(POINT_AT_ISA)}) {
    if (isa->usable() && (name == "auto" || name == isa->name)) return isa;
  }
  return nullptr;
}

const Isa& best_isa() {
  if (const Isa* best = find_isa("auto")) return *best;
#define NAME_ISA(name) " " #name
  std::fputs("vgpu: this build is for CPUs with" VGPU_ISAS(NAME_ISA) ", which this CPU lacks; build"
             " the virtual GPU on this machine\n", stderr);
  std::abort();
}

const OpTable& op_table(const Isa& isa) {
  static std::mutex mutex;
  static std::map<const Isa*, OpTable> tables;
  const std::lock_guard lock(mutex);
  auto [it, is_new] = tables.try_emplace(&isa);
  if (is_new) isa.register_ops(it->second);
  return it->second;
}

}  // namespace vgpu
