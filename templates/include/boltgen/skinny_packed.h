// Steps of K of `skinny` kernels whose B is packed: numbers of four or eight bits with a scale for
// each group of K, and maybe a zero point. `boltgen/ir/packed.py` has the form.
//
// A lane holds what it loaded, and unpacks it where it is multiplied. A number below 2**8 is put
// into the lower bits of 1024 in FP16, whose ulp is one; the zero point likewise. Their difference
// is exact, and its product with the scale is rounded once.
//
// Source: Kim et al., Who Says Elephants Can't Run, EMNLP 2022, section 3 (the integer in 1024).

#pragma once

#include <cuda_fp16.h>

#include "boltgen/skinny.h"

namespace boltgen {

/// In the place of B's layout: packed rows, each a column of B.
template <int kBits_, int kGroup_, bool kHasZeros_>
struct Packed {
  static constexpr int kBits = kBits_;
  static constexpr int kGroup = kGroup_;
  static constexpr bool kHasZeros = kHasZeros_;
  static_assert(kBits == 4 || kBits == 8, "numbers of four or eight bits");

  static constexpr int kVectorBytes = 16;

  CUTLASS_HOST_DEVICE static int64_t groups(int k) { return (int64_t(k) + kGroup - 1) / kGroup; }

  CUTLASS_HOST_DEVICE static int64_t whole_vectors(int64_t bytes) {
    return (bytes + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
  }

  /// Bytes before the scales of a row.
  CUTLASS_HOST_DEVICE static int64_t scales_at(int k) {
    return whole_vectors(groups(k) * (kGroup * kBits / 8));
  }

  CUTLASS_HOST_DEVICE static int64_t row_bytes(int k) {
    return whole_vectors(scales_at(k) + groups(k) * (2 + int(kHasZeros)));
  }
};

/// A lane has sixteen numbers of K in a row, of two columns in each sixteen. They have one scale.
template <typename Element, int kBits, int kGroup, bool kHasZeros, int kColumns, int kAlignmentB>
struct SkinnyStep<Element, Packed<kBits, kGroup, kHasZeros>, kColumns, kAlignmentB> {
  using Form = Packed<kBits, kGroup, kHasZeros>;
  using ElementB = uint8_t;
  static constexpr int kDepth = 64;
  static constexpr int kElements = 16;
  static constexpr int kTiles = kColumns / 16;
  static constexpr int kWords = kElements * kBits / 32;
  static_assert(std::is_same<Element, cutlass::half_t>::value, "weights are unpacked to FP16");
  static_assert(kGroup % kElements == 0, "a lane's numbers have one scale");

  CUTLASS_DEVICE static int first_k(int lane) { return lane % 4 * kElements; }

  /// As of column-major B.
  CUTLASS_DEVICE static int column(int lane, int tile, int half) {
    return 16 * tile + 8 * half + lane / 4;
  }

  CUTLASS_DEVICE
  void load(uint8_t const* b, int64_t ldb, int k, int depth, int columns, int lane) {
    int64_t const scales_at = Form::scales_at(depth),
                  zeros_at = scales_at + 2 * Form::groups(depth);
    int const group = k / kGroup;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 2 * kTiles; ++i) {
      int const c = column(lane, i / 2, i % 2);
      bool const exists = c < columns && k < depth;
      uint8_t const* const row = b + c * ldb;
      words_[i].clear();
      cutlass::arch::global_load<Words, sizeof(Words)>(words_[i], row + int64_t(k) * kBits / 8,
                                                       exists);
      uint16_t scale = 0;
      cutlass::arch::global_load<uint16_t, sizeof(uint16_t)>(
          scale, row + scales_at + 2 * int64_t(group), exists);
      scales_[i] = scale;
      if constexpr (kHasZeros) {
        uint8_t zero = 0;
        // A byte of an unsigned load has no helper of CUTLASS's.
        if (exists) {
          zero = row[zeros_at + group];
        }
        zeros_[i] = zero;
      }
    }
  }

  /// Sixteen elements of K of the `tile`-th sixteen columns.
  CUTLASS_DEVICE
  cutlass::Array<unsigned, 4> fragment(int tile, int sixteen) const {
    int const upper = 2 * tile, lower = 2 * tile + 1, pair = 2 * sixteen;
    return {unpacked(upper, pair), unpacked(lower, pair), unpacked(upper, pair + 1),
            unpacked(lower, pair + 1)};
  }

 private:
  using Words = cutlass::Array<unsigned, kWords>;
  // Two of 1024 in FP16, whose last ten bits are the number.
  static constexpr unsigned kBase = 0x64006400;

  /// Two weights of one of the lane's columns, those `2 * pair` and the next.
  CUTLASS_DEVICE
  unsigned unpacked(int column, int pair) const {
    unsigned numbers;
    if constexpr (kBits == 4) {
      numbers = (words_[column][pair / 4] >> (4 * (pair % 4)) & 0x000f000f) | kBase;
    } else {
      numbers = __byte_perm(words_[column][pair / 2], kBase, pair % 2 ? 0x5352 : 0x5150);
    }
    unsigned zero = 1u << (kBits - 1);
    if constexpr (kHasZeros) {
      zero = zeros_[column];
    }
    __half2 const difference = __hsub2(halves(numbers), halves(kBase | zero * 0x00010001u));
    __half2 const weights = __hmul2(difference, halves(scales_[column] * 0x00010001u));
    return reinterpret_cast<unsigned const&>(weights);
  }

  CUTLASS_DEVICE static __half2 halves(unsigned bits) {
    return reinterpret_cast<__half2 const&>(bits);
  }

  Words words_[2 * kTiles];
  unsigned scales_[2 * kTiles];
  unsigned zeros_[kHasZeros ? 2 * kTiles : 1];
};

/// Checks the arguments of a product of packed weights, whose `ldb` counts bytes.
template <typename Kernel, int kBits, int kGroup, bool kHasZeros>
struct CheckSkinny<Kernel, Packed<kBits, kGroup, kHasZeros>> {
  static void apply(ArgumentCheck& check, boltgen_gemm_args const& args) {
    using Form = Packed<kBits, kGroup, kHasZeros>;
    check.at_least("m", args.m, 1);
    check.at_least("n", args.n, 1);
    check.at_least("k", args.k, 1);
    check.at_least("batch", args.batch, 1);
    check.at_most("batch", args.batch, 1);
    check_order(check, args.swizzle, args.raster);
    check.at_least("lda", args.lda, args.k);
    check.at_least("ldb", args.ldb, Form::row_bytes(args.k));
    check.at_least("ldd", args.ldd, args.n);
    check.multiple("k (rows of A)", args.k, Kernel::kAlignmentA);
    check.multiple("lda", args.lda, Kernel::kAlignmentA);
    check.multiple("ldb", args.ldb, Kernel::kAlignmentB);
    check.multiple("n (rows of D)", args.n, Kernel::kAlignmentD);
    check.multiple("ldd", args.ldd, Kernel::kAlignmentD);
    check.pointer("a", args.a, Kernel::kAlignmentA, sizeof(typename Kernel::ElementA));
    check.pointer("b", args.b, Kernel::kAlignmentB, sizeof(typename Kernel::ElementB));
    check.pointer("d", args.d, Kernel::kAlignmentD, sizeof(typename Kernel::ElementD));
    check_operands(typename Kernel::Operands(), check, args.operands, args.n, Kernel::kAlignmentD);
  }
};

}  // namespace boltgen
