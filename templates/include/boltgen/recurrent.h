// All steps of a recurrent layer in one launch: LSTM, GRU and RNN, whose inputs are projected.
//
// A threadblock has sixteen rows of the batch, for all steps and one direction. It has all hidden
// units, and then no threadblock waits for another; or some of them, and then its state is
// exchanged in each step, see recurrent_exchange.h. A hidden state of all units is in shared
// memory; where nothing is exchanged it has two buffers: a step reads one and writes the other. A
// warp has some groups of eight hidden units, and multiplies the weights of all gates of a group;
// its lanes then have all that a unit's gates are made of. Several warps may share a group, each
// with a slice of K; the first one adds their sums, always in the same order. The recurrent weights
// stay in registers where they fit; else each step reads them, from L2.
//
// Along K, the order in which elements are multiplied is free as long as A and B agree. A lane
// therefore has eight neighbouring elements of a row in each block of 32, which is one vector, and
// gives the instructions two of them at a time. Source: PTX ISA, matrix fragments for mma.m16n8k16.

#pragma once

#include <cutlass/arch/memory.h>
#include <cutlass/arch/mma.h>
#include <cutlass/array.h>
#include <cutlass/numeric_conversion.h>

#include "boltgen/activations.h"
#include "boltgen/launch.h"
#include "boltgen/norm_operands.h"
#include "boltgen/recurrent_exchange.h"

namespace boltgen {

enum class Cell { kLstm, kGru, kGruResetFirst, kRnnTanh, kRnnRelu };

constexpr int gates_of(Cell cell) {
  return cell == Cell::kLstm ? 4 : cell == Cell::kGru || cell == Cell::kGruResetFirst ? 3 : 1;
}

/// `kHidden_` are the hidden units, up to a multiple of 32; a launch may have fewer. A threadblock
/// has kUnits of them, and kSlices warps share each group of units. Pairs of neighbouring units are
/// read and written in vectors of kVector_. Weights have rows of whole vectors of eight if
/// kWholeVectors, and stay in registers if kResident.
template <Cell kCell, typename Element_, typename ElementD_, typename Graph, typename Instruction,
          int kHidden_, int kUnits, int kWarps, int kSlices, bool kResident, int kVector_,
          bool kWholeVectors_>
struct Recurrent {
  using Element = Element_;
  using ElementD = ElementD_;
  using Loads = LoadsOf<typename Graph::Operands>;

  static constexpr int kHidden = kHidden_;
  static constexpr int kVector = kVector_;
  static constexpr bool kWholeVectors = kWholeVectors_;
  static constexpr int kRows = 16;
  static constexpr int kGates = gates_of(kCell);
  static constexpr int kStates = kCell == Cell::kLstm ? 2 : 1;
  static constexpr bool kHasBias = kCell == Cell::kGru;
  static constexpr int kThreadCount = 32 * kWarps;
  static constexpr int kLoads = Loads::Type::kCount;
  static constexpr int kOperands = kLoads + Loads::kResults;

  /// Whether threadblocks share the hidden units.
  static constexpr bool kIsShared = kUnits < kHidden;
  static constexpr bool kIsLate = kCell == Cell::kGruResetFirst;
  /// The groups of eight hidden units of a warp, and its blocks of 32 along K.
  static constexpr int kGroups = kUnits * kSlices / 8 / kWarps;
  static constexpr int kBlocks = kHidden / 32 / kSlices;
  static constexpr int kState = kRows * kHidden;
  using Exchange = RecurrentExchange<Element, kState>;
  static_assert(kHidden == kBlocks * kSlices * 32, "each warp has as many whole blocks along K");
  static_assert(kGroups * kWarps * 8 == kUnits * kSlices, "each warp has as many groups");
  static_assert(kHidden % kUnits == 0, "threadblocks have as many units");
  static_assert(kSlices == 1 || kGroups == 1, "sums are added for one group of a warp");
  static_assert(kResident || kWholeVectors, "weights that are read anew are read by vectors");

