#include "exec/op_table.h"

#include <mutex>

namespace vgpu {

namespace avx512 {
extern const Isa kIsa;
}
namespace avx2 {
extern const Isa kIsa;
}
namespace generic {
extern const Isa kIsa;
}

void OpTable::put(const char* name, const OpInfo& info) {
  auto it = ops_.insert_or_assign(name, info).first;
  it->second.name = it->first.c_str();
}

const OpInfo* OpTable::find(const std::string& name) const {
  auto it = ops_.find(name);
  return it == ops_.end() ? nullptr : &it->second;
}

const Isa& select_isa(const std::string& name) {
  const Isa* best = nullptr;
  for (const Isa* isa : {&avx512::kIsa, &avx2::kIsa, &generic::kIsa}) {
    if (!isa->usable()) continue;
    if (name == isa->name) return *isa;
    if (!best) best = isa;
  }
  return *best;
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
