"""Find the purposes of values that decide the precision in which they are computed."""

from __future__ import annotations

import numpy as np

from boltgen.graph.facts import MOVES, NARROWED, behind, graph_fact
from boltgen.graph.graph import CONSTANT, INPUT, Array, Graph
from boltgen.passes.regions.epilogue_rules import ELEMENTWISE

_CIRCULAR = frozenset({"sin", "cos", "tan"})
# Through what an angle is made of others without losing what it is.
_ANGLES = ELEMENTWISE | MOVES | {"concat", "stack", "take", "strided_slice", "tile", "repeat"}
# Operators that pass an infinity on.
_CARRIERS = _ANGLES | {"where"}
# Bounded functions: near their bounds FP16 has few digits of the distance to these.
_SATURATED = frozenset({"sigmoid", "tanh", "erf", "exp", "nn.softmax"})
# Operators that keep the distance to zero or one for a later logarithm or division.
_KEEPS_DISTANCE = frozenset(
    {"add", "subtract", "multiply", "divide", "maximum", "minimum", "clip", "where"}
) | {"negative", "abs", "square", "power", "sqrt", "astype", "strided_slice", *MOVES}
# A factor of at least this restores values that FP16 holds with few bits: its operand is small.
_LARGE_FACTOR = 2.0**13
_LARGEST_FACTOR = 2.0**149  # it makes 1 of FP32's least number
# Operators that make small numbers from small numbers, moved or reduced or bounded.
_HOMOGENEOUS = (
    frozenset({"add", "subtract", "multiply", "divide", "maximum", "minimum", "clip", "where"})
    | {"negative", "abs", "nn.relu", "nn.leakyrelu", "nn.prelu", "nn.bias_add"}
    | {"concat", "strided_slice", "tile", "repeat", "nn.pad", "astype", *MOVES}
    | {"mean", "sum", "max", "min", "nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d"}
)
_SOFTMAX = frozenset({"nn.softmax", "nn.log_softmax"})
# Operators that may stand between scores and their softmax.
_ON_SCORES = frozenset({"add", "where", "reshape"})


def angles(graph: Graph) -> frozenset[int]:
    """Return the operands of sines and cosines, and their sources, back to other computations.

    An angle of 1000 has half a turn of error in FP16.
    """
    found: set[int] = set()
    for index in range(len(graph) - 1, -1, -1):
        expr = graph[index]
        if expr.op in _CIRCULAR or (index in found and expr.op in _ANGLES):
            found.update(expr.args)
    return frozenset(found)


def quantised(graph: Graph) -> frozenset[int]:
    """Return the values between integers and the integers that elementwise operators make of them.

    FP16 would round them once more, and to the neighbouring integer where it matters.
    """
    made: set[int] = set()
    for index, expr in enumerate(graph.exprs):
        is_kept = expr.op in ELEMENTWISE and not made.isdisjoint(expr.args)
        if expr.op == "dequantize" or (is_kept and expr.dtype in NARROWED):
            made.add(index)
    found: set[int] = set()
    for index in range(len(graph) - 1, -1, -1):
        readers = graph.consumers[index]
        if index not in made or index in graph.escaping:
            continue
        if readers and all(graph[each].op == "quantize" or each in found for each in readers):
            found.add(index)
    return frozenset(found)


@graph_fact
def infinities(graph: Graph) -> frozenset[int]:
    """Return the values that elementwise operators and views make from infinite constants."""
    found: set[int] = set()
    for index, expr in enumerate(graph.exprs):
        if expr.op == CONSTANT:
            array = _constant(graph, index)
            is_infinite = array is not None and bool(np.isinf(array).any())
        else:
            is_infinite = expr.op in _CARRIERS and not found.isdisjoint(expr.args)
        if is_infinite:
            found.add(index)
    return frozenset(found)


def scores(graph: Graph) -> frozenset[int]:
    """Return the values that only a softmax reads, directly or with masks added."""
    found: set[int] = set()
    for index in range(len(graph) - 1, -1, -1):
        readers = graph.consumers[index]
        if not readers or index in graph.escaping:
            continue
        if all(
            graph[reader].op in _SOFTMAX or (reader in found and graph[reader].op in _ON_SCORES)
            for reader in readers
        ):
            found.add(index)
    return frozenset(found)


def distances(graph: Graph) -> frozenset[int]:
    """Return bounded functions and values made from them, up to where the distance to a bound
    matters.

    log(1 - sigmoid(x)) is wrong if FP16 rounds the sigmoid to 1.
    """
    made: set[int] = set()
    for index, expr in enumerate(graph.exprs):
        is_kept = expr.op in _KEEPS_DISTANCE and not made.isdisjoint(expr.args)
        if expr.op in _SATURATED or is_kept:
            made.add(index)
    found: set[int] = set()
    for index in range(len(graph) - 1, -1, -1):
        expr = graph[index]
        if index in found and expr.op in _KEEPS_DISTANCE:
            found.update(made.intersection(expr.args))
        if expr.op in {"log", "rsqrt"}:
            found.update(made.intersection(expr.args))
        if expr.op == "divide":
            found.update(made.intersection(expr.args[1:]))
    return frozenset(found)


def sizes_ahead(graph: Graph) -> dict[int, float]:
    """Return the values that a large constant multiplies later, back to other computations, and
    their sizes.

    Their author takes them for small numbers: what is of ordinary size would become too large.
    """
    found: dict[int, float] = {}

    def keep(index: int, factor: float) -> None:
        if graph[index].op not in {CONSTANT, INPUT} and factor >= _LARGE_FACTOR:
            found[index] = min(max(found.get(index, 1.0), factor), _LARGEST_FACTOR)

    for index in range(len(graph) - 1, -1, -1):
        expr = graph[index]
        ahead = found.get(index, 1.0)
        factors = _constant_factors(graph, index)
        if factors:
            for arg, factor in factors.items():
                keep(arg, factor * ahead)
        elif index in found and expr.op in _HOMOGENEOUS:
            for arg in expr.args:
                keep(arg, ahead)
    return {index: 1.0 / factor for index, factor in found.items()}


def _constant_factors(graph: Graph, index: int) -> dict[int, float]:
    """Return the operand that an operator multiplies by a constant, and the largest factor."""
    expr = graph[index]
    if expr.op not in {"multiply", "divide"}:
        return {}
    arrays = [_constant(graph, arg) for arg in expr.args]
    if arrays[1] is not None and arrays[0] is None:
        sizes = _sizes(arrays[1])
        factor = sizes.max(initial=0.0) if expr.op == "multiply" else 1 / sizes.min(initial=np.inf)
        return {expr.args[0]: float(factor)}
    if arrays[0] is not None and arrays[1] is None and expr.op == "multiply":
        return {expr.args[1]: float(_sizes(arrays[0]).max(initial=0.0))}
    return {}


def _sizes(array: Array) -> Array:
    """Return the magnitudes of a constant's numbers that are neither zero nor infinite."""
    sizes: Array = np.abs(array[np.isfinite(array) & (array != 0)], dtype=np.float64)
    return sizes


def _constant(graph: Graph, index: int) -> Array | None:
    """Return the numbers of a floating constant, through views."""
    array = graph[behind(graph, index, {"reshape", "broadcast_to", "astype"})].array
    return array if array is not None and array.dtype.kind == "f" else None
