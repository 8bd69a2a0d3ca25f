"""Reasons why no kernel takes an operand, or stores the results of an epilogue."""

from __future__ import annotations

from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import MAX_OPERANDS, ElementwiseGraph
from boltgen.ir.problem import Problem, packed_weights

# The types whose products tiles are made for: two bytes each, as all that is counted.
_MULTIPLIED = (DType.F16, DType.BF16)


def graph_rejection(graph: ElementwiseGraph) -> str | None:
    """Why no epilogue computes an elementwise graph; None where they do.

    D is written by the iterator that the tile was made for, each further result by the threads
    that have its elements; what reduces is added up in memory, where atomic operations are FP32's.
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
        if store.reduction and store.dtype is not DType.F32:
            return (
                f"store {index} reduces to {store.dtype.value}: kernels add in float32, in memory"
            )
        if store.columns & (store.columns - 1):
            return f"store {index} reduces {store.columns} columns at a time, no power of two"
    passed = len(graph.loads) + len(further)
    if passed > MAX_OPERANDS:
        return (
            f"{len(graph.loads)} loads and {len(further)} stores besides D: a launch passes "
            f"{MAX_OPERANDS} addresses"
        )
    return None


def one_result_rejection(graph: ElementwiseGraph) -> str | None:
    """Why no kernel of several layers computes the elementwise graph of one; None where they do."""
    if graph.stores:
        return f"{len(graph.stores)} stores of a layer: kernels of several layers write D alone"
    return others_rejection(graph)


def others_rejection(graph: ElementwiseGraph) -> str | None:
    """Why a kernel of another family does not compute an elementwise graph: what it has not."""
    if graph.is_paired:
        return f"two accumulators: kernels of cutlass2 alone combine them: {graph.describe()}"
    if graph.has_parts:
        return (
            f"a column in parts: kernels of cutlass2 alone read and write them: {graph.describe()}"
        )
    return None


def operand_rejection(problem: Problem) -> str | None:
    """Why no kernel multiplies a problem's operands as they are; None where one does."""
    if (reason := packed_rejection(problem)) is not None:
        return reason
    return type_rejection(problem)


def packed_rejection(problem: Problem) -> str | None:
    """Why a kernel that takes B as it is computes no product of packed weights; None of others."""
    packed = packed_weights(problem)
    return None if packed is None else f"it multiplies B as it is, not {packed.short}"


def type_rejection(problem: Problem) -> str | None:
    """Why no kernel multiplies the type of a problem's A; None where one does."""
    if problem.in_dtype in _MULTIPLIED:
        return None
    known = " and ".join(dtype.value for dtype in _MULTIPLIED)
    return f"it multiplies {known}, not {problem.in_dtype.value}"
