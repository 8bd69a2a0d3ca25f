// What attention's kernels of every architecture have in common: heads, the softmax of rows that
// lie in accumulators, the output's epilogue, and the host's checks.
//
// A lane has two columns of eight, of two rows of sixteen, eight apart: so lie the accumulators of
// mma.m16n8k16, and those of each warp of a wgmma. Source: PTX ISA, register fragments of both.

#pragma once

#include <cuda_runtime_api.h>
#include <cutlass/array.h>
#include <cutlass/cutlass.h>
#include <cutlass/layout/matrix.h>
#include <cutlass/numeric_conversion.h>
#include <math_constants.h>

#include <type_traits>

#include "boltgen/activations.h"
#include "boltgen/arguments.h"
#include "boltgen/attention_keys.h"
#include "boltgen/b2b_epilogue.h"
#include "boltgen/fragment_store.h"
#include "boltgen/launch.h"

namespace boltgen {

constexpr float kLog2OfE = 1.44269504f;

/// e to the power of x, which is not above 0. The product is off by an ulp of x / ln 2.
CUTLASS_DEVICE float exponential(float x) { return power_of_two(x * kLog2OfE); }

/// A graph of scores that is no mere product with a positive number.
struct NoScale {
  static constexpr bool kIsAll = false;
};

/// One head of a sequence: a product of the batch.
struct Head {
  int sequence;
  int head;

  CUTLASS_DEVICE
  Head(int index, int heads) : sequence(index / heads), head(index % heads) {}

  /// Where its matrix begins in a tensor of which `group` heads that follow each other read one.
  CUTLASS_DEVICE
  int64_t offset(int64_t batch_stride, int64_t head_stride, int group = 1) const {
    return sequence * batch_stride + head / group * head_stride;
  }
};

/// The operands of a graph as one head has them: pointers to its own slices.
template <typename OperandTypes>
struct HeadOperands;

template <typename... Operand>
struct HeadOperands<Operands<Operand...>> {
  static constexpr int kCount = sizeof...(Operand);

  boltgen_operand own[kCount > 0 ? kCount : 1];

  CUTLASS_DEVICE
  HeadOperands([[maybe_unused]] boltgen_attention_layer const& layer, [[maybe_unused]] Head head) {
    [[maybe_unused]] int index = 0;
    ((own[index] = slice<typename Operand::Element>(layer.operands[index],
                                                    layer.operand_head_strides[index], head),
      ++index),
     ...);
  }

 private:
  template <typename Element>
  CUTLASS_DEVICE static boltgen_operand slice(boltgen_operand operand, int64_t head_stride,
                                              Head head) {
    operand.pointer = static_cast<Element const*>(operand.pointer) +
                      head.offset(operand.batch_stride, head_stride);
    return operand;
  }
};

/// The greatest score so far, and the sum of exponentials relative to it, of a lane's rows.
///
/// The four lanes of a row hold the same maximum, and each the sum of its own columns. Accumulators
/// are `kM` times sixteen rows, and `kN` times eight columns.
///
/// Where all that the graph does is to scale, scores come as the product left them, and the scale
/// is a part of the exponential: one fma. The greatest numbers of masks would overflow in it, so
/// scores of other graphs are subtracted first.
template <int kM, typename Scale = NoScale>
class RowStatistics {
 public:
  CUTLASS_DEVICE
  RowStatistics() {
    CUTLASS_PRAGMA_UNROLL
    for (int row = 0; row < kRows; ++row) {
      maximum_[row] = -CUDART_INF_F;
      sum_[row] = 0.0f;
    }
  }

