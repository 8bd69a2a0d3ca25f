"""What epilogues can store, of 2.x kernels and of those of sm_90a."""

from __future__ import annotations

from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import MAX_OPERANDS, ElementwiseGraph


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
