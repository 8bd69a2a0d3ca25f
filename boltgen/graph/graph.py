"""The neutral graph, into which Relax and Relay functions are translated.

Arrow: a frontend's translation makes it, passes rewrite it, an emitter writes the IR from it.
Both IRs share the names of operators and attributes ("add", "nn.conv2d"), so one table serves both.
An operator that the passes do not know keeps its author's call, and passes through.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from boltgen.graph.attribute_kinds import attributes_of
from boltgen.graph.attributes import NONE, Attributes, Pad, Reduce, Slice
from boltgen.ir.extent import broadcast

Array: TypeAlias = npt.NDArray[Any]
Extents: TypeAlias = "tuple[int | str, ...]"
# The index of a value, or a tuple of such structures: a function's result.
Structure: TypeAlias = "int | tuple[Structure, ...]"

# Operator names of expressions that compute nothing.
INPUT = "input"
CONSTANT = "constant"
OPAQUE = "opaque"  # a call of a function, a branch, whatever has no operator's name
PART = "part"  # the element `index` of a tuple
# FP16 weights (N, K) of a packed constant: `weights` is their form, `k` K. No IR has it.
UNPACK = "boltgen.unpack"
# The first elements of a constant along each dimension, as many as the result's open extents.
CORNER = "corner"
# The layout of a depthwise convolution's weight in which its channels are side by side.
DEPTHWISE_KERNEL = "HWOI"
# Rows in groups times the matrices of these: (a, b, ends) as of `GroupedGemm`; b is (groups, K, N).
# No IR has it.
GROUPED = "grouped_matmul"
# The steps of a recurrent layer: (a, weights, *further inputs named by `roles`) as of `Recurrent`.
# No IR has it.
RECURRENT = "recurrent"
# The columns of one product of a pair, as of `passes.legalise.half_columns`. No IR has it.
HALF = "boltgen.half"
# A norm of rows by the sums of their elements, as of `passes.legalise.norm_of_sums`. No IR has it.
NORMED = "boltgen.normed"
# A group norm of images, as of `passes.norms.image_norms`. No IR has it.
IMAGE_NORM = "group_norm"
# A call of one of boltgen's kernels.
REGION = "region"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expr:
    """One value: an operator applied to earlier values.

    `shape` has a string for each symbolic dimension, and is None if the value is no tensor of known
    rank. `array` has the elements of a constant, `scalar` the value of one that has a single
    element. `origin` is the author's own expression in the IR, from which an emitter writes an
    operator that no pass has changed. A `pinned` expression stays though nothing reads it. A pass
    found the `reason` for which an anchor stays with TVM.
    `observed` has the least and the greatest element that the value was seen to have; passes that
    rewrite the operator keep it, as long as the elements stay.
    """

    op: str
    args: tuple[int, ...] = ()
    shape: Extents | None = None
    dtype: str = ""
    attrs: Attributes = NONE
    scalar: float | None = None
    array: Array | None = field(default=None, compare=False, repr=False)
    origin: Any = field(default=None, compare=False, repr=False)
    pinned: bool = False
    observed: tuple[float, float] | None = field(default=None, compare=False)
    reason: str = ""

    @property
    def largest_seen(self) -> float:
        """The largest magnitude that the value was seen to have; 0 if nothing was observed."""
        low, high = self.observed or (0.0, 0.0)
        return max(-low, high)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape, all of whose dimensions are known.

        Raises:
            ValueError: one of them is not, or there is no shape.
        """
        if self.shape is None:
            raise ValueError(f"the result of {self.op} has no known rank")
        for axis, extent in enumerate(self.shape):
            if isinstance(extent, str):
                raise ValueError(f"dimension {axis} of {self.op} is the symbolic '{extent}'")
        return tuple(extent for extent in self.shape if isinstance(extent, int))

    @property
    def is_static(self) -> bool:
        """Whether the shape is known in full."""
        return self.shape is not None and all(isinstance(extent, int) for extent in self.shape)

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.static_shape)


