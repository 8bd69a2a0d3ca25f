"""Recognise attention: two matmuls with a softmax of rows between them, as one kernel. For both
IRs.

Its scores are never stored, so it is one kernel wherever there is one. Source: Dao,
FlashAttention-2, 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from boltgen.errors import InvalidProblemError
from boltgen.graph.facts import FLOATS, axis_of, has_one_reader
from boltgen.graph.graph import CORNER, Graph
from boltgen.ir.dtypes import DType
from boltgen.ir.extent import Dim
from boltgen.passes.attention.heads import shared_heads, with_views
from boltgen.passes.masks.causal import causal
from boltgen.passes.masks.padding_mask import hiding
from boltgen.passes.regions.products import Product, Softmaxed, alike
from boltgen.problems.workload import Workload

_SOFTMAX, _CAST, _VIEW = "nn.softmax", "astype", "reshape"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attentions:
    """The attentions of a graph.

    `pairs` are the matmuls of scores and of values; `refused` says, by the anchor of a matmul of
    scores, why it is no kernel with the operators after it.
    """

    pairs: tuple[tuple[Product, Product], ...]
    refused: dict[int, str]


def find_attentions(
    graph: Graph, products: Sequence[Product], rejects: Callable[[Workload], str | None]
) -> Attentions:
    """Find the pairs of `products` that are attention; `rejects` has a reason against some."""
    matrices = [
        product
        for product in products
        if product.anchor.problem.is_matrix and product.anchor.ends is None
    ]
    by_output = {product.tail.output: product for product in matrices}
    pairs: list[tuple[Product, Product]] = []
    taken: set[int] = set()
    refused: dict[int, str] = {}
    hidden = {member for product in products for member in product.hidden}
    for product in matrices:
        between = _softmaxed(graph, product, by_output.keys())
        # If a softmax follows each matmul, the first two matmuls are a pair.
        if between is None or between.source in taken:
            continue
        scores = by_output[between.source]
        # Nothing rounds the scores: the kernel has them in FP32.
        pair = replace(scores, stored=DType.F32), replace(product, prologue=between)
        scores, values = causal(graph, with_views(graph, pair, hidden))
        pair = hiding(graph, _of_constants(graph, scores)), _of_constants(graph, values)
        try:
            workload = Workload(layers=tuple(each.layer(graph) for each in alike(pair)))
            reason = _split(pair, workload) or rejects(workload)
        except InvalidProblemError as error:
            reason = str(error)
        if reason is None:
            pairs.append(pair)
            taken.add(product.tail.output)
            hidden.update(pair[1].hidden)
        else:
            refused[scores.anchor.index] = (
                f"not one kernel with the softmax and the product that follow: {reason}"
            )
    return Attentions(pairs=tuple(pairs), refused=refused)


def _of_constants(graph: Graph, product: Product) -> Product:
    """Return `product` with the maximum-size constants of its operands in place of their slices."""
    operands, absorbed = [], []
    for operand in product.tail.operands:
        if graph[operand.expr].op != CORNER or not _is_of_matrices(graph, operand.expr):
            operands.append(operand)
            continue
        (whole,) = graph[operand.expr].args
        rows, columns = (1, *graph[whole].static_shape)[-2:]
        operands.append(replace(operand, expr=whole, within=(rows, columns)))
        absorbed.append(operand.expr)
    anchor = replace(product.anchor, absorbed=(*absorbed, *product.anchor.absorbed))
    return replace(product, anchor=anchor, tail=replace(product.tail, operands=tuple(operands)))


def _is_of_matrices(graph: Graph, corner: int) -> bool:
    """Return whether a slice of a maximum-size constant has all its matrices."""
    (whole,) = graph[corner].args
    return graph[whole].static_shape[:-2] == graph[corner].static_shape[:-2]


def _split(pair: tuple[Product, Product], workload: Workload) -> str | None:
    """Return why a batch is not sequences with one number of heads, as its masks require."""
    counts = sorted(shared_heads(pair))
    if len(counts) > 1:
        return f"its masks are shared by {' and by '.join(map(str, counts))} heads"
    batch = workload.batch
    if counts and not isinstance(batch, Dim) and batch % counts[0]:
        return f"its masks are of {counts[0]} heads, its batch is {batch}"
    return None


def _softmaxed(graph: Graph, product: Product, sources: Collection[int]) -> Softmaxed | None:
    """Find the softmax of one of `sources` that a matmul multiplies, or return None.

    Nothing else reads what is between them.
    """
    at, members = product.anchor.a, list[int]()
    has_softmax = False
    if product.anchor.b == at or any(each.expr == at for each in product.tail.operands):
        return None
    while has_one_reader(graph, at) and at not in sources:
        is_softmax = _step(graph, at)
        if is_softmax is None or (is_softmax and has_softmax):
            return None
        has_softmax = has_softmax or is_softmax
        members.insert(0, at)
        (at,) = graph[at].args
    is_whole = has_softmax and has_one_reader(graph, at)
    return Softmaxed(source=at, members=tuple(members)) if is_whole else None


def _step(graph: Graph, index: int) -> bool | None:
    """Return True for a softmax between two matmuls, False for other allowed operators, or None."""
    expr = graph[index]
    if expr.op not in {_SOFTMAX, _CAST, _VIEW} or not expr.is_static:
        return None
    source = graph[expr.args[0]]
    if not source.is_static or {expr.dtype, source.dtype} - FLOATS:
        return None
    before, after = source.static_shape, expr.static_shape
    if expr.op == _SOFTMAX:
        return True if axis_of(expr) == len(after) - 1 else None
    # Heads may become a part of the batch, rows must stay rows.
    return False if before[-2:] == after[-2:] else None
