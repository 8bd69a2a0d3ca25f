"""Steps of keys, and the arithmetic of a softmax."""

from __future__ import annotations

import math

from boltgen.arch import Arch
from boltgen.families.constants import ModelConstants
from boltgen.families.roofline import (
    arithmetic_clocks,
    lanes,
    of_element,
)
from boltgen.problems.workload import Workload

# Base-2 exponentials of an SM each clock. Source: CUDA C++ Programming Guide, throughput of native
# arithmetic instructions, compute capabilities 7.5 to 12.0.
_EXPONENTIALS_PER_CLOCK = 16
# For each score: a maximum, a difference, a product, a sum, and half of a conversion.
_SCORE_INSTRUCTIONS = 4.5


def mean_steps(workload: Workload, rows: int, keys: int) -> float:
    """Return the mean number of steps of `keys` of a threadblock of `rows`: causal ones end at the
    diagonal, and with a window they begin before it.
    """
    scores = workload.first.problem.gemm
    if not workload.last.prologue.is_causal:
        return math.ceil(scores.n / keys)
    ends = range(rows, scores.m + rows, rows)
    seen = [min(scores.n, max(0, end + scores.n - scores.m)) for end in ends]
    window = workload.last.prologue.window or scores.n
    first = [max(0, end - rows + scores.n - scores.m - window + 1) // keys for end in ends]
    steps = (math.ceil(end / keys) - begin for end, begin in zip(seen, first, strict=True))
    return sum(steps) / len(seen)


def softmax_clocks(workload: Workload, elements: int, arch: Arch, c: ModelConstants) -> float:
    """Clocks in which an SM makes exponentials of so many scores."""
    return (
        elements / _EXPONENTIALS_PER_CLOCK
        + elements * _SCORE_INSTRUCTIONS / lanes(arch)
        + arithmetic_clocks(workload.first.epilogue, elements, arch, c)
    )


def score_arithmetic(workload: Workload) -> float:
    """Return the instructions for each score: of the softmax with its exponential, and of the
    graph.
    """
    return _SCORE_INSTRUCTIONS + 1 + of_element(workload.first.epilogue)
