"""Find anchors that could be one back-to-back kernel: each the only reader of the one before. For
both IRs.

Source: Xing et al., Bolt, MLSys 2022, section 3.1: persistent kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from boltgen.errors import InvalidProblemError
from boltgen.graph.graph import Graph
from boltgen.passes.regions.products import Product, alike
from boltgen.problems.workload import MAX_LAYERS, Cutter, Layer, Workload

# Operators that move values without computing any, in the names of both IRs' graphs.
_MOVEMENTS = frozenset({"reshape", "permute_dims"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Anchors that are one region, and why the next anchor does not join them."""

    products: tuple[Product, ...]
    reason: str = ""


def join(graph: Graph, products: Sequence[Product], cut: Cutter) -> list[Joined]:
    """Group `products` that `cut` puts into one kernel, in the order of their ends."""
    # A kernel that takes rows of a tensor reads all of it.
    in_order = (product for product in products if product.anchor.taken is None)
    by_activation = {product.anchor.a: product for product in in_order}
    joined: list[Joined] = []
    taken: set[int] = set()
    for product in products:
        if product.anchor.index in taken:
            continue
        sequence = [product]
        while (following := by_activation.get(sequence[-1].tail.output)) is not None:
            stopped = _obstacle(graph, sequence, following)
            if stopped is not None:
                break
            sequence.append(following)
        else:
            stopped = _gate(graph, sequence[-1].tail.output, by_activation)
            stopped = stopped or _movement(graph, sequence[-1].tail.output, by_activation)
        taken.update(member.anchor.index for member in sequence)
        joined += _cut(graph, sequence, cut, stopped)
    return joined


def _layers(graph: Graph, sequence: Sequence[Product]) -> tuple[Layer, ...]:
    return tuple(product.layer(graph) for product in alike(sequence))


def _cut(graph: Graph, sequence: Sequence[Product], cut: Cutter, stopped: str) -> list[Joined]:
    if len(sequence) == 1:
        return [Joined(products=tuple(sequence), reason=stopped)]
    chosen = cut(_layers(graph, sequence))
    joined, begin = [], 0
    for count in chosen.counts:
        end = begin + count
        reasons = list(chosen.reasons[begin : end - 1])
        reasons.append(chosen.reasons[end - 1] if end < len(sequence) else stopped)
        joined.append(
            Joined(products=tuple(sequence[begin:end]), reason="; ".join(filter(None, reasons)))
        )
        begin = end
    return joined


def _obstacle(graph: Graph, sequence: Sequence[Product], following: Product) -> str | None:
    """Return why `following`, which multiplies the result of `sequence`, is no further layer.

    Return None if it is one, and an empty text if nobody would expect it to be.
    """
    output, problem = sequence[-1].tail.output, following.anchor.problem
    why = f"not one kernel with the {_name(graph, following)} that follows: "
    if not problem.canonical.is_matrix:
        return ""
    if output in graph.escaping:
        return f"{why}the result between is an output of the model too"
    if len(graph.consumers[output]) > 1:
        return f"{why}the result between is used {len(graph.consumers[output])} times"
    if following.anchor.b == output:
        return f"{why}it multiplies the result between with itself"
    if len(sequence) == MAX_LAYERS:
        return f"{why}a kernel has {MAX_LAYERS} layers at most"
    try:
        Workload(layers=_layers(graph, (*sequence, following)))
    except InvalidProblemError as error:
        return f"{why}{error}"
    return None


def _gate(graph: Graph, output: int, by_activation: Mapping[int, Product]) -> str:
    """Return why a product is not fused whose result meets a value made of it on its way to another
    product, as in squeeze-and-excitation.
    """
    for at in graph.consumers[output]:
        others = [arg for arg in graph[at].args if arg != output]
        if at in by_activation and any(_depends(graph, other, output) for other in others):
            return (
                f"not one kernel with the {_name(graph, by_activation[at])} that follows: "
                f"{graph[at].op} between reads what is made of the result, of other rows too"
            )
    return ""


def _depends(graph: Graph, index: int, on: int) -> bool:
    """Return whether the value at `index` is made of the one at `on`."""
    seen, pending = {index}, [index]
    while pending:
        at = pending.pop()
        if at == on:
            return True
        fresh = {arg for arg in graph[at].args if arg >= on} - seen
        seen |= fresh
        pending += fresh
    return False


def _movement(graph: Graph, output: int, by_activation: Mapping[int, Product]) -> str:
    """Return why a product is not fused whose result is moved before another one multiplies it."""
    at, moved = output, []
    while len(graph.consumers[at]) == 1:
        at = graph.consumers[at][0]
        name = graph[at].op
        if name not in _MOVEMENTS:
            break
        moved.append(name)
        if at in by_activation:
            follows = _name(graph, by_activation[at])
            return (
                f"not one kernel with the {follows} that follows: {' and '.join(moved)} between "
                "moves the result to other threadblocks"
            )
    return ""


def _name(graph: Graph, product: Product) -> str:
    return graph[product.anchor.index].op.removeprefix("nn.")
