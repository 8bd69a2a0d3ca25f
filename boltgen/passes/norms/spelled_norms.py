"""Recognise norms of rows that are spelled out: a mean, squares, their mean, a root, a division.

IR-neutral. Casts between the operators are of no account: a kernel keeps all of it in FP32.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from boltgen.graph.attributes import Reduce
from boltgen.graph.facts import FLOATS
from boltgen.graph.graph import Graph
from boltgen.ir.dtypes import DType
from boltgen.ir.extent import Dim
from boltgen.problems.norm.problem import NormFunction

_CAST = "astype"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelled:
    """The norm of the rows of `x` that operators spell; `members` are all operators except the
    last.

    A row has all dimensions of `x` but the first `outer` ones.
    """

    function: NormFunction
    epsilon: float
    x: int
    members: tuple[int, ...]
    outer: int


def spelled_norm(graph: Graph, index: int, *, several_axes: bool = False) -> Spelled | None:
    """The norm whose last operator, a division or a multiplication, is at `index`.

    A row is the last axis or, with `several_axes`, any number of them.
    """
    if graph[index].op not in {"divide", "multiply"} or not graph[index].is_static:
        return None
    for centred, root in _factors(graph, index):
        found = _Reading(graph, index, several_axes).norm(centred, root)
        if found is not None:
            return found
    return None


def _factors(graph: Graph, index: int) -> list[tuple[int, int]]:
    """Return pairs of a normed value and its scale: in both orders of a multiplication."""
    left, right = graph[index].args
    both = graph[index].op == "multiply"
    return [(left, right), (right, left)] if both else [(left, right)]


@dataclass(slots=True)
class _Reading:
    """One attempt: the operators that were met are its `members`."""

    graph: Graph
    last: int
    several_axes: bool = False
    members: set[int] = field(default_factory=set)
    outer: set[int] = field(default_factory=set)

    def norm(self, centred: int, root: int) -> Spelled | None:
        """The norm of what `centred` is, scaled by `root`."""
        squares = self._under_root(root)
        if squares is None:
            return None
        variance, epsilon = squares
        source = self._through(centred)
        x = self._centred(source, variance)
        if x is not None:
            return self._made(NormFunction.LAYER, epsilon, x)
        self.members.clear()
        self.outer.clear()
        squares = self._under_root(root)
        assert squares is not None
        x = self._of_squares(squares[0])
        if x is None or not self._is_same(x, centred):
            return None
        return self._made(NormFunction.RMS, epsilon, self._widest(centred))

    def _made(self, function: NormFunction, epsilon: float, x: int) -> Spelled | None:
        """The norm, where nothing else reads what is between `x` and it."""
        if len(self.outer) != 1:  # its statistics are not of the same rows
            return None
        inside = {*self.members, self.last} - {x}
        for member in inside - {self.last}:
            is_read = not inside.issuperset(self.graph.consumers[member])
            if self.graph[member].op != _CAST and (is_read or member in self.graph.escaping):
                return None
        return Spelled(
            function=function,
            epsilon=epsilon,
            x=x,
            members=tuple(sorted(inside - {self.last})),
            outer=min(self.outer),
        )

    def _under_root(self, at: int) -> tuple[int, float] | None:
        """The mean of squares under a root, by which is divided or whose inverse multiplies."""
        is_divided = self.graph[self.last].op == "divide"
        at = self._through(at)
        expr = self.graph[at]
        if not is_divided and expr.op == "divide" and self.graph[expr.args[0]].scalar == 1.0:
            self.members.add(at)
            at, is_divided = self._through(expr.args[1]), True
            expr = self.graph[at]
        power = self.graph[expr.args[1]].scalar if expr.op == "power" else None
        is_root = expr.op == "sqrt" or power == 0.5
        is_inverse = expr.op == "rsqrt" or power == -0.5
        if not (is_root if is_divided else is_inverse):
            return None
        self.members.add(at)
        raised = self._through(expr.args[0])
        if self.graph[raised].op != "add":
            return None
        for variance, epsilon in (self.graph[raised].args, self.graph[raised].args[::-1]):
            number = self.graph[epsilon].scalar
            if number is not None and number >= 0.0:
                self.members.add(raised)
                return self._through(variance), number
        return None

    def _centred(self, source: int, variance: int) -> int | None:
        """Return the operand of a layer norm, if `source` is it without its mean, and `variance`
        its variance.
        """
        expr = self.graph[source]
        if expr.op != "subtract":
            return None
        self.members.add(source)
        x = self._widest(expr.args[0])
        if self.graph[variance].op == "variance" and self._is_row(variance):
            self.members.add(variance)
            is_of_x = self._is_same(self.graph[variance].args[0], x)
        else:
            squared = self._of_squares(variance)
            is_of_x = squared is not None and self._is_same(squared, source)
        mean = self._mean(self._through(expr.args[1]))
        is_whole = is_of_x and mean is not None and self._is_same(mean, x)
        self._collect(expr.args[0], x)
        return x if is_whole else None

    def _of_squares(self, at: int) -> int | None:
        """Return the value whose squares have the mean at `at`."""
        squares = self._mean(at)
        if squares is None:
            return None
        squares = self._through(squares)
        expr = self.graph[squares]
        is_square = expr.op == "square"
        if expr.op == "power":
            is_square = self.graph[expr.args[1]].scalar == 2.0
        if expr.op == "multiply":
            is_square = self._is_same(*expr.args)
        if not is_square:
            return None
        self.members.add(squares)
        if expr.op == "multiply":
            self._through(expr.args[1])
        return self._through(expr.args[0])

    def _mean(self, at: int) -> int | None:
        """Return the value whose row means are at `at`; the mean may be a sum and a division."""
        expr = self.graph[at]
        if expr.op == "mean" and self._is_row(at):
            self.members.add(at)
            return expr.args[0]
        if expr.op not in {"divide", "multiply"}:
            return None
        total, number = self._through(expr.args[0]), self.graph[expr.args[1]].scalar
        if self.graph[total].op != "sum" or not self._is_row(total) or number is None:
            return None
        reduction = self.graph[total]
        shape = self.graph[reduction.args[0]].static_shape
        columns = prod(shape[_first(shape, reduction.attrs.of(Reduce).axes(len(shape))) :])
        if isinstance(columns, Dim):
            return None
        is_mean = number == columns if expr.op == "divide" else _inverts(number, columns)
        if not is_mean:
            return None
        self.members.update((at, total))
        return self.graph[total].args[0]

    def _is_row(self, at: int) -> bool:
        """Return whether a reduction is along the row's axes, and keeps them."""
        expr = self.graph[at]
        source = self.graph[expr.args[0]]
        attrs = expr.attrs.of(Reduce)
        if not source.is_static or not expr.is_static or not attrs.keepdims:
            return False
        shape = source.static_shape
        rank, axes = len(shape), attrs.axes(len(shape))
        first, is_last = _first(shape, axes), axes == (rank - 1,)
        if not is_last and not (self.several_axes and first < rank):
            return False
        self.outer.add(rank - 1 if is_last else first)
        return True

    def _through(self, at: int) -> int:
        """Return the source of casts between floats; the casts become members."""
        while self._is_cast(at):
            self.members.add(at)
            (at,) = self.graph[at].args
        return at

    def _collect(self, at: int, end: int) -> None:
        """Make members of the casts from `at` to `end`."""
        while at != end:
            self.members.add(at)
            (at,) = self.graph[at].args

    def _widest(self, at: int) -> int:
        """Return the source of casts to FP32: it has the same numbers."""
        while self._is_cast(at) and self.graph[at].dtype == DType.F32.value:
            (at,) = self.graph[at].args
        return at

    def _is_same(self, left: int, right: int) -> bool:
        """Return whether two values are one, except for casts to FP32, which become members."""
        end = self._widest(left)
        is_same = end == self._widest(right)
        if is_same:
            self._collect(left, end)
            self._collect(right, end)
        return is_same

    def _is_cast(self, at: int) -> bool:
        expr = self.graph[at]
        return expr.op == _CAST and {expr.dtype, self.graph[expr.args[0]].dtype} <= FLOATS


def _first(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """Return the first reduced axis, if all later axes are reduced too; else the rank.

    Axes of extent 1 are of no account.
    """
    rank = len(shape)
    reduced = [axis for axis in range(rank) if axis in axes and shape[axis] != 1]
    kept = [axis for axis in range(rank) if axis not in axes and shape[axis] != 1]
    is_inner = bool(reduced) and (not kept or kept[-1] < reduced[0])
    return reduced[0] if is_inner else rank


def _inverts(number: float, count: int) -> bool:
    """Return whether a number is 1 / `count`, as a float16 or a float32 has it."""
    return any(number == float(dtype.numpy.type(1.0 / count)) for dtype in (DType.F32, DType.F16))
