"""Compare a graph's values before and after regions are carved out of it.

The graph that calls regions, with each region's body in its place, is compared with the graph
before. Each region, as the oracle of kernels computes it, is compared with its body.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.harness.region_oracle import compute
from boltgen.graph.attributes import RegionCall
from boltgen.graph.graph import REGION, Graph
from boltgen.graph.numpy_semantics.interpret import run
from boltgen.ir.dtypes import DType
from boltgen.passes import outline
from boltgen.passes.outline import CarvedRegion
from tests.passes.differential import (
    AnyArray,
    Sizes,
    assert_same,
    drawn,
    sizes_of,
    with_unknown_sizes,
)


def carve(
    graph: Graph, *args: Any, others: bool = True, **kwargs: Any
) -> tuple[Graph, tuple[CarvedRegion, ...]]:
    """Carve regions out of `graph`, and check that all of them compute what was there.

    With `others` the same is done where the sizes of a value, and of all that is computed from it,
    are unknown.
    """
    made, carved = outline.carve(graph, *args, **kwargs)
    assert_same(graph, made, regions=_bodies(carved))
    for sizes in sizes_of(graph):
        check_regions(made, carved, sizes)
    for unknown, sizes in with_unknown_sizes(graph, onward=True) if others else ():
        anew, others = outline.carve(unknown, *args, **kwargs)
        assert_same(unknown, anew, known=sizes, regions=_bodies(others))
    return made, carved


def _bodies(carved: tuple[CarvedRegion, ...]) -> dict[str, Graph]:
    return {each.region.symbol: each.body for each in carved}


def check_regions(graph: Graph, carved: tuple[CarvedRegion, ...], sizes: Sizes) -> None:
    """Check that the oracle of kernels computes what the body of each region does."""
    bodies = _bodies(carved)
    regions = {each.region.symbol: each.region for each in carved}
    values: dict[int, AnyArray] = {}
    run(graph, drawn(graph, sizes), sizes=sizes, regions=bodies, observe=values.__setitem__)
    for expr in graph.exprs:
        if expr.op != REGION:
            continue
        symbol, given = expr.attrs.of(RegionCall).symbol, [values[arg] for arg in expr.args]
        wanted = run(bodies[symbol], given, sizes=sizes, is_exact=True)
        found = compute(regions[symbol], given)
        # A kernel keeps weights of rows, and what it stages between two products, in its own type.
        layers = regions[symbol].workload.layers
        unit = max(DType.F16.ulp, *(layer.problem.in_dtype.ulp for layer in layers))
        for left, right in zip(found, wanted, strict=True):
            _assert_near(left.reshape(right.shape), right, unit)


def _assert_near(found: AnyArray, wanted: AnyArray, unit: float) -> None:
    """Compare to a kernel's roundings by `unit`, of the largest of its results."""
    finite = np.abs(wanted[np.isfinite(wanted)])
    bound = 8 * unit * max(1.0, float(finite.max(initial=0.0)))
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=0, atol=bound)