  struct Params {
    Element const* a;
    Element const* weights;
    Element const* bias;
    Element const* states;
    int const* lengths;
    ElementD* d;
    int steps, batch, hidden, directions;
    bool backwards, keeps_last;
    void* workspace;
    boltgen_operand operands[BOLTGEN_MAX_OPERANDS];

    CUTLASS_HOST_DEVICE
    int tiles() const { return (batch + kRows - 1) / kRows; }

    /// Rows of a threadblock, in each direction.
    CUTLASS_HOST_DEVICE
    int items() const { return tiles() * directions; }

    /// The threadblocks that share the hidden units.
    CUTLASS_HOST_DEVICE
    int parts() const { return (hidden + kUnits - 1) / kUnits; }
  };

  /// The sums of a lane in the products of a step's first or only half.
  static constexpr int kMostSums = kIsLate ? 2 : kGates;

  struct SharedStorage {
    alignas(16) Element states[kIsShared ? 1 : 2][kState];
    /// What a reset gate has left of the state.
    alignas(16) Element reset[kIsLate ? kState : 8];
    /// The sums of all slices of K but the first.
    alignas(16) float sums[kSlices > 1 ? kWarps * kMostSums * 32 * 4 : 4];
  };

  CUTLASS_DEVICE
  void operator()(Params const& params, SharedStorage& shared) {
    CUTLASS_PRAGMA_NO_UNROLL
    for (int item = int(blockIdx.x); item < params.items(); item += int(gridDim.x)) {
      Lane(params, shared, item).run();
    }
  }

 private:
  using Pair = cutlass::AlignedArray<Element, 2>;
  /// Eight elements of a row, which are pairs of each instruction along K.
  using Eight = cutlass::AlignedArray<Element, 8>;
  using Mma = cutlass::arch::Mma<Instruction, 32, Element, cutlass::layout::RowMajor, Element,
                                 cutlass::layout::ColumnMajor, float, cutlass::layout::RowMajor,
                                 cutlass::arch::OpMultiplyAdd>;

  /// The offset of an element of a state; vectors of odd rows are exchanged where rows of whole
  /// cycles of banks would make two of them meet.
  CUTLASS_DEVICE
  static int offset(int row, int column) {
    int const exchanged = kHidden % 64 == 0 ? row % 2 * 4 : 0;
    return row * kHidden + ((column / 8) ^ exchanged) * 8 + column % 8;
  }

  /// The work of a lane: four elements of each of its warp's groups, pairs in two rows.
  struct Lane {
    Params const& params;
    SharedStorage& shared;
    int const row, part;  ///< of the fragments
    int const slice;      ///< of K
    int const direction;
    int const first_row;  ///< of the batch
    int const first_column;
    Element const* const weights;
    int lengths[2];
    Eight resident[kResident ? kGroups : 1][kResident ? kGates : 1][kResident ? kBlocks : 1];
    Pair x[kGroups][kGates][2];  ///< of the next step
    float cells[kCell == Cell::kLstm ? kGroups : 1][4];
    float update[kCell == Cell::kGruResetFirst ? kGroups : 1][4];

    Exchange exchange;

    CUTLASS_DEVICE
    Lane(Params const& given, SharedStorage& storage, int item)
        : params(given),
          shared(storage),
          row(int(threadIdx.x) % 32 / 4),
          part(int(threadIdx.x) % 4),
          slice(int(threadIdx.x) / 32 % kSlices),
          direction(item / given.tiles()),
          first_row(item % given.tiles() * kRows),
          first_column(int(blockIdx.y) * kUnits + int(threadIdx.x) / 32 / kSlices * kGroups * 8),
          weights(given.weights + int64_t(direction) * kGates * given.hidden * given.hidden),
          exchange(given.workspace, item, given.items(), given.parts()) {}

