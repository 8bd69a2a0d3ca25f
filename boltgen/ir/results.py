"""The tensors that the stores of an epilogue make of a problem's output."""

from __future__ import annotations

import math

from boltgen.errors import assert_never
from boltgen.ir.elementwise import LoadKind, Store
from boltgen.ir.problem import Problem


def reduced_axes(problem: Problem, store: Store) -> tuple[int, ...]:
    """The axes of the output along which `store` reduces."""
    last = len(problem.d_shape) - 1
    match store.kind:
        case LoadKind.TENSOR:
            return ()
        case LoadKind.ROW:
            return tuple(range(1 if last > 1 else 0, last))
        case LoadKind.COLUMN:
            return (last,)
        case _:
            assert_never(store.kind)


def store_shape(problem: Problem, store: Store) -> tuple[int, ...]:
    """The shape of a stored tensor.

    TENSOR: `problem.d_shape`. ROW: (N,), of a batch (batch, N), of a convolution (images, K).
    COLUMN: the output's shape without its last dimension.
    """
    axes = reduced_axes(problem, store)
    return tuple(extent for axis, extent in enumerate(problem.d_shape) if axis not in axes)


def store_ld(problem: Problem, store: Store) -> int:
    """What a launch passes as `ld` of a stored tensor: of a full one the distance of its rows, of a
    reduction along columns the rows of D that make one number.
    """
    shape = problem.d_shape
    match store.kind:
        case LoadKind.TENSOR:
            return shape[-1]
        case LoadKind.ROW:
            return math.prod(shape[axis] for axis in reduced_axes(problem, store))
        case LoadKind.COLUMN:
            return 0
        case _:
            assert_never(store.kind)


def store_batch_stride(problem: Problem, store: Store) -> int:
    """The elements of a stored tensor that each product of a batch has; 0 without a batch."""
    return math.prod(store_shape(problem, store)[1:]) if problem.batch > 1 else 0
