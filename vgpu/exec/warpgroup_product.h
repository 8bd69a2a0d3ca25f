// The products of a warpgroup.
//
// Every type is multiplied in f32, and summed over k in order, but for 8-bit floats
// (narrow_sums.h). Bytes and bits too: 128 products of bytes, or 256 of bits, are exact in there. B
// is unpacked once for the four warps, and steps of k that add to the same sums, which wgmma
// instructions one behind the other mostly do, are one run: their sums are read and written once.
// Sums in f16 are rounded, and those that are clamped added, once for each instruction.
//
// Core matrices (8 rows of 16 bytes) are fragment registers of mma: those of A and B as they are
// gathered, and A's registers.
#pragma once

#include <algorithm>
#include <type_traits>

#include "exec/matrix_descriptor.h"
#include "exec/narrow_sums.h"
#include "exec/warpgroup_panels.h"

namespace vgpu::VGPU_ISA {

// What several instructions of one form, that add to the same sums, have in common.
struct Run {
  Warp* group;
  const WgmmaForm* form;
  u64 first;
  u32 count;

  const WgmmaIssue& issue(u32 warp, u32 k) const { return group[warp].wgmma.at(first + k); }
  bool from_zero() const { return !issue(0, 0).accumulate; }
};

// The words of a core matrix, K along its rows.
inline const u32* gather(const u8* shared, const MatrixDescriptor& m, bool by_lines, u32 line,
                         u32 k, u32* to) {
  const u32 first = m.core(line, k);
  const u8* row[8];
  for (u32 r = 0; r < 8; ++r) row[r] = shared + m.swizzled(first + r * m.pitch());
  if (by_lines) {
    gather_matrix<true>(row, to);
  } else {
    gather_matrix<false>(row, to);
  }
  return to;
}

// B of a run, in panels of 8 columns; `depth` steps of k in all.
template <class B>
void unpack_right(const Run& run, int depth, float* right) {
  constexpr int kChunk = 4 * B::kPerWord;
  const u32 chunks = run.form->b_chunks();
  alignas(64) u32 core[kWarpSize];
  for (u32 s = 0; s < run.count; ++s) {
    const MatrixDescriptor m(run.issue(0, s).b, run.form->b_by_rows);
    for (u32 j = 0; j < run.form->columns / 8; ++j) {
      for (u32 h = 0; h < chunks; ++h) {
        const int k = static_cast<int>(s * chunks + h) * kChunk;
        pack_right(B(), gather(run.group->shared, m, run.form->b_by_rows, j, h, core),
                   right + (static_cast<int>(j) * depth + k) * 8);
      }
    }
  }
}

// The core matrix of 8 rows (0 or 1) of a warp's A, at the chunk h of its step s.
inline const u32* core_of_left(const Run& run, u32 warp, u32 s, u32 rows, u32 h, u32* room) {
  const WgmmaForm& form = *run.form;
  const WgmmaIssue& issue = run.issue(warp, s);
  Warp& w = run.group[warp];
  if (form.a_in_registers)
    return words(w, *issue.ins, static_cast<int>(form.a_operand() + 2 * h + rows));
  const MatrixDescriptor m(issue.a, form.a_by_columns);
  return gather(w.shared, m, form.a_by_columns, 2 * warp + rows, h, room);
}

template <class A>
void unpack_left(const Run& run, u32 warp, int depth, float* left) {
  constexpr int kChunk = 4 * A::kPerWord;
  alignas(64) u32 room[kWarpSize];
  for (u32 s = 0; s < run.count; ++s) {
    for (u32 h = 0; h < 2; ++h) {
      for (u32 rows = 0; rows < 2; ++rows) {
        pack_left(A(), core_of_left(run, warp, s, rows, h, room), static_cast<int>(rows),
                  static_cast<int>(2 * s + h) * kChunk, left);
      }
    }
  }
  if (!run.form->negated) return;
  for (int n = 0; n < depth * static_cast<int>(kRowsOfWarp); ++n) left[n] = -left[n];
}

// --- sparse A: half of the elements of K are stored, and metadata tells which
// ---------------------

// 16 rows, stored elements, and where in K they belong.
template <class A>
struct Stored {
  static constexpr int kCount = 8 * A::kPerWord;
  float value[kRowsOfWarp][kCount];
  int k[kRowsOfWarp][kCount];
};

// The bits of the metadata that tell of row r, from the stored element e on. Source: PTX ISA,
// "Sparse wgmma", and ELayout in CUTLASS's mma_traits_sm90_gmma_sparse.hpp: 16- and 32-bit types
// have rows g and g + 8 in the halves of a word of two threads that the selector picks of four,
// 8-bit types one row in a word of each thread.
template <class A>
u32 metadata_of(const u32* words, u32 selector, int row, int e) {
  const int lane = row % 8 * 4;
  constexpr int kHalf = Stored<A>::kCount / 2;
  if constexpr (A::kPerWord == 4) {
    return words[lane + row / 8 + 2 * (e / kHalf)] >> 2 * (e % kHalf);
  } else {
    const u32 half = words[lane + 2 * static_cast<int>(selector) + e / kHalf] >> row / 8 * 16;
    return half >> (A::kPerWord == 1 ? 4 : 2) * (e % kHalf);
  }
}

template <class A>
void unpack_stored(const Run& run, u32 warp, Stored<A>& to) {
  constexpr int kChunk = 4 * A::kPerWord;
  alignas(64) u32 room[kWarpSize];
  alignas(64) float tile[8 * kChunk];
  const Ins& ins = *run.issue(warp, 0).ins;
  const u32* metadata = words(run.group[warp], ins, static_cast<int>(run.form->metadata_operand()));
  for (u32 h = 0; h < 2; ++h) {
    for (u32 rows = 0; rows < 2; ++rows) {
      widen_all(A(), core_of_left(run, warp, 0, rows, h, room), tile);
      for (int r = 0; r < 8; ++r) {
        for (int e = 0; e < kChunk; ++e) {
          const float x = tile[r * kChunk + e];
          to.value[8 * rows + r][h * kChunk + e] = run.form->negated ? -x : x;
        }
      }
    }
  }
  for (int row = 0; row < static_cast<int>(kRowsOfWarp); ++row) {
    for (int e = 0; e < Stored<A>::kCount; ++e) {
      const int which = static_cast<int>(metadata_of<A>(metadata, run.form->selector, row, e) & 3);
      // Of tf32 one of two is stored, and the four bits count halves of a word.
      to.k[row][e] = A::kPerWord == 1 ? 2 * e + which / 2 : e / 2 * 4 + which;
    }
  }
}

template <class A>
void multiply_stored(const Stored<A>& left, const float* right, int depth, int panels, bool zero,
                     u32* const* sums) {
  for (int row = 0; row < static_cast<int>(kRowsOfWarp); ++row) {
    float sum[kMostColumns];
    const int r = row / 8;
    const int lane = row % 8 * 4;
    for (int j = 0; j < panels; ++j) {
      for (int n = 0; n < 8; ++n)
        sum[8 * j + n] = zero ? 0 : bit_cast<float>(sums[4 * j + 2 * r + n / 4][lane + n % 4]);
    }
    for (int e = 0; e < Stored<A>::kCount; ++e) {
      const float a = left.value[row][e];
      const float* b = right + 8 * left.k[row][e];
      for (int j = 0; j < panels; ++j) {
        for (int n = 0; n < 8; ++n)
          sum[8 * j + n] = A::multiply_add(a, b[8 * depth * j + n], sum[8 * j + n]);
      }
    }
    for (int j = 0; j < panels; ++j) {
      for (int n = 0; n < 8; ++n)
        sums[4 * j + 2 * r + n / 4][lane + n % 4] = F32::store(sum[8 * j + n]);
    }
  }
}

// --- sums --------------------------------------------------------------------------------------

// Where a warp's sums are added up: in their registers, or for other types than f32 beside them.
struct Sums {
  alignas(64) u32 beside[kMostColumns / 2][kWarpSize];
  u32* at[kMostColumns / 2];
};

inline void open_sums(const Run& run, u32 warp, Sums& s) {
  Warp& w = run.group[warp];
  const WgmmaForm& form = *run.form;
  const Ins& ins = *run.issue(warp, 0).ins;
  for (u32 n = 0; n < form.columns / 2; ++n)
    s.at[n] = form.sum == WgmmaForm::Sum::kF32 ? words(w, ins, static_cast<int>(n)) : s.beside[n];
  if (form.sum != WgmmaForm::Sum::kF16 || run.from_zero()) return;
  for (u32 n = 0; n < form.columns / 4; ++n) {
    const u32* c = words(w, ins, static_cast<int>(n));
    for (int l = 0; l < kWarpSize; ++l) {
      s.beside[2 * n][l] = bit_cast<u32>(half_to_float(c[l] & 0xffff));
      s.beside[2 * n + 1][l] = bit_cast<u32>(half_to_float(c[l] >> 16));
    }
  }
}

inline void close_sums(const Run& run, u32 warp, const Sums& s) {
  Warp& w = run.group[warp];
  const WgmmaForm& form = *run.form;
  const Ins& ins = *run.issue(warp, 0).ins;
  if (form.sum == WgmmaForm::Sum::kF32) return;
  const u32 kept = run.from_zero() ? 0 : ~0u;
  for (u32 n = 0; n < form.sums(); ++n) {
    u32* d = words(w, ins, static_cast<int>(n));
    if (form.sum == WgmmaForm::Sum::kF16) {
      for (int l = 0; l < kWarpSize; ++l) {
        d[l] = float_to_half(bit_cast<float>(s.beside[2 * n][l])) |
               float_to_half(bit_cast<float>(s.beside[2 * n + 1][l])) << 16;
      }
    } else if (form.sum == WgmmaForm::Sum::kS32) {
      for (int l = 0; l < kWarpSize; ++l)
        d[l] = (d[l] & kept) + static_cast<u32>(static_cast<s32>(bit_cast<float>(s.beside[n][l])));
    } else {
      for (int l = 0; l < kWarpSize; ++l) {
        const s64 sum =
            s64{static_cast<s32>(d[l] & kept)} + static_cast<s32>(bit_cast<float>(s.beside[n][l]));
        d[l] = static_cast<u32>(std::clamp<s64>(sum, -0x80000000ll, 0x7fffffffll));
      }
    }
  }
}

// --- 8-bit floats ------------------------------------------------------------------------------

// A warp's 16 rows of the step s.
template <class A>
void unpack_narrow_rows(const Run& run, u32 warp, u32 s, NarrowRow* to) {
  constexpr int kChunk = 4 * A::kPerWord;
  alignas(64) u32 room[kWarpSize];
  alignas(64) float tile[8 * kChunk];
  for (u32 h = 0; h < 2; ++h) {
    for (u32 rows = 0; rows < 2; ++rows) {
      widen_all(A(), core_of_left(run, warp, s, rows, h, room), tile);
      for (u32 r = 0; r < 8; ++r) {
        for (int e = 0; e < kChunk; ++e) {
          const float x = tile[static_cast<int>(r) * kChunk + e];
          to[8 * rows + r].set(static_cast<int>(h) * kChunk + e, run.form->negated ? -x : x,
                               A::kLeastExponent);
        }
      }
    }
  }
}

// Each instruction rounds its sums. `right` has B's panels, as unpack_right leaves them.
template <class A, class B>
void multiply_narrow(const Run& run, u32 warp, const float* right, int panels, u32* const* sums) {
  const int depth = static_cast<int>(run.count) * kNarrowDepth;
  const bool to_half = run.form->sum == WgmmaForm::Sum::kF16;
  NarrowRow rows[kRowsOfWarp];
  NarrowPanel panel;
  for (u32 s = 0; s < run.count; ++s) {
    const bool zero = s == 0 && run.from_zero();
    unpack_narrow_rows<A>(run, warp, s, rows);
    for (int j = 0; j < panels; ++j) {
      const float* from = right + (j * depth + static_cast<int>(s) * kNarrowDepth) * 8;
      for (int n = 0; n < 8 * kNarrowDepth; ++n) panel.set(n, from[n], B::kLeastExponent);
      for (int row = 0; row < static_cast<int>(kRowsOfWarp); ++row) {
        const auto at = [&](int n) -> u32& {
          return sums[4 * j + row / 8 * 2 + n / 4][row % 8 * 4 + n % 4];
        };
        alignas(32) float sum[8];
        for (int n = 0; n < 8; ++n) sum[n] = zero ? 0 : bit_cast<float>(at(n));
        add_narrow(rows[row], panel, to_half, sum);
        for (int n = 0; n < 8; ++n) at(n) = bit_cast<u32>(sum[n]);
      }
    }
  }
}

// Steps of k that are done at once: as many as B's panels find room for in the cache.
inline constexpr u32 kMostSteps = 4;

template <class A, class B>
void multiply_run(const Run& run) {
  // Bits are never multiplied in runs.
  constexpr int kMostDepth =
      A::kPerWord == 32 ? 256 : 8 * static_cast<int>(kMostSteps) * A::kPerWord;
  alignas(64) float right[kMostDepth * kMostColumns];
  alignas(64) float left[kRowsOfWarp * kMostDepth];
  const WgmmaForm& form = *run.form;
  const int depth = static_cast<int>(run.count * form.b_chunks()) * 4 * A::kPerWord;
  const int panels = static_cast<int>(form.columns / 8);
  unpack_right<B>(run, depth, right);
  const bool whole = form.sum == WgmmaForm::Sum::kS32 || form.sum == WgmmaForm::Sum::kClamped;
  Sums sums;
  for (u32 warp = 0; warp < kWarpsOfGroup; ++warp) {
    open_sums(run, warp, sums);
    if (form.sparse) {
      Stored<A> stored;
      unpack_stored<A>(run, warp, stored);
      multiply_stored<A>(stored, right, depth, panels, whole || run.from_zero(), sums.at);
    } else if constexpr (std::is_same_v<A, E4m3> || std::is_same_v<A, E5m2>) {
      multiply_narrow<A, B>(run, warp, right, panels, sums.at);
    } else {
      unpack_left<A>(run, warp, depth, left);
      multiply_panels<A>(left, right, depth, panels, whole || run.from_zero(), sums.at);
    }
    close_sums(run, warp, sums);
  }
}

// How many of the instructions from `first` on add to the same sums and are multiplied in one go.
inline u32 run_length(Warp* group, const WgmmaForm& form, u64 first, u64 end) {
  const bool exact = form.sum == WgmmaForm::Sum::kS32 && form.a != WgmmaForm::Element::kB1;
  if ((form.sum != WgmmaForm::Sum::kF32 && !exact) || form.sparse) return 1;
  const WgmmaIssue& begin = group->wgmma.at(first);
  u32 count = 1;
  for (; count < kMostSteps && first + count < end; ++count) {
    for (u32 k = 0; k < kWarpsOfGroup; ++k) {
      const WgmmaIssue& next = group[k].wgmma.at(first + count);
      const WgmmaIssue& same = group->wgmma.at(first + count);
      if (next.ins->extra != begin.ins->extra || !next.accumulate || next.b != same.b ||
          next.a != same.a || std::memcmp(next.ins->ops, begin.ins->ops, 4 * form.sums()) != 0)
        return count;
    }
  }
  return count;
}

// Performs the instruction `first` of all four warps, and those behind it that join it. Returns the
// number of the next one.
inline u64 multiply_warpgroup(Warp* group, const WgmmaForm& form, u64 first, u64 end) {
  using Element = WgmmaForm::Element;
  const Run run = {group, &form, first, run_length(group, form, first, end)};
  const bool e4m3 = form.b == Element::kE4m3;
  const bool s8s = form.b == Element::kS8;
  switch (form.a) {
    case Element::kF16:
      multiply_run<Half, Half>(run);
      break;
    case Element::kBf16:
      multiply_run<Bfloat, Bfloat>(run);
      break;
    case Element::kTf32:
      multiply_run<Tf32, Tf32>(run);
      break;
    case Element::kE4m3:
      e4m3 ? multiply_run<E4m3, E4m3>(run) : multiply_run<E4m3, E5m2>(run);
      break;
    case Element::kE5m2:
      e4m3 ? multiply_run<E5m2, E4m3>(run) : multiply_run<E5m2, E5m2>(run);
      break;
    case Element::kS8:
      s8s ? multiply_run<Byte<s8>, Byte<s8>>(run) : multiply_run<Byte<s8>, Byte<u8>>(run);
      break;
    case Element::kU8:
      s8s ? multiply_run<Byte<u8>, Byte<s8>>(run) : multiply_run<Byte<u8>, Byte<u8>>(run);
      break;
    case Element::kB1:
      multiply_run<Bit, Bit>(run);
      break;
  }
  return first + run.count;
}

}  // namespace vgpu::VGPU_ISA
