"""Reasons why kernels cannot take an operand, or store the results of an epilogue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from boltgen.arch import Arch
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import (
    MAX_OPERANDS,
    ElementwiseGraph,
    LoadKind,
    Reduction,
    Store,
)
from boltgen.problems.gemm.problem import packed_weights
from boltgen.problems.problem import Problem


@dataclass(frozen=True, slots=True)
class Multiplied:
    """A combination of types that a family supports: A, B, their sums, and D.

    The type's own table names the architectures whose tensor cores have the instruction.
    """

    a: DType
    b: DType
    sums: DType
    outputs: tuple[DType, ...]


# The mma.sync combinations for which kernels of the CUTLASS 2.x API are made.
MMA_SYNC = (
    Multiplied(DType.F16, DType.F16, DType.F32, (DType.F16, DType.F32)),
    Multiplied(DType.F16, DType.F16, DType.F16, (DType.F16, DType.F32)),
    Multiplied(DType.BF16, DType.BF16, DType.F32, (DType.BF16, DType.F32)),
)
# Of integers, with weights of int8. The sums are whole; the epilogue makes any type of them.
INTEGER_OUTPUTS = (DType.I8, DType.U8, DType.F16, DType.BF16, DType.F32, DType.I32)
MMA_SYNC_OF_INTEGERS = (
    Multiplied(DType.I8, DType.I8, DType.I32, INTEGER_OUTPUTS),
    Multiplied(DType.U8, DType.I8, DType.I32, INTEGER_OUTPUTS),
)
# The combinations of families that sum only in FP32.
MMA_SYNC_IN_F32 = tuple(row for row in MMA_SYNC if row.sums is DType.F32)


def graph_rejection(graph: ElementwiseGraph, rounds: DType = DType.F32) -> str | None:
    """Return why no epilogue can compute an elementwise graph, or None if one can.

    D is written by the tile's iterator, each further result by the threads that have its elements.
    Reductions are added in memory by atomic operations, which are FP32. A family that `rounds` to a
    narrower type does so with one sum of columns.
    """
    first, *further = graph.results
    if first.reduction is not None:
        return f"a first store that reduces ({first.reduction.value}): kernels store D first"
    if first.dtype is not None:
        return (
            f"a first store in {first.dtype.value} of its own: kernels store D in the problem's "
            "output type"
        )
    for index, store in enumerate(further, 1):
        if store.dtype is None:
            return f"store {index} names no type: kernels store results besides D in their own"
        is_rounded = store.reduction is not None and store.dtype is not DType.F32
        if is_rounded and not (rounds is store.dtype and _is_sum_of_columns(store)):
            return (
                f"store {index} reduces to {store.dtype.value}: kernels add in float32, in memory"
            )
        if store.columns & (store.columns - 1):
            return f"store {index} reduces {store.columns} columns at a time, no power of two"
    if sum(store.dtype is not DType.F32 for store in graph.reductions) > 1:
        return f"several rounded sums; a kernel rounds one: {graph.describe()}"
    passed = len(graph.loads) + len(further)
    if passed > MAX_OPERANDS:
        return (
            f"{len(graph.loads)} loads and {len(further)} stores besides D: a launch passes "
            f"{MAX_OPERANDS} addresses"
        )
    return None


def _is_sum_of_columns(store: Store) -> bool:
    return store.kind is LoadKind.ROW and store.reduction is Reduction.SUM


def one_result_rejection(graph: ElementwiseGraph) -> str | None:
    """Return why no kernel of several layers can compute a layer's graph, or None if one can."""
    if graph.stores:
        return f"{len(graph.stores)} stores of a layer: kernels of several layers write D alone"
    return others_rejection(graph)


def others_rejection(graph: ElementwiseGraph) -> str | None:
    """Return the feature of a graph that kernels of other families than cutlass2 lack, or None."""
    if graph.is_paired:
        return f"two accumulators: kernels of cutlass2 alone combine them: {graph.describe()}"
    if graph.has_parts:
        return (
            f"a column in parts: kernels of cutlass2 alone read and write them: {graph.describe()}"
        )
    return None


def operand_rejection(problem: Problem, arch: Arch, table: Sequence[Multiplied]) -> str | None:
    """Return why no kernel of a family can multiply a problem's operands as they are, or None.

    `table` has the combinations of types that the family supports.
    """
    return packed_rejection(problem) or type_rejection(problem, arch, table)


def packed_rejection(problem: Problem) -> str | None:
    """Return why a kernel that cannot unpack weights rejects a problem, or None."""
    packed = packed_weights(problem)
    return None if packed is None else f"it multiplies B as it is, not {packed.short}"


def type_rejection(problem: Problem, arch: Arch, table: Sequence[Multiplied]) -> str | None:
    """Return why a family does not multiply a problem's types on an architecture, or None."""
    operand, sums, output = problem.in_dtype, problem.acc_dtype, problem.out_dtype
    rows = [row for row in table if row.a is operand]
    if not rows:
        return f"it multiplies {_listed(row.a for row in table)}, not {operand.value}"
    summed = [row for row in rows if row.sums is sums]
    if not summed:
        return f"it sums in {_listed(row.sums for row in rows)}, not {sums.value}"
    if (reason := operand.accumulator_rejection(sums, arch.compute_capability)) is not None:
        return reason
    outputs = [dtype for row in summed for dtype in row.outputs]
    return None if output in outputs else f"it stores {_listed(outputs)}, not {output.value}"


def _listed(types: Iterable[DType]) -> str:
    return " and ".join(dict.fromkeys(dtype.value for dtype in types))