  /// Turns the scores of a step into exponentials. What was summed before is to be scaled by what
  /// comes back, for each of the lane's rows.
  template <int kN, typename Scores>
  CUTLASS_DEVICE cutlass::Array<float, 2 * kM> update(Scores& scores) {
    cutlass::Array<float, 2 * kM> factors;
    CUTLASS_PRAGMA_UNROLL
    for (int row = 0; row < kRows; ++row) {
      float const before = maximum_[row];
      float greatest = before;
      for_row<kN>(scores, row, [&](float& score) { greatest = fmaxf(greatest, score); });
      greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, 1));
      greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, 2));
      maximum_[row] = greatest;
      // Where all scores are -inf so far, their exponentials are 0, and not those of -inf + inf.
      float const base = greatest == -CUDART_INF_F ? 0.0f : greatest;
      float sum;
      if constexpr (Scale::kIsAll) {
        constexpr float kScale = Scale::kValue * kLog2OfE;
        float const offset = base * kScale;
        factors[row] = power_of_two((before - base) * kScale);
        sum = sum_[row] * factors[row];
        for_row<kN>(scores, row, [&](float& score) {
          score = power_of_two(__fmaf_rn(score, kScale, -offset));
          sum += score;
        });
      } else {
        factors[row] = exponential(before - base);
        sum = sum_[row] * factors[row];
        for_row<kN>(scores, row, [&](float& score) {
          score = exponential(score - base);
          sum += score;
        });
      }
      sum_[row] = sum;
    }
    return factors;
  }

  /// Scales what was summed before.
  template <int kN, typename Sums>
  CUTLASS_DEVICE static void scale(Sums& sums, cutlass::Array<float, 2 * kM> const& factors) {
    CUTLASS_PRAGMA_UNROLL
    for (int row = 0; row < kRows; ++row) {
      for_row<kN>(sums, row, [&](float& product) { product *= factors[row]; });
    }
  }

  /// Divides by the sums. Of a row whose scores are all -inf the quotient is 0 / 0.
  template <int kN, typename Sums>
  CUTLASS_DEVICE void normalise(Sums& sums) const {
    CUTLASS_PRAGMA_UNROLL
    for (int row = 0; row < kRows; ++row) {
      float sum = sum_[row];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      float const inverse = 1.0f / sum;
      for_row<kN>(sums, row, [&](float& product) { product *= inverse; });
    }
  }

  /// The greatest score so far, scaled.
  CUTLASS_DEVICE
  float maximum(int row) const {
    if constexpr (Scale::kIsAll) {
      return maximum_[row] * Scale::kValue;
    } else {
      return maximum_[row];
    }
  }

  CUTLASS_DEVICE
  float& sum(int row) { return sum_[row]; }

  /// Visits the accumulators of one of the lane's rows.
  template <int kN, typename Accumulators, typename Visit>
  CUTLASS_DEVICE static void for_row(Accumulators& accumulators, int row, Visit&& visit) {
    CUTLASS_PRAGMA_UNROLL
    for (int n = 0; n < kN; ++n) {
      CUTLASS_PRAGMA_UNROLL
      for (int e = 0; e < 2; ++e) {
        visit(accumulators[4 * (row / 2 + n * kM) + row % 2 * 2 + e]);
      }
    }
  }

 private:
  static constexpr int kRows = 2 * kM;

  float maximum_[kRows];
  float sum_[kRows];
};

/// What a layer of attention is compiled for.
template <typename LayoutB_, int kAlignmentB_, typename Graph_, int kAlignmentD_,
          typename Scale_ = NoScale>
struct AttentionLayer {
  using LayoutB = LayoutB_;
  using Graph = Graph_;
  using Scale = Scale_;
  static constexpr int kAlignmentB = kAlignmentB_;
  static constexpr int kAlignmentD = kAlignmentD_;
};

/// Whether all rows from `first_row` to `end_row` see all keys from `first_key` to `end_key`. Row r
/// has the keys up to r + last_key, and with a window so many of them.
template <bool kIsCausal, int kWindow>
CUTLASS_DEVICE bool sees_all(int first_row, int end_row, int first_key, int end_key, int keys,
                             int last_key) {
  return end_key <= keys && (!kIsCausal || end_key - 1 <= first_row + last_key) &&
         (kWindow == 0 || first_key > end_row - 1 + last_key - kWindow);
}

