"""The oracle of one layer: the exact result, and the largest error of a correct kernel.

`run` evaluates a problem and its epilogue in FP64. `error_bound` derives a bound of the error for
each element; no tolerance is guessed. `compare` checks an output against both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from boltgen.errors import InputError
from boltgen.ir.dtypes import CONVERTED, FLOAT8, WHOLE, DType, ElementType
from boltgen.ir.elementwise import ElementwiseGraph, LoadKind, Store
from boltgen.ir.functions import Array
from boltgen.ir.interval import (
    Interval,
    around,
    enclose,
    evaluate,
    exactly_reduced,
    reduced,
    round_unbounded,
)
from boltgen.problems.accumulation import accumulation_error, narrow_error
from boltgen.problems.gemm.problem import packed_weights
from boltgen.problems.problem import Problem, element_b
from boltgen.problems.results import reduced_view

AnyArray: TypeAlias = NDArray[Any]


def run(
    problem: Problem,
    epilogue: ElementwiseGraph,
    a: AnyArray,
    b: AnyArray,
    operands: Sequence[AnyArray],
) -> Array:
    """Compute the exact result, before it is rounded to the output's type.

    Args:
        problem: what to compute.
        epilogue: the operators on the accumulated sums. Its constants are rounded to FP32, as in
            kernels, and its casts round. NaN propagates through every function.
        a: of the problem's `in_dtype`, shaped as its `a_shape` says.
        b: of its `in_dtype`, shaped as its `b_shape` says.
        operands: one array per load, in the order of `epilogue.loads`. TENSOR: the output's shape,
            with or without the batch. SLICE_ROW: (slices, N). POSITION_ROW: (rows of a slice, N).
            ROW: (N,). COLUMN: (M,), or (M, parts). ROW and COLUMN may have a leading batch.

    Returns:
        float64, of the problem's `d_shape`.

    Raises:
        InputError: an array has the wrong shape or dtype for the problem.
        InvalidProblemError: the epilogue does not store exactly one full tensor; see `results`.
    """
    _ = epilogue.result
    return results(problem, epilogue, a, b, operands)[0]


def results(
    problem: Problem,
    epilogue: ElementwiseGraph,
    a: AnyArray,
    b: AnyArray,
    operands: Sequence[AnyArray],
) -> tuple[Array, ...]:
    """Compute the exact value of each of the epilogue's stores; arguments as in `run`.

    Returns:
        float64 arrays, of the shapes that `results.store_shape` returns.

    Raises:
        InputError: an array has the wrong shape or dtype for the problem.
    """
    a_wide, b_wide, arrays = _checked(problem, epilogue, a, b, operands)
    with np.errstate(all="ignore"):
        nodes = evaluate(epilogue, problem.product(a_wide, b_wide), arrays)
        return tuple(_stored(problem, store, nodes[store.x]) for store in epilogue.results)


def error_bound(
    problem: Problem,
    epilogue: ElementwiseGraph,
    a: AnyArray,
    b: AnyArray,
    operands: Sequence[AnyArray],
) -> Array:
    """Bound |kernel - run(...)| for a correct kernel, element by element; arguments as in `run`.

    The sum is off by at most ((1 + u)^n - 1) * sum |a||b| after n additions of relative error u;
    FP32 represents products of FP16 or BF16 numbers exactly, within its range. Every node then has
    an interval: the image of its operands' intervals, widened by the rounding of the FP32
    operation. The output's rounding is monotone, so it is applied to the ends. Partial sums of
    split-K are assumed to have the accumulator's type.

    Returns:
        float64, of the problem's `d_shape`. Infinite if any result is correct, because an
        intermediate may overflow FP32 or leave the domain of a function.

    Raises:
        InputError: an array has the wrong shape or dtype for the problem.
    """
    return enclosure(problem, epilogue, a, b, operands).bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Enclosure:
    """The exact result, and the least and greatest correct output of each element.

    The ends are rounded to the output's type as if its exponent had no upper end.
    """

    exact: Array
    low: Array
    high: Array

    @property
    def bound(self) -> Array:
        """Elementwise bound on |output - exact|."""
        with np.errstate(invalid="ignore"):
            bound = np.maximum(self.high - self.exact, self.exact - self.low)
        # `compare` checks infinities and NaN that are certain by value.
        same = (self.low == self.exact) & (self.high == self.exact)
        certain = same | (np.isnan(self.exact) & np.isnan(self.low))
        return np.where(certain, 0.0, np.where(np.isnan(bound), np.inf, bound))


def enclosure(
    problem: Problem,
    epilogue: ElementwiseGraph,
    a: AnyArray,
    b: AnyArray,
    operands: Sequence[AnyArray],
    *,
    a_error: Array | None = None,
) -> Enclosure:
    """Return the results of `run` and `error_bound` together; arguments as in `run`.

    `a_error` bounds the difference between each element of A and the one that the kernel
    multiplies; it is infinite if that element may be anything. Without it A is exact.

    Raises:
        InputError: an array has the wrong shape or dtype for the problem.
        InvalidProblemError: the epilogue does not store exactly one full tensor; see `enclosures`.
    """
    _ = epilogue.result
    return enclosures(problem, epilogue, a, b, operands, a_error=a_error)[0]


def enclosures(
    problem: Problem,
    epilogue: ElementwiseGraph,
    a: AnyArray,
    b: AnyArray,
    operands: Sequence[AnyArray],
    *,
    a_error: Array | None = None,
) -> tuple[Enclosure, ...]:
    """Return the enclosure of each of the epilogue's stores, in the shapes of `results`.

    Raises:
        InputError: an array has the wrong shape or dtype for the problem.
    """
    a_wide, b_wide, arrays = _checked(problem, epilogue, a, b, operands)
    with np.errstate(all="ignore"):
        product = problem.product(a_wide, b_wide)
        if a_error is not None:
            a_error = a_error.reshape(a_wide.shape)
        size = np.abs(a_wide) + (0.0 if a_error is None else a_error)
        magnitude = problem.product(size, np.abs(b_wide))
        accumulated = Interval(product, product)
        if problem.in_dtype.is_narrow:
            accumulated = around(product, narrow_error(problem, a_wide, b_wide))
        elif not problem.acc_dtype.is_whole:
            accumulated = around(product, accumulation_error(problem, magnitude))
        if a_error is not None:
            carried = problem.product(a_error, np.abs(b_wide))
            anything = ~np.isfinite(carried)
            accumulated = Interval(
                np.where(anything, -np.inf, accumulated.low - carried),
                np.where(anything, np.inf, accumulated.high + carried),
            )
        exact = evaluate(epilogue, product, arrays)
        images = enclose(epilogue, accumulated, arrays)
        return tuple(
            enclosed_store(problem, store, exact[store.x], images[store.x])
            for store in epilogue.results
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The comparison of an output with the oracle; `str` makes one line for people.

    `ratio` is the largest error relative to its bound: at most 1 for a correct kernel, infinite if
    a NaN or an infinity is wrong. The other fields describe the element with the largest ratio.
    """

    ratio: float
    index: tuple[int, ...]
    actual: float
    expected: float
    bound: float

    @property
    def within(self) -> bool:
        """Whether every element is within its bound."""
        return self.ratio <= 1.0

    def __str__(self) -> str:
        return (
            f"worst at {self.index}: got {self.actual:.8g}, expected {self.expected:.8g} "
            f"+- {self.bound:.3g} ({self.ratio:.3g} of the bound)"
        )