@dataclass(frozen=True)
class Graph:
    """Expressions in an order in which each one comes after what it reads.

    `escaping` has the indices of values that are used where the graph does not show it: results of
    the function first of all. `results` is what the function returns.
    """

    exprs: tuple[Expr, ...]
    escaping: frozenset[int]
    results: Structure = ()

    def __getitem__(self, index: int) -> Expr:
        return self.exprs[index]

    def __len__(self) -> int:
        return len(self.exprs)

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """For each expression, the expressions that read it, in order."""
        lists: list[list[int]] = [[] for _ in self.exprs]
        for index, expr in enumerate(self.exprs):
            for arg in dict.fromkeys(expr.args):
                lists[arg].append(index)
        return tuple(tuple(consumers) for consumers in lists)

    @cached_property
    def facts(self) -> dict[Any, Any]:
        """The facts of `graph.facts` that were asked for so far, by the fact."""
        return {}

    @cached_property
    def operators(self) -> Mapping[str, tuple[int, ...]]:
        """The expressions of each operator, in order."""
        found: dict[str, list[int]] = {}
        for index, expr in enumerate(self.exprs):
            found.setdefault(expr.op, []).append(index)
        return {op: tuple(indices) for op, indices in found.items()}

    @cached_property
    def uses(self) -> tuple[int, ...]:
        """For each expression, how often it is read; results count too."""
        counts = [0] * len(self.exprs)
        for expr in self.exprs:
            for arg in expr.args:
                counts[arg] += 1
        for leaf in leaves(self.results):
            counts[leaf] += 1
        return tuple(counts)

    @cached_property
    def live(self) -> frozenset[int]:
        """The inputs, and the expressions that a result needs or that are pinned."""
        found = {
            index for index, expr in enumerate(self.exprs) if expr.pinned or expr.op == INPUT
        } | {*self.escaping, *leaves(self.results)}
        for index in range(len(self.exprs) - 1, -1, -1):
            if index in found:
                found.update(self.exprs[index].args)
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class Choice:
    """A pass's choice for operators, with the times or the rule that decided.

    `operators` are their names, and `shape` is that of the first one's result.
    """

    operators: tuple[str, ...]
    shape: Extents | None
    is_rewritten: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Noted:
    """A rewritten graph, sentences that tell users about the rewrite, and a pass's choices."""

    graph: Graph
    notes: tuple[str, ...]
    choices: tuple[Choice, ...] = ()

    @classmethod
    def of(cls, graph: Graph, choices: Iterable[Choice]) -> Noted:
        """Return a graph with the choices for it; the choices to rewrite are its notes."""
        made = tuple(choices)
        return cls(graph, tuple(each.reason for each in made if each.is_rewritten), made)


def leaves(structure: Structure) -> Iterator[int]:
    """The indices in a structure, in order."""
    if isinstance(structure, int):
        yield structure
        return
    for part in structure:
        yield from leaves(part)


def mapped(structure: Structure, names: Mapping[int, int]) -> Structure:
    """`structure` with each index replaced by its entry in `names`."""
    if isinstance(structure, int):
        return names[structure]
    return tuple(mapped(part, names) for part in structure)


