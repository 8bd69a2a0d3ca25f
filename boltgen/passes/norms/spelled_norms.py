"""Recognise norms of rows that are spelled out: a mean, squares, their mean, a root, a division.

IR-neutral. Casts between the operators are of no account: a kernel keeps all of it in FP32.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from boltgen.graph.attributes import Reduce
from boltgen.graph.facts import FLOATS, Values, is_static_call
from boltgen.graph.graph import Graph
from boltgen.graph.patterns import (
    Bound,
    Either,
    Match,
    Number,
    Op,
    Pattern,
    Through,
    Var,
    bindings,
    matches,
    op,
)
from boltgen.ir.dtypes import DType
from boltgen.ir.extent import Dim
from boltgen.problems.norm.problem import NormFunction

_CASTS, _REDUCTIONS = frozenset({"astype"}), frozenset({"mean", "sum", "variance"})


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
    if not graph[index].is_static:
        return None
    for pattern, function in _NORMS:
        for found in matches(graph, pattern, index):
            outer = _outer(found, several_axes=several_axes)
            # A value without its mean has a layer norm, or others read what that computes.
            is_layer = function is NormFunction.RMS and _is_centred(graph, found["x"])
            if outer is not None and found.number("epsilon") >= 0.0 and not is_layer:
                members = tuple(sorted(found.members - {index}))
                return Spelled(
                    function=function,
                    epsilon=found.number("epsilon"),
                    x=found["x"],
                    members=members,
                    outer=outer,
                )
    return None


def _is_centred(graph: Graph, index: int) -> bool:
    """Return whether a value has its mean taken away, whoever else reads the mean."""
    return next(bindings(graph, _CENTRED, index, Bound()), None) is not None


def _outer(found: Match, *, several_axes: bool) -> int | None:
    """Return the number of axes before the rows; None if reductions are of other rows."""
    reductions = [each for each in found.members if found.values[each].op in _REDUCTIONS]
    outer = {_axes_before(found.values, each, several_axes) for each in reductions}
    sums = [name for name in ("rows", "squares") if f"sum {name}" in found]
    is_one = len(outer) == 1 and None not in outer
    return outer.pop() if is_one and all(_is_mean(found, name) for name in sums) else None


def _axes_before(values: Values, at: int, several_axes: bool) -> int | None:
    """Return the number of axes before the reduced ones; None if a reduction drops them."""
    attrs = values[at].attrs.of(Reduce)
    if not is_static_call(values, at) or not attrs.keepdims:
        return None
    shape = values[values[at].args[0]].static_shape
    rank, axes = len(shape), attrs.axes(len(shape))
    if axes == (rank - 1,):
        return rank - 1
    first = _first(shape, axes)
    return first if several_axes and first < rank else None


def _is_mean(found: Match, name: str) -> bool:
    """Return whether a sum is divided by the number of its addends."""
    total, number = found.expr(f"sum {name}"), found.number(f"count {name}")
    shape = found.values[total.args[0]].static_shape
    columns = prod(shape[_first(shape, total.attrs.of(Reduce).axes(len(shape))) :])
    if isinstance(columns, Dim):
        return False
    is_divided = found.expr(f"mean {name}").op == "divide"
    return number == columns if is_divided else _inverts(number, columns)


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


def _is_cast(values: Values, at: int) -> bool:
    return {values[at].dtype, values[values[at].args[0]].dtype} <= FLOATS


def _widens(values: Values, at: int) -> bool:
    """Return whether a cast keeps all numbers."""
    return _is_cast(values, at) and values[at].dtype == DType.F32.value


def _cast(inner: Pattern) -> Pattern:
    return Through(_CASTS, inner, where=_is_cast)


def _alone(ops: str | frozenset[str], *args: Pattern, name: str = "") -> Op:
    return op(ops, *args, name=name, alone=True)


def _power(x: Pattern, exponent: float) -> Op:
    return _alone("power", x, Number(f"exponent {exponent}", exponent))


def _mean(x: Pattern, name: str) -> Pattern:
    total, scales = _alone("sum", x, name=f"sum {name}"), frozenset({"divide", "multiply"})
    scaled = _alone(scales, _cast(total), Number(f"count {name}"), name=f"mean {name}")
    return Either((_alone("mean", x), scaled))


def _mean_of_squares(name: str) -> Pattern:
    x = _cast(Var(name))
    squares = Either((_alone("square", x), _power(x, 2.0), _alone("multiply", x, x)))
    return _mean(_cast(squares), "squares")


def _scaled(x: Pattern, variance: Pattern) -> tuple[Op, Op]:
    """Return a division by the root of a variance, and a multiplication by its inverse."""
    raised = _cast(_alone("add", _cast(variance), Number("epsilon")))
    root = _cast(Either((_alone("sqrt", raised), _power(raised, 0.5))))
    divided = _alone("divide", Number("one", 1.0), root)
    inverse = Either((_alone("rsqrt", raised), _power(raised, -0.5), divided))
    return op("divide", x, root), op("multiply", _cast(inverse), x)


_X = Through(_CASTS, Var("x"), where=_widens)
_CENTRED = _alone("subtract", _X, _cast(_mean(_X, "rows")), name="centred")
_VARIANCE = Either((_alone("variance", _X), _mean_of_squares("centred")))
_NORMS = (
    *((each, NormFunction.LAYER) for each in _scaled(_cast(_CENTRED), _VARIANCE)),
    *((each, NormFunction.RMS) for each in _scaled(_X, _mean_of_squares("x"))),
)