def compare(actual: AnyArray, expected: Array, bound: Array) -> Agreement:
    """Compare an output with the oracle's values and bounds.

    Args:
        actual: the kernel's output, of any type of `DType`.
        expected: what `run` returned.
        bound: what `error_bound` returned.

    Raises:
        InputError: the shapes differ, or no kernel returns the dtype of `actual`.
    """
    if actual.shape != expected.shape or bound.shape != expected.shape:
        raise InputError(
            f"compare: shapes differ: actual {actual.shape}, expected {expected.shape}, "
            f"bound {bound.shape}"
        )
    returned = (*CONVERTED, *WHOLE, *FLOAT8)
    if actual.dtype not in [DType(name).numpy for name in returned]:
        known = " or ".join(returned)
        raise InputError(f"compare: actual is {actual.dtype}; kernels return {known}")
    overflow = DType(actual.dtype.name).overflow_threshold
    with np.errstate(all="ignore"):
        got = actual.astype(np.float64)
        error = np.abs(got - expected)
        ratio = np.where(error == 0.0, 0.0, error / bound)
        # An infinity is correct if the interval reaches the values that the type rounds to
        # infinity.
        reach = np.where(got > 0, expected + bound, bound - expected)
        ratio = np.where(np.isinf(got), np.where(reach >= overflow, 0.0, np.inf), ratio)
        ratio = np.where(np.isnan(got) | np.isnan(expected), np.inf, ratio)
        ratio = np.where(np.isnan(got) & np.isnan(expected), 0.0, ratio)
        ratio = np.where(np.isinf(bound), 0.0, ratio)
    index = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    return Agreement(
        ratio=float(ratio[index]),
        index=tuple(int(i) for i in index),
        actual=float(got[index]),
        expected=float(expected[index]),
        bound=float(bound[index]),
    )


def _wide(array: AnyArray) -> Array:
    return np.asarray(array, dtype=np.float64)