    CUTLASS_DEVICE
    void run() {
      begin();
      __syncthreads();
      CUTLASS_PRAGMA_NO_UNROLL
      for (int step = 0; step < params.steps; ++step) {
        Element* const now = shared.states[kIsShared ? 0 : step % 2];
        Element* const next = kIsShared ? now : shared.states[(step + 1) % 2];
        if constexpr (kIsLate) {
          reset(now, kIsShared ? exchange.buffer() : shared.reset);
          complete(shared.reset);
        }
        Element* const made = kIsShared ? exchange.buffer() : next;
        CUTLASS_PRAGMA_UNROLL
        for (int group = 0; group < kGroups; ++group) {
          advance(step, group, now, made);
        }
        complete(next);
      }
      if (params.keeps_last && slice == 0) {
        store_last(shared.states[kIsShared ? 0 : params.steps % 2]);
      }
      __syncthreads();
    }

    /// Waits for a state that all warps have written a part of; if it is exchanged, reads it.
    CUTLASS_DEVICE
    void complete(Element* state) {
      if constexpr (kIsShared) {
        Element const* const made = exchange.publish();
        int const vectors = params.parts() * kUnits / 8;
        CUTLASS_PRAGMA_UNROLL
        for (int each = 0; each < kRows; ++each) {
          for (int vector = int(threadIdx.x); vector < vectors; vector += kThreadCount) {
            int const at = offset(each, vector * 8);
            *reinterpret_cast<Eight*>(state + at) = *reinterpret_cast<Eight const*>(made + at);
          }
        }
      }
      __syncthreads();
    }

    /// The place in the sequence of the step that is computed as the step-th.
    CUTLASS_DEVICE
    int place(int step) const {
      bool const backwards = params.backwards || direction == 1;
      return backwards ? params.steps - 1 - step : step;
    }

    CUTLASS_DEVICE
    int column(int group) const { return first_column + group * 8 + part * 2; }

    CUTLASS_DEVICE
    int batch_row(int half) const { return first_row + row + half * 8; }

    CUTLASS_DEVICE
    void begin() {
      CUTLASS_PRAGMA_UNROLL
      for (int half = 0; half < 2; ++half) {
        bool const inside = batch_row(half) < params.batch;
        lengths[half] = params.steps;
        if (params.lengths != nullptr) {
          lengths[half] = inside ? params.lengths[batch_row(half)] : 0;
        }
      }
      begin_state();
      CUTLASS_PRAGMA_UNROLL
      for (int group = 0; group < kGroups; ++group) {
        if constexpr (kCell == Cell::kLstm) {
          CUTLASS_PRAGMA_UNROLL
          for (int half = 0; half < 2; ++half) {
            Pair const cell = first_state(1, row + half * 8, column(group));
            cells[group][half * 2] = float(cell[0]);
            cells[group][half * 2 + 1] = float(cell[1]);
          }
        }
        if constexpr (kResident) {
          CUTLASS_PRAGMA_UNROLL
          for (int gate = 0; gate < kGates; ++gate) {
            CUTLASS_PRAGMA_UNROLL
            for (int block = 0; block < kBlocks; ++block) {
              load_weights(resident[group][gate][block], group, gate, block);
            }
          }
        }
        load_inputs(group, 0);
      }
    }

    /// The first state of all hidden units, and zeros beyond them.
    CUTLASS_DEVICE
    void begin_state() {
      Pair zeros;
      zeros.clear();
      for (int pair = int(threadIdx.x); pair < kState / 2; pair += kThreadCount) {
        int const each = pair / (kHidden / 2), column = pair % (kHidden / 2) * 2;
        int const at = offset(each, column);
        *reinterpret_cast<Pair*>(shared.states[0] + at) = first_state(0, each, column);
        if constexpr (kIsShared && kIsLate) {
          *reinterpret_cast<Pair*>(shared.reset + at) = zeros;
        }
      }
    }

