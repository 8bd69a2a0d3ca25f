"""The oracle of workloads: every layer in FP64, what lies between two layers rounded to the
type that the next one multiplies.

A correct kernel may round an element between two layers the other way, because its sum is a little
off. So a layer's enclosure becomes an error of the next layer's A, and is carried on; and so does
the rounding of what a prologue makes of A.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from boltgen.errors import InputError, InvalidProblemError
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import LoadKind
from boltgen.ir.functions import Array
from boltgen.ir.interval import Interval, evaluate, round_unbounded, rounded_at_any_scale
from boltgen.ir.interval import enclose as enclose_nodes
from boltgen.problems.grouped.problem import GroupedGemm
from boltgen.problems.kinds import gathered, in_groups
from boltgen.problems.norm.bounds import norm_ends
from boltgen.problems.problem import Problem
from boltgen.problems.reference import (
    AnyArray,
    Enclosure,
    broadcast,
    enclosed_store,
    enclosures,
    shaped,
)
from boltgen.problems.workload import Layer, Workload


@dataclass(frozen=True, slots=True)
class LayerInputs:
    """A layer's B, empty where it has none, and the operands of its graphs.

    `ends` are those of a product of rows in groups, `rows` the integers that take A's rows, where
    some do; of others they are empty.

    Those of its epilogue are shaped as `reference.run` takes them, those of its prologue against A
    in the same way: TENSOR as A, ROW (K,), COLUMN (M,).
    """

    b: AnyArray = field(default_factory=lambda: np.zeros(0))
    operands: tuple[AnyArray, ...] = ()
    prologue: tuple[AnyArray, ...] = ()
    ends: AnyArray = field(default_factory=lambda: np.zeros(0))
    rows: AnyArray = field(default_factory=lambda: np.zeros(0))


def enclose(workload: Workload, a: AnyArray, layers: Sequence[LayerInputs]) -> Enclosure:
    """The exact D of the last layer, and where a correct kernel's lies; see `enclose_results`."""
    return enclose_results(workload, a, layers)[0]


def enclose_results(
    workload: Workload, a: AnyArray, layers: Sequence[LayerInputs]
) -> tuple[Enclosure, ...]:
    """The exact results of the last layer, and where a correct kernel's lie.

    Args:
        workload: what to compute.
        a: the first layer's A, of its `in_dtype`.
        layers: the inputs of each layer.

    Returns:
        For each result float64 arrays, of a full tensor of the last layer's output shape.
        `reference.compare` judges by `exact` and `bound`.

    Raises:
        InputError: the number of layers, an array's shape or its dtype is not what it takes.
        InvalidProblemError: a layer before the last one has other results than D.
    """
    count = len(workload.layers)
    if len(layers) != count:
        raise InputError(f"inputs for {len(layers)} layers; the workload has {count}")
    for layer in workload.layers[:-1]:
        _ = layer.epilogue.result
    error: Array | None = None
    with np.errstate(all="ignore"):
        if not workload.first.problem.is_product:
            return _of_rows(workload.single, a, layers[0])
        if (problem := in_groups(workload.first.problem)) is not None:
            return _of_groups(problem, workload.single, a, layers[0])
        for layer, inputs in zip(workload.layers, layers, strict=True):
            if not layer.prologue.is_identity:
                a, error = _prepared(layer, a, inputs.prologue, error)
            found = enclosures(
                layer.problem, layer.epilogue, a, inputs.b, inputs.operands, a_error=error
            )
            a = found[0].exact.astype(layer.problem.out_dtype.numpy)
            error = _distance(found[0], a, layer.problem.out_dtype)
    return found


def _prepared(
    layer: Layer, a: AnyArray, operands: Sequence[AnyArray], error: Array | None
) -> tuple[AnyArray, Array]:
    """A after the prologue, rounded to the type that is multiplied, and how far that may be off.

    Raises:
        InputError: the operands are not what the prologue loads.
        InvalidProblemError: the prologue stores something else than one full tensor.
    """
    problem, graph = layer.problem, layer.prologue
    wide = np.asarray(a, np.float64).reshape(problem.a_shape)
    off = 0.0 if error is None else error.reshape(wide.shape)
    is_batch = len(problem.a_shape) == 3
    loads = broadcast(graph, problem.a_shape, is_batch, operands, problem.slice_rows)
    anything = np.isinf(off)
    given = Interval(
        np.where(anything, -np.inf, wide - off), np.where(anything, np.inf, wide + off)
    )
    image = enclose_nodes(graph, given, loads)[graph.result]
    low, high = (np.broadcast_to(end, wide.shape) for end in (image.low, image.high))
    if graph.has_softmax:
        # Exponentials are rounded, and divided later: the quotient itself is in no type's grid.
        ends = rounded_at_any_scale(Interval(low, high), problem.in_dtype)
        low, high = ends.low, ends.high
    else:
        low, high = (round_unbounded(end, problem.in_dtype) for end in (low, high))
    found = Enclosure(
        exact=np.broadcast_to(evaluate(graph, wide, loads)[graph.result], wide.shape),
        low=low,
        high=high,
    )
    rounded = found.exact.astype(problem.in_dtype.numpy)
    return rounded, _distance(found, rounded, problem.in_dtype)


