"""Find anchors that could be one back-to-back kernel: each the only reader of the one before. For
both IRs.

Source: Xing et al., Bolt, MLSys 2022, section 3.1: persistent kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from boltgen.errors import InvalidProblemError
from boltgen.graph.facts import VIEWS
from boltgen.graph.graph import Graph
from boltgen.passes.regions.products import Product, alike
from boltgen.problems.workload import MAX_LAYERS, Cutter, Layer, Workload


@dataclass(frozen=True, slots=True)
class Found:
    """A region of a graph, before it is outlined.

    `reason` says why its last product is, or is not, one kernel with a neighbour.
    """

    products: tuple[Product, ...]
    reason: str = ""

    def workload(self, graph: Graph) -> Workload:
        """Return its workload."""
        return Workload(layers=tuple(product.layer(graph) for product in alike(self.products)))

    @property
    def members(self) -> tuple[int, ...]:
        """Its operators, each after its operands."""
        return tuple(member for product in self.products for member in product.members)

    @property
    def moved(self) -> tuple[int, ...]:
        """Its operators whose results nothing else reads."""
        return tuple(member for product in self.products for member in product.moved)

    @property
    def known(self) -> frozenset[int]:
        """The values that its operators read and its kernel does not: causal masks."""
        prologues = (product.prologue for product in self.products)
        return frozenset(each.causal for each in prologues if each and each.causal is not None)

    @property
    def output(self) -> int:
        """The operator whose result is the region's D."""
        return self.products[-1].output

    @property
    def further(self) -> tuple[int, ...]:
        """The operators whose results the region writes besides."""
        return self.products[-1].further


def join(graph: Graph, products: Sequence[Product], cut: Cutter) -> list[Found]:
    """Group `products` that `cut` puts into one kernel, in the order of their ends."""
    # A kernel that takes rows of a tensor reads all of it.
    in_order = (product for product in products if product.anchor.taken is None)
    by_activation = {product.anchor.a: product for product in in_order}
    joined: list[Found] = []
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


def _cut(graph: Graph, sequence: Sequence[Product], cut: Cutter, stopped: str) -> list[Found]:
    if len(sequence) == 1:
        return [Found(tuple(sequence), stopped)]
    chosen = cut(_layers(graph, sequence))
    joined, begin = [], 0
    for count in chosen.counts:
        end = begin + count
        reasons = list(chosen.reasons[begin : end - 1])
        reasons.append(chosen.reasons[end - 1] if end < len(sequence) else stopped)
        joined.append(Found(tuple(sequence[begin:end]), "; ".join(filter(None, reasons))))
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
        if name not in VIEWS:
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
