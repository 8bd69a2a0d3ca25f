// NHWC to NHWC: rows of channels become longer or shorter.

#pragma once

#include "boltgen/abi.h"
#include "boltgen/move_vector.h"

namespace boltgen {

/// Flat index of a tensor of rows, in step with the same element of one whose rows are longer or
/// shorter.
struct RowPosition {
  int64_t row;
  int column;

  __device__ RowPosition(int64_t flat, int columns)
      : row(flat / columns), column(int(flat % columns)) {}

  __device__ void advance(int rows, int extra_columns, int columns) {
    row += rows;
    column += extra_columns;
    if (column >= columns) {
      column -= columns;
      ++row;
    }
  }
};

/// (rows, source_c) of `In` to (rows, target_c) of `Out`: rows are cropped, or padded with zeros.
///
/// A block writes `tile` consecutive elements, whatever rows they are of, and reads the one range
/// that they come from. Shared memory: that range, then the tile.
template <typename Narrow, typename In, typename Out>
struct Repad {
  static constexpr int kOutPerWord = 4 / int(sizeof(Out));

  /// Elements that a block writes, a multiple of 8, and halves of shared memory for their source.
  struct Tile {
    int elements = 4096;
    int source_halves;

    explicit Tile(boltgen_move_args const& args) {
      int64_t const cropped = args.source_c > args.target_c ? args.source_c - args.target_c : 0;
      int64_t halves = 0;
      // 16 KiB of source: several blocks on an SM. A sector may stick out in front, a vector
      // behind.
      for (;; elements /= 2) {
        halves = elements + (elements / args.target_c + 1) * cropped + 16 + 8;
        if (halves <= 8192 || elements == 8) {
          break;
        }
      }
      source_halves = int((halves + 7) / 8 * 8);
    }

    int64_t blocks(boltgen_move_args const& args) const {
      return (count(args, args.target_c) + elements - 1) / elements;
    }
    int shared_bytes() const {
      return source_halves * int(sizeof(Narrow)) + elements * int(sizeof(Out));
    }
  };

  __host__ __device__ static int64_t count(boltgen_move_args const& args, int channels) {
    return int64_t(args.n) * args.pixels * channels;
  }

  /// The element of the source that element `target` of the target comes from, or would.
  __device__ static int64_t source_index(int64_t target, int source_c, int target_c) {
    int64_t const column = target % target_c;
    return target / target_c * source_c + (column < source_c ? column : source_c);
  }

  __device__ static void run(boltgen_move_args const& args, Tile const& sizes) {
    extern __shared__ __align__(16) unsigned char boltgen_shared_memory[];
    Narrow* const source = reinterpret_cast<Narrow*>(boltgen_shared_memory);
    Out* const tile = reinterpret_cast<Out*>(source + sizes.source_halves);
    int64_t const total = count(args, args.target_c);
    int64_t const begin = int64_t(blockIdx.x) * sizes.elements;
    int64_t const end = begin + sizes.elements < total ? begin + sizes.elements : total;
    // From a whole sector on, so that no access of a warp straddles one more than it must.
    constexpr int kSector = 32 / int(sizeof(In));
    int64_t const first = source_index(begin, args.source_c, args.target_c) / kSector * kSector;
    load(args, source, first, source_index(end, args.source_c, args.target_c));
    __syncthreads();
    arrange(args, source, first, tile, begin, end);
    __syncthreads();
    store(static_cast<Out*>(args.target) + begin, tile, int(end - begin));
  }

 private:
  __device__ static void load(boltgen_move_args const& args, Narrow* source, int64_t first,
                              int64_t last) {
    In const* const global = static_cast<In const*>(args.source);
    constexpr int kRead = kWidest<In>;
    int64_t const total = count(args, args.source_c);
    for (int64_t at = first + int64_t(threadIdx.x) * kRead; at < last;
         at += int64_t(kMoveThreads) * kRead) {
      if (at + kRead <= total) {
        auto const vector = Vector<In, kRead>::load(global + at);
        Vector<Narrow, kRead> staged;
#pragma unroll
        for (int i = 0; i < kRead; ++i) {
          staged.set(i, narrowed<Narrow>(vector.get(i)));
        }
        staged.store(source + (at - first));
      } else {
        for (int64_t i = at; i < total; ++i) {
          source[i - first] = narrowed<Narrow>(global[i]);
        }
      }
    }
  }

  /// A thread makes a 4-byte word at a time: neighbours read neighbours, in banks of their own.
  __device__ static void arrange(boltgen_move_args const& args, Narrow const* source, int64_t first,
                                 Out* tile, int64_t begin, int64_t end) {
    constexpr int kStep = kMoveThreads * kOutPerWord;
    int const rows = kStep / args.target_c, columns = kStep % args.target_c;
    RowPosition at(begin + int64_t(threadIdx.x) * kOutPerWord, args.target_c);
    for (int64_t flat = begin + int64_t(threadIdx.x) * kOutPerWord; flat < end; flat += kStep) {
      RowPosition element = at;
#pragma unroll
      for (int i = 0; i < kOutPerWord; ++i) {
        if (flat + i < end) {
          bool const inside = element.column < args.source_c;
          int64_t const index = element.row * args.source_c + element.column - first;
          tile[flat + i - begin] = inside ? widened<Out>(source[index]) : Out();
        }
        element.advance(0, 1, args.target_c);
      }
      at.advance(rows, columns, args.target_c);
    }
  }

  __device__ static void store(Out* target, Out const* tile, int count) {
    constexpr int kWrite = kWidest<Out>;
    for (int at = int(threadIdx.x) * kWrite; at < count; at += kMoveThreads * kWrite) {
      if (at + kWrite <= count) {
        Vector<Out, kWrite>::load(tile + at).store_global(target + at);
      } else {
        for (int i = at; i < count; ++i) {
          target[i] = tile[i];
        }
      }
    }
  }
};

}  // namespace boltgen