/// Applies the graph to the scores of a lane that begin with row `row` and key `first_key`, and
/// hides those that no row sees: keys beyond the last of `keys`, and causal ones beyond the row's.
/// Row r has the keys up to r + last_key, and with a window so many of them. Where the rows see
/// `kAll` keys there is nothing to hide. Scores that are to be scaled alone stay as they are.
template <typename Layer, bool kIsCausal, int kWindow, int kM, int kN, bool kAll, typename Scores>
CUTLASS_DEVICE void finish_scores(Scores& scores, boltgen_operand const* operands, int row,
                                  int rows, int first_key, int keys, int last_key) {
  auto const finish = [&](int m, int n, int half, cutlass::Array<float, 2> const& pair) {
    CUTLASS_PRAGMA_UNROLL
    for (int e = 0; e < 2; ++e) {
      float& score = scores[4 * (m + n * kM) + 2 * half + e];
      if constexpr (kAll) {
        score = pair[e];
      } else {
        int const key = first_key + 8 * n + e;
        int const last = row + 16 * m + 8 * half + last_key;
        bool const is_behind = kIsCausal && key > last;
        bool const is_before = kWindow > 0 && key <= last - kWindow;
        score = key < keys && !is_behind && !is_before ? pair[e] : -CUDART_INF_F;
      }
    }
  };
  if constexpr (!Layer::Scale::kIsAll) {
    inner_epilogue<typename Layer::Graph, (Layer::kAlignmentD > 1), kM, kN, kAll>(
        scores, operands, 0, row, rows, first_key, keys, finish);
  } else if constexpr (!kAll) {
    CUTLASS_PRAGMA_UNROLL
    for (int n = 0; n < kN; ++n) {
      CUTLASS_PRAGMA_UNROLL
      for (int m = 0; m < kM; ++m) {
        CUTLASS_PRAGMA_UNROLL
        for (int half = 0; half < 2; ++half) {
          cutlass::Array<float, 2> pair;
          pair[0] = scores[4 * (m + n * kM) + 2 * half];
          pair[1] = scores[4 * (m + n * kM) + 2 * half + 1];
          finish(m, n, half, pair);
        }
      }
    }
  }
}

/// The same for `kKeys` keys from `first_step_key` on, of rows of which the threads that take the
/// same way have those from `first_row` to `end_row`.
template <typename Layer, bool kIsCausal, int kWindow, int kM, int kKeys, typename Scores>
CUTLASS_DEVICE void finish_step(Scores& scores, boltgen_operand const* operands, int row, int rows,
                                int first_row, int end_row, int first_step_key, int column,
                                int keys, int last_key) {
  auto const finish = [&](auto all) {
    finish_scores<Layer, kIsCausal, kWindow, kM, kKeys / 8, decltype(all)::value>(
        scores, operands, row, rows, first_step_key + column, keys, last_key);
  };
  if (sees_all<kIsCausal, kWindow>(first_row, end_row, first_step_key, first_step_key + kKeys, keys,
                                   last_key)) {
    finish(std::true_type());
  } else {
    finish(std::false_type());
  }
}

/// The steps of `kKeys` keys that rows see from `first_row` to `end_row`, of which row r has the
/// keys up to r + last_key.
template <bool kIsCausal, int kWindow, int kKeys>
struct SeenSteps {
  int first = 0;
  int end;

  CUTLASS_DEVICE
  SeenSteps(int first_row, int end_row, int keys, int last_key) {
    int const seen = kIsCausal ? min(keys, end_row + last_key) : keys;
    // At least one, where a row may find that it has no key.
    end = (max(seen, 1) + kKeys - 1) / kKeys;
    if constexpr (kWindow > 0) {
      first = max(0, first_row + last_key - kWindow + 1) / kKeys;
    }
  }

  /// Leaves out those before the first and behind the last key that none of `Masks` hides. All
  /// lanes of a warp do so together.
  ///
  /// What finite masks hide is nothing beside what they show. A row that sees none of that has all
  /// of its keys, so its whole tile keeps them.
  template <typename Masks>
  CUTLASS_DEVICE void leave_out_hidden(boltgen_operand const* masks, int first_row, int end_row,
                                       int keys, int last_key) {
    int const begin = first * kKeys, behind = min(keys, end * kKeys);
    KeyRange const seen = Masks::find(masks, begin, behind);
    if (!seen.is_found()) {
      return;
    }
    if constexpr (Masks::kFinite) {
      auto const all_see = [&](int key) {
        bool const is_behind = kIsCausal && key > first_row + last_key;
        bool const is_before = kWindow > 0 && key <= end_row - 1 + last_key - kWindow;
        return !is_behind && !is_before && Masks::shows(masks, key);
      };
      if (!all_see(seen.first) && !all_see(seen.last)) {
        return;
      }
    }
    first = seen.first / kKeys;
    end = seen.last / kKeys + 1;
  }
};

/// Applies the output's epilogue to the sums of a lane that begin with row `row` and column
/// `column`, and stores them in the head's matrix `d`.
template <typename Layer, int kM, int kN, typename Sums, typename ElementD>
CUTLASS_DEVICE void store_output(Sums const& sums, boltgen_attention_layer const& layer, Head head,
                                 int row, int rows, int column, ElementD* d, int64_t ldd) {
  HeadOperands<typename Layer::Graph::Operands> const operands(layer, head);
  auto const apply = [&](auto const& store) {
    inner_epilogue<typename Layer::Graph, (Layer::kAlignmentD > 1), kM, kN>(
        sums, operands.own, 0, row, rows, column, layer.n, store);
  };
  store_fragments<ElementD, Layer::kAlignmentD, kM, kN>(apply, d, ldd, row, rows, column, layer.n);
}

