// Results of one FP32 number for each row or column of D: sums, sums of squares, maxima.
//
// A threadblock reduces what it has in registers and adds it to global memory by atomic operations,
// in any order. The entry clears that memory on the stream before its kernel. A number for some
// columns of a row is one warp's alone, which stores it.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "boltgen/activations.h"
#include "boltgen/arguments.h"
#include "boltgen/results.h"

namespace boltgen {

/// One number for each row and each kColumns_ columns of D, (M, N / kColumns_).
template <typename Element_, int kColumns_>
struct Columns {
  using Element = Element_;

  static constexpr bool kIsOfSlices = false;
  static constexpr int vector(int) { return 1; }
  static constexpr int columns(int n) { return n / kColumns_; }
  static int64_t before(boltgen_operand const& operand, int64_t row) { return row * operand.ld; }
};

/// A result that has one number for each column of D (`Span` is Row<float>), for each of its rows
/// (Column<float>), or for some columns of each row (Columns). Of columns of D, `ld` of its operand
/// is how many rows make one number: those of an image, or all of a product.
template <typename Span, typename Reduction>
struct Reduced {};

struct Sum {
  static constexpr int kEmptyByte = 0;

  CUTLASS_DEVICE static float empty() { return 0.0f; }
  CUTLASS_DEVICE static float term(float x) { return x; }
  CUTLASS_DEVICE static float merge(float x, float y) { return x + y; }
  CUTLASS_DEVICE static void add(float* to, float value) { atomicAdd(to, value); }
};

struct SumOfSquares : Sum {
  CUTLASS_DEVICE static float term(float x) { return x * x; }
};

/// The greatest number; NaN where any is.
struct Maximum {
  /// All bits set: less than any number in both of the orders by which `add` compares.
  static constexpr int kEmptyByte = 0xFF;

  CUTLASS_DEVICE static float empty() { return -INFINITY; }
  CUTLASS_DEVICE static float term(float x) { return x; }
  CUTLASS_DEVICE static float merge(float x, float y) { return maximum(x, y); }

  /// FP32 numbers without a sign are ordered as integers, those with one the other way round. The
  /// NaN without a sign is the greatest of all.
  CUTLASS_DEVICE
  static void add(float* to, float value) {
    int const bits = isnan(value) ? 0x7FFFFFFF : __float_as_int(value);
    if (bits >= 0) {
      atomicMax(reinterpret_cast<int*>(to), bits);
    } else {
      atomicMin(reinterpret_cast<unsigned*>(to), unsigned(bits));
    }
  }
};

template <typename Span, typename Reduction>
struct ResultOperand<Reduced<Span, Reduction>> {
  using Type = Span;
};

/// A number for each column of each image.
template <typename Reduction>
struct ResultRows<Reduced<Row<float>, Reduction>> {
  static int64_t before(boltgen_operand const& result, int64_t row, int64_t columns) {
    return row / result.ld * columns;
  }
};

/// Where the threads of an epilogue reduce to: the lanes of a warp that share rows follow each
/// other, so lane i and lane i + kLanes have the same columns.
template <typename OutputTileIterator>
struct SharedRows {
  static constexpr int kLanes = OutputTileIterator::ThreadMap::Detail::RowArrangement::kAccessWidth;
  static_assert((kLanes & (kLanes - 1)) == 0 && kLanes <= 32, "rows divide a warp");
};

/// One number for each row: a thread's columns, then those of the lanes that share the row.
template <typename Reduction, typename OutputTileIterator>
class ResultWriter<Reduced<Column<float>, Reduction>, OutputTileIterator> {
 public:
  CUTLASS_DEVICE
  ResultWriter(boltgen_operand const& result, int batch, OutputTileIterator const& d)
      : pointer_(static_cast<float*>(const_cast<void*>(result.pointer)) +
                 batch * result.batch_stride),
        d_(d) {}

  CUTLASS_DEVICE
  void put(float value, int vector, int element) {
    if (vector % Tile::kColumns == 0 && element == 0) {
      sum_ = Reduction::empty();
    }
    if (Tile::column(d_, vector % Tile::kColumns) + element < d_.extent_column()) {
      sum_ = Reduction::merge(sum_, Reduction::term(value));
    }
    if ((vector + 1) % Tile::kColumns == 0 && element + 1 == Tile::kElements) {
      add(Tile::row(d_, vector / Tile::kColumns));
    }
  }

 private:
  using Tile = ThreadTile<OutputTileIterator>;
  static constexpr int kLanes = SharedRows<OutputTileIterator>::kLanes;