def _checked(
    problem: Problem,
    epilogue: ElementwiseGraph,
    a: AnyArray,
    b: AnyArray,
    operands: Sequence[AnyArray],
) -> tuple[Array, Array, list[Array]]:
    """Return A, B and the operands in FP64, the operands shaped to broadcast against the output."""
    a_wide = shaped("a", a, (problem.a_shape,), problem.in_dtype, is_matrix=problem.is_matrix)
    b_wide = shaped("b", b, (problem.b_shape,), element_b(problem), is_matrix=problem.is_matrix)
    if (packed := packed_weights(problem)) is not None:
        b_wide = _wide(packed.unpacked(b_wide.astype(np.uint8), problem.gemm.k))
    loads = broadcast(epilogue, problem.d_shape, problem.batch > 1, operands, problem.slice_rows)
    return a_wide, b_wide, loads


def broadcast(
    graph: ElementwiseGraph,
    shape: tuple[int, ...],
    is_batch: bool,
    operands: Sequence[AnyArray],
    slice_rows: int = 0,
) -> list[Array]:
    """Return the operands of a graph's loads in FP64, shaped to broadcast against `shape`.

    The first extent of `shape` is the batch if `is_batch`, its last one the columns. A column in
    parts has a further dimension for the parts, over which the graph sums it. A SLICE_ROW or
    POSITION_ROW operand is expanded to a full tensor.

    Raises:
        InputError: the number of operands, or the shape or dtype of one, does not fit the loads.
    """
    if len(operands) != len(graph.loads):
        raise InputError(
            f"{len(operands)} operands for the {len(graph.loads)} loads of {graph.describe()}"
        )
    batch = shape[:1] if is_batch else ()
    m, n = math.prod(shape[len(batch) : -1]), shape[-1]
    wide = []
    for index, (load, array) in enumerate(zip(graph.loads, operands, strict=True)):
        plain = {
            LoadKind.TENSOR: shape[len(batch) :],
            LoadKind.ROW: (n,),
            LoadKind.SLICE_ROW: (-(-m // slice_rows) if slice_rows else 0, n),
            LoadKind.POSITION_ROW: (slice_rows, n),
            LoadKind.COLUMN: (m,),
        }
        span = (*plain[load.kind], *load.parts_shape)
        given = shaped(
            f"operand {index}",
            array,
            ((*batch, *span), span),
            load.dtype,
            is_matrix=load.kind is LoadKind.TENSOR,
        )
        if load.kind.is_of_slices:
            at, position = np.divmod(np.arange(m), slice_rows)
            read = at if load.kind is LoadKind.SLICE_ROW else position
            wide.append(given[read].reshape(shape))
            continue
        ahead = given.shape[: given.ndim - len(span)]
        body = {LoadKind.TENSOR: span, LoadKind.ROW: (1,) * (len(shape) - len(batch) - 1) + (n,)}
        column = (*shape[len(batch) : -1], 1, *load.parts_shape)
        wide.append(given.reshape(*ahead, *body.get(load.kind, column)))
    return wide


def shaped(
    name: str,
    array: AnyArray,
    shapes: tuple[tuple[int, ...], ...],
    dtype: ElementType,
    *,
    is_matrix: bool,
) -> Array:
    """Return `array` in FP64 with one of `shapes`; a matrix's rows may have several dimensions.

    Raises:
        InputError: the array has another shape or dtype.
    """
    if array.dtype == dtype.numpy:
        for shape in shapes:
            is_same = array.shape == shape
            if is_same or (
                is_matrix and array.size == math.prod(shape) and array.shape[-1:] == shape[-1:]
            ):
                return _wide(array).reshape(shape)
    wanted = " or ".join(str(shape) for shape in dict.fromkeys(shapes))
    raise InputError(
        f"{name} is {array.dtype} {array.shape}; the problem takes {dtype.value} {wanted}"
    )


def _stored(problem: Problem, store: Store, x: Array) -> Array:
    """Return the exact values that a store writes for a node."""
    whole = np.array(np.broadcast_to(x, problem.d_shape), dtype=np.float64)
    if store.reduction is None:
        return whole
    shape, axes = reduced_view(problem, store)
    return exactly_reduced(store.reduction, whole.reshape(shape), axes)


def enclosed_store(problem: Problem, store: Store, exact: Array, image: Interval) -> Enclosure:
    """Return the enclosure of the values that a store writes for a node."""
    if store.reduction is not None:
        shape, axes = reduced_view(problem, store)
        low, high = (np.broadcast_to(end, problem.d_shape) for end in (image.low, image.high))
        image = reduced(store.reduction, Interval(low.reshape(shape), high.reshape(shape)), axes)
    dtype = store.dtype or problem.out_dtype
    return Enclosure(
        exact=_stored(problem, store, exact),
        low=round_unbounded(image.low, dtype),
        high=round_unbounded(image.high, dtype),
    )
