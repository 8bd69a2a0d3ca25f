"""Facts of the values of a graph: each has one owner, and is computed at most once for a graph.

Facts are of the readers of a value, of one operator, or of the elements of a value. Facts of the
elements also hold for a graph that a builder grows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial, update_wrapper, wraps
from inspect import signature
from math import inf
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np

from boltgen.graph.attributes import Axis, Count, Permutation, Reduce, Slice
from boltgen.graph.graph import CONSTANT, CORNER, INPUT, OPAQUE, REGION, Expr, Graph
from boltgen.graph.recursion import Steps, answer
from boltgen.ir.dtypes import CONVERTED, IndexType

Answer = TypeVar("Answer")
Arguments = ParamSpec("Arguments")

# The same elements, each once, in any order; and each at least once.
VIEWS = frozenset({"reshape", "permute_dims"})
MOVES = VIEWS | {"broadcast_to"}
# PyTorch's `~`, `&` and `|` of truths are operators on bits.
NOT = frozenset({"logical_not", "bitwise_not"})
AND = frozenset({"logical_and", "bitwise_and"})
OR = frozenset({"logical_or", "bitwise_or"})
COMPARISONS = frozenset({"equal", "not_equal", "greater", "greater_equal", "less", "less_equal"})
COMMUTATIVE = AND | OR | {"add", "multiply", "maximum", "minimum", "equal", "not_equal"}
# Operators that compute each element from elements at the same place.
POINTWISE = frozenset(
    {
        *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "negative"),
        *("abs", "sqrt", "rsqrt", "square", "exp", "log", "sin", "cos", "tanh", "sigmoid"),
        *("floor", "ceil", "where", "astype", "clip", *COMPARISONS, *AND, *OR, *NOT),
    }
)
# Types that kernels compute with, types that normalisation narrows, the integers that kernels
# multiply, and types of indices that they take.
FLOATS = frozenset(CONVERTED)
NARROWED = frozenset({"float16", "float32"})
BYTES = frozenset({"int8", "uint8"})
INDICES = frozenset(dtype.value for dtype in IndexType)


class Values(Protocol):
    """Values by index: a graph, or a builder that grows one."""

    @property
    def facts(self) -> dict[Any, Any]:
        """The answers so far, by the fact."""

    def __getitem__(self, index: int) -> Expr: ...


Place = TypeVar("Place", bound=Values)


def recursive_fact(
    rule: Callable[[Place, int], Steps[int, Answer]],
) -> Callable[[Place, int], Answer]:
    """Make a fact of a value from a rule that asks for the fact of other values."""
    name = f"{rule.__module__}.{rule.__qualname__}"

    @wraps(rule)
    def fact(values: Place, index: int) -> Answer:
        known: dict[int, Answer] = values.facts.setdefault(name, {})
        return known[index] if index in known else answer(partial(rule, values), index, known)

    return fact


def graph_fact(
    rule: Callable[Concatenate[Graph, Arguments], Answer],
) -> Callable[Concatenate[Graph, Arguments], Answer]:
    """Make a fact of a whole graph; it is computed once for all equal further arguments."""
    name = f"{rule.__module__}.{rule.__qualname__}"
    form = signature(rule)

    def fact(graph: Graph, /, *args: Arguments.args, **named: Arguments.kwargs) -> Answer:
        known: dict[Any, Answer] = graph.facts.setdefault(name, {})
        asked = form.bind(graph, *args, **named)
        asked.apply_defaults()
        key = asked.args[1:]
        if key not in known:
            known[key] = rule(graph, *args, **named)
        return known[key]

    update_wrapper(fact, rule)
    return fact


# Readers.


def only_reader(graph: Graph, index: int) -> int | None:
    """Return the operator that alone reads a value; None if none or several do, or a result is."""
    readers = graph.consumers[index]
    return readers[0] if len(readers) == 1 and index not in graph.escaping else None


def has_one_reader(graph: Graph, index: int) -> bool:
    """Whether one operator reads a value, and nothing else."""
    return only_reader(graph, index) is not None


def is_only_read_by(graph: Graph, index: int, readers: Collection[int]) -> bool:
    """Whether no other operators than `readers` read a value, and it is no result."""
    return index not in graph.escaping and all(each in readers for each in graph.consumers[index])


def readers_through(
    graph: Graph, index: int, operators: Collection[str]
) -> Iterator[tuple[int, int]]:
    """Yield each reader of a value behind any number of `operators`, and the value that it reads.

    An operator whose result is a result of the graph too is a reader itself.
    """
    pending = [index]
    while pending:
        value = pending.pop()
        for reader in graph.consumers[value]:
            if graph[reader].op in operators and reader not in graph.escaping:
                pending.append(reader)
            else:
                yield reader, value


# Operators.


def is_float(expr: Expr) -> bool:
    """Whether a value has floating-point elements of any width."""
    return expr.dtype.startswith(("float", "bfloat"))


def are_static(values: Values, *indices: int) -> bool:
    """Whether the shapes of all of these values are known."""
    return all(values[index].is_static for index in indices)


def is_static_call(values: Values, index: int) -> bool:
    """Whether the shapes of an operator's result and of all its operands are known."""
    return are_static(values, index, *values[index].args)


