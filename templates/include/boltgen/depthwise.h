// Depthwise convolutions of images in NHWC: D = graph(filter of each channel), summed in FP32.
//
// A thread has one vector of channels of a tile of kRows x kColumns pixels of the output, and reads
// for each row of the filter the pixels that the tile's rows meet. Neighbouring threads have
// neighbouring vectors of channels, so that a warp reads whole sectors; the next ones have the next
// tiles. Pixels that tiles share come from L1 or L2. Nothing is staged in shared memory.
//
// A sum of each image's channels may be a result in the type of A: threadblocks add to FP32 numbers
// in the workspace, and the last one of a slab of channels rounds them.

#pragma once

#include <cutlass/arch/memory.h>
#include <cutlass/array.h>
#include <cutlass/fast_math.h>
#include <cutlass/numeric_conversion.h>

#include "boltgen/activations.h"
#include "boltgen/depthwise_operands.h"
#include "boltgen/launch.h"

namespace boltgen {

/// Columns of a filter that are known when the kernel is compiled: the pixels of a row that a tile
/// meets are then in registers.
template <int kTaps_, int kStride_, int kDilation_>
struct Window {
  static constexpr int kTaps = kTaps_;
  static constexpr int kStride = kStride_;
  static constexpr int kDilation = kDilation_;

  /// Pixels from the first that `columns` of the output meet to the last.
  static constexpr int span(int columns) {
    return (columns - 1) * kStride + (kTaps - 1) * kDilation + 1;
  }

  /// The column of the output whose `tap` meets that pixel of the span; -1 where none of so many.
  static constexpr int column(int pixel, int tap, int columns) {
    int const before = pixel - tap * kDilation;
    return before >= 0 && before % kStride == 0 && before / kStride < columns ? before / kStride
                                                                              : -1;
  }

  /// Whether any of `columns` of the output meets that pixel of the span.
  static constexpr bool meets(int pixel, int columns) {
    for (int tap = 0; tap < kTaps; ++tap) {
      if (column(pixel, tap, columns) >= 0) {
        return true;
      }
    }
    return false;
  }
};

/// Any other filter: a tile's pixels are read for each of its columns.
struct AnyWindow {
  static constexpr int kTaps = 0;
};

/// Vectors have kVector_ of D's channels, and kMultiplier_ neighbouring ones are of one channel of
/// A.
template <typename ElementIn_, typename ElementD_, typename Graph, int kVector_, int kMultiplier_,
          typename Filter_, int kThreads, int kRows_, int kColumns_>
struct Depthwise {
  using ElementIn = ElementIn_;
  using ElementD = ElementD_;
  using Filter = Filter_;
  using Loads = LoadsOf<typename Graph::Operands>;

  static constexpr int kVector = kVector_;
  static constexpr int kMultiplier = kMultiplier_;
  static constexpr int kVectorA = kVector >= kMultiplier ? kVector / kMultiplier : 1;
  static constexpr int kRows = kRows_;
  static constexpr int kColumns = kColumns_;
  static constexpr int kTaps = Filter::kTaps;
  static constexpr int kThreadCount = kThreads;
  static constexpr int kLoads = Loads::Type::kCount;
  static constexpr int kOperands = kLoads + Loads::kResults;
  static constexpr int kRounded = RoundedSum<typename Graph::Operands>::kIndex;
  static_assert(kThreads % 32 == 0, "whole warps");
  static_assert(kVector % kMultiplier == 0 || kMultiplier % kVector == 0,
                "a vector of D is of one vector of A");

  struct Params {
    ElementIn const* a;
    ElementIn const* b;
    ElementD* d;
    int h, w, c, k, r, s, p, q;
    int pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w;
    int vectors;                       ///< of D's channels
    int tiles;                         ///< of all images
    cutlass::FastDivmod slabs;         ///< of channels
    cutlass::FastDivmod slab;          ///< vectors of channels
    cutlass::FastDivmod tile_columns;  ///< of an image
    cutlass::FastDivmod tile_rows;     ///< of an image
    boltgen_operand operands[BOLTGEN_MAX_OPERANDS];
    ElementIn* rounded;  ///< sums of each image, whose FP32 numbers are an operand
    int* ended;          ///< threadblocks of each slab
    int images;
    int blocks_of_slab;
  };

  struct SharedStorage {
    bool is_last;
  };

