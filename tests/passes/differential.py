"""Compare the values of a graph before and after a pass, by the interpreter of `boltgen.graph`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from boltgen.graph.graph import CONSTANT, INPUT, Expr, Extents, Graph
from boltgen.graph.numpy_semantics.interpret import run
from boltgen.graph.numpy_semantics.operation import is_float, numpy_dtype
from boltgen.ir.extent import Dim, Symbol

AnyArray = np.ndarray[Any, Any]
Sizes = Mapping[Symbol | str, int]
P = ParamSpec("P")
T = TypeVar("T")

# Roots, quotients and norms enlarge an error that lies before them; by less than this in tests,
# whose values are of ordinary size.
_GAIN = 2.0**10
_EXACT = 2.0**-53
# Sizes of open dimensions: the least, and one that is neither small nor a power of two.
_SIZES = (1, 13)


def checked(
    rewrite: Callable[P, T], *, others: bool = False, has_sizes: bool = False, **options: Any
) -> Callable[P, T]:
    """Return `rewrite`, which then compares the values of its graph before and after.

    The graph is its first argument; its result is a graph, or has one as its attribute `graph`.
    With `others` the same is done with each value of the graph read by somebody else too, and with
    each value of unknown sizes: then the pass may have to leave that value as it is. A pass over
    boltgen's own operators `has_sizes`: boltgen writes none of unknown sizes.
    """

    @wraps(rewrite)
    def compared(*args: P.args, **kwargs: P.kwargs) -> T:
        before, *more = args
        assert isinstance(before, Graph)
        made = rewrite(*args, **kwargs)
        after = _graph_of(made)
        if after is before:
            return made
        assert_same(before, after, **options)
        if others and after.exprs != before.exprs:
            for graph in read_otherwise(before):
                anew: Any = rewrite(graph, *more, **kwargs)  # type: ignore[arg-type]
                assert_same(graph, _graph_of(anew), **options)
            for graph, sizes in () if has_sizes else with_unknown_sizes(before):
                anew = rewrite(graph, *more, **kwargs)  # type: ignore[arg-type]
                if _graph_of(anew) is not graph:
                    assert_same(graph, _graph_of(anew), known=sizes, **options)
        return made

    return compared


def _graph_of(made: object) -> Graph:
    graph = made if isinstance(made, Graph) else getattr(made, "graph", None)
    assert isinstance(graph, Graph)
    return graph


def read_otherwise(graph: Graph) -> Iterator[Graph]:
    """The graph with each of its values as a further result, and read by a further operator."""
    for index, expr in enumerate(graph.exprs):
        if expr.op in {INPUT, CONSTANT} or expr.shape is None or index in graph.escaping:
            continue
        yield Graph(graph.exprs, graph.escaping | {index}, (graph.results, index))
        reader = Expr(op="tile", args=(index,), shape=expr.shape, dtype=expr.dtype)
        at = len(graph)
        yield Graph((*graph.exprs, reader), graph.escaping | {at}, (graph.results, at))


def with_unknown_sizes(graph: Graph, *, onward: bool = False) -> Iterator[tuple[Graph, Sizes]]:
    """The graph with each of its values of sizes that have a name alone, and these sizes.

    With `onward` so are all values that are computed from it.
    """
    for index, expr in enumerate(graph.exprs):
        if expr.op == CONSTANT or not expr.shape:
            continue
        unknown, sizes = {index}, dict[Symbol | str, int]()
        exprs = list(graph.exprs)
        for at in range(index, len(exprs)):
            if at == index or (onward and not unknown.isdisjoint(exprs[at].args)):
                unknown.add(at)
                names = {
                    f"size {at} {axis}": extent
                    for axis, extent in enumerate(exprs[at].shape or ())
                    if not isinstance(extent, (Dim, str))
                }
                sizes |= names
                exprs[at] = replace(exprs[at], shape=_named(exprs[at].shape, at, names))
        if sizes:
            yield replace(graph, exprs=tuple(exprs)), sizes


def _named(shape: Extents | None, at: int, names: Mapping[str, int]) -> Extents | None:
    """The shape with names in place of the extents that have one."""
    if shape is None:
        return None
    both = ((f"size {at} {axis}", extent) for axis, extent in enumerate(shape))
    return tuple(name if name in names else extent for name, extent in both)


def assert_same(
    before: Graph,
    after: Graph,
    *,
    unit: float = 2.0**-53,
    known: Sizes | None = None,
    inputs: Callable[[Graph, Sizes], Sequence[AnyArray]] | None = None,
    regions: Mapping[str, Graph] | None = None,
) -> None:
    """Check that two graphs of the same inputs have the same results, rounding left out.

    A pass that writes constants anew rounds them, at most by `unit`. Dimensions have the sizes that
    are `known`, and all others any.
    """
    for others in sizes_of(before):
        sizes = {**others, **(known or {})}
        given = (inputs or drawn)(before, sizes)
        assert len(given) == len([expr for expr in after.exprs if expr.op == INPUT])
        assert_equal(
            *(
                _results(graph, given, sizes, regions or {}, is_exact=True)
                for graph in (before, after)
            ),
            bound=max(_bound(graph, given, sizes, regions or {}) for graph in (before, after))
            * (_GAIN if unit == _EXACT else 1.0)
            * unit,
        )


def assert_equal(found: Sequence[AnyArray], wanted: Sequence[AnyArray], bound: float) -> None:
    """Check arrays of the same shapes to an absolute error; infinities and NaN are equal."""
    assert [each.shape for each in found] == [each.shape for each in wanted]
    for left, right in zip(found, wanted, strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=bound)


def drawn(graph: Graph, sizes: Sizes | None = None) -> list[AnyArray]:
    """Random inputs of a graph: numbers that FP16 holds, indices 0 and 1, and truths."""
    rng = np.random.default_rng(0)
    return [_drawn(rng, expr, sizes or {}) for expr in graph.exprs if expr.op == INPUT]


def of_sizes(shape: Sequence[int | str], sizes: Sizes) -> tuple[int, ...]:
    """The shape where the symbols have these sizes."""
    return tuple(
        extent.of({symbol: sizes[symbol] for symbol in extent.symbols})
        if isinstance(extent, Dim)
        else sizes[extent]
        if isinstance(extent, str)
        else extent
        for extent in shape
    )


def _drawn(rng: np.random.Generator, expr: Expr, sizes: Sizes) -> AnyArray:
    shape, dtype = of_sizes(expr.shape or (), sizes), numpy_dtype(expr.dtype)
    if is_float(expr.dtype):
        return rng.standard_normal(shape).astype(np.float16).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)


def sizes_of(graph: Graph) -> Iterator[Sizes]:
    """Sizes of all open dimensions of a graph, which differ from each other."""
    extents = {extent for expr in graph.exprs for extent in expr.shape or ()}
    symbols = {each for extent in extents if isinstance(extent, Dim) for each in extent.symbols}
    names = [*sorted(symbols), *sorted(each for each in extents if isinstance(each, str))]
    for size in _SIZES if names else (1,):
        yield {
            name: size + place
            if isinstance(name, str)
            else min(max(size + place, name.low), name.high)
            for place, name in enumerate(names)
        }


def _results(
    graph: Graph,
    given: Sequence[AnyArray],
    sizes: Sizes,
    regions: Mapping[str, Graph],
    **options: Any,
) -> list[AnyArray]:
    return run(graph, given, sizes=sizes, regions=regions, **options)


def _bound(
    graph: Graph,
    given: Sequence[AnyArray],
    sizes: Sizes,
    regions: Mapping[str, Graph],
) -> float:
    """A rounding for each operator and each addend, of the largest of all values, in units."""
    largest, roundings = 1.0, 1.0
    elements: dict[int, int] = {}

    def observe(index: int, value: AnyArray) -> None:
        nonlocal largest, roundings
        elements[index] = value.size
        if value.dtype.kind == "f":
            finite = np.abs(value[np.isfinite(value)])
            largest = max(largest, float(finite.max(initial=0.0)))
        expr = graph[index]
        if expr.op not in {INPUT, CONSTANT} and value.size:
            # An element is the sum of no more than all elements of an operand.
            read = [elements.get(arg, 1) for arg in expr.args]
            roundings += max(1.0, max(read, default=1) / value.size, _depth(graph, expr))

    _results(graph, given, sizes, regions, is_exact=True, observe=observe)
    return roundings * largest


def _depth(graph: Graph, expr: Expr) -> float:
    """The number of products that an element of a matrix product sums."""
    shape = graph[expr.args[0]].shape if expr.op == "matmul" else None
    return float(shape[-1]) if shape and not isinstance(shape[-1], (Dim, str)) else 1.0


def operators(graph: Graph) -> list[str]:
    """The operators of a graph that compute something, in order."""
    return [expr.op for expr in graph.exprs if expr.op not in {INPUT, CONSTANT}]