def _of_rows(layer: Layer, a: AnyArray, inputs: LayerInputs) -> tuple[Enclosure, ...]:
    """The results of a norm: D, then what its prologue stores further.

    Nothing is rounded between the graphs and the norm.
    """
    problem: Any = layer.problem
    shape, in_slices = problem.d_shape, problem.slice_rows
    whole = shaped("a", a, (problem.a_shape,), problem.in_dtype, is_matrix=problem.is_matrix)
    wide = _taken(problem, whole, inputs).reshape(shape)
    before = broadcast(layer.prologue, shape, False, inputs.prologue, in_slices)
    prepared = evaluate(layer.prologue, wide, before)
    images = enclose_nodes(layer.prologue, Interval(wide, wide), before)
    source, *further = layer.prologue.typed_results
    image = images[source.x]
    rows, low, high = (
        problem.as_rows(np.array(np.broadcast_to(each, shape)))
        for each in (prepared[source.x], image.low, image.high)
    )
    of_rows = norm_ends(problem.row_norm, rows, Interval(low, high))
    ends = Interval(problem.as_stored(of_rows.low), problem.as_stored(of_rows.high))
    normed = problem.as_stored(problem.row_norm.product(rows, np.zeros(0)))
    after = broadcast(layer.epilogue, shape, False, inputs.operands, in_slices)
    exact = evaluate(layer.epilogue, normed, after)
    lie = enclose_nodes(layer.epilogue, ends, after)
    return (
        *(
            enclosed_store(problem, each, exact[each.x], lie[each.x])
            for each in layer.epilogue.results
        ),
        *(enclosed_store(problem, each, prepared[each.x], images[each.x]) for each in further),
    )


def _of_groups(
    problem: GroupedGemm, layer: Layer, a: AnyArray, inputs: LayerInputs
) -> tuple[Enclosure, ...]:
    """The results of a product of rows in groups: those of each group's product, in rows.

    Raises:
        InputError: an array's shape or dtype is not what the problem takes.
        InvalidProblemError: a result is no full tensor, or the layer has a prologue.
    """
    epilogue = layer.epilogue
    if epilogue.reductions or not layer.prologue.is_identity:
        raise InvalidProblemError(f"no oracle for rows in groups: {layer.describe()}")
    shaped("a", a, (problem.a_shape,), problem.in_dtype, is_matrix=True)
    shaped("b", inputs.b, (problem.b_shape,), problem.in_dtype, is_matrix=False)
    shaped("ends", inputs.ends, ((problem.groups,),), problem.ends_dtype, is_matrix=False)
    broadcast(epilogue, problem.d_shape, False, inputs.operands)
    rows, none = _taken(problem, a, inputs), np.zeros_like(inputs.b[0])
    found = []
    for group, (begin, end) in enumerate(problem.spans(inputs.ends)):
        if begin == end:
            continue
        is_none = group == problem.groups
        own = rows[begin:end]
        operands = [
            array if load.kind is LoadKind.ROW else _rows(array, problem.m)[begin:end]
            for load, array in zip(epilogue.loads, inputs.operands, strict=True)
        ]
        product = problem.of_rows(end - begin)
        if is_none:
            found.append(enclosures(product, epilogue, np.zeros_like(own), none, operands))
        else:
            found.append(enclosures(product, epilogue, own, inputs.b[group], operands))
    return tuple(
        Enclosure(
            exact=np.concatenate([each.exact for each in parts]),
            low=np.concatenate([each.low for each in parts]),
            high=np.concatenate([each.high for each in parts]),
        )
        for parts in zip(*found, strict=True)
    )


def _taken(problem: Problem, a: AnyArray, inputs: LayerInputs) -> AnyArray:
    """A's rows in the order in which they are computed."""
    how = gathered(problem)
    if how is None:
        return a.reshape(problem.a_shape)
    shaped("rows", inputs.rows, ((how.rows,),), how.dtype, is_matrix=False)
    return how.taken(a, inputs.rows)


def _rows(array: AnyArray, count: int) -> AnyArray:
    """A column, or the rows of a full tensor, which may be counted in several dimensions."""
    return array if array.ndim == 1 else array.reshape(count, -1)


def _distance(enclosure: Enclosure, rounded: AnyArray, dtype: DType) -> Array:
    """How far the kernel's value in `dtype` may be from `rounded`; infinite: it may be anything."""
    value = rounded.astype(np.float64)
    overflow = dtype.overflow_threshold
    distance = np.maximum(enclosure.high - value, value - enclosure.low)
    # An infinity or a NaN is either certain, or next to it lies a number.
    may_overflow = (enclosure.high >= overflow) | (enclosure.low <= -overflow)
    distance = np.where(may_overflow, np.inf, distance)
    infinite = (enclosure.low >= overflow) | (enclosure.high <= -overflow)
    undefined = np.isnan(enclosure.low) & np.isnan(value)
    distance = np.where(infinite | undefined, 0.0, distance)
    return np.where(np.isnan(distance), np.inf, distance)