class GraphBuilder:
    """Grows a graph; every method returns the new expression's index."""

    def __init__(self) -> None:
        self.exprs: list[Expr] = []
        self.facts: dict[Any, Any] = {}  # results of `graph.facts`, for the values so far

    def __getitem__(self, index: int) -> Expr:
        return self.exprs[index]

    def add(self, expr: Expr) -> int:
        """Append `expr`, whose arguments are indices of this builder."""
        self.exprs.append(expr)
        return len(self.exprs) - 1

    def graph(self, results: Structure) -> Graph:
        """The live part of the graph so far, which returns `results`."""
        whole = Graph(tuple(self.exprs), frozenset(leaves(results)), results)
        return without(whole, frozenset(range(len(whole))) - whole.live)

    def placed(self, results: Structure) -> tuple[Graph, dict[int, int]]:
        """The live part of the graph so far, and the new index of each of its values."""
        whole = Graph(tuple(self.exprs), frozenset(leaves(results)), results)
        places = {index: place for place, index in enumerate(sorted(whole.live))}
        return self.graph(results), places

    def shape(self, index: int) -> tuple[int, ...]:
        """The shape of an expression, all of whose dimensions are known."""
        return self.exprs[index].static_shape

    def dtype(self, index: int) -> str:
        """The dtype of an expression."""
        return self.exprs[index].dtype

    def constant(self, array: Array, origin: Any = None) -> int:
        """A constant; `origin` is the IR's own form of the same elements, if there is one."""
        scalar = float(array.reshape(())) if array.size == 1 else None
        shape, dtype = array.shape, str(array.dtype)
        known: dict[str, Any] = {"scalar": scalar, "array": array, "origin": origin}
        return self.add(Expr(op=CONSTANT, shape=shape, dtype=dtype, **known))

    def elementwise(
        self, name: str, *args: int, attrs: Attributes | None = None, **fields: object
    ) -> int:
        """An elementwise operator whose result has its first operand's dtype."""
        shape = broadcast(*(self.shape(arg) for arg in args))
        return self.operator(name, args, shape, self.dtype(args[0]), attrs, **fields)

    def astype(self, x: int, dtype: str) -> int:
        """A cast."""
        shape = self.exprs[x].shape or ()
        return self.operator("astype", (x,), shape, dtype, from_dtype=self.dtype(x))

    def in_dtype(self, x: int, dtype: str) -> int:
        """A cast to a type; `x` itself where it has that type."""
        return x if self.dtype(x) == dtype else self.astype(x, dtype)

    def reshape(self, x: int, shape: Sequence[int]) -> int:
        """The same elements in another shape."""
        return self.operator("reshape", (x,), tuple(shape), self.dtype(x))

    def in_shape(self, x: int, shape: Sequence[int]) -> int:
        """The same elements in a shape; `x` itself where it has that shape."""
        return x if self.exprs[x].shape == tuple(shape) else self.reshape(x, shape)

    def broadcast_to(self, x: int, shape: Sequence[int]) -> int:
        """The elements repeated in a shape; `x` itself where it has that shape."""
        if self.exprs[x].shape == tuple(shape):
            return x
        return self.operator("broadcast_to", (x,), tuple(shape), self.dtype(x))

    def permute_dims(self, x: int, axes: Sequence[int]) -> int:
        """The dimensions in another order."""
        before = self.exprs[x].shape or ()
        shape = tuple(before[axis] for axis in axes)
        return self.operator("permute_dims", (x,), shape, self.dtype(x), axes=tuple(axes))

    def slice(self, x: int, axis: int, begin: int, end: int) -> int:
        """Neighbours along an axis, which counts from 0."""
        before = self.shape(x)
        shape = (*before[:axis], end - begin, *before[axis + 1 :])
        return self.operator("strided_slice", (x,), shape, self.dtype(x), Slice(axis, begin, end))

    def concat(self, values: Sequence[int], axis: int) -> int:
        """Values side by side along an axis, which counts from 0."""
        shape = list(self.shape(values[0]))
        shape[axis] = sum(self.shape(each)[axis] for each in values)
        return self.operator("concat", values, tuple(shape), self.dtype(values[0]), axis=axis)

    def where(self, truths: int, x: int, y: int) -> int:
        """The elements of `x` where `truths` hold, and of `y` elsewhere."""
        shape = broadcast(*map(self.shape, (truths, x, y)))
        return self.operator("where", (truths, x, y), shape, self.dtype(x))

    def reduce(self, name: str, x: int, axes: Sequence[int], *, keepdims: bool) -> int:
        """A reduction of axes, which count from 0."""
        shape = tuple(
            1 if axis in axes else extent
            for axis, extent in enumerate(self.shape(x))
            if keepdims or axis not in axes
        )
        attrs = Reduce(tuple(axes), keepdims)
        return self.operator(name, (x,), shape, self.dtype(x), attrs)

    def right_operand(self, array: Array, *, is_column: bool) -> int:
        """B of a matmul as a constant, (K, N), or transposed from (N, K) if `is_column`."""
        made = self.constant(np.asarray(array, order="C"))
        return self.permute_dims(made, (1, 0)) if is_column else made

    def matmul(self, a: int, b: int, dtype: str, reason: str = "") -> int:
        """The product of (..., M, K) and (..., K, N) in `dtype`."""
        left, right = self.shape(a), self.shape(b)
        batch = broadcast(left[:-2], right[:-2])
        shape = (*batch, left[-2], right[-1])
        return self.add(Expr(op="matmul", args=(a, b), shape=shape, dtype=dtype, reason=reason))

    def pad(self, x: int, widths: Sequence[tuple[int, int]], value: float, mode: str) -> int:
        """`x` with `widths` elements put before and after each dimension."""
        pairs = zip(self.shape(x), widths, strict=True)
        shape = tuple(before + extent + after for extent, (before, after) in pairs)
        attrs = Pad(tuple(widths), value, mode)
        return self.operator("nn.pad", (x,), shape, self.dtype(x), attrs)

    def corner(self, array: Array, shape: Sequence[int]) -> int:
        """The first elements of `array`, which is as large as open extents of `shape` may be."""
        return self.operator(CORNER, [self.constant(array)], tuple(shape), str(array.dtype))

    def operator(
        self,
        name: str,
        args: Sequence[int],
        shape: Extents,
        dtype: str,
        attrs: Attributes | None = None,
        **fields: object,
    ) -> int:
        """Any other operator, whose result's shape and dtype the caller knows.

        Its attributes are given as a record, or by the names of the record's fields.
        """
        known = attributes_of(name, fields) if attrs is None else attrs
        return self.add(Expr(op=name, args=tuple(args), shape=shape, dtype=dtype, attrs=known))


