"""Find the products that kernels compute: matmuls and convolutions with their epilogues.

IR-neutral. A region is one of them, or several that are a chain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from boltgen.graph.facts import graph_fact
from boltgen.graph.graph import Graph
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import SOFTMAX, ElementwiseGraph, LoadKind, local_softmax
from boltgen.passes.regions.anchor import ANCHORS, Anchor, match_anchor
from boltgen.passes.regions.boundary import Border, entry, exit_
from boltgen.passes.regions.epilogue_rules import DEQUANTIZE
from boltgen.passes.regions.epilogue_walk import extensions, grow
from boltgen.passes.regions.tail import Tail, TailOperand
from boltgen.problems.layout_transform.problem import ImageLayout
from boltgen.problems.problem import Problem
from boltgen.problems.region import HeadView, Rejected
from boltgen.problems.workload import Layer, Workload

# Returns why no kernel computes a workload on the architecture at hand, or None.
Rejects: TypeAlias = Callable[[Workload], "str | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmaxed:
    """The operators, a softmax of rows among them, that make a product's A of `source`.

    If it has a `causal` mask of the scores, rows end at the diagonal, and the mask is not read;
    they have at most `window` columns, unless that is 0.
    """

    source: int
    members: tuple[int, ...]
    causal: int | None = None
    window: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Summed:
    """The operators that make a norm's A: a sum, whose results `further` are written too.

    `prologue` is what they amount to, `operands` are in the order of its loads.
    """

    members: tuple[int, ...]
    prologue: ElementwiseGraph
    operands: tuple[TailOperand, ...]
    further: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A matrix product, convolution or norm with its elementwise tail, and what is at its borders.

    `stored` is the type of its result; where it is None, the graph's. `a_view`, `b_view` and
    `d_view` say where in tensors the heads of attention are, `b_group` how many share a matrix.
    """

    anchor: Anchor
    tail: Tail
    prologue: Softmaxed | None = None
    summed: Summed | None = None
    stored: DType | None = None
    entry: Border | None = None
    exit: Border | None = None
    a_view: HeadView | None = None
    b_view: HeadView | None = None
    b_group: int = 1
    d_view: HeadView | None = None

    @property
    def computed(self) -> tuple[int, ...]:
        """The operators that its kernel computes."""
        made = self.prologue or self.summed
        return (*(made.members if made else ()), *self.anchor.inner, *self.tail.members)

    @property
    def shown(self) -> tuple[int, ...]:
        """The operators by which people know it, including the gather of A's rows."""
        taking = (self.anchor.taken.take,) if self.anchor.taken else ()
        return (*(each for each in taking if each not in self.computed), *self.computed)

    @property
    def operators(self) -> tuple[int, ...]:
        """The operators that its region computes, from TVM's A to TVM's D."""
        before = self.entry.members if self.entry else ()
        after = self.exit.members if self.exit else ()
        return (*before, *self.computed, *after)

    @property
    def members(self) -> tuple[int, ...]:
        """Its operators: the ones that prepare an operand, then the others; a norm's in graph
        order.
        """
        taken = self.anchor.taken.members if self.anchor.taken else ()
        # The gathers that come last are made first.
        before = (*reversed(taken), *self.anchor.absorbed, *self.tail.inlined)
        whole = (*before, *self.operators)
        return whole if self.anchor.problem.has_b else tuple(sorted(set(whole)))

    @property
    def moved(self) -> tuple[int, ...]:
        """Its operators whose results nothing else reads."""
        return (*self.computed, *(self.exit.members if self.exit else ()))

    @property
    def further(self) -> tuple[int, ...]:
        """The operators whose results its kernel writes besides D."""
        return (*self.tail.further, *(self.summed.further if self.summed else ()))

    @property
    def operands(self) -> tuple[TailOperand, ...]:
        """The operands that its graphs load, in the order of the layer's loads."""
        return (*(self.summed.operands if self.summed else ()), *self.tail.operands)

    @property
    def input(self) -> int:
        """The tensor that A is, or is computed from."""
        return self.entry.tensor if self.entry else self.anchor.a

    @property
    def output(self) -> int:
        """The tensor that D is, or becomes."""
        return self.exit.tensor if self.exit else self.tail.output

    @property
    def hidden(self) -> tuple[int, ...]:
        """Its operators whose results are no tensors: they stay in its region."""
        return tuple(member for member in self.moved if member != self.output)

    def problem(self, graph: Graph) -> Problem:
        """Return its problem, in the dtype of its result: a pair if its epilogue combines two
        halves.
        """
        problem: Any = self.anchor.problem
        if self.tail.epilogue.is_paired:
            problem = replace(problem, n=problem.n // 2, paired=True)
        if self.tail.slice_rows:
            problem = problem.in_slices(self.tail.slice_rows)
        dtype = self.stored or DType(graph[self.tail.output].dtype)
        out: Problem = replace(problem, out_dtype=dtype)
        return out

    def layer(self, graph: Graph) -> Layer:
        """Return it as a layer of a back-to-back kernel."""
        prologue = ElementwiseGraph()
        if self.prologue:
            is_causal = self.prologue.causal is not None
            prologue = local_softmax(self.prologue.window) if is_causal else SOFTMAX
        elif self.summed:
            prologue = self.summed.prologue
        return Layer(problem=self.problem(graph), epilogue=self.tail.epilogue, prologue=prologue)


@graph_fact
def find_products(
    graph: Graph, accumulate: DType = DType.F32, shares: frozenset[int] | None = frozenset()
) -> tuple[Product, ...]:
    """Find the products that kernels compute, with their epilogues; no two share an operator.

    They are summed in `accumulate`. The anchors `shares`, all of them if it is None, may be
    attention, whose kernel shares slices of operands between products.
    """
    found = _grown(graph, set(), accumulate, shares, has_b=True)
    # Who takes rows of a tensor reads it as it is.
    activations = Counter(each.anchor.a for each in found if each.anchor.taken is None)
    return tuple(_with_borders(graph, product, activations) for product in found)


def find_others(graph: Graph, claimed: Collection[int], accumulate: DType) -> list[Product]:
    """The operators of kinds that multiply nothing, with their tails, where nothing is claimed."""
    return _grown(graph, set(claimed), accumulate, frozenset(), has_b=False)


def _grown(
    graph: Graph,
    claimed: set[int],
    accumulate: DType,
    shares: frozenset[int] | None,
    *,
    has_b: bool,
) -> list[Product]:
    """Return the anchors with a B, or without, and their tails, where nothing is claimed."""
    found = []
    for index, expr in enumerate(graph.exprs):
        if expr.op not in ANCHORS or index in claimed:
            continue
        anchor = match_anchor(graph, index, accumulate)
        if isinstance(anchor, Rejected) or anchor.problem.has_b is not has_b:
            continue
        tail = grow(graph, anchor, claimed, shares=shares is None or index in shares)
        claimed.update(tail.members)
        # A kernel that dequantises an operand wants the integers, which no other region hides.
        claimed.update(each for each in tail.inlined if graph[each].op == DEQUANTIZE)
        found.append(Product(anchor=anchor, tail=tail))
    return found


def extended(graph: Graph, product: Product, claimed: Collection[int], rejects: Rejects) -> Product:
    """Return `product` with the largest extension of its epilogue that a kernel computes.

    If its call transforms D, only that transform reads D, and the epilogue ends there.
    """
    if product.exit is not None or not product.anchor.problem.has_b:
        return product
    for tail in extensions(graph, product.anchor, product.tail, claimed):
        longer = replace(product, tail=tail)
        if rejects(Workload(layers=(longer.layer(graph),))) is None:
            return longer
    return product


def alike(products: Sequence[Product]) -> tuple[Product, ...]:
    """Return `products`, each of which multiplies the result before it, as layers of one kernel.

    If some are batched, a plain one becomes as many products that share its B.
    """
    problems = [product.anchor.problem for product in products]
    sizes = {(each.batch, each.gemm.m) for each in problems if each.batch > 1}
    if len(sizes) != 1:
        return tuple(products)
    (size,) = sizes
    return tuple(_batched(product, *size) for product in products)


def _batched(product: Product, batch: int, m: int) -> Product:
    problem, tail = product.anchor.problem, product.tail
    if not problem.is_matrix or problem.batch > 1 or problem.gemm.m != batch * m:
        return product
    if product.anchor.ends is not None or tail.slice_rows:
        return product
    return replace(
        product,
        anchor=replace(product.anchor, problem=problem.gemm.as_batch(batch)),
        tail=replace(
            tail,
            operands=tuple(
                replace(each, batched=load.kind is not LoadKind.ROW) for load, each in tail.loaded
            ),
        ),
    )


def _with_borders(graph: Graph, product: Product, activations: Mapping[int, int]) -> Product:
    """Return `product` with the operators before A and after D that its call can do itself.

    Operators before A are taken only if all readers of A are products, each of which then computes
    it; a single cast is not worth doing twice.
    """
    problem = product.anchor.problem
    if problem.batch > 1 and Workload.of(problem).symbols:
        return product  # the rows that TVM has are no extent of the problem
    a = product.anchor.a
    others = product.anchor.b == a or any(each.expr == a for each in product.tail.operands)
    is_image = not problem.is_matrix
    canonical = Workload.of(problem)
    if canonical.symbols and canonical.first.problem.is_matrix:
        is_image = False  # if images are a matrix of rows, it has no extent alone
    is_only_a = activations[a] == len(graph.consumers[a]) and a not in graph.escaping
    is_only_a = is_only_a and product.anchor.taken is None
    before = entry(graph, a, is_image=is_image) if is_only_a and not others else None
    if before is not None and before.stored.form.layout is ImageLayout.NHWC and activations[a] > 1:
        before = None
    return replace(
        product,
        entry=before,
        exit=exit_(graph, product.tail.output, is_image=is_image),
    )
