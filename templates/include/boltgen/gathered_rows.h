// Rows of A that a kernel takes by integers, x[rows], from where they lie: nothing writes them in
// order before.
//
// A launch passes the integers' address as the operand behind all others, and the number of A's
// rows as its ld. An integer below 0 takes the first row, one beyond the last row takes the last:
// nothing is read beside A, whatever the integers are. Source: boltgen/ir/gathered.py.

#pragma once

#include <cutlass/cutlass.h>

#include <cstdio>

#include "boltgen/arguments.h"

namespace boltgen {

/// The rows of A that integers of type `RowIndex` take.
template <typename RowIndex>
struct TakenRows {
  static constexpr bool kIsTaken = true;

  RowIndex const* rows;
  int count;  ///< A's rows

  static TakenRows of(boltgen_operand const* operands, int place) {
    return {static_cast<RowIndex const*>(operands[place].pointer), int(operands[place].ld)};
  }

  static void check(ArgumentCheck& check, boltgen_operand const* operands, int place) {
    char name[48];
    std::snprintf(name, sizeof(name), "operands[%d].pointer (rows of A)", place);
    check.pointer(name, operands[place].pointer, 1, sizeof(RowIndex));
    std::snprintf(name, sizeof(name), "operands[%d].ld (number of A's rows)", place);
    check.at_least(name, operands[place].ld, 1);
    check.at_most(name, operands[place].ld, 0x7fffffff);
  }

  /// The row of A that is the `index`-th of those that are computed; reads its integer.
  CUTLASS_DEVICE
  int operator[](int index) const {
    int64_t const taken = int64_t(rows[index]);
    return taken < 0 ? 0 : taken < count ? int(taken) : count - 1;
  }
};

/// A has its rows in order.
template <>
struct TakenRows<void> {
  static constexpr bool kIsTaken = false;

  static TakenRows of(boltgen_operand const*, int) { return {}; }
  static void check(ArgumentCheck&, boltgen_operand const*, int) {}
};

}  // namespace boltgen