  CUTLASS_DEVICE
  void operator()(Params const& params, [[maybe_unused]] SharedStorage& shared) {
    int block, slab, tile, vector;
    params.slabs(block, slab, int(blockIdx.x));
    params.slab(tile, vector, block * kThreads + int(threadIdx.x));
    vector += slab * params.slab.divisor;
    if (tile < params.tiles && vector < params.vectors) {
      Tile(params, tile, vector).compute();
    }
    if constexpr (kRounded >= 0) {
      round_sums(params, slab, shared);
    }
  }

 private:
  using VectorA = cutlass::AlignedArray<ElementIn, kVectorA>;
  using VectorB = cutlass::AlignedArray<ElementIn, kVector>;
  using VectorD = cutlass::AlignedArray<ElementD, kVector>;
  using WideA = cutlass::Array<float, kVectorA>;
  using WideB = cutlass::Array<float, kVector>;

  /// Rounds the sums of a slab's channels, if all other threadblocks have added theirs.
  CUTLASS_DEVICE
  static void round_sums(Params const& params, int slab, SharedStorage& shared) {
    __threadfence();  // the sums of this thread are added before it is counted
    __syncthreads();
    if (threadIdx.x == 0) {
      shared.is_last = atomicAdd(params.ended + slab, 1) + 1 == params.blocks_of_slab;
    }
    __syncthreads();
    if (!shared.is_last) {
      return;
    }
    __threadfence();
    int const first = slab * params.slab.divisor * kVector;
    int const left = params.k - first, most = params.slab.divisor * kVector;
    int const channels = left < most ? left : most;
    auto const* const sums = static_cast<float const*>(params.operands[kRounded].pointer);
    for (int64_t i = threadIdx.x; i < int64_t(params.images) * channels; i += kThreads) {
      int64_t const at = i / channels * params.k + first + i % channels;
      params.rounded[at] = cutlass::NumericConverter<ElementIn, float>()(__ldcg(sums + at));
    }
  }

  /// The work of a thread.
  struct Tile {
    Params const& params;
    int image, row, column;  ///< of the output: the first ones
    int channel;             ///< of the output
    ElementIn const* a;      ///< the image, at the vector's channels
    ElementIn const* b;
    float sums[kRows][kColumns][kVector];

    CUTLASS_DEVICE
    Tile(Params const& given, int tile, int vector)
        : params(given), channel(vector * kVector), b(given.b + channel) {
      int tile_row;
      params.tile_columns(tile_row, column, tile);
      params.tile_rows(image, row, tile_row);
      row *= kRows;
      column *= kColumns;
      int64_t const pixels = int64_t(params.h) * params.w;
      a = params.a + image * pixels * params.c + channel / kMultiplier;
    }

    CUTLASS_DEVICE
    void compute() {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kRows * kColumns * kVector; ++i) {
        sums[i / (kColumns * kVector)][i / kVector % kColumns][i % kVector] = 0.0f;
      }
      CUTLASS_PRAGMA_NO_UNROLL
      for (int r = 0; r < params.r; ++r) {
        if constexpr (kTaps > 0) {
          add_row(r);
        } else {
          add_row_of_any(r);
        }
      }
      store();
    }

    /// Adds a row of the filter whose columns are known.
    CUTLASS_DEVICE
    void add_row(int r) {
      constexpr int kSpan = Filter::span(kColumns);
      WideB weights[kTaps];
      CUTLASS_PRAGMA_UNROLL
      for (int s = 0; s < kTaps; ++s) {
        weights[s] = widen(weight(r, s));
      }
      int const left = column * Filter::kStride - params.pad_w;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kRows; ++i) {
        VectorA pixels[kSpan];
        Row pixels_of(*this, i, r, left);
        CUTLASS_PRAGMA_UNROLL
        for (int x = 0; x < kSpan; ++x) {
          if (Filter::meets(x, kColumns)) {
            pixels_of.load(pixels[x]);
          }
          pixels_of.advance(1);
        }
        CUTLASS_PRAGMA_UNROLL
        for (int x = 0; x < kSpan; ++x) {
          if (Filter::meets(x, kColumns)) {
            WideA const pixel = widen(pixels[x]);
            CUTLASS_PRAGMA_UNROLL
            for (int s = 0; s < kTaps; ++s) {
              int const j = Filter::column(x, s, kColumns);
              if (j >= 0) {
                add(sums[i][j], pixel, weights[s]);
              }
            }
          }
        }
      }
    }