    CUTLASS_DEVICE
    Pair first_state(int which, int own_row, int column) const {
      int const of_batch = first_row + own_row;
      int64_t const at = int64_t(which) * params.batch + of_batch;
      Element const* const source =
          params.states + (at * params.directions + direction) * params.hidden;
      return load_pair(source, column, params.states != nullptr && of_batch < params.batch);
    }

    /// Two neighbours of a row of hidden units; zeros beyond it.
    CUTLASS_DEVICE
    Pair load_pair(Element const* source, int column, bool inside) const {
      Pair pair;
      pair.clear();
      if constexpr (kVector == 2) {
        cutlass::arch::global_load<Pair, sizeof(Pair)>(pair, source + column,
                                                       inside && column < params.hidden);
      } else {
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < 2; ++e) {
          if (inside && column + e < params.hidden) {
            pair[e] = source[column + e];
          }
        }
      }
      return pair;
    }

    CUTLASS_DEVICE
    void load_inputs(int group, int step) {
      if (step >= params.steps || slice != 0) {
        return;
      }
      CUTLASS_PRAGMA_UNROLL
      for (int half = 0; half < 2; ++half) {
        int64_t const at = int64_t(place(step)) * params.batch + batch_row(half);
        Element const* const source =
            params.a + (at * params.directions + direction) * kGates * params.hidden;
        CUTLASS_PRAGMA_UNROLL
        for (int gate = 0; gate < kGates; ++gate) {
          x[group][gate][half] = load_pair(source + int64_t(gate) * params.hidden, column(group),
                                           batch_row(half) < params.batch);
        }
      }
    }

    /// The lane's part of a block of the weights: the row of a hidden unit, as B's column.
    CUTLASS_DEVICE
    void load_weights(Eight& eight, int group, int gate, int block) const {
      int const unit = first_column + group * 8 + row;
      int const begin = (slice * kBlocks + block) * 32 + part * 8;
      Element const* const source =
          weights + (int64_t(gate) * params.hidden + unit) * params.hidden + begin;
      eight.clear();
      if constexpr (kWholeVectors) {
        cutlass::arch::global_load<Eight, sizeof(Eight)>(
            eight, source, unit < params.hidden && begin < params.hidden);
      } else if (unit < params.hidden) {
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < 8; ++e) {
          if (begin + e < params.hidden) {
            eight[e] = source[e];
          }
        }
      }
    }

