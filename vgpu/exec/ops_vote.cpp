// What lanes decide together: votes, matches, reductions over the lanes of a member mask.
#include "exec/lanes.h"

namespace vgpu::VGPU_ISA {
namespace {

void broadcast(u32* to, u32 value, u32 mask) {
  for (int l = 0; l < kWarpSize; ++l) to[l] = (mask >> l & 1u) ? value : to[l];
}

// Lanes that come together need not name the same members: the parts of a labeled partition do
// not, and each of them is a group of its own. f(lanes of the group, those of them that vote).
template <class F>
VGPU_INLINE void for_groups(Warp& w, const Ins& i, int operand, u32 mask, F f) {
  const u32* members = words(w, i, operand);
  while (mask) {
    const u32 named = members[__builtin_ctz(mask)];
    alignas(64) u32 differs[kWarpSize];
    for (int l = 0; l < kWarpSize; ++l) differs[l] = members[l] ^ named;
    const u32 group = mask & ~pack_mask(differs);
    f(group, group & named);
    mask &= ~group;
  }
}

Status vote_all(Warp& w, const Ins& i, u32 mask) {
  const u32 votes = predicate(w, i, 1);
  for_groups(w, i, 2, mask, [&](u32 group, u32 members) {
    set_predicate(w, i, 0, (votes & members) == members ? ~0u : 0, group);
  });
  return Status::kNext;
}
Status vote_any(Warp& w, const Ins& i, u32 mask) {
  const u32 votes = predicate(w, i, 1);
  for_groups(w, i, 2, mask, [&](u32 group, u32 members) {
    set_predicate(w, i, 0, votes & members ? ~0u : 0, group);
  });
  return Status::kNext;
}
Status vote_uniform(Warp& w, const Ins& i, u32 mask) {
  const u32 votes = predicate(w, i, 1);
  for_groups(w, i, 2, mask, [&](u32 group, u32 members) {
    const u32 yes = votes & members;
    set_predicate(w, i, 0, yes == 0 || yes == members ? ~0u : 0, group);
  });
  return Status::kNext;
}
// The member mask may lie in the register of the result: all groups are known before one is
// written.
Status vote_ballot(Warp& w, const Ins& i, u32 mask) {
  const u32 votes = predicate(w, i, 1);
  alignas(64) u32 result[kWarpSize];
  for_groups(w, i, 2, mask,
             [&](u32 group, u32 members) { broadcast(result, votes & members, group); });
  blend(words(w, i, 0), result, mask);
  return Status::kNext;
}

// elect.sync: result, predicate (or none), member mask. The first of the members.
Status elect(Warp& w, const Ins& i, u32 mask) {
  alignas(64) u32 result[kWarpSize];
  u32 leaders = 0;
  for_groups(w, i, 2, mask, [&](u32 group, u32 members) {
    const u32 leader = static_cast<u32>(__builtin_ctz(members ? members : group));
    broadcast(result, leader, group);
    leaders |= 1u << leader;
  });
  blend(words(w, i, 0), result, mask);
  if (has(i, 1)) set_predicate(w, i, 1, leaders, mask);
  return Status::kNext;
}

template <class Lane>
Status match_any(Warp& w, const Ins& i, u32 mask) {
  const Lane* value = slot<Lane>(w, i, 1);
  alignas(64) u32 result[kWarpSize] = {};
  for_groups(w, i, 2, mask, [&](u32, u32 members) {
    for_lanes(members, [&](int l) {
      for_lanes(members, [&](int k) { result[l] |= static_cast<u32>(value[k] == value[l]) << k; });
    });
  });
  blend(words(w, i, 0), result, mask);
  return Status::kNext;
}
template <class Lane>
Status match_all(Warp& w, const Ins& i, u32 mask) {
  const Lane* value = slot<Lane>(w, i, 2);
  alignas(64) u32 result[kWarpSize];
  u32 agreed = 0;
  for_groups(w, i, 3, mask, [&](u32 group, u32 members) {
    bool same = true;
    const Lane first = value[__builtin_ctz(members ? members : group)];
    for_lanes(members, [&](int l) { same &= value[l] == first; });
    broadcast(result, same ? members : 0, group);
    agreed |= same ? group : 0;
  });
  blend(words(w, i, 0), result, mask);
  if (has(i, 1)) set_predicate(w, i, 1, agreed, mask);
  return Status::kNext;
}

template <class T, class F>
void add_reduction(OpTable& t, const char* name, F) {
  add_function(
      t, name,
      [](Warp& w, const Ins& i, u32 mask) {
        const u32* value = words(w, i, 1);
        alignas(64) u32 result[kWarpSize];
        u32 reduced = 0;
        for_groups(w, i, 2, mask, [&](u32 group, u32 members) {
          if (!members) return;
          T total = static_cast<T>(value[__builtin_ctz(members)]);
          for_lanes(members & (members - 1),
                    [&](int l) { total = F{}(total, static_cast<T>(value[l])); });
          broadcast(result, static_cast<u32>(total), group);
          reduced |= group;
        });
        blend(words(w, i, 0), result, reduced);
        return Status::kNext;
      },
      "w", "ww");
}

}  // namespace

void register_vote(OpTable& t) {
  add_function(t, "vote.all", &vote_all, "p", "pw");
  add_function(t, "vote.any", &vote_any, "p", "pw");
  add_function(t, "vote.uni", &vote_uniform, "p", "pw");
  add_function(t, "vote.ballot", &vote_ballot, "w", "pw");
  add_function(t, "elect", &elect, "wp", "w");
  add_function(t, "match.any.u32", &match_any<u32>, "w", "ww");
  add_function(t, "match.any.u64", &match_any<u64>, "w", "dw");
  add_function(t, "match.all.u32", &match_all<u32>, "wp", "ww");
  add_function(t, "match.all.u64", &match_all<u64>, "wp", "dw");
  add_reduction<u32>(t, "redux.add.u32", [](u32 a, u32 b) { return a + b; });
  add_reduction<u32>(t, "redux.min.u32", [](u32 a, u32 b) { return a < b ? a : b; });
  add_reduction<u32>(t, "redux.max.u32", [](u32 a, u32 b) { return a > b ? a : b; });
  add_reduction<s32>(t, "redux.min.s32", [](s32 a, s32 b) { return a < b ? a : b; });
  add_reduction<s32>(t, "redux.max.s32", [](s32 a, s32 b) { return a > b ? a : b; });
  add_reduction<u32>(t, "redux.and.u32", [](u32 a, u32 b) { return a & b; });
  add_reduction<u32>(t, "redux.or.u32", [](u32 a, u32 b) { return a | b; });
  add_reduction<u32>(t, "redux.xor.u32", [](u32 a, u32 b) { return a ^ b; });
}

}  // namespace vgpu::VGPU_ISA
