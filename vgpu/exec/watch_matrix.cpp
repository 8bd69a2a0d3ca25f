// mma under initcheck: rows of A and columns of B that hold something undefined spoil rows and
// columns of the result. The fragments are those of fragments.h and ops_matrix_volta.cpp. Of a
// sparse A half is stored, and metadata that is undefined spoils both rows that its thread may tell
// of.
#include "exec/watch.h"

namespace vgpu::watch {
namespace {

// A set of rows or columns. Volta's four products have eight of each, one after the other.
using Lines = u32;

u32 volta_first(u32 lane) { return lane / 4 % 4 * 8 + lane / 16 * 4; }

Lines rows_of_left(Fragments f, int operand, u32 lane) {
  if (!f.volta) return 1u << (lane / 4 + (f.rows == 16 && operand % 2 ? 8 : 0));
  if (f.a_by_rows) return 1u << (volta_first(lane) + lane % 4);
  return 3u << (volta_first(lane) + 2 * static_cast<u32>(operand));
}

Lines columns_of_right(Fragments f, int operand, u32 lane) {
  if (!f.volta) return 1u << lane / 4;
  if (!f.b_by_rows) return 1u << (volta_first(lane) + lane % 4);
  return 3u << (volta_first(lane) + 2 * static_cast<u32>(operand));
}

struct Block {
  Lines rows, columns;
};

// What register r of `count` results holds.
Block in_sum(Fragments f, int r, int count, u32 lane) {
  const u32 n = static_cast<u32>(r);
  if (!f.volta) {
    const u32 row = lane / 4 + (f.rows == 16 && r >= count / 2 ? 8 : 0);
    const bool pairs = count == f.rows / 8;  // two columns in a register
    return {1u << row, (pairs ? 3u : 1u << n % 2) << 2 * (lane % 4)};
  }
  const u32 v = volta_first(lane);
  const u32 columns = lane / 4 % 4 * 8;
  if (count == 4) return {1u << (v + lane % 4), 3u << (columns + 2 * n)};
  return {1u << (v + lane % 2 + (n & 2)), 1u << (columns + (n & 4) + (lane & 2) + n % 2)};
}

// Nothing is undefined that the run reads or writes.
bool all_defined(Warp& w, const Ins& first) {
  u32 undefined = 0;
  for (const Ins* i = &first; i != &first + first.run; ++i) {
    for (int k = 0; k < i->watch->operands; ++k) undefined |= shadow_of(w, *i, k).undefined;
  }
  return undefined == 0;
}

template <bool kSparse>
Status single(Warp& w, const Ins& i, u32 mask) {
  const Watch& watch = *i.watch;
  const Fragments f = watch.fragments;
  const Sources from = sources_of(w, i, mask);
  const int d = watch.results;
  if (__builtin_expect(from.undefined == 0, 1)) {
    const Status status = watch.op(w, i, mask);
    for (int r = 0; r < d; ++r) define(w, i, r, mask, lane_bytes(i, r));
    return status;
  }
  // Volta's sums may be narrower or wider than its results.
  const int ab = f.volta ? 4 : watch.operands - 2 * d - kSparse;
  const int a = f.volta ? 2 : f.rows == 16 && !kSparse ? 2 * ab / 3 : ab / 2;
  const int c = watch.operands - d - ab - kSparse;
  Lines rows = 0;
  Lines columns = 0;
  const auto each_undefined = [&](int operand, auto visit) {
    for (u32 left = shadow_of(w, i, operand).undefined; left; left &= left - 1)
      visit(static_cast<u32>(__builtin_ctz(left)));
  };
  for (int k = 0; k < a; ++k)
    each_undefined(d + k, [&](u32 lane) { rows |= rows_of_left(f, k, lane); });
  for (int k = 0; k < ab - a; ++k)
    each_undefined(d + a + k, [&](u32 lane) { columns |= columns_of_right(f, k, lane); });
  if (kSparse) each_undefined(watch.operands - 1, [&](u32 lane) { rows |= 0x101u << lane / 4; });
  u32 spoilt[8] = {};
  for (int r = 0; r < d; ++r) {
    for (u32 l = 0; l < kWarpSize; ++l) {
      const Block block = in_sum(f, r, d, l);
      spoilt[r] |= static_cast<u32>((block.rows & rows) || (block.columns & columns)) << l;
    }
    // The sum that is added lies in the same place, or (Volta) somewhere in the same lane or near.
    if (c == d) {
      spoilt[r] |= shadow_of(w, i, d + ab + r).undefined;
    } else {
      for (int k = 0; k < c; ++k)
        spoilt[r] |= shadow_of(w, i, d + ab + k).undefined ? kFullMask : 0;
    }
  }
  Sources why = from;
  if (!why.origin) {
    why.origin = w.launch->checks->origin(w, Place::kNone, 0, 0, __builtin_ctz(from.undefined));
  }
  const Status status = watch.op(w, i, mask);
  for (int r = 0; r < d; ++r) {
    define(w, i, r, mask & ~spoilt[r], lane_bytes(i, r));
    if (spoilt[r]) undefine(w, i, r, spoilt[r], why);
  }
  return status;
}

}  // namespace

Status matrix(Warp& w, const Ins& i, u32 mask) {
  if (__builtin_expect(all_defined(w, i), 1)) return i.watch->op(w, i, mask);
  Status status = Status::kNext;
  for (u32 k = 0; k < i.run && status == Status::kNext; ++k) {
    Ins alone = (&i)[k];
    alone.run = 1;
    status = single<false>(w, alone, mask);
  }
  return status;
}
Status sparse_matrix(Warp& w, const Ins& i, u32 mask) { return single<true>(w, i, mask); }

}  // namespace vgpu::watch