    /// The products of a state with the weights of the gates from kFirst on.
    template <int kFirst, int kCount>
    CUTLASS_DEVICE void multiply(float (&sums)[kCount][4], Element const* state, int group) const {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kCount * 4; ++i) {
        sums[i / 4][i % 4] = 0.0f;
      }
      // Weights that are not in registers come a few blocks ahead of their products.
      constexpr int kUnrolled = kResident || kBlocks < 4 ? kBlocks : 4;
#pragma unroll(kUnrolled)
      for (int block = 0; block < kBlocks; ++block) {
        Eight a[2];
        CUTLASS_PRAGMA_UNROLL
        for (int half = 0; half < 2; ++half) {
          a[half] = *reinterpret_cast<Eight const*>(
              state + offset(row + half * 8, (slice * kBlocks + block) * 32 + part * 8));
        }
        CUTLASS_PRAGMA_UNROLL
        for (int gate = 0; gate < kCount; ++gate) {
          if constexpr (kResident) {
            multiply_block(sums[gate], a, resident[group][kFirst + gate][block]);
          } else {
            Eight b;
            load_weights(b, group, kFirst + gate, block);
            multiply_block(sums[gate], a, b);
          }
        }
      }
    }

    /// Adds the sums of all slices of K in the first one's warps; true there. All warps call it,
    /// and meet again before the next call.
    template <int kCount>
    CUTLASS_DEVICE bool gather(float (&sums)[kCount][4]) const {
      if constexpr (kSlices > 1) {
        using Four = cutlass::AlignedArray<float, 4>;
        int const warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
        auto const at = [&](int of_warp, int gate) {
          return reinterpret_cast<Four*>(shared.sums) + (of_warp * kMostSums + gate) * 32 + lane;
        };
        if (slice != 0) {
          CUTLASS_PRAGMA_UNROLL
          for (int gate = 0; gate < kCount; ++gate) {
            *at(warp, gate) = *reinterpret_cast<Four const*>(&sums[gate]);
          }
        }
        __syncthreads();
        if (slice != 0) {
          return false;
        }
        CUTLASS_PRAGMA_UNROLL
        for (int other = 1; other < kSlices; ++other) {
          CUTLASS_PRAGMA_UNROLL
          for (int gate = 0; gate < kCount; ++gate) {
            Four const more = *at(warp + other, gate);
            CUTLASS_PRAGMA_UNROLL
            for (int i = 0; i < 4; ++i) {
              sums[gate][i] += more[i];
            }
          }
        }
      }
      return true;
    }

    CUTLASS_DEVICE
    static void multiply_block(float (&sum)[4], Eight const (&a)[2], Eight const& b) {
      Mma const mma;
      auto& c = reinterpret_cast<typename Mma::FragmentC&>(sum);
      constexpr int kPairs = Instruction::kK / 8;  // that a lane has of a row of A
      CUTLASS_PRAGMA_UNROLL
      for (int first = 0; first < 4; first += kPairs) {
        cutlass::Array<unsigned, 2 * kPairs> of_a;
        cutlass::Array<unsigned, kPairs> of_b;
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kPairs; ++i) {
          of_a[2 * i] = reinterpret_cast<unsigned const*>(&a[0])[first + i];
          of_a[2 * i + 1] = reinterpret_cast<unsigned const*>(&a[1])[first + i];
          of_b[i] = reinterpret_cast<unsigned const*>(&b)[first + i];
        }
        mma(c, reinterpret_cast<typename Mma::FragmentA const&>(of_a),
            reinterpret_cast<typename Mma::FragmentB const&>(of_b), c);
      }
    }

    /// The first half of a step: the update gates, and the state times the reset gates.
    CUTLASS_DEVICE
    void reset(Element const* now, Element* made) {
      CUTLASS_PRAGMA_UNROLL
      for (int group = 0; group < kGroups; ++group) {
        float sums[2][4];
        multiply<0>(sums, now, group);
        if (!gather(sums)) {
          return;
        }
        CUTLASS_PRAGMA_UNROLL
        for (int half = 0; half < 2; ++half) {
          int const at = offset(row + half * 8, column(group));
          Pair const old = *reinterpret_cast<Pair const*>(now + at);
          Pair left;
          CUTLASS_PRAGMA_UNROLL
          for (int e = 0; e < 2; ++e) {
            update[group][half * 2 + e] = sigmoid(input(group, 0, half, e) + sums[0][half * 2 + e]);
            left[e] = Element(sigmoid(input(group, 1, half, e) + sums[1][half * 2 + e]) *
                              float(Element(old[e])));
          }
          *reinterpret_cast<Pair*>(made + at) = left;
        }
      }
    }

    CUTLASS_DEVICE
    float input(int group, int gate, int half, int e) const {
      return float(Element(x[group][gate][half][e]));
    }

    /// A group's next states.
    CUTLASS_DEVICE
    void advance(int step, int group, Element const* now, Element* next) {
      constexpr int kFirst = kIsLate ? 2 : 0;
      float sums[kGates - kFirst][4];
      multiply<kFirst>(sums, kIsLate ? shared.reset : now, group);
      if (!gather(sums)) {
        return;
      }
      Pair added;
      added.clear();
      if constexpr (kHasBias) {
        added = load_pair(params.bias + int64_t(direction) * params.hidden, column(group),
                          params.bias != nullptr);
      }
      CUTLASS_PRAGMA_UNROLL
      for (int half = 0; half < 2; ++half) {
        int const at = offset(row + half * 8, column(group));
        Pair const old = *reinterpret_cast<Pair const*>(now + at);
        bool const runs = place(step) < lengths[half];
        float made[2];
        Pair kept;
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < 2; ++e) {
          int const i = half * 2 + e;
          float const before = float(Element(old[e]));
          if constexpr (kCell == Cell::kLstm) {
            float const in = sigmoid(input(group, 0, half, e) + sums[0][i]);
            float const out = sigmoid(input(group, 1, half, e) + sums[1][i]);
            float const forget = sigmoid(input(group, 2, half, e) + sums[2][i]);
            float const fresh = tanh(input(group, 3, half, e) + sums[3][i]);
            float const cell = forget * cells[group][i] + in * fresh;
            made[e] = out * tanh(cell);
            cells[group][i] = runs ? cell : cells[group][i];
          } else if constexpr (kCell == Cell::kGru) {
            float const z = sigmoid(input(group, 0, half, e) + sums[0][i]);
            float const r = sigmoid(input(group, 1, half, e) + sums[1][i]);
            float const fresh =
                tanh(input(group, 2, half, e) + r * (sums[2][i] + float(Element(added[e]))));
            made[e] = (1.0f - z) * fresh + z * before;
          } else if constexpr (kCell == Cell::kGruResetFirst) {
            float const z = update[group][i];
            float const fresh = tanh(input(group, 2, half, e) + sums[0][i]);
            made[e] = (1.0f - z) * fresh + z * before;
          } else {
            float const sum = input(group, 0, half, e) + sums[0][i];
            made[e] = kCell == Cell::kRnnTanh ? tanh(sum) : relu(sum);
          }
          kept[e] = runs ? Element(made[e]) : Element(old[e]);
          made[e] = runs ? made[e] : 0.0f;
        }
        *reinterpret_cast<Pair*>(next + at) = kept;
        store(place(step), group, half, made);
      }
      load_inputs(group, step + 1);
    }

    /// Stores two neighbours of a step, or of a last state behind the steps.
    CUTLASS_DEVICE
    void store(int step, int group, int half, float const (&values)[2]) const {
      Graph const graph;
      VectorOperands<typename Graph::Operands, kVector> operands(params.operands,
                                                                 params.operands + kLoads);
      int64_t const at = int64_t(step) * params.batch + batch_row(half);
      CUTLASS_PRAGMA_UNROLL
      for (int first = 0; first < 2; first += kVector) {
        int const unit = column(group) + first;
        bool const inside = batch_row(half) < params.batch && unit < params.hidden;
        Place const where{at, direction * params.hidden + unit};
        operands.load(where, inside);
        cutlass::AlignedArray<ElementD, kVector> vector;
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < kVector; ++e) {
          vector[e] = cutlass::NumericConverter<ElementD, float>()(
              operands.apply(graph, values[first + e], e));
        }
        operands.store(where, inside);
        cutlass::arch::global_store<decltype(vector), sizeof(vector)>(
            vector, params.d + at * params.directions * params.hidden + where.column, inside);
      }
    }

    CUTLASS_DEVICE
    void store_last(Element const* state) const {
      CUTLASS_PRAGMA_UNROLL
      for (int group = 0; group < kGroups; ++group) {
        CUTLASS_PRAGMA_UNROLL
        for (int half = 0; half < 2; ++half) {
          Pair const last =
              *reinterpret_cast<Pair const*>(state + offset(row + half * 8, column(group)));
          float const values[2] = {float(Element(last[0])), float(Element(last[1]))};
          store(params.steps, group, half, values);
          if constexpr (kCell == Cell::kLstm) {
            float const cell[2] = {cells[group][half * 2], cells[group][half * 2 + 1]};
            store(params.steps + 1, group, half, cell);
          }
        }
      }
    }
  };
};

