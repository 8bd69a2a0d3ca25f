// Tensor maps that a kernel changes in memory.
#include <algorithm>

#include "exec/access.h"
#include "exec/async.h"
#include "exec/tensor_map.h"

namespace vgpu {
namespace {

using namespace generic;

// Both halves of a map's 128 bytes, which are aligned to 64 only.
u8* map_at(Warp& w, Where where, u64 address, bool store, int lane) {
  u8* at = resolve(w, where, address, kTensorMapBytes / 2, store, lane);
  return at && resolve(w, where, address + kTensorMapBytes / 2, kTensorMapBytes / 2, store, lane)
             ? at
             : nullptr;
}

// Zeros, of which a program makes a map field by field.
bool is_empty(const u8* map) {
  return std::all_of(map, map + kTensorMapBytes, [](u8 byte) { return byte == 0; });
}

// tensormap.replace. Operands: generic address, value. imm: offset, extra: field, and its ordinal.
Status replace_field(Warp& w, const Ins& i, u32 mask) {
  for (u32 left = mask; left; left &= left - 1) {
    const int l = __builtin_ctz(left);
    const u64 address = doubles(w, i, 0)[l] + static_cast<u64>(i.imm);
    u8* at = map_at(w, Where::kGeneric, address, true, l);
    if (!at) return Status::kFault;
    TensorMap m;
    std::memcpy(&m, at, sizeof(m));
    if (is_empty(at)) {
      m.mark = kTensorMapMark;
    } else if (m.mark != kTensorMapMark) {
      return refuse(w, l, "tensormap.replace of 128 bytes that are no tensor map");
    } else if (m.seal != seal_of(m)) {
      return refuse(w, l, "tensormap.replace of a tensor map that something else has changed");
    }
    if (!set_field(m, static_cast<MapField>(i.extra & 0xff), i.extra >> 8, doubles(w, i, 1)[l]))
      return refuse(w, l, "tensormap.replace of a field with %llu, which it cannot hold",
                    static_cast<unsigned long long>(doubles(w, i, 1)[l]));
    m.seal = seal_of(m);
    std::memcpy(at, &m, sizeof(m));
  }
  return Status::kNext;
}

// tensormap.cp_fenceproxy: operands: global address, shared address. Once for the warp.
Status copy_map(Warp& w, const Ins& i, u32 mask) {
  const int l = __builtin_ctz(mask);
  u8* to = map_at(w, Where::kGlobal, doubles(w, i, 0)[l], true, l);
  if (!to) return Status::kFault;
  const u32 from = words(w, i, 1)[l] - w.shared_base;
  const u8* map = map_at(w, Where::kShared, from, false, l);
  if (!map) return Status::kFault;
  std::memcpy(to, map, kTensorMapBytes);
  return Status::kNext;
}

}  // namespace

void register_tensor_map(OpTable& t) {
  add_function(t, "tensormap.replace", &replace_field, "", "dd");
  add_function(t, "tensormap.copy", &copy_map, "", "dw");
}

}  // namespace vgpu
