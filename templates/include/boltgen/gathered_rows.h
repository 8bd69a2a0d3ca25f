// Rows of A that a kernel takes by integers, x[rows], from where they lie: nothing writes them in
// order before.
//
// An integer below 0 takes the first row, one beyond the last row takes the last: nothing is read
// beside A, whatever the integers are. Source: boltgen/ir/gathered.py.

#pragma once

#include <cutlass/cutlass.h>

#include "boltgen/arguments.h"

namespace boltgen {

/// The rows of A that integers of type `RowIndex` take.
template <typename RowIndex>
struct TakenRows {
  static constexpr bool kIsTaken = true;

  RowIndex const* rows;
  int count;  ///< A's rows

  template <typename Args>
  static TakenRows of(Args const& args) {
    return {static_cast<RowIndex const*>(args.taken), args.a_rows};
  }

  template <typename Args>
  static void check(ArgumentCheck& check, Args const& args) {
    check.pointer("taken", args.taken, 1, sizeof(RowIndex));
    check.at_least("a_rows", args.a_rows, 1);
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

  template <typename Args>
  static TakenRows of(Args const&) {
    return {};
  }

  template <typename Args>
  static void check(ArgumentCheck&, Args const&) {}
};

}  // namespace boltgen