/// Checks the strides of heads against the vectors in which the kernel loads each operand.
template <typename... Operand>
void check_head_strides(Operands<Operand...>, ArgumentCheck& check, int layer,
                        [[maybe_unused]] int64_t const* strides, [[maybe_unused]] int alignment) {
  [[maybe_unused]] char name[48];
  [[maybe_unused]] int index = 0;
  [[maybe_unused]] auto const check_one = [&](int vector) {
    std::snprintf(name, sizeof(name), "layers[%d].operand_head_strides[%d]", layer, index);
    check.multiple(name, strides[index], vector);
    ++index;
  };
  (check_one(Operand::vector(alignment)), ...);
}

/// Checks a layer's B, stored as `rows` x `columns`, and the operands of its graph.
template <typename Layer>
void check_attention_layer(ArgumentCheck& check, int index, boltgen_attention_layer const& layer,
                           int k) {
  constexpr bool kRowMajor =
      std::is_same<typename Layer::LayoutB, cutlass::layout::RowMajor>::value;
  int const along = kRowMajor ? layer.n : k;
  char name[48];
  auto const named = [&](char const* field) {
    std::snprintf(name, sizeof(name), "layers[%d].%s", index, field);
    return name;
  };
  check.at_least(named("n"), layer.n, 1);
  check.at_least(named("group_b"), layer.group_b, 1);
  check.multiple(named("n"), layer.n, Layer::kAlignmentD);
  check.at_least(named("ldb"), layer.ldb, along);
  check.multiple(named(kRowMajor ? "n (rows of B)" : "k (columns of B)"), along,
                 Layer::kAlignmentB);
  check.multiple(named("ldb"), layer.ldb, Layer::kAlignmentB);
  check.multiple(named("batch_stride_b"), layer.batch_stride_b, Layer::kAlignmentB);
  check.multiple(named("head_stride_b"), layer.head_stride_b, Layer::kAlignmentB);
  check.pointer(named("b"), layer.b, Layer::kAlignmentB, sizeof(cutlass::half_t));
  using LayerOperands = typename Layer::Graph::Operands;
  check_operands(LayerOperands(), check, layer.operands, layer.n, Layer::kAlignmentD);
  check_head_strides(LayerOperands(), check, index, layer.operand_head_strides, Layer::kAlignmentD);
}

/// Checks what a kernel of any architecture asks of its arguments.
template <typename Kernel>
void check_attention(ArgumentCheck& check, boltgen_attention_args const& args) {
  boltgen_attention_layer const& scores = args.layers[0];
  boltgen_attention_layer const& output = args.layers[1];
  check.at_least("m", args.m, 1);
  check.at_least("k", args.k, 1);
  // A threadblock has all of a row of Q, and all columns of V.
  check.at_most("k", args.k, Kernel::kDepth);
  check.at_least("batch", args.batch, 1);
  check.at_least("heads", args.heads, 1);
  check_attention_layer<typename Kernel::Scores>(check, 0, scores, args.k);
  check.at_most("layers[1].n", output.n, Kernel::kMostColumns);
  check_attention_layer<typename Kernel::Output>(check, 1, output, scores.n);
  check.at_least("lda", args.lda, args.k);
  check.multiple("k (rows of A)", args.k, Kernel::kAlignmentA);
  check.multiple("lda", args.lda, Kernel::kAlignmentA);
  check.multiple("batch_stride_a", args.batch_stride_a, Kernel::kAlignmentA);
  check.multiple("head_stride_a", args.head_stride_a, Kernel::kAlignmentA);
  check.pointer("a", args.a, Kernel::kAlignmentA, sizeof(typename Kernel::Element));
  check.at_least("ldd", args.ldd, output.n);
  check.multiple("ldd", args.ldd, Kernel::Output::kAlignmentD);
  check.multiple("batch_stride_d", args.batch_stride_d, Kernel::Output::kAlignmentD);
  check.multiple("head_stride_d", args.head_stride_d, Kernel::Output::kAlignmentD);
  check.pointer("d", args.d, Kernel::Output::kAlignmentD, sizeof(typename Kernel::ElementD));
}

}  // namespace boltgen
