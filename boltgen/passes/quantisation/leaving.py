"""Say where a model leaves INT8, and why: sentences for `boltgen inspect`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from boltgen.graph.graph import CONSTANT, Expr, Graph
from boltgen.passes.quantisation.sink_dequantise import COMMUTING, DEQUANTISE, QUANTISE
from boltgen.passes.regions.anchor import CONV2D, MATMUL
from boltgen.passes.regions.epilogue_rules import ELEMENTWISE

_PRODUCTS = frozenset({MATMUL, CONV2D})
_VIEWS = COMMUTING - {"nn.max_pool2d"}


def leaving(graph: Graph, kept: Sequence[tuple[Expr, str]]) -> list[str]:
    """Return sentences on the operators that compute floats of dequantised tensors.

    `kept` has the products that multiply floats, with their reasons. Elementwise operators are in
    kernels with what they read, and are left out, as are the model's results.
    """
    counts = Counter((expr.op, reason) for expr, reason in kept)
    for index in graph.operators.get(DEQUANTISE, ()):
        if graph[graph[index].args[0]].op == CONSTANT:
            continue
        readers = set(graph.consumers[index])
        counts.update(
            (graph[reader].op, reason)
            for reader in readers
            if (reason := _reason(graph, graph[reader])) is not None
        )
    return [
        f"{operator} leaves INT8 in {count} {'place' if count == 1 else 'places'}: {reason}."
        for (operator, reason), count in sorted(counts.items())
    ]


def _reason(graph: Graph, reader: Expr) -> str | None:
    """Return why the reader of a dequantised tensor computes floats, or None if it is said."""
    if reader.op in _PRODUCTS or reader.op == QUANTISE or reader.op in ELEMENTWISE - _VIEWS:
        return None
    if reader.op == "concat":
        return "its operands have different scales or zero points; quantise all by the result's"
    if reader.op in COMMUTING:
        return "the tensor has a scale for each channel; quantise activations per tensor"
    return "no kernel computes it of integers; it reads floats"