    /// Adds a row of a filter of any columns.
    CUTLASS_DEVICE
    void add_row_of_any(int r) {
      CUTLASS_PRAGMA_NO_UNROLL
      for (int s = 0; s < params.s; ++s) {
        WideB const weights = widen(weight(r, s));
        int const left = column * params.stride_w - params.pad_w + s * params.dilation_w;
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kRows; ++i) {
          VectorA pixels[kColumns];
          Row pixels_of(*this, i, r, left);
          CUTLASS_PRAGMA_UNROLL
          for (int j = 0; j < kColumns; ++j) {
            pixels_of.load(pixels[j]);
            pixels_of.advance(params.stride_w);
          }
          CUTLASS_PRAGMA_UNROLL
          for (int j = 0; j < kColumns; ++j) {
            add(sums[i][j], widen(pixels[j]), weights);
          }
        }
      }
    }

    CUTLASS_DEVICE
    VectorB weight(int r, int s) const {
      return *reinterpret_cast<VectorB const*>(b + (r * params.s + s) * params.k);
    }

    /// Two halves at a time.
    template <typename Vector>
    CUTLASS_DEVICE static auto widen(Vector const& vector) {
      return cutlass::NumericArrayConverter<float, ElementIn, Vector::kElements>()(vector);
    }

    CUTLASS_DEVICE
    static void add(float (&sum)[kVector], WideA const& pixel, WideB const& weight) {
      CUTLASS_PRAGMA_UNROLL
      for (int e = 0; e < kVector; ++e) {
        sum[e] += pixel[e / kMultiplier] * weight[e];
      }
    }

    /// Pixels of the row of the image that a row of the tile meets with one of the filter, from
    /// column `x` on; zeros around the image.
    struct Row {
      ElementIn const* pixel;
      int x;
      int width;  ///< 0 where there is no such row
      int stride;

      CUTLASS_DEVICE
      Row(Tile const& tile, int i, int r, int left) : x(left), stride(tile.params.c) {
        Params const& params = tile.params;
        int const y = (tile.row + i) * params.stride_h - params.pad_h + r * params.dilation_h;
        pixel = tile.a + (int64_t(y) * params.w + left) * stride;
        width = unsigned(y) < unsigned(params.h) ? params.w : 0;
      }

      CUTLASS_DEVICE
      void load(VectorA& to) const {
        to.clear();
        cutlass::arch::global_load<VectorA, sizeof(VectorA)>(to, pixel,
                                                             unsigned(x) < unsigned(width));
      }

      CUTLASS_DEVICE
      void advance(int columns) {
        x += columns;
        pixel += int64_t(columns) * stride;
      }
    };

    CUTLASS_DEVICE
    void store() {
      Graph const graph;
      VectorOperands<typename OfPixels<typename Graph::Operands>::Type, kVector> operands(
          params.operands, params.operands + kLoads);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kRows; ++i) {
        int64_t const begin = (int64_t(image) * params.p + row + i) * params.q + column;
        CUTLASS_PRAGMA_UNROLL
        for (int j = 0; j < kColumns; ++j) {
          bool const inside = row + i < params.p && column + j < params.q;
          Place const place{begin + j, channel};
          operands.load(place, inside);
          WideB made;
          CUTLASS_PRAGMA_UNROLL
          for (int e = 0; e < kVector; ++e) {
            made[e] = operands.apply(graph, sums[i][j][e], e);
          }
          VectorD vector;
          static_cast<cutlass::Array<ElementD, kVector>&>(vector) =
              cutlass::NumericArrayConverter<ElementD, float, kVector>()(made);
          operands.store(place, inside);
          cutlass::arch::global_store<VectorD, sizeof(VectorD)>(
              vector, params.d + place.row * params.k + channel, inside);
        }
      }
      int64_t const first = (int64_t(image) * params.p + row) * params.q + column;
      operands.finish(Place{first, channel}, params.k);
    }
  };
};

