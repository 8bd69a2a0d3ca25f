// Which bytes of a tensor a box holds: tiles, and the columns of im2col.
#include <algorithm>

#include "exec/bulk.h"

namespace vgpu {
namespace {

// Elements that a tile takes in dimension k: every so many of the box.
u32 taken(const TensorMap& m, int k) {
  if (k >= m.rank) return 1;
  // Source: cuTensorMapEncodeTiled: without interleave the first stride is ignored.
  if (k == 0 && m.interleave == 0) return m.box[0];
  return (m.box[k] + m.element_strides[k] - 1u) / m.element_strides[k];
}

u32 inner_bytes(const Box& box) {
  const TensorMap& m = box.map;
  return (m.im2col ? m.channels : taken(m, 0)) * element_bytes(m.type);
}

// A swizzle spreads a row over all of its span. Source: CUDA C++ Programming Guide, swizzle modes
// of TMA: where the span exceeds the inner dimension, shared memory must hold the span.
u32 pitch_of(const Box& box) {
  const TensorMap& m = box.map;
  if (m.interleave) return m.interleave * 16u;
  return m.swizzle ? std::max(inner_bytes(box), 16u << m.swizzle) : inner_bytes(box);
}

u32 rows_of(const Box& box) {
  const TensorMap& m = box.map;
  if (m.im2col) return m.pixels;
  u32 rows = 1;
  for (int k = 1; k < m.rank; ++k) rows *= taken(m, k);
  return rows;
}

// Slices of channels, each of 16 or 32 bytes, that an interleaved box has.
u32 slices_of(const Box& box) {
  const u32 slice = box.map.interleave * 16u;
  return slice ? (inner_bytes(box) + slice - 1) / slice : 1;
}

class Walk {
 public:
  Walk(const Box& box, RowFn each, void* context)
      : box_(box),
        m_(box.map),
        each_(each),
        context_(context),
        element_(element_bytes(m_.type)),
        inner_(inner_bytes(box) / element_),
        pitch_(pitch_of(box)) {}

  bool run() {
    for (u32 s = 0; s < slices_of(box_); ++s) {
      slice_ = s;
      if (!(m_.im2col ? columns() : tile())) return false;
    }
    return true;
  }

 private:
  // Of a row: where its dimension 0 begins, and whether the tensor has it.
  struct Place {
    u64 address;
    bool inside;
    void move(const TensorMap& m, int k, s64 at) {
      inside &= at >= 0 && at < s64{m.dims[k]};
      address += static_cast<u64>(at) * m.strides[k - 1];
    }
  };

  bool tile() {
    u32 n[5] = {1, 1, 1, 1, 1};
    u32 step[5] = {1, 1, 1, 1, 1};
    for (int k = 1; k < m_.rank; ++k) {
      n[k] = taken(m_, k);
      step[k] = m_.element_strides[k];
    }
    u32 row = slice_ * n[1] * n[2] * n[3] * n[4];
    // Of interleaved tensors the slices lie inside of the outermost dimension.
    const int outer = m_.interleave ? m_.rank - 1 : 0;
    const u32 all = slices_of(box_);
    const u32 images = outer ? n[outer] : 1;
    const u32 inside = n[1] * n[2] * n[3] * n[4] / images;
    if (outer) row = slice_ * inside;
    u32 done = 0;
    for (u32 e = 0; e < n[4]; ++e) {
      for (u32 d = 0; d < n[3]; ++d) {
        for (u32 z = 0; z < n[2]; ++z) {
          const u32 index[5] = {0, 0, z, d, e};
          Place first = {m_.address, true};
          for (int k = 2; k < m_.rank; ++k)
            first.move(m_, k, s64{box_.coordinates[k]} + s64{index[k]} * step[k]);
          for (u32 y = 0; y < n[1]; ++y) {
            Place place = first;
            if (m_.rank > 1) place.move(m_, 1, s64{box_.coordinates[1]} + s64{y} * step[1]);
            if (!emit(row, place)) return false;
            ++row;
            if (outer && ++done % inside == 0) row += (all - 1) * inside;
          }
        }
      }
    }
    return true;
  }

  // Pixels side by side in the bounding box of the corners, from the coordinates on; each shifted
  // by the offsets.
  bool columns() {
    const int spatial = m_.rank - 2;
    s64 pixel[5] = {};
    for (int k = 1; k < m_.rank; ++k) pixel[k] = box_.coordinates[k];
    for (u32 p = 0; p < m_.pixels; ++p) {
      Place place = {m_.address, true};
      for (int k = 1; k < m_.rank; ++k) {
        const bool shifted = k <= spatial && box_.mode == BoxMode::kIm2col;
        place.move(m_, k, pixel[k] + (shifted ? box_.offsets[k - 1] : 0));
      }
      if (!emit(slice_ * m_.pixels + p, place)) return false;
      for (int k = 1; k < m_.rank; ++k) {
        pixel[k] += k <= spatial ? m_.element_strides[k] : 1;
        if (k > spatial || pixel[k] < s64{m_.dims[k]} + m_.upper[k - 1]) break;
        pixel[k] = m_.lower[k - 1];
      }
    }
    return true;
  }

  // The row of elements along dimension 0, in the pieces that lie inside and outside of the tensor.
  bool emit(u32 row, const Place& at) {
    const u32 start = row * pitch_;
    u64 place = at.address;
    u32 elements = inner_;
    s64 first = box_.coordinates[0];
    if (m_.interleave) {
      const u32 slice_elements = m_.interleave * 16u / element_;
      first += slice_ * slice_elements;
      elements = std::min(elements - slice_ * slice_elements, slice_elements);
      // NC/8HWC8: slices of one image lie behind each other, as large as its outermost extent.
      const s64 slice = first / slice_elements;
      const int last = m_.rank - 2;
      place += static_cast<u64>(slice) * m_.dims[last] * m_.strides[last - 1];
      place -= static_cast<u64>(slice * slice_elements) * element_;
    }
    const s64 low = at.inside ? std::clamp<s64>(-first, 0, elements) : elements;
    const s64 high = at.inside ? std::clamp<s64>(s64{m_.dims[0]} - first, low, elements) : elements;
    return piece(start, nullptr, 0, low) &&
           piece(start, reinterpret_cast<u8*>(place + static_cast<u64>(first * element_)), low,
                 high) &&
           piece(start, nullptr, high, elements);
  }
  bool piece(u32 start, u8* global, s64 from, s64 to) {
    if (from >= to) return true;
    const u32 skipped = static_cast<u32>(from) * element_;
    return each_(context_, {start + skipped, global ? global + skipped : nullptr,
                            static_cast<u32>(to - from) * element_});
  }

  const Box& box_;
  const TensorMap& m_;
  RowFn each_;
  void* context_;
  u32 element_;  // bytes
  u32 inner_;    // elements
  u32 pitch_;
  u32 slice_ = 0;
};

}  // namespace

bool walk_box(const Box& box, RowFn each, void* context) { return Walk(box, each, context).run(); }

u32 box_bytes(const Box& box) { return rows_of(box) * inner_bytes(box); }
u32 box_span(const Box& box) { return rows_of(box) * slices_of(box) * pitch_of(box); }

}  // namespace vgpu
