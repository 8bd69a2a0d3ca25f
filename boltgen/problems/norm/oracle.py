"""The oracle of norms of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from boltgen.ir.interval import Interval, evaluate
from boltgen.ir.interval import enclose as enclose_nodes
from boltgen.problems.inputs import LayerInputs, rows_of
from boltgen.problems.norm.bounds import norm_ends
from boltgen.problems.reference import (
    AnyArray,
    Enclosure,
    broadcast,
    enclosed_store,
    shaped,
)
from boltgen.problems.workload import Layer


def enclose_rows(layer: Layer, a: AnyArray, inputs: LayerInputs) -> tuple[Enclosure, ...]:
    """Enclose the results of a norm: the epilogue's, then the further results of its prologue.

    Nothing is rounded between the prologue, the norm and the epilogue.
    """
    problem: Any = layer.problem
    shape, in_slices = problem.d_shape, problem.slice_rows
    whole = shaped("a", a, (problem.a_shape,), problem.in_dtype, is_matrix=problem.is_matrix)
    wide = rows_of(problem, whole, inputs).reshape(shape)
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
