"""The oracle of workloads: every layer in FP64, with the values between layers rounded to the type
that the next layer multiplies.

The sum of a correct kernel is slightly off, so it may round a value between two layers to the
neighbouring number. The enclosure of a layer therefore becomes an error of the next layer's A, and
so does the rounding of a prologue's result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from boltgen.errors import InputError
from boltgen.ir.dtypes import DType
from boltgen.ir.functions import Array
from boltgen.ir.interval import Interval, evaluate, round_unbounded, rounded_at_any_scale
from boltgen.ir.interval import enclose as enclose_nodes
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.kinds import KINDS
from boltgen.problems.reference import (
    AnyArray,
    Enclosure,
    broadcast,
    enclosures,
)
from boltgen.problems.workload import Layer, Workload


def enclose(workload: Workload, a: AnyArray, layers: Sequence[LayerInputs]) -> Enclosure:
    """Enclose D of the last layer; see `enclose_results`."""
    return enclose_results(workload, a, layers)[0]


def enclose_results(
    workload: Workload, a: AnyArray, layers: Sequence[LayerInputs]
) -> tuple[Enclosure, ...]:
    """Return the exact results of the last layer and the bounds of a correct kernel's results.

    Args:
        workload: what to compute.
        a: the first layer's A, of its `in_dtype`.
        layers: the inputs of each layer.

    Returns:
        For each result float64 arrays of its shape (see `results.store_shape`). `reference.compare`
        takes their `exact` and `bound`.

    Raises:
        InputError: the number of `layers`, or the shape or dtype of an array, is wrong.
        InvalidProblemError: a layer before the last one has results other than D.
    """
    count = len(workload.layers)
    if len(layers) != count:
        raise InputError(f"inputs for {len(layers)} layers; the workload has {count}")
    for layer in workload.layers[:-1]:
        _ = layer.epilogue.result
    error: Array | None = None
    with np.errstate(all="ignore"):
        of_kind = KINDS.of(workload.first.problem).enclose
        if of_kind is not None:
            return of_kind(workload.single, a, layers[0])
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
    """Return A after the prologue, rounded to the multiplied type, and the bound of its error.

    Raises:
        InputError: the operands do not fit the prologue's loads.
        InvalidProblemError: the prologue does not store exactly one full tensor.
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
        # Exponentials are rounded and divided later, so the quotient is a number of no 16-bit type.
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


def _distance(enclosure: Enclosure, rounded: AnyArray, dtype: DType) -> Array:
    """Bound the distance of a kernel's value in `dtype` from `rounded`; it may be infinite."""
    value = rounded.astype(np.float64)
    overflow = dtype.overflow_threshold
    distance = np.maximum(enclosure.high - value, value - enclosure.low)
    # Near the overflow threshold a kernel may give a finite number or an infinity.
    may_overflow = (enclosure.high >= overflow) | (enclosure.low <= -overflow)
    distance = np.where(may_overflow, np.inf, distance)
    infinite = (enclosure.low >= overflow) | (enclosure.high <= -overflow)
    undefined = np.isnan(enclosure.low) & np.isnan(value)
    distance = np.where(infinite | undefined, 0.0, distance)
    return np.where(np.isnan(distance), np.inf, distance)
