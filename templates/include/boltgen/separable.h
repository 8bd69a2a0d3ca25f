// Depthwise separable convolutions in one kernel: a depthwise convolution, then a 1x1 one.
//
// A threadblock has a tile of pixels, in the order of the images' memory, and of the columns of the
// 1x1 convolution. It goes along the channels between in steps. In each, its threads compute these
// channels of its pixels without tensor cores and write them, as the tensor cores multiply them, to
// one of two tiles in shared memory. The result of the depthwise convolution exists nowhere else.
//
// Source of the idea: Xing et al., Bolt, MLSys 2022, section 3.1, with another first layer.

#pragma once

#include <cutlass/fast_math.h>

#include "boltgen/b2b_layer.h"
#include "boltgen/depthwise_operands.h"
#include "boltgen/depthwise_tile.h"
#include "boltgen/epilogue_graph.h"

namespace boltgen {

/// `Tile` computes neighbouring pixels of a row of the depthwise convolution, whose epilogue is
/// `Between`. `Layer` is the 1x1 convolution, an `InnerLayer`.
template <typename Tile_, typename Between_, typename Layer_, typename ElementD_>
struct Separable {
  using Tile = Tile_;
  using Between = Between_;
  using Layer = Layer_;
  using ElementD = ElementD_;
  using ElementIn = typename Tile::Element;
  using Graph = typename Layer::Graph;
  using Loads = LoadsOf<typename Graph::Operands>;

  static constexpr int kM = Layer::Shape::kM;
  static constexpr int kN = Layer::Shape::kN;
  static constexpr int kK = Layer::Shape::kK;
  static constexpr int kVector = Tile::kVector;
  static constexpr int kColumns = Tile::kColumns;
  static constexpr int kThreadCount = 32 * Layer::kWarps;
  static constexpr int kAlignmentD = Layer::kAlignmentD;
  static_assert(sizeof(ElementIn) == 2, "a step's channels are 16-bit numbers");
  static_assert(Tile::kRows == 1, "a tile's pixels are neighbours in memory");
  static_assert(kM % kColumns == 0 && kK % kVector == 0, "whole tiles, whole vectors");

  /// What the last epilogue derives its types from.
  struct LastMma {
    using Shape = cutlass::gemm::GemmShape<kM, kN, Layer::WarpMma::Shape::kK>;
    struct Policy {
      using Operator = typename Layer::WarpMma;
    };
  };
  using Epilogue = GraphEpilogue<LastMma, ElementD, kAlignmentD, Graph>;
  using OutputOp = typename Epilogue::OutputOp;
  using OutputTileIterator = typename Epilogue::OutputTileIterator;

  struct Params {
    DepthwiseSizes sizes;
    int rows;                          ///< pixels of all images of the output
    int n;                             ///< columns of the output
    cutlass::FastDivmod column_tiles;  ///< of the output
    cutlass::FastDivmod of_row;        ///< pixels
    cutlass::FastDivmod of_image;      ///< rows of pixels
    ElementIn const* a;
    ElementIn const* filters;
    cutlass::half_t const* b;
    int64_t ldb;
    boltgen_operand between[BOLTGEN_MAX_OPERANDS];
    typename OutputTileIterator::Params d;
    ElementD* pointer_d;
    typename OutputOp::Params output_op;
  };

  /// Channels of a step, of the threadblock's pixels.
  using Step = SwizzledTile<kM, kK>;

  struct Working {
    alignas(16) cutlass::half_t b[Layer::kTileElements * Layer::kStages];
    alignas(16) cutlass::half_t a[2 * Step::kElements];
  };

  union SharedStorage {
    Working working;
    typename Epilogue::SharedStorage epilogue;
  };