def without(graph: Graph, dropped: frozenset[int]) -> Graph:
    """`graph` without the expressions `dropped`, which no other one reads."""
    if not dropped:
        return graph
    names: dict[int, int] = {}
    exprs: list[Expr] = []
    for index, expr in enumerate(graph.exprs):
        if index not in dropped:
            names[index] = len(exprs)
            exprs.append(renamed(expr, names))
    escaping = frozenset(names[index] for index in graph.escaping)
    return Graph(tuple(exprs), escaping, mapped(graph.results, names))


def renamed(expr: Expr, names: Mapping[int, int]) -> Expr:
    """`expr` on the arguments that `names` has for its own."""
    args = tuple(names[arg] for arg in expr.args)
    if args == expr.args:
        return expr
    return replace(expr, args=args)


def with_each(
    graph: Graph, operator: str, write: Callable[[Expr, GraphBuilder], int | None]
) -> Graph:
    """`graph` with what `write` makes of each expression of an operator, which stays if it is None.

    The arguments of the expression are values of the builder.
    """
    if operator not in graph.operators:
        return graph

    def anew(_: int, expr: Expr, builder: GraphBuilder) -> Expr | int:
        made = write(expr, builder) if expr.op == operator else None
        return expr if made is None else made

    return written_anew(graph, anew)


def written_anew(graph: Graph, write: Callable[[int, Expr, GraphBuilder], Expr | int]) -> Graph:
    """`graph` with what `write` makes of each expression: another one, or a value of the builder.

    It gets the index of the expression in `graph`, and the expression on values of the builder.
    """
    builder, names = GraphBuilder(), dict[int, int]()
    for index, expr in enumerate(graph.exprs):
        made = write(index, renamed(expr, names), builder)
        names[index] = builder.add(made) if isinstance(made, Expr) else made
    return builder.graph(mapped(graph.results, names))


def rewritten(
    graph: Graph,
    at: Collection[int],
    write: Callable[[int, GraphBuilder, dict[int, int]], None],
    dropped: Collection[int] = (),
) -> Graph:
    """`graph` with what `write` writes in the place of the expressions `at`.

    It names all that others read of them; `dropped` are not written, and no one reads them.
    """
    if not at:
        return graph
    builder = GraphBuilder()
    names: dict[int, int] = {}
    for index, expr in enumerate(graph.exprs):
        if index in at:
            write(index, builder, names)
        elif index not in dropped:
            names[index] = builder.add(renamed(expr, names))
    return builder.graph(mapped(graph.results, names))
