"""Find norms of rows between matmuls, which the kernels of these matmuls could compute.

A norm of what one product makes, whose rows others multiply by constants, or add to their results.
Whether these compute it is decided in `norms_in_products`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from boltgen.graph.facts import is_known_matrix, keeps_inner, only_reader
from boltgen.graph.graph import Array, Graph
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import Accumulator, Binary, BinaryOp, Cast, Load, LoadKind
from boltgen.passes.norms.recognise import find_norms
from boltgen.passes.regions.anchor import MATMUL
from boltgen.passes.regions.products import Product
from boltgen.problems.norm.problem import Norm, NormFunction, as_norm_of_rows

_WIDE = DType.F32.value


@dataclass(frozen=True, slots=True, kw_only=True)
class NormBetween:
    """A norm whose A is the result of a product, and who reads it.

    `scale` and `shift` are rows of FP32. `products` multiply the normed rows by constants, `sums`
    are the operators that add them to the result of another product.
    """

    norm: Product
    problem: Norm
    before: Product
    scale: Array | None
    shift: Array | None
    products: tuple[Product, ...]
    sums: tuple[int, ...]

    @property
    def x(self) -> int:
        """The rows that are not normed."""
        return self.norm.anchor.a


def norms_between(
    graph: Graph, products: Sequence[Product], refuse: Callable[[Product, str], None]
) -> Iterator[NormBetween]:
    """Yield the norms of a graph that its `products` could compute.

    `refuse` gets each other norm that is no softmax, and the rule that keeps it.
    """
    claimed = {each for product in products for each in product.computed}
    made = {product.tail.output: product for product in products if product.exit is None}
    for norm in find_norms(graph, claimed).found:
        problem = as_norm_of_rows(norm.anchor.problem)
        if problem is not None and problem.function is NormFunction.SOFTMAX:
            continue
        found = _between(graph, products, norm, problem, made.get(norm.anchor.a))
        if isinstance(found, str):
            refuse(norm, found)
        else:
            yield found


def _between(
    graph: Graph,
    products: Sequence[Product],
    norm: Product,
    problem: Norm | None,
    before: Product | None,
) -> NormBetween | str:
    """Return a norm that the products around it could compute, or the rule that it breaks."""
    if problem is None:
        return "it is a norm of images, of which no matmul has whole rows"
    if before is None:
        return "no matmul's kernel writes the rows that it reads"
    if norm.summed is not None:
        return "it adds a residual to its rows itself"
    if graph[norm.anchor.a].dtype == _WIDE:
        return "its rows are FP32, which no matmul multiplies"
    if norm.tail.further:
        return "its kernel has several results"
    affine, readers = _affine(graph, norm), _readers(graph, products, norm)
    if affine is None:
        return "its epilogue is more than a constant scale and shift"
    if readers is None:
        return "its readers are not all matmuls with constant weights and sums with their results"
    if not _has_whole_rows(graph, before):
        return "the kernel before it does not write whole rows in multiples of 8 columns"
    scale, shift = affine
    candidate = NormBetween(
        norm=norm,
        problem=problem,
        before=before,
        scale=scale,
        shift=shift,
        products=readers[0],
        sums=readers[1],
    )
    if not all(_is_kept(graph, candidate, product) for product in candidate.products):
        return "the weights after it, times its scale, are not exact enough in their type"
    return candidate


def _has_whole_rows(graph: Graph, product: Product) -> bool:
    """Return whether a row of the product is a whole row of x, without padding."""
    problem, x = product.anchor.problem, graph[product.tail.output]
    if product.anchor.ends is not None:
        return False
    if not problem.canonical.is_matrix or problem.canonical.batch > 1 or not x.is_static:
        return False
    return x.static_shape[-1] == problem.gemm.n and problem.gemm.n % 8 == 0


def _affine(graph: Graph, norm: Product) -> tuple[Array | None, Array | None] | None:
    """Return the scale and the shift of normed rows; None if their epilogue is more, or not
    constant.
    """
    scale: Array | None = None
    shift: Array | None = None
    rows = iter(graph[operand.expr].array for operand in norm.tail.operands)
    for node in norm.tail.epilogue.nodes:
        match node:
            case Accumulator() | Cast():
                pass
            case Load(kind=LoadKind.ROW):
                row = next(rows)
                if row is None:
                    return None
                last = row.astype(np.float32).reshape(-1)
            case Binary(op=BinaryOp.MULTIPLY) if scale is None and shift is None:
                scale = last
            case Binary(op=BinaryOp.ADD) if shift is None:
                shift = last
            case _:
                return None
    loads = len(norm.tail.operands)
    return (scale, shift) if loads == (scale is not None) + (shift is not None) else None


def _readers(
    graph: Graph, products: Sequence[Product], norm: Product
) -> tuple[tuple[Product, ...], tuple[int, ...]] | None:
    """Return the matmuls of the normed rows, and the sums that add them; None if others read."""
    by_anchor = {product.anchor.index: product for product in products}
    tails = {member for product in products for member in product.tail.members}
    multiplied: list[Product] = []
    sums: list[int] = []
    pending = [norm.tail.output]
    while pending:
        at = pending.pop()
        if at in graph.escaping:
            return None
        for reader in graph.consumers[at]:
            expr = graph[reader]
            if reader in by_anchor:
                product = by_anchor[reader]
                if product.anchor.a != at or not _has_known_b(graph, product):
                    return None
                multiplied.append(product)
            elif expr.op == "add" and reader in tails and expr.shape == graph[at].shape:
                sums.append(reader)
            elif _is_same(graph, reader):
                pending.append(reader)
            else:
                return None
    return (tuple(multiplied), tuple(sums)) if multiplied else None


def _is_same(graph: Graph, index: int) -> bool:
    """Return whether an operator gives the rows that it reads, widened or reshaped."""
    expr = graph[index]
    return keeps_inner(graph, index) or (expr.op == "astype" and expr.dtype == _WIDE)


def _has_known_b(graph: Graph, product: Product) -> bool:
    """Return whether it multiplies rows by a constant matrix, without padding or transforms."""
    problem, is_matmul = product.anchor.problem, graph[product.anchor.index].op == MATMUL
    if not problem.is_matrix or problem.canonical.batch > 1 or not is_matmul:
        return False
    is_plain = problem.gemm.weights is None and product.entry is None
    return is_plain and is_known_matrix(graph[product.anchor.b]) and problem.gemm.n % 8 == 0


def _is_kept(graph: Graph, norm: NormBetween, product: Product) -> bool:
    """Return whether a product's scaled weights, in their type, are as exact as they were."""
    exact = scaled_b(graph, norm, product)
    dtype = DType(graph[product.anchor.b].dtype)
    with np.errstate(over="ignore"):
        stored = exact.astype(dtype.numpy).astype(np.float64)
    if not np.isfinite(stored).all():
        return False
    error, size = (np.linalg.norm(each, axis=0) for each in (stored - exact, exact))
    return bool((error <= dtype.unit_roundoff * size).all())


def scaled_b(graph: Graph, norm: NormBetween, product: Product) -> Array:
    """B, (K, N), with the norm's scale in it, in FP64."""
    b = b_of(graph, product)
    return b if norm.scale is None else b * norm.scale.astype(np.float64)[:, None]


def b_of(graph: Graph, product: Product) -> Array:
    """B, (K, N), in FP64."""
    array = graph[product.anchor.b].array
    assert array is not None  # or it would be no candidate
    is_column = product.anchor.problem.gemm.b_layout is Layout.COLUMN
    return (array.T if is_column else array).astype(np.float64)


def bias_behind(graph: Graph, index: int) -> tuple[int, Array] | None:
    """Return the operator that adds a constant row to a value with no other reader, and the row."""
    reader = only_reader(graph, index)
    if reader is None or graph[reader].op != "add" or graph[reader].shape != graph[index].shape:
        return None
    rows = [graph[arg].array for arg in graph[reader].args if arg != index]
    if len(rows) != 1 or rows[0] is None or rows[0].shape != graph[index].static_shape[-1:]:
        return None
    return reader, rows[0]
