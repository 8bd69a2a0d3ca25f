"""The tensors of a layer in a trial: the number of random elements, and their range."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from boltgen.ir.dtypes import ElementType, IndexType
from boltgen.ir.elementwise import Binary, BinaryOp, ElementwiseGraph, Load, LoadKind, Unary
from boltgen.ir.key_masks import HIDDEN
from boltgen.problems.gemm.packed import PackedWeights
from boltgen.problems.gemm.problem import packed_weights
from boltgen.problems.grouped.problem import in_groups
from boltgen.problems.problem import FurtherInput, Problem, element_b, further_inputs, gathered
from boltgen.problems.reference import AnyArray
from boltgen.problems.slices import loaded_shape
from boltgen.problems.workload import Layer

# Operands are drawn from [-1.5, 1.5): their sums stay well inside FP16. Divisors and operands of
# roots and logarithms in the epilogue are drawn from [0.5, 1.5).
_MOST, _LEAST_DIVISOR = 1.5, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor: its elements, and the range of its random values.

    `packed` has the form, N and K of packed weights: their elements are bytes, the values weights.
    `rows` is set for the ends of groups of so many rows, `of` for indices that gather from so many
    rows.
    """

    dtype: ElementType
    count: int
    low: float = -_MOST
    high: float = _MOST
    packed: tuple[PackedWeights, int, int] | None = None
    rows: int | None = None
    of: int | None = None

    @property
    def size_bytes(self) -> int:
        """The size in memory."""
        return self.count * self.dtype.size_bytes


def input_tensors(layer: Layer) -> tuple[Tensor, ...]:
    """Return A, B if there is one, the groups' ends if rows are grouped, the indices if rows of A
    are gathered, the problem's further inputs, and the graphs' operands, in the order of
    `layer.loads`.

    Full tensors of a batched product differ between its slices; rows and columns are shared.
    """
    problem = layer.problem

    def count_of(load: Load, columns: int) -> int:
        times = problem.batch if load.kind is LoadKind.TENSOR else 1
        return times * prod(loaded_shape(problem, load.kind, columns)) * load.parts

    columns = iter(layer.columns_of_loads)
    return (
        Tensor(dtype=problem.in_dtype, count=prod(problem.a_shape)),
        *_tensors_of_b(problem),
        *_tensors_of_ends(problem),
        *_tensors_of_rows(problem),
        *map(_tensor_of, further_inputs(problem)),
        *(
            Tensor(
                dtype=node.dtype,
                count=count_of(node, next(columns)),
                low=_LEAST_DIVISOR if index in _positive_nodes(graph) else -_MOST,
            )
            for graph in (layer.prologue, layer.epilogue)
            for index, node in enumerate(graph.nodes)
            if isinstance(node, Load)
        ),
    )


def _tensors_of_b(problem: Problem) -> tuple[Tensor, ...]:
    if not problem.is_product:
        return ()
    # The sum of k products then is as large as one of A's elements.
    most = 2 * _MOST * problem.gemm.k**-0.5
    packed = packed_weights(problem)
    form = None if packed is None else (packed, problem.matrix[1], problem.gemm.k)
    count = prod(problem.b_shape)
    return (Tensor(dtype=element_b(problem), count=count, low=-most, high=most, packed=form),)


def _tensors_of_ends(problem: Problem) -> tuple[Tensor, ...]:
    grouped = in_groups(problem)
    if grouped is None:
        return ()
    return (Tensor(dtype=grouped.ends_dtype, count=grouped.groups, rows=grouped.m),)


def _tensors_of_rows(problem: Problem) -> tuple[Tensor, ...]:
    taken = gathered(problem)
    return () if taken is None else (Tensor(dtype=taken.dtype, count=taken.rows, of=taken.of),)


def _tensor_of(given: FurtherInput) -> Tensor:
    count = prod(given.shape)
    if isinstance(given.dtype, IndexType):
        return Tensor(dtype=given.dtype, count=count, of=int(given.most))
    return Tensor(dtype=given.dtype, count=count, low=-given.most, high=given.most)


def drawn(tensor: Tensor, shape: tuple[int, ...], rng: np.random.Generator) -> AnyArray:
    """Draw a tensor of this shape with random elements in its range."""
    if tensor.rows is not None:
        return _ends(tensor.count, tensor.rows, rng).astype(tensor.dtype.numpy)
    if tensor.of is not None:
        # In no order, some several times; and one before the first, or behind the last.
        return rng.integers(-1, tensor.of + 1, shape).astype(tensor.dtype.numpy)
    if tensor.packed is None:
        return rng.uniform(tensor.low, tensor.high, shape).astype(tensor.dtype.numpy)
    packed, n, k = tensor.packed
    return packed.drawn(rng, n, k, tensor.high).reshape(shape)


def hide_some(mask: AnyArray, rng: np.random.Generator) -> None:
    """Hide, in each row of a mask of keys, the keys before some place and after another."""
    keys = mask.shape[-1]
    np.abs(mask, out=mask)  # the visible keys
    for row in mask.reshape(-1, keys):
        first, last = np.sort(rng.integers(keys, size=2))
        row[:first] = row[last + 1 :] = HIDDEN


def _ends(groups: int, rows: int, rng: np.random.Generator) -> AnyArray:
    """Return the ends of groups of uneven numbers of rows; with several groups one is empty, and
    the last row belongs to none.
    """
    shares = rng.exponential(size=groups)
    if groups > 1:
        shares[rng.integers(groups)] = 0.0
    ends: AnyArray = np.floor(np.cumsum(shares) / shares.sum() * (rows - 1) + 0.5)
    return ends


def _positive_nodes(epilogue: ElementwiseGraph) -> set[int]:
    """Return the nodes that must be positive: divisors, operands of roots and logarithms, and their
    sources.
    """
    found = set()
    for index in range(len(epilogue.nodes) - 1, -1, -1):
        node = epilogue.nodes[index]
        match node:
            case Binary(op=BinaryOp.SUBTRACT, lhs=lhs) if index in found:
                found.add(lhs)
            case Binary(lhs=lhs, rhs=rhs) if index in found:
                found.update((lhs, rhs))
            case Binary(op=BinaryOp.DIVIDE, rhs=rhs):
                found.add(rhs)
            case Unary(op=op, x=x) if op.function.is_partial:
                found.add(x)
            case _:
                pass
    return found