  CUTLASS_DEVICE
  void add(int row) {
    CUTLASS_PRAGMA_UNROLL
    for (int distance = 1; distance < kLanes; distance *= 2) {
      sum_ = Reduction::merge(sum_, __shfl_xor_sync(0xFFFFFFFF, sum_, distance));
    }
    if (threadIdx.x % kLanes == 0 && row < d_.extent_row()) {
      Reduction::add(pointer_ + row, sum_);
    }
  }

  float* pointer_;
  OutputTileIterator const& d_;  // the epilogue's own, which moves from iteration to iteration
  float sum_;
};

/// One number for some columns of each row: those of a vector's part of a warp, or of several
/// vectors of it.
template <int kColumns, typename Reduction, typename OutputTileIterator>
class ResultWriter<Reduced<Columns<float, kColumns>, Reduction>, OutputTileIterator> {
 public:
  CUTLASS_DEVICE
  ResultWriter(boltgen_operand const& result, int batch, OutputTileIterator const& d)
      : pointer_(static_cast<float*>(const_cast<void*>(result.pointer)) +
                 batch * result.batch_stride),
        ld_(result.ld),
        d_(d) {}

  CUTLASS_DEVICE
  void put(float value, int vector, int element) {
    int const before = vector % Tile::kColumns * kSpan;
    if (before % kColumns == 0 && element == 0) {
      sum_ = Reduction::empty();
    }
    sum_ = Reduction::merge(sum_, Reduction::term(value));
    if ((before + kSpan) % kColumns == 0 && element + 1 == Tile::kElements) {
      store(Tile::row(d_, vector / Tile::kColumns),
            Tile::column(d_, vector % Tile::kColumns) / kColumns);
    }
  }

 private:
  using Tile = ThreadTile<OutputTileIterator>;
  static constexpr int kLanes = SharedRows<OutputTileIterator>::kLanes;
  /// Columns of the lanes that share a row, side by side; the next vector has those behind.
  static constexpr int kSpan = kLanes * Tile::kElements;
  static_assert(kSpan % kColumns == 0 || kColumns % kSpan == 0, "one span has whole numbers");
  static_assert(kColumns % Tile::kElements == 0, "a vector is of one number");
  static_assert(Tile::kColumns == 1 || Tile::Delta::kColumn == kSpan, "spans lie side by side");
  static constexpr int kSharing = kColumns < kSpan ? kColumns / Tile::kElements : kLanes;

  CUTLASS_DEVICE
  void store(int row, int number) {
    CUTLASS_PRAGMA_UNROLL
    for (int distance = 1; distance < kSharing; distance *= 2) {
      sum_ = Reduction::merge(sum_, __shfl_xor_sync(0xFFFFFFFF, sum_, distance));
    }
    bool const is_first = threadIdx.x % kSharing == 0;
    if (is_first && row < d_.extent_row() && number < d_.extent_column() / kColumns) {
      pointer_[row * ld_ + number] = sum_;
    }
  }

  float* pointer_;
  int64_t ld_;
  OutputTileIterator const& d_;  // the epilogue's own, which moves from iteration to iteration
  float sum_;
};

/// One number for each column: a thread keeps those of its columns while its rows make one number,
/// and adds the last ones when the epilogue is through.
template <typename Reduction, typename OutputTileIterator>
class ResultWriter<Reduced<Row<float>, Reduction>, OutputTileIterator> {
 public:
  CUTLASS_DEVICE
  ResultWriter(boltgen_operand const& result, int batch, OutputTileIterator const& d)
      : pointer_(static_cast<float*>(const_cast<void*>(result.pointer)) +
                 batch * result.batch_stride),
        rows_each_(int(result.ld)),
        d_(d) {
    clear();
  }

  ResultWriter(ResultWriter const&) = delete;
  ResultWriter& operator=(ResultWriter const&) = delete;

