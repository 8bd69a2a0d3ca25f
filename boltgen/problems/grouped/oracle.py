"""The oracle of grouped matmuls."""

from __future__ import annotations

import numpy as np

from boltgen.errors import InvalidProblemError
from boltgen.ir.elementwise import LoadKind
from boltgen.problems.grouped.problem import GroupedGemm
from boltgen.problems.inputs import LayerInputs, in_rows, rows_of
from boltgen.problems.reference import (
    AnyArray,
    Enclosure,
    broadcast,
    enclosures,
    shaped,
)
from boltgen.problems.workload import Layer


def enclose_groups(layer: Layer, a: AnyArray, inputs: LayerInputs) -> tuple[Enclosure, ...]:
    """Enclose the results of each group's matmul, concatenated along the rows.

    Raises:
        InputError: an array's shape or dtype is not what the problem takes.
        InvalidProblemError: a result is no full tensor, or the layer has a prologue.
    """
    problem, epilogue = layer.problem, layer.epilogue
    assert isinstance(problem, GroupedGemm)
    if epilogue.reductions or not layer.prologue.is_identity:
        raise InvalidProblemError(f"no oracle for rows in groups: {layer.describe()}")
    shaped("a", a, (problem.a_shape,), problem.in_dtype, is_matrix=True)
    shaped("b", inputs.b, (problem.b_shape,), problem.in_dtype, is_matrix=False)
    shaped("ends", inputs.ends, ((problem.groups,),), problem.ends_dtype, is_matrix=False)
    broadcast(epilogue, problem.d_shape, False, inputs.operands)
    rows, none = rows_of(problem, a, inputs), np.zeros_like(inputs.b[0])
    found = []
    for group, (begin, end) in enumerate(problem.spans(inputs.ends)):
        if begin == end:
            continue
        is_none = group == problem.groups
        own = rows[begin:end]
        operands = [
            array if load.kind is LoadKind.ROW else in_rows(array, problem.m)[begin:end]
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
