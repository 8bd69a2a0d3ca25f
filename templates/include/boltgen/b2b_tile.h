// Half-precision tiles in shared memory for the inner layers of a chain, and copies into them.

#pragma once

#include <cutlass/arch/cache_operation.h>
#include <cutlass/arch/memory.h>
#include <cutlass/arch/memory_sm80.h>
#include <cutlass/array.h>

#include <cstdint>

namespace boltgen {

/// Where the elements of a kRows x kColumns tile lie, in 16-byte vectors.
///
/// Vectors are permuted so that no access has bank conflicts: neither ldmatrix, which reads one
/// vector column of eight rows, nor a warp that copies consecutive vectors of rows, nor one that
/// writes accumulators, four bytes in each of four lanes to eight rows. A line of the banks is
/// eight vectors; rows of fewer share one.
template <int kRows_, int kColumns_>
struct SwizzledTile {
  static_assert(kColumns_ % 8 == 0, "whole vectors");

  static constexpr int kRows = kRows_;
  /// Vectors of a row that lie together. Columns are padded to whole blocks of them.
  static constexpr int kBlockVectors = kColumns_ > 32 ? 8 : (kColumns_ > 16 ? 4 : 2);
  static constexpr int kBlocks = (kColumns_ + 8 * kBlockVectors - 1) / (8 * kBlockVectors);
  static constexpr int kColumns = 8 * kBlockVectors * kBlocks;
  static constexpr int kElements = kRows * kColumns;

  /// Offset of the vector that begins at column 8 * `vector`, in elements.
  CUTLASS_HOST_DEVICE
  static constexpr int offset(int row, int vector) {
    constexpr int kRowsPerLine = 8 / kBlockVectors;
    int const block = vector / kBlockVectors;
    int const slot = vector % kBlockVectors;
    int const permuted = slot ^ (row / kRowsPerLine % kBlockVectors);
    return ((block * kRows + row) * kBlockVectors + permuted) * 8;
  }
};

/// Where a lane reads a tile by ldmatrix: a row of sixteen, and one of two neighbouring vectors.
///
/// Vectors of other rows and pairs are a constant away from those that this holds. The compiler
/// would compute each from the lane anew.
template <typename Tile>
class LaneVectors {
  static constexpr int kPairs = Tile::kBlockVectors / 2;

 public:
  CUTLASS_DEVICE
  LaneVectors(int row, int half) {
    CUTLASS_PRAGMA_UNROLL
    for (int pair = 0; pair < kPairs; ++pair) {
      offsets_[pair] = Tile::offset(row, 2 * pair + half);
      asm("" : "+r"(offsets_[pair]));  // hides where it comes from
    }
  }

  /// The lane's vector `rows` further down, a multiple of eight, of the `pair`-th pair of vectors.
  CUTLASS_DEVICE
  int offset(int rows, int pair) const {
    return offsets_[pair % kPairs] + Tile::offset(rows, pair / kPairs * Tile::kBlockVectors);
  }

 private:
  int offsets_[kPairs];
};

/// Copies tiles of a row-major matrix from global to shared memory, kWidth elements at once, zeros
/// where the matrix ends.
///
/// Asynchronously where the width is that of a cp.async; otherwise through registers: `start`
/// loads, `finish` stores.
template <typename Tile, int kThreads, int kWidth, bool kAsync>
class TileCopy {
  using Element = cutlass::half_t;
  using Piece = cutlass::AlignedArray<Element, kWidth>;

  static constexpr int kPiecesPerRow = Tile::kColumns / kWidth;
  static constexpr int kPieces = Tile::kElements / kWidth;
  static constexpr int kPiecesPerThread = (kPieces + kThreads - 1) / kThreads;
  static constexpr int kPieceBytes = int(sizeof(Piece));

 public:
  CUTLASS_DEVICE
  explicit TileCopy(int thread) : thread_(unsigned(thread)) {}

  /// `source` is the tile's first element, `rows` and `columns` what is left of the matrix there.
  CUTLASS_DEVICE
  void start(Element* tile, Element const* source, int64_t ld, int rows, int columns) {
    Element const* from = source + row(0) * ld + column(0);
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kPiecesPerThread; ++i) {
      bool const inside = row(i) < rows && column(i) < columns;
      if constexpr (kAsync) {
        using cutlass::arch::CacheOperation;
        constexpr auto kCache = kPieceBytes == 16 ? CacheOperation::Global : CacheOperation::Always;
        if (exists(i)) {
          // No address beyond the matrix, even where nothing is read from it.
          cutlass::arch::cp_async_zfill<kPieceBytes, kCache>(target(tile, i),
                                                             inside ? from : source, inside);
        }
      } else {
        pieces_[i].clear();
        if (inside && exists(i)) {
          pieces_[i] = *reinterpret_cast<Piece const*>(from);
        }
      }
      from = kIsOneColumn ? from + kRowsApart * ld : source + row(i + 1) * ld + column(i + 1);
    }
  }

  /// Stores what `start` loaded; nothing is left to do for asynchronous copies.
  CUTLASS_DEVICE
  void finish(Element* tile) {
    if constexpr (!kAsync) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kPiecesPerThread; ++i) {
        if (exists(i)) {
          *reinterpret_cast<Piece*>(target(tile, i)) = pieces_[i];
        }
      }
    }
  }

 private:
  /// Whether a thread's pieces are in one column, so many rows apart.
  static constexpr bool kIsOneColumn = kThreads % kPiecesPerRow == 0;
  static constexpr int kRowsApart = kThreads / kPiecesPerRow;

  CUTLASS_DEVICE
  int row(int i) const {
    return kIsOneColumn ? int(thread_ / kPiecesPerRow) + i * kRowsApart
                        : int(index(i) / kPiecesPerRow);
  }

  CUTLASS_DEVICE
  int column(int i) const {
    return int((kIsOneColumn ? thread_ : index(i)) % kPiecesPerRow) * kWidth;
  }

  CUTLASS_DEVICE
  unsigned index(int i) const { return unsigned(i * kThreads) + thread_; }

  CUTLASS_DEVICE
  bool exists(int i) const { return kPieces % kThreads == 0 || index(i) < kPieces; }

  CUTLASS_DEVICE
  Element* target(Element* tile, int i) const {
    return tile + Tile::offset(row(i), column(i) / 8) + column(i) % 8;
  }

  unsigned thread_;
  Piece pieces_[kAsync ? 1 : kPiecesPerThread];
};

}  // namespace boltgen
