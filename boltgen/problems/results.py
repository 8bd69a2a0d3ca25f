"""The tensors that the stores of an epilogue make of a problem's output."""

from __future__ import annotations

import math

from boltgen.errors import InvalidProblemError, assert_never
from boltgen.ir.elementwise import LoadKind, Store
from boltgen.problems.problem import Problem


def reduced_view(problem: Problem, store: Store) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape in which the output is reduced, and the axes of it along which it is."""
    *rows, columns = problem.d_shape
    if not store.columns:
        return problem.d_shape, reduced_axes(problem, store)
    return (*rows, columns // store.columns, store.columns), (len(rows) + 1,)


def reduced_axes(problem: Problem, store: Store) -> tuple[int, ...]:
    """Return the axes of the output along which `store` reduces all, or some, of the elements."""
    last = len(problem.d_shape) - 1
    match store.kind:
        case LoadKind.TENSOR:
            return ()
        case LoadKind.ROW:
            return tuple(range(1 if last > 1 else 0, last))
        case LoadKind.SLICE_ROW | LoadKind.POSITION_ROW:
            raise InvalidProblemError(f"Store: no result is a {store.kind.value}")
        case LoadKind.COLUMN:
            return (last,)
        case _:
            assert_never(store.kind)


def store_shape(problem: Problem, store: Store) -> tuple[int, ...]:
    """The shape of a stored tensor.

    TENSOR: `problem.d_shape`. ROW: (N,), of a batch (batch, N), of a convolution (images, K).
    COLUMN: the output's shape without its last dimension, or with N / columns in its place.

    Raises:
        InvalidProblemError: N is not a multiple of the columns that make a number.
    """
    *_, n = problem.d_shape
    if store.columns and n % store.columns:
        raise InvalidProblemError(
            f"Store: N={n} is not a multiple of {store.columns}, the columns that make a number"
        )
    shape, axes = reduced_view(problem, store)
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def store_ld(problem: Problem, store: Store) -> int:
    """Return the `ld` that a launch passes for a stored tensor: of a full one, or of parts of rows,
    the distance of its rows, of a reduction along columns the rows of D that make one number.
    """
    shape = problem.d_shape
    match store.kind:
        case LoadKind.TENSOR:
            return shape[-1]
        case LoadKind.ROW:
            return math.prod(shape[axis] for axis in reduced_axes(problem, store))
        case LoadKind.SLICE_ROW | LoadKind.POSITION_ROW:
            raise InvalidProblemError(f"Store: no result is a {store.kind.value}")
        case LoadKind.COLUMN:
            return store_shape(problem, store)[-1] if store.columns else 0
        case _:
            assert_never(store.kind)


def store_batch_stride(problem: Problem, store: Store) -> int:
    """The elements of a stored tensor that each product of a batch has; 0 without a batch."""
    return math.prod(store_shape(problem, store)[1:]) if problem.batch > 1 else 0
