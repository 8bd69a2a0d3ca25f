"""The shapes and strides of the tensors that an epilogue stores."""

from __future__ import annotations

import math

from boltgen.errors import InvalidProblemError, assert_never
from boltgen.ir.elementwise import LoadKind, Store
from boltgen.problems.problem import Problem


def reduced_view(problem: Problem, store: Store) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape in which the output is reduced, and the axes along which it is reduced."""
    *rows, columns = problem.d_shape
    if not store.columns:
        return problem.d_shape, reduced_axes(problem, store)
    return (*rows, columns // store.columns, store.columns), (len(rows) + 1,)


def reduced_axes(problem: Problem, store: Store) -> tuple[int, ...]:
    """Return the axes of the output along which `store` reduces its elements, or parts of rows."""
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
    """Return the shape of a stored tensor.

    TENSOR: `problem.d_shape`. ROW: (N,), for a batch (batch, N), for a convolution (images, K).
    COLUMN: the output's shape without its last dimension, or with N / `store.columns` in its place.

    Raises:
        InvalidProblemError: `store.columns` does not divide N.
    """
    *_, n = problem.d_shape
    if store.columns and n % store.columns:
        raise InvalidProblemError(
            f"Store: N={n} is not a multiple of {store.columns}, the columns of one part"
        )
    shape, axes = reduced_view(problem, store)
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def store_ld(problem: Problem, store: Store) -> int:
    """Return the `ld` that a launch passes for a stored tensor.

    TENSOR, and COLUMN in parts: the distance between rows, in elements. ROW: the number of rows of
    D that are reduced to one number. COLUMN: 0.
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
    """Return the elements of a stored tensor per matmul of a batch; 0 without a batch."""
    return math.prod(store_shape(problem, store)[1:]) if problem.batch > 1 else 0