template <typename Kernel>
void check_depthwise(ArgumentCheck& check, boltgen_depthwise_args const& args) {
  struct {
    char const* name;
    int value;
  } const extents[] = {{"n", args.n},
                       {"h", args.h},
                       {"w", args.w},
                       {"c", args.c},
                       {"k", args.k},
                       {"r", args.r},
                       {"s", args.s},
                       {"p", args.p},
                       {"q", args.q},
                       {"stride_h", args.stride_h},
                       {"stride_w", args.stride_w},
                       {"dilation_h", args.dilation_h},
                       {"dilation_w", args.dilation_w},
                       {"slab", args.slab}};
  for (auto const& extent : extents) {
    check.at_least(extent.name, extent.value, 1);
  }
  check.at_least("pad_h", args.pad_h, 0);
  check.at_least("pad_w", args.pad_w, 0);
  check.equal("k", args.k, int64_t(args.c) * Kernel::kMultiplier);
  if constexpr (Kernel::kTaps > 0) {
    check.equal("s", args.s, Kernel::kTaps);
    check.equal("stride_w", args.stride_w, Kernel::Filter::kStride);
    check.equal("dilation_w", args.dilation_w, Kernel::Filter::kDilation);
  }
  check.multiple("c", args.c, Kernel::kVectorA);
  check.multiple("k", args.k, Kernel::kVector);
  check.pointer("a", args.a, Kernel::kVectorA, sizeof(typename Kernel::ElementIn));
  check.pointer("b", args.b, Kernel::kVector, sizeof(typename Kernel::ElementIn));
  check.pointer("d", args.d, Kernel::kVector, sizeof(typename Kernel::ElementD));
  check_operands(typename Kernel::Loads::Type(), check, args.operands, args.k, Kernel::kVector);
  Kernel::Loads::check_results(check, args.operands, Kernel::kLoads, args.k, Kernel::kVector);
}

/// What a kernel that rounds a sum clears: FP32 numbers of each image, and a count for each slab.
template <typename Kernel>
size_t depthwise_workspace_bytes(boltgen_depthwise_args const* args) {
  if (Kernel::kRounded < 0 || args->n < 1 || args->k < 1) {
    return 0;
  }
  return size_t(args->n) * size_t(args->k) * sizeof(float) +
         size_t(args->k / Kernel::kVector) * sizeof(int);
}

template <typename Kernel>
int run_depthwise(void (*kernel)(typename Kernel::Params), boltgen_depthwise_args const* args,
                  boltgen_status* status) {
  ArgumentCheck check(status);
  check_depthwise<Kernel>(check, *args);
  if (check.failed()) {
    return check.code();
  }
  int const vectors = args->k / Kernel::kVector;
  int const slab = args->slab < vectors ? args->slab : vectors;
  int const slabs = (vectors + slab - 1) / slab;
  int const tile_columns = (args->q + Kernel::kColumns - 1) / Kernel::kColumns;
  int const tile_rows = (args->p + Kernel::kRows - 1) / Kernel::kRows;
  int64_t const tiles = int64_t(args->n) * tile_rows * tile_columns;
  int64_t const threads = tiles * slab;
  int64_t const blocks = (threads + Kernel::kThreadCount - 1) / Kernel::kThreadCount;
  check.at_most("threads for a slab", blocks * Kernel::kThreadCount, INT32_MAX);
  check.at_most("number of blocks", blocks * slabs, INT32_MAX);
  SplitWorkspace cleared(0, 1, 0);
  cleared.bytes = cleared.semaphore_bytes = depthwise_workspace_bytes<Kernel>(args);
  check.workspace(args->workspace, args->workspace_bytes, cleared.bytes);
  if (check.failed()) {
    return check.code();
  }
  typename Kernel::Params params{static_cast<typename Kernel::ElementIn const*>(args->a),
                                 static_cast<typename Kernel::ElementIn const*>(args->b),
                                 static_cast<typename Kernel::ElementD*>(args->d),
                                 args->h,
                                 args->w,
                                 args->c,
                                 args->k,
                                 args->r,
                                 args->s,
                                 args->p,
                                 args->q,
                                 args->pad_h,
                                 args->pad_w,
                                 args->stride_h,
                                 args->stride_w,
                                 args->dilation_h,
                                 args->dilation_w,
                                 vectors,
                                 int(tiles),
                                 cutlass::FastDivmod(slabs),
                                 cutlass::FastDivmod(slab),
                                 cutlass::FastDivmod(tile_columns),
                                 cutlass::FastDivmod(tile_rows),
                                 {},
                                 nullptr,
                                 nullptr,
                                 args->n,
                                 int(blocks)};
  for (int i = 0; i < Kernel::kOperands; ++i) {
    params.operands[i] = args->operands[i];
  }
  if constexpr (Kernel::kRounded >= 0) {
    auto* const sums = static_cast<float*>(args->workspace);
    auto& result = params.operands[Kernel::kRounded];
    params.rounded = static_cast<typename Kernel::ElementIn*>(const_cast<void*>(result.pointer));
    params.ended = reinterpret_cast<int*>(sums + int64_t(args->n) * args->k);
    result.pointer = sums;
  }
  return launch<Kernel>(kernel, params, dim3(unsigned(blocks * slabs)), cleared, args->workspace,
                        args->stream, status);
}

}  // namespace boltgen