  CUTLASS_DEVICE
  void operator()(Params const& params, SharedStorage& shared) {
    using Group = KGroup<typename Layer::WarpMma>;
    // The same in all threads of a warp, and known to be by the compiler.
    int const warp = cutlass::canonical_warp_idx_sync();
    int const thread = int(threadIdx.x), lane = thread % 32;
    int tile_row, tile_column;
    params.column_tiles(tile_row, tile_column, int(blockIdx.x));
    int const first_row = tile_row * kM, first_column = tile_column * kN;
    int const warp_row = warp % Layer::kWarpsM * Layer::WarpMma::Shape::kM;
    int const warp_column = warp / Layer::kWarpsM * Layer::WarpMma::Shape::kN;

    int64_t const column_of_b = Layer::kRowMajorB ? first_column : first_column * params.ldb;
    Layer layer(params.b + column_of_b, params.ldb, params.n - first_column, params.sizes.k,
                shared.working.b, thread);
    cutlass::half_t* const steps = shared.working.a;
    typename Layer::FragmentC accumulators;
    accumulators.clear();
    layer.prologue();
    layer.multiply(
        accumulators, warp_column, lane,
        [&](typename Group::FragmentA& a, int channel) {
          cutlass::half_t const* const from = steps + channel / kK % 2 * Step::kElements;
          Group::template load_a<Step>(a, from, warp_row, channel % kK, lane);
        },
        [&](int step) {
          auto* const to = reinterpret_cast<ElementIn*>(steps + step % 2 * Step::kElements);
          make(params, to, first_row, step * kK, thread);
        });

    OutputTileIterator const d(params.d, params.pointer_d, {params.rows, params.n}, thread,
                               {first_row, first_column});
    OutputOp const output_op(params.output_op);
    Epilogue epilogue(shared.epilogue, thread, warp, lane);
    epilogue(output_op, d, accumulators, d);
  }

 private:
  /// Writes the channels from `first_channel` on; zeros beyond the pixels and the channels.
  CUTLASS_DEVICE
  static void make(Params const& params, ElementIn* to, int first_row, int first_channel,
                   int thread) {
    constexpr int kVectors = kK / kVector;
    constexpr int kTasks = kM / kColumns * kVectors;
    CUTLASS_PRAGMA_NO_UNROLL
    for (int task = thread; task < kTasks; task += kThreadCount) {
      int const row = task / kVectors * kColumns, column = task % kVectors * kVector;
      Vector made[kColumns];
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        made[j].clear();
      }
      if (first_channel + column < params.sizes.k) {
        int const first = first_row + row, left = params.rows - first;
        int const pixels = left < kColumns ? left : kColumns;
        for (int done = 0; done < pixels;) {
          done += make_row(params, made, first, done, pixels, first_channel + column);
        }
      }
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        int const offset = Step::offset(row + j, column / 8) + column % 8;
        *reinterpret_cast<Vector*>(to + offset) = made[j];
      }
    }
  }

  using Vector = cutlass::AlignedArray<ElementIn, kVector>;

  /// Makes what one row of an image has of so many pixels from `first` on, of which `done` are
  /// made; returns how many. The tile begins before the row where a row of the image ends in it.
  CUTLASS_DEVICE
  static int make_row(Params const& params, Vector (&made)[kColumns], int first, int done,
                      int pixels, int channel) {
    int image_row, image, row, column;
    params.of_row(image_row, column, first + done);
    params.of_image(image, row, image_row);
    int const in_row = params.sizes.q - column;
    int const end = done + in_row < pixels ? done + in_row : pixels;
    Tile tile(params.sizes, params.a, params.filters, image, row, column - done, channel);
    tile.compute();
    Between const graph;
    VectorOperands<typename OfPixels<typename Between::Operands>::Type, kVector> operands(
        params.between, nullptr);
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      bool const inside = j >= done && j < end;
      operands.load(Place{first + (inside ? j : done), channel}, inside);
      cutlass::Array<float, kVector> results;
      CUTLASS_PRAGMA_UNROLL
      for (int e = 0; e < kVector; ++e) {
        results[e] = operands.apply(graph, tile.sums[0][j][e], e);
      }
      if (inside) {
        static_cast<cutlass::Array<ElementIn, kVector>&>(made[j]) =
            cutlass::NumericArrayConverter<ElementIn, float, kVector>()(results);
      }
    }
    return end - done;
  }
};