template <typename Kernel>
void check_recurrent(ArgumentCheck& check, boltgen_recurrent_args const& args) {
  check.at_least("steps", args.steps, 1);
  check.at_least("batch", args.batch, 1);
  check.at_least("hidden", args.hidden, 1);
  check.at_most("hidden", args.hidden, Kernel::kHidden);
  check.at_least("directions", args.directions, 1);
  check.at_most("directions", args.directions, 2);
  check.at_least("backwards", args.backwards, 0);
  check.at_most("backwards", args.backwards, 2 - args.directions);
  if (args.last_states != 0) {
    check.at_least("last_states", args.last_states, Kernel::kStates);
    check.at_most("last_states", args.last_states, Kernel::kStates);
  }
  check.multiple("hidden", args.hidden, Kernel::kWholeVectors ? 8 : Kernel::kVector);
  size_t const size = sizeof(typename Kernel::Element);
  check.pointer("a", args.a, Kernel::kVector, size);
  check.pointer("weights", args.weights, Kernel::kWholeVectors ? 8 : 1, size);
  check.pointer("d", args.d, Kernel::kVector, sizeof(typename Kernel::ElementD));
  if (args.bias != nullptr) {
    check.pointer("bias", args.bias, Kernel::kVector, size);
    check.at_most("cell without a bias", !Kernel::kHasBias, 0);
  }
  if (args.states != nullptr) {
    check.pointer("states", args.states, Kernel::kVector, size);
  }
  if (args.lengths != nullptr) {
    check.pointer("lengths", args.lengths, 1, sizeof(int));
  }
  int const columns = args.directions * args.hidden;
  check_operands(typename Kernel::Loads::Type(), check, args.operands, columns, Kernel::kVector);
  Kernel::Loads::check_results(check, args.operands, Kernel::kLoads, columns, Kernel::kVector);
}