  CUTLASS_DEVICE
  ~ResultWriter() {
    bool const is_one = __all_sync(0xFFFFFFFF, place_ == __shfl_sync(0xFFFFFFFF, place_, 0));
    if (is_one) {
      CUTLASS_PRAGMA_UNROLL
      for (int distance = kLanes; distance < 32; distance *= 2) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kSums; ++i) {
          sums_[i] = Reduction::merge(sums_[i], __shfl_xor_sync(0xFFFFFFFF, sums_[i], distance));
        }
      }
    }
    if (!is_one || threadIdx.x % 32 < kLanes) {
      add();
    }
  }

  CUTLASS_DEVICE
  void put(float value, int vector, int element) {
    int const row = Tile::row(d_, vector / Tile::kColumns);
    if (row >= d_.extent_row()) {
      return;
    }
    int const column = vector % Tile::kColumns;
    if (column == 0 && element == 0 && row / rows_each_ != place_) {
      add();
      clear();
      place_ = row / rows_each_;
    }
    float& sum = sums_[column * Tile::kElements + element];
    sum = Reduction::merge(sum, Reduction::term(value));
  }

 private:
  using Tile = ThreadTile<OutputTileIterator>;
  static constexpr int kLanes = SharedRows<OutputTileIterator>::kLanes;
  static constexpr int kSums = Tile::kColumns * Tile::kElements;

  CUTLASS_DEVICE
  void clear() {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kSums; ++i) {
      sums_[i] = Reduction::empty();
    }
  }

  /// Nothing before the first row.
  CUTLASS_DEVICE
  void add() const {
    float* const row = pointer_ + int64_t(place_) * d_.extent_column();
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kSums; ++i) {
      int const column = Tile::column(d_, i / Tile::kElements) + i % Tile::kElements;
      if (place_ >= 0 && column < d_.extent_column()) {
        Reduction::add(row + column, sums_[i]);
      }
    }
  }

  float* pointer_;
  int rows_each_;
  OutputTileIterator const& d_;
  int place_ = -1;  // which of the numbers of a column
  float sums_[kSums];
};

/// The extents of D, of one product of a batch.
struct MatrixOfD {
  int64_t rows;
  int64_t columns;
  int64_t batch;
};

inline MatrixOfD matrix_of_d(boltgen_gemm_args const& args) { return {args.m, args.n, args.batch}; }

inline MatrixOfD matrix_of_d(boltgen_conv2d_args const& args) {
  return {int64_t(args.n) * args.p * args.q, args.k, 1};
}

inline MatrixOfD matrix_of_d(boltgen_conv3d_args const& args) {
  return {int64_t(args.n) * args.z * args.p * args.q, args.k, 1};
}

inline MatrixOfD matrix_of_d(boltgen_depthwise_args const& args) {
  return {int64_t(args.n) * args.p * args.q, args.k, 1};
}

/// The results of the second of two layers.
struct LastResult {
  MatrixOfD matrix;
  boltgen_operand const* operands;
  void* stream;
};

inline LastResult last_result(boltgen_conv2d_chain_args const& args) {
  boltgen_chain_layer const& last = args.layers[1];
  return {{int64_t(args.n) * args.p * args.q, last.n, 1}, last.operands, args.stream};
}

inline MatrixOfD matrix_of_d(LastResult const& last) { return last.matrix; }

/// Clears the memory of one result, if it is a reduction. What is null, or empty, is left for the
/// launch to refuse.
template <typename Result>
struct Clearing {
  static void clear(boltgen_operand const&, MatrixOfD const&, void*, boltgen_status*) {}
};

template <typename Span, typename Reduction>
struct Clearing<Reduced<Span, Reduction>> {
  static void clear(boltgen_operand const& result, MatrixOfD const& d, void* stream,
                    boltgen_status* status) {
    if (!std::is_same<typename Span::Element, float>::value) {
      return;  // its FP32 sums are in the workspace, which the launch clears
    }
    ArgumentCheck check(status);
    int64_t count = d.rows;
    if (std::is_same<Span, Row<float>>::value) {
      check.at_least("operands[].ld (rows of D that make one number)", result.ld, 1);
      count = check.failed() ? 0 : (d.rows + result.ld - 1) / result.ld * d.columns;
    }
    int64_t const stride = d.batch > 1 ? result.batch_stride : count;
    check.at_least("operands[].batch_stride", stride, count);
    if (check.failed() || result.pointer == nullptr || count < 1 || d.batch < 1) {
      return;
    }
    cudaError_t const error = cudaMemset2DAsync(
        const_cast<void*>(result.pointer), size_t(stride) * sizeof(float), Reduction::kEmptyByte,
        size_t(count) * sizeof(float), size_t(d.batch), static_cast<cudaStream_t>(stream));
    if (error != cudaSuccess) {
      fail_cuda(status, error, "cannot clear %lld reduced numbers", static_cast<long long>(count));
    }
  }
};

/// What one warp stores needs none.
template <int kColumns, typename Reduction>
struct Clearing<Reduced<Columns<float, kColumns>, Reduction>> {
  static void clear(boltgen_operand const&, MatrixOfD const&, void*, boltgen_status*) {}
};

/// Clears what the kernel of these arguments reduces to; returns the status's code.
template <typename Loads, typename... Result, typename Args>
int clear_reductions(OperandsAndResults<Loads, Result...>, Args const& args,
                     boltgen_status* status) {
  succeed(status);
  int index = Loads::kCount;
  ((status->code == BOLTGEN_OK
        ? Clearing<Result>::clear(args.operands[index++], matrix_of_d(args), args.stream, status)
        : void()),
   ...);
  return status->code;
}

}  // namespace boltgen