/// The first layer as a convolution of its own.
inline boltgen_depthwise_args first_depthwise(boltgen_conv2d_chain_args const& args) {
  boltgen_depthwise_args first{};
  first.a = args.a;
  first.b = args.layers[0].b;
  first.n = args.n;
  first.h = args.h;
  first.w = args.w;
  first.c = args.c;
  first.k = args.layers[0].n;
  first.r = args.r;
  first.s = args.s;
  first.p = args.p;
  first.q = args.q;
  first.pad_h = args.pad_h;
  first.pad_w = args.pad_w;
  first.stride_h = args.stride_h;
  first.stride_w = args.stride_w;
  first.dilation_h = args.dilation_h;
  first.dilation_w = args.dilation_w;
  return first;
}

template <typename Kernel>
void check_separable(ArgumentCheck& check, boltgen_conv2d_chain_args const& args) {
  using Layer = typename Kernel::Layer;
  boltgen_chain_layer const &first = args.layers[0], &last = args.layers[1];
  check_depthwise_tile<typename Kernel::Tile>(check, first_depthwise(args));
  check_operands(typename Kernel::Between::Operands(), check, first.operands, first.n,
                 Kernel::kVector);
  int const along = Layer::kRowMajorB ? last.n : first.n;
  check.at_most("rows of the output", int64_t(args.n) * args.p * args.q, INT32_MAX - 256);
  check.at_least("layers[1].n", last.n, 1);
  check.multiple("layers[1].n", last.n, Layer::kAlignmentD);
  check.at_least("layers[1].ldb", last.ldb, along);
  check.multiple(Layer::kRowMajorB ? "layers[1].n (rows of B)" : "layers[0].n (columns of B)",
                 along, Layer::kAlignmentB);
  check.multiple("layers[1].ldb", last.ldb, Layer::kAlignmentB);
  check.pointer("layers[1].b", last.b, Layer::kAlignmentB, sizeof(cutlass::half_t));
  check.pointer("d", args.d, Kernel::kAlignmentD, sizeof(typename Kernel::ElementD));
  check_operands(typename Kernel::Graph::Operands(), check, last.operands, last.n,
                 Kernel::kAlignmentD);
}

template <typename Kernel>
int run_separable(void (*kernel)(typename Kernel::Params), boltgen_conv2d_chain_args const* args,
                  boltgen_status* status) {
  ArgumentCheck check(status);
  check_separable<Kernel>(check, *args);
  if (check.failed()) {
    return check.code();
  }
  boltgen_chain_layer const& last = args->layers[1];
  int const rows = args->n * args->p * args->q;
  int const column_tiles = (last.n + Kernel::kN - 1) / Kernel::kN;
  int64_t const blocks = int64_t((rows + Kernel::kM - 1) / Kernel::kM) * column_tiles;
  check.at_most("number of blocks", blocks, INT32_MAX);
  if (check.failed()) {
    return check.code();
  }
  typename Kernel::Params params{DepthwiseSizes(first_depthwise(*args)),
                                 rows,
                                 last.n,
                                 cutlass::FastDivmod(column_tiles),
                                 cutlass::FastDivmod(args->q),
                                 cutlass::FastDivmod(args->p),
                                 static_cast<typename Kernel::ElementIn const*>(args->a),
                                 static_cast<typename Kernel::ElementIn const*>(args->layers[0].b),
                                 static_cast<cutlass::half_t const*>(last.b),
                                 last.ldb,
                                 {},
                                 cutlass::layout::RowMajor(last.n),
                                 static_cast<typename Kernel::ElementD*>(args->d),
                                 {}};
  for (int i = 0; i < Kernel::Between::Operands::kCount; ++i) {
    params.between[i] = args->layers[0].operands[i];
  }
  for (int i = 0; i < Kernel::Graph::Operands::kCount; ++i) {
    params.output_op.operands[i] = last.operands[i];
  }
  return launch<Kernel>(kernel, params, dim3(unsigned(blocks)), SplitWorkspace(0, 1, 0), nullptr,
                        args->stream, status);
}

}  // namespace boltgen
