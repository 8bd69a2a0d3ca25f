"""The interpreter of the neutral graph: a graph and its inputs, as arrays, to its results.

Every rewrite is tested by it: a pass may change operators, and no value. With `is_exact` every
floating value is FP64 and casts between floating types change nothing, so that two graphs of the
same function agree to FP64's own rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np

from boltgen.errors import InterpretError
from boltgen.graph.attributes import Axis, Indexed, Opaque, RegionCall
from boltgen.graph.graph import (
    CONSTANT,
    INPUT,
    OPAQUE,
    PART,
    REGION,
    Array,
    Expr,
    Graph,
    leaves,
)
from boltgen.graph.numpy_semantics.operation import Operation, is_float, numpy_dtype
from boltgen.graph.numpy_semantics.operators import compute
from boltgen.ir.extent import Dim, Symbol, symbolic

SPLIT = "split"
# An array, or the elements of a tuple.
_Item: TypeAlias = "Array | tuple[Array, ...]"
Observer: TypeAlias = Callable[[int, Array], None]


def run(
    graph: Graph,
    inputs: Sequence[Array],
    *,
    sizes: Mapping[Symbol | str, int] | None = None,
    regions: Mapping[str, Graph] | None = None,
    observe: Observer | None = None,
    is_exact: bool = False,
) -> list[Array]:
    """Return the results of `graph`, in the order in which it has them.

    Args:
        graph: a graph without opaque calls.
        inputs: one array for each expression `INPUT`, in order, of its shape and dtype.
        sizes: the values of symbols, and of dimensions that have a name alone, that no input has
            as an extent.
        regions: the body of each region that the graph calls, by the region's symbol.
        observe: is called with the index and the value of each tensor, in order.
        is_exact: compute all floating values in FP64, and round none.

    Raises:
        InterpretError: an operator is unknown, a value is not of the shape and dtype that the
            graph gives it, or an input is not what the graph takes.
    """
    machine = _Machine(graph, dict(sizes or {}), regions or {}, is_exact)
    machine.bind(inputs)
    for index, expr in enumerate(graph.exprs):
        value = machine.value(index, expr)
        machine.values.append(value)
        if observe is not None and not isinstance(value, tuple):
            observe(index, value)
    return [machine.tensor(index) for index in leaves(graph.results)]


@dataclass(slots=True)
class _Machine:
    """One graph under interpretation; `values[i]` is what its expression `i` is."""

    graph: Graph
    sizes: dict[Symbol | str, int]
    regions: Mapping[str, Graph]
    is_exact: bool
    values: list[_Item] = field(default_factory=list)
    inputs: dict[int, Array] = field(default_factory=dict)

    def bind(self, inputs: Sequence[Array]) -> None:
        """Take the inputs, and the sizes of symbols from their extents."""
        places = [index for index, expr in enumerate(self.graph.exprs) if expr.op == INPUT]
        if len(places) != len(inputs):
            raise InterpretError(f"the graph has {len(places)} inputs, and {len(inputs)} are given")
        for index, given in zip(places, inputs, strict=True):
            expr, array = self.graph[index], np.asarray(given)
            for extent, size in zip(expr.shape or (), array.shape, strict=False):
                if isinstance(extent, str):
                    self.sizes.setdefault(extent, size)
                elif isinstance(extent, Dim) and extent == symbolic(extent.symbols[0]):
                    self.sizes.setdefault(extent.symbols[0], size)
            self.inputs[index] = array

    def value(self, index: int, expr: Expr) -> _Item:
        """Compute the expression at `index` from the values before it."""
        if expr.op == INPUT:
            return self._typed(index, expr, self.inputs[index])
        if expr.op == CONSTANT:
            return self._typed(index, expr, _elements(index, expr))
        if expr.op == OPAQUE:
            callee = expr.attrs.of(Opaque).callee
            raise InterpretError(f"expression {index} calls {callee!r}, which has no NumPy form")
        if expr.op == SPLIT:
            return self._split(index, expr)
        if expr.op == PART:
            return self._part(index, expr)
        arrays = [self.tensor(arg) for arg in expr.args]
        if expr.op == REGION:
            return self._region(index, expr, arrays)
        operation = Operation(
            name=expr.op,
            attrs=expr.attrs,
            shape=self._shape(index, expr),
            dtype=self._dtype(expr.dtype),
        )
        return compute(operation, arrays)

    def tensor(self, index: int) -> Array:
        """The value of an expression that is no tuple."""
        value = self.values[index]
        if isinstance(value, tuple):
            raise InterpretError(f"expression {index}, {self.graph[index].op}, is a tuple")
        return value

    def _split(self, index: int, expr: Expr) -> tuple[Array, ...]:
        """The parts of a tensor along an axis, by the extents of the expressions that read them."""
        (x,) = (self.tensor(arg) for arg in expr.args)
        axis = expr.attrs.of(Axis).at(x.ndim)
        readers = [self.graph[reader] for reader in self.graph.consumers[index]]
        extents: dict[int, int] = {}
        for reader in readers:
            extents[reader.attrs.of(Indexed).index] = self._shape(index, reader)[axis]
        if sorted(extents) != list(range(len(extents))):
            raise InterpretError(
                f"expression {index} splits a tensor, and nothing reads one of the first parts, so "
                "that nothing tells its extent"
            )
        ends = list(accumulate(extents[place] for place in range(len(extents))))
        return tuple(np.split(x, ends, axis)[: len(ends)])

    def _part(self, index: int, expr: Expr) -> Array:
        (source,) = expr.args
        whole, place = self.values[source], expr.attrs.of(Indexed).index
        if not isinstance(whole, tuple) or place >= len(whole):
            raise InterpretError(f"expression {index} reads part {place} of what has no such part")
        return self._typed(index, expr, whole[place])

    def _region(self, index: int, expr: Expr, arrays: Sequence[Array]) -> _Item:
        symbol = expr.attrs.of(RegionCall).symbol
        if symbol not in self.regions:
            raise InterpretError(f"expression {index} calls the region {symbol!r}, without a body")
        made = run(
            self.regions[symbol],
            arrays,
            sizes=self.sizes,
            regions=self.regions,
            is_exact=self.is_exact,
        )
        return (
            tuple(made) if expr.attrs.of(RegionCall).further else self._typed(index, expr, made[0])
        )

    def _shape(self, index: int, expr: Expr) -> tuple[int, ...]:
        if expr.shape is None:
            raise InterpretError(f"expression {index}, {expr.op}, has no known rank")
        return tuple(self._extent(index, expr, extent) for extent in expr.shape)

    def _extent(self, index: int, expr: Expr, extent: int | str) -> int:
        names = extent.symbols if isinstance(extent, Dim) else [extent]
        for name in names:
            if not isinstance(name, int) and name not in self.sizes:
                raise InterpretError(
                    f"expression {index}, {expr.op}, has the dimension {name}, whose size is not "
                    "given"
                )
        if isinstance(extent, Dim):
            return extent.of({symbol: self.sizes[symbol] for symbol in extent.symbols})
        return self.sizes[extent] if isinstance(extent, str) else extent

    def _dtype(self, dtype: str) -> str:
        return "float64" if self.is_exact and is_float(dtype) else dtype

    def _typed(self, index: int, expr: Expr, array: Array) -> Array:
        """Return a given array, after a check that the expression has its shape and dtype."""
        shape, dtype = self._shape(index, expr), self._dtype(expr.dtype)
        if array.shape != shape:
            raise InterpretError(
                f"expression {index}, {expr.op}, is {array.shape}, and its graph says {shape}"
            )
        if str(array.dtype) not in {expr.dtype, dtype}:
            raise InterpretError(
                f"expression {index}, {expr.op}, is {array.dtype}, and its graph says {expr.dtype}"
            )
        return array.astype(numpy_dtype(dtype), copy=False)


def _elements(index: int, expr: Expr) -> Array:
    if expr.array is not None:
        return expr.array
    if expr.scalar is None:
        raise InterpretError(f"the elements of the constant {index} are not known")
    made: Any = np.full(expr.static_shape, expr.scalar)
    return np.asarray(made.astype(numpy_dtype(expr.dtype)))