/// Bytes for the exchange of states; 0 if threadblocks do not share hidden units.
template <typename Kernel>
SplitWorkspace recurrent_workspace(boltgen_recurrent_args const& args) {
  if (!Kernel::kIsShared) {
    return SplitWorkspace(0, 1, 0);
  }
  int64_t const tiles = (int64_t(args.batch) + Kernel::kRows - 1) / Kernel::kRows;
  return Kernel::Exchange::workspace(tiles * args.directions);
}

template <typename Kernel>
int run_recurrent(void (*kernel)(typename Kernel::Params), boltgen_recurrent_args const* args,
                  boltgen_status* status) {
  using Element = typename Kernel::Element;
  ArgumentCheck check(status);
  check_recurrent<Kernel>(check, *args);
  SplitWorkspace const workspace = recurrent_workspace<Kernel>(*args);
  check.workspace(args->workspace, args->workspace_bytes, workspace.bytes);
  if (check.failed()) {
    return check.code();
  }
  typename Kernel::Params params{static_cast<Element const*>(args->a),
                                 static_cast<Element const*>(args->weights),
                                 static_cast<Element const*>(args->bias),
                                 static_cast<Element const*>(args->states),
                                 static_cast<int const*>(args->lengths),
                                 static_cast<typename Kernel::ElementD*>(args->d),
                                 args->steps,
                                 args->batch,
                                 args->hidden,
                                 args->directions,
                                 args->backwards != 0,
                                 args->last_states != 0,
                                 args->workspace,
                                 {}};
  for (int i = 0; i < Kernel::kOperands; ++i) {
    params.operands[i] = args->operands[i];
  }
  if constexpr (Kernel::kIsShared) {
    return launch_teams<Kernel>(kernel, params, params.items(), params.parts(), workspace,
                                args->workspace, args->stream, status);
  }
  return launch<Kernel>(kernel, params, dim3(unsigned(params.items())), workspace, nullptr,
                        args->stream, status);
}

}  // namespace boltgen
