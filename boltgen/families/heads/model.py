"""Steps of keys, and the arithmetic of a softmax, for models of attention."""

from __future__ import annotations

import math

from boltgen.arch import Arch
from boltgen.families.constants import ModelConstants
from boltgen.families.heads.scale import scale_of
from boltgen.families.roofline import (
    arithmetic_clocks,
    lanes,
    of_element,
)
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.problems.workload import Workload

# Base-2 exponentials of an SM per clock. Source: CUDA C++ Programming Guide, throughput of native
# arithmetic instructions, compute capabilities 7.5 to 12.0.
_EXPONENTIALS_PER_CLOCK = 16
# Per score: a maximum, a sum, and half of a conversion; then a difference and a multiplication, or,
# if scores are only scaled, one fma for both and the scale.
_SCORE_INSTRUCTIONS, _EXPONENT_INSTRUCTIONS, _SCALED_INSTRUCTIONS = 2.5, 2.0, 1.0


def mean_steps(workload: Workload, rows: int, keys: int) -> float:
    """Return the mean number of steps of `keys` for a threadblock of `rows`.

    Causal steps end at the diagonal; with a window they begin before it.
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
    """Clocks in which an SM makes exponentials of so many scores, one thing at a time."""
    return exponential_clocks(elements) + score_clocks(workload, elements, arch, c)


def exponential_clocks(elements: int) -> float:
    """Clocks of the SM's units of special functions."""
    return elements / _EXPONENTIALS_PER_CLOCK


def score_clocks(workload: Workload, elements: int, arch: Arch, c: ModelConstants) -> float:
    """Clocks of the SM's FP32 units."""
    graph = workload.first.epilogue
    own = elements * _score_instructions(graph) / lanes(arch)
    return own + (0.0 if scale_of(graph) else arithmetic_clocks(graph, elements, arch, c))


def _score_instructions(graph: ElementwiseGraph) -> float:
    """Return the instructions of the softmax per score, without its exponential and the graph."""
    return _SCORE_INSTRUCTIONS + (
        _SCALED_INSTRUCTIONS if scale_of(graph) else _EXPONENT_INSTRUCTIONS
    )


def score_arithmetic(workload: Workload) -> float:
    """Return the instructions per score: the softmax with its exponential, and the graph."""
    graph = workload.first.epilogue
    return _score_instructions(graph) + 1 + (0.0 if scale_of(graph) else of_element(graph))
