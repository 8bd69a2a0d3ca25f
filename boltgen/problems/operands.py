"""The operands of a layer for a trial: which tensors there are, their ranges, and random values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from boltgen.ir.dtypes import DType, ElementType, IndexType
from boltgen.ir.elementwise import (
    Binary,
    BinaryOp,
    Cast,
    ElementwiseGraph,
    Load,
    LoadKind,
    Unary,
)
from boltgen.ir.key_masks import HIDDEN
from boltgen.problems.gemm.packed import PackedWeights
from boltgen.problems.gemm.problem import packed_weights
from boltgen.problems.grouped.problem import in_groups
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.problem import FurtherInput, Problem, element_b, further_inputs, gathered
from boltgen.problems.reference import AnyArray
from boltgen.problems.slices import loaded_shape, slices
from boltgen.problems.workload import Layer

# Operands are drawn from [-1.5, 1.5), so that sums stay within FP16's range. The epilogue's
# divisors and operands of roots and logarithms are drawn from [0.5, 1.5).
_MOST, _LEAST_DIVISOR = 1.5, 0.5
# Numbers that a kernel only moves.
_MOST_MOVED = 4.0
# The root mean square of a product of two random integers of 8 bits, the largest such number that
# is added to sums of them, and the size to which scales bring the sums: most fit into 8 bits.
_PRODUCT_OF_INTEGERS, _MOST_ADDED, _SCALED = 5500.0, 2.0**14, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor: its elements, and the range of its random values.

    `packed` has the format, N and K of packed weights: the elements are bytes, the range is of
    weights. `rows` is set for the ends of groups of `rows` rows, `of` for indices that gather from
    `of` rows.
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
        """The size in bytes."""
        return self.count * self.dtype.size_bytes


def input_tensors(layer: Layer) -> tuple[Tensor, ...]:
    """Return the random tensors of a layer.

    In this order: A, B (if any), the groups' ends (if grouped), the indices (if rows are gathered),
    the problem's further inputs, and the operands in the order of `layer.loads`. Full tensors
    differ between the matmuls of a batch; rows and columns are shared.
    """
    problem = layer.problem

    def count_of(load: Load, columns: int) -> int:
        times = problem.batch if load.kind is LoadKind.TENSOR else 1
        return times * prod(loaded_shape(problem, load.kind, columns)) * load.parts

    columns = iter(layer.columns_of_loads)
    return (
        _tensor(problem.in_dtype, prod(problem.a_shape), _ends_of(problem.in_dtype)),
        *_tensors_of_b(problem),
        *_tensors_of_ends(problem),
        *_tensors_of_rows(problem),
        *map(_tensor_of, further_inputs(problem)),
        *(
            _tensor(
                node.dtype,
                count_of(node, next(columns)),
                _range_of(problem, graph, index, node),
            )
            for graph in (layer.prologue, layer.epilogue)
            for index, node in enumerate(graph.nodes)
            if isinstance(node, Load)
        ),
    )


def _tensor(dtype: DType, count: int, ends: tuple[float, float]) -> Tensor:
    return Tensor(dtype=dtype, count=count, low=ends[0], high=ends[1])


def _ends_of(dtype: DType) -> tuple[float, float]:
    """Return the ends of A's random numbers: of integers all of the type."""
    if not dtype.is_whole:
        return -_MOST, _MOST
    ends = np.iinfo(dtype.numpy)
    return float(ends.min), float(ends.max)


def _range_of(
    problem: Problem, graph: ElementwiseGraph, index: int, load: Load
) -> tuple[float, float]:
    """Return the ends of an operand's random numbers."""
    if load.dtype is DType.I32:
        return -_MOST_ADDED, _MOST_ADDED
    if load.dtype.is_whole:
        return _ends_of(load.dtype)
    if _scales_sums(graph, index):
        most = _SCALED / (_PRODUCT_OF_INTEGERS * problem.gemm.k**0.5)
        return most / 2, most
    return (_LEAST_DIVISOR if index in _positive_nodes(graph) else -_MOST), _MOST


def _scales_sums(graph: ElementwiseGraph, index: int) -> bool:
    """Return whether an operand multiplies the sum of products of integers."""
    return any(
        isinstance(node, Binary)
        and node.op is BinaryOp.MULTIPLY
        and index in (node.lhs, node.rhs)
        and any(
            isinstance(cast := graph.nodes[x], Cast) and graph.is_whole(cast.x)
            for x in (node.lhs, node.rhs)
        )
        for node in graph.nodes
    )