def is_tensor(values: Values, index: int) -> bool:
    """Whether a value is no constant of one element."""
    return values[index].scalar is None


def is_filled(expr: Expr, number: float) -> bool:
    """Whether a value is a constant all of whose elements are `number`."""
    return expr.array is not None and bool((expr.array == number).all())


def is_known_matrix(expr: Expr) -> bool:
    """Whether a value is a constant of two dimensions whose elements are known."""
    return expr.op == CONSTANT and expr.array is not None and expr.array.ndim == 2


def axis_of(expr: Expr) -> int | None:
    """Return the one axis of an operator, from 0; None if it has none or several.

    Operators that drop an axis, such as `take` of a scalar, count in the rank of their operand.
    """
    rank = len(expr.static_shape)
    match expr.attrs:
        case Reduce((axis,)) | Axis(int(axis)) | Slice(int(axis)):
            return axis % rank if rank else None
    return None


def keeps_inner(values: Values, index: int, count: int = 1) -> bool:
    """Whether a reshape keeps the last dimensions, so many of them, of a tensor of known shape."""
    expr = values[index]
    if expr.op != "reshape" or not is_static_call(values, index):
        return False
    before, after = values[expr.args[0]].static_shape, expr.static_shape
    return min(len(before), len(after)) >= count and before[-count:] == after[-count:]


def swaps_matrices(expr: Expr) -> bool:
    """Whether an operator transposes the last two dimensions of a tensor, and nothing else."""
    if expr.op != "permute_dims" or not expr.is_static or len(expr.static_shape) < 2:
        return False
    *outer, rows, columns = range(len(expr.static_shape))
    return permutation(expr) == (*outer, columns, rows)


def permutation(expr: Expr) -> tuple[int, ...]:
    """Return the axes of a `permute_dims`, from 0."""
    rank, axes = len(expr.static_shape), expr.attrs.of(Permutation).axes
    return tuple(axis % rank for axis in (range(rank)[::-1] if axes is None else axes))


# Values.


def behind(values: Values, index: int, operators: Collection[str]) -> int:
    """Return the value that only `operators`, on their first operands, make the value of."""
    while values[index].op in operators:
        index = values[index].args[0]
    return index


@recursive_fact
def is_without_inputs(values: Values, index: int) -> Steps[int, bool]:
    """Whether no input has a part in a value; an opaque call may have read one."""
    expr = values[index]
    if expr.op in {INPUT, OPAQUE, REGION} or expr.pinned:
        return False
    for arg in expr.args:
        if not (yield arg):
            return False
    return True


def has_input(values: Values, index: int) -> bool:
    """Whether an input has a part in a value, or may have one."""
    return not is_without_inputs(values, index)


@recursive_fact
def counts(values: Values, index: int) -> Steps[int, bool]:
    """Whether a tensor has the numbers 0, 1, 2 and so on, in whatever shape."""
    expr = values[index]
    if expr.dtype == "bool":
        return False
    if expr.op in {"reshape", "astype"}:
        return (yield expr.args[0])
    if expr.op == "add":
        for places, zero in (expr.args, expr.args[::-1]):
            if values[zero].scalar == 0 and values[places].shape == expr.shape and (yield places):
                return True
        return False
    if expr.op == CONSTANT and expr.array is not None:
        return bool((expr.array.reshape(-1) == np.arange(expr.array.size)).all())
    return expr.attrs == Count(begin=0, step=1)


@recursive_fact
def is_above_minus_infinity(values: Values, index: int) -> Steps[int, bool]:
    """Whether no element of a value is NaN or -inf."""
    expr = values[index]
    if expr.op == CONSTANT:
        return expr.array is not None and bool((expr.array > -inf).all())
    if expr.op == "where":
        first, second = expr.args[1:]
        return (yield first) and (yield second)
    # No number of FP16 or BF16 is too large for FP32.
    narrow = {"float16", "bfloat16", "float32"}
    is_widened = expr.op == "astype" and expr.dtype == "float32"
    if expr.op in MOVES or expr.op == CORNER:
        return (yield expr.args[0])
    return is_widened and values[expr.args[0]].dtype in narrow and (yield expr.args[0])
