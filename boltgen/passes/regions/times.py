"""Compare the times of kernels on both sides of a rewrite."""

from __future__ import annotations

from collections.abc import Sequence

from boltgen.problems.graph_costs import GraphCosts, shown_us
from boltgen.problems.workload import Layer, Workload


def compared(
    costs: GraphCosts, after: Sequence[Layer], before: Sequence[Layer], more_us: float = 0.0
) -> tuple[bool, str]:
    """Return whether the kernels of the layers `after` a rewrite take less time than the kernels
    `before` it and `more_us`, and both times in words.
    """
    found = costs.kernels_us([Workload(layers=(each,)) for each in (*after, *before)])
    once, apart = sum(found.times_us[: len(after)]), sum(found.times_us[len(after) :]) + more_us
    return once < apart, f"{shown_us(once)} instead of {shown_us(apart)}, {found.origin}"