def _tensors_of_b(problem: Problem) -> tuple[Tensor, ...]:
    if not problem.has_b:
        return ()
    if problem.in_dtype.is_whole:
        weight = problem.in_dtype.weight
        return (_tensor(weight, prod(problem.b_shape), _ends_of(weight)),)
    # The sum of k products is then about as large as an element of A.
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
        # Random order with repetitions; -1 and `of` are out of range on purpose.
        return rng.integers(-1, tensor.of + 1, shape).astype(tensor.dtype.numpy)
    if isinstance(tensor.dtype, DType) and tensor.dtype.is_whole:
        return rng.integers(int(tensor.low), int(tensor.high) + 1, shape).astype(tensor.dtype.numpy)
    if tensor.packed is None:
        return rng.uniform(tensor.low, tensor.high, shape).astype(tensor.dtype.numpy)
    packed, n, k = tensor.packed
    return packed.drawn(rng, n, k, tensor.high).reshape(shape)


def draw(
    layer: Layer, rng: np.random.Generator, *, is_sliced: bool
) -> tuple[AnyArray, LayerInputs]:
    """Draw A, and the other inputs of a layer.

    `is_sliced`: the operands of the epilogue differ between the products of a batch.
    """
    problem, loads = layer.problem, layer.loads
    if problem.is_exact:
        moved = rng.uniform(-_MOST_MOVED, _MOST_MOVED, problem.a_shape)
        return moved.astype(problem.in_dtype.numpy), LayerInputs(np.zeros(problem.b_shape))
    batch = problem.d_shape[:1] if problem.batch > 1 else ()
    span = problem.d_shape[len(batch) :]
    ahead = batch if is_sliced else ()

    def shape_of(load: Load, columns: int) -> tuple[int, ...]:
        shapes = {
            LoadKind.TENSOR: (*ahead, *span[:-1], columns),
            LoadKind.ROW: (*ahead, columns),
            LoadKind.SLICE_ROW: (slices(problem), columns),
            LoadKind.POSITION_ROW: (problem.slice_rows, columns),
            LoadKind.COLUMN: (*ahead, prod(span[:-1])),
        }
        return (*shapes[load.kind], *load.parts_shape)

    tensors = input_tensors(layer)
    own = [problem.a_shape, problem.b_shape][: 1 + problem.has_b]
    own += [(tensor.count,) for tensor in tensors[len(own) : len(tensors) - len(loads)]]
    shapes = (*own, *map(shape_of, loads, layer.columns_of_loads))
    a, *others = (drawn(tensor, shape, rng) for tensor, shape in zip(tensors, shapes, strict=True))
    for load, array in zip(loads, others[len(own) - 1 :], strict=True):
        if load.hides:
            hide_some(array, rng)
    return a, layer_inputs(layer, others)


def layer_inputs(layer: Layer, arrays: Sequence[AnyArray]) -> LayerInputs:
    """Return the arrays behind A, which are in the order of `input_tensors`, by what they are."""
    problem, left = layer.problem, list(arrays)
    b = left.pop(0) if problem.has_b else np.zeros(0)
    ends = left.pop(0) if in_groups(problem) is not None else np.zeros(0)
    rows = left.pop(0) if gathered(problem) is not None else np.zeros(0)
    further = tuple(left.pop(0).reshape(each.shape) for each in further_inputs(problem))
    before = len(layer.prologue.loads)
    return LayerInputs(b, tuple(left[before:]), tuple(left[:before]), ends, rows, further)


def hide_some(mask: AnyArray, rng: np.random.Generator) -> None:
    """Hide a random number of keys at the beginning and at the end of each row of a mask."""
    keys = mask.shape[-1]
    np.abs(mask, out=mask)  # keys with positive numbers are visible
    for row in mask.reshape(-1, keys):
        first, last = np.sort(rng.integers(keys, size=2))
        row[:first] = row[last + 1 :] = HIDDEN


def _ends(groups: int, rows: int, rng: np.random.Generator) -> AnyArray:
    """Return the ends of groups of uneven sizes.

    With several groups, one group is empty; the last row belongs to no group.
    """
    shares = rng.exponential(size=groups)
    if groups > 1:
        shares[rng.integers(groups)] = 0.0
    ends: AnyArray = np.floor(np.cumsum(shares) / shares.sum() * (rows - 1) + 0.5)
    return ends


def _positive_nodes(epilogue: ElementwiseGraph) -> set[int]:
    """Return the nodes that must be positive.

    They are divisors, operands of roots and logarithms, and the nodes that these are computed from.
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
