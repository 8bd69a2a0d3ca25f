"""Constants that are made of whole numbers, scales and zero points, however a model spells it.

IR-neutral. `dequantised` follows operators from a tensor back to constants; what it finds is
(number - zero point) * scale, element by element.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from boltgen.graph.attributes import Axis
from boltgen.graph.facts import MOVES, NARROWED
from boltgen.graph.graph import CONSTANT, Array, Expr, Graph
from boltgen.graph.numpy_semantics.operation import Operation
from boltgen.graph.numpy_semantics.operators import compute
from boltgen.graph.recursion import Steps, answer
from boltgen.ir.dtypes import DType
from boltgen.problems.gemm.packed import GROUPS, PackedWeights


@dataclass(frozen=True, slots=True)
class Dequantised:
    """Whole numbers, scales and zero points, each of one shape, or of one that broadcasts to it."""

    numbers: Array
    scales: Array
    zeros: Array

    def moved(self, move: Callable[[Array], Array]) -> Dequantised:
        """The same elements moved."""
        shape = self.numbers.shape
        whole = (np.broadcast_to(each, shape) for each in (self.numbers, self.scales, self.zeros))
        return Dequantised(*map(move, whole))


# Operators by which models make whole numbers of others.
_ON_NUMBERS = frozenset(
    {"add", "subtract", "multiply", "bitwise_and", "right_shift", "astype", "quantize"}
)


def constant(graph: Graph, index: int) -> Array | None:
    """Return the elements of a constant, of a quantised one, or of a value computed from whole
    numbers; None for others.
    """
    return answer(partial(_constant, graph), index)


def _constant(graph: Graph, index: int) -> Steps[int, Array | None]:
    expr = graph[index]
    if expr.op == CONSTANT:
        scalar = expr.array is None and expr.scalar is not None
        return np.asarray(expr.scalar, expr.dtype) if scalar else expr.array
    if not expr.is_static or not expr.args:
        return None
    is_made_whole = expr.dtype.startswith(("int", "uint")) and expr.op in _ON_NUMBERS
    if not is_made_whole and expr.op not in MOVES:
        return None
    arrays: list[Array] = []
    for arg in expr.args:
        each = yield arg
        takes_any = expr.op in MOVES or expr.op == "quantize"
        if each is None or not (takes_any or each.dtype.kind in "iu"):
            return None
        arrays.append(each)
    return compute(Operation.of(expr), arrays)


def dequantised(graph: Graph, index: int) -> Dequantised | None:
    """Return the whole numbers, scales and zero points of a tensor; None if it has none."""
    return answer(partial(_dequantised, graph), index)


_Found: TypeAlias = "Dequantised | None"


def _dequantised(graph: Graph, index: int) -> Steps[int, _Found]:
    expr = graph[index]
    if not expr.is_static or expr.dtype not in NARROWED or not expr.args:
        return None
    if expr.op in MOVES:
        x, move = (yield expr.args[0]), Operation.of(expr)
        return (
            None
            if x is None
            else x.moved(lambda array: compute(replace(move, dtype=str(array.dtype)), [array]))
        )
    if expr.op == "astype":
        return (yield from _cast(graph, expr))
    if expr.op == "dequantize":
        return _whole_operator(graph, expr)
    if expr.op in {"multiply", "subtract"}:
        return (yield from _stepped(graph, expr))
    return None


def _cast(graph: Graph, expr: Expr) -> Steps[int, _Found]:
    numbers = constant(graph, expr.args[0])
    if numbers is None:
        return (yield expr.args[0])
    if numbers.dtype.kind not in "iu":
        return None
    return Dequantised(numbers, np.ones((), np.float32), np.zeros((), np.int32))


def _whole_operator(graph: Graph, expr: Expr) -> Dequantised | None:
    """Relax's `dequantize`, of a tensor or along an axis."""
    numbers, scales, zeros = (constant(graph, each) for each in expr.args)
    if numbers is None or scales is None or zeros is None:
        return None
    if numbers.dtype.kind not in "iu" or zeros.dtype.kind not in "iu" or scales.dtype.kind != "f":
        return None
    axis = expr.attrs.of(Axis).at(numbers.ndim)

    def spread(each: Array) -> Array:
        others = numbers.ndim - 1 - axis
        return each.reshape((each.size, *(1,) * others) if each.size > 1 else ())

    return Dequantised(numbers, spread(scales), spread(zeros))


def _stepped(graph: Graph, expr: Expr) -> Steps[int, _Found]:
    """A zero point that is subtracted, or a scale that is multiplied with."""
    for place in (0, 1) if expr.op == "multiply" else (0,):
        y = constant(graph, expr.args[1 - place])
        if y is None or y.dtype.kind != "f":
            continue
        x = yield expr.args[place]
        if x is None:
            continue
        if np.broadcast_shapes(x.numbers.shape, y.shape) != x.numbers.shape:
            return None
        if expr.op == "multiply":
            return Dequantised(x.numbers, x.scales * y, x.zeros)
        is_whole = np.array_equal(y, np.trunc(y)) and float(np.abs(y).max(initial=0)) < 2**16
        if x.scales.ndim or not is_whole or float(x.scales) != 1.0:
            return None
        return Dequantised(x.numbers, x.scales, x.zeros + y.astype(np.int32))
    return None


def pack(found: Dequantised) -> tuple[PackedWeights, Array] | None:
    """Return the packed form of weights (N, K), and their bytes; None if no kernel reads it.

    Numbers of four bits take four; groups are the largest that have one scale and zero point each.
    A scale that is not as good in FP16, because it is too small or too large there, is none.
    """
    shape, both = found.numbers.shape, (found.numbers, found.zeros)
    ends = (min(int(each.min()) for each in both), max(int(each.max()) for each in both))
    fitting = (
        (bits, offset)
        for bits in (4, 8)
        for offset in (0, 2 ** (bits - 1))
        if ends[0] + offset >= 0 and ends[1] + offset < 2**bits
    )
    bits, offset = next(fitting, (0, 0))
    if not bits:
        return None
    # Small, as a model's largest weights have a hundred million numbers.
    numbers = found.numbers.astype(np.int16)
    zeros = np.broadcast_to(found.zeros.astype(np.int16), shape)
    scales = np.broadcast_to(found.scales, shape)
    group = _group(shape[1], scales, zeros)
    if not group or not np.isfinite(narrow := _narrow(scales[:, ::group])).all():
        return None
    of_groups = (zeros[:, ::group] + offset).astype(np.uint8)
    has_zeros = bool((of_groups != 2 ** (bits - 1)).any())
    form = PackedWeights(bits=bits, group=group, has_zeros=has_zeros)
    return form, form.packed(
        (numbers + offset).astype(np.uint8),
        np.ascontiguousarray(narrow),
        of_groups if has_zeros else None,
    )


def _narrow(scales: Array) -> Array:
    """Scales in FP16; NaN where that loses more than a rounding."""
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = scales.astype(np.float16)
    is_normal = np.abs(narrow.astype(np.float64)) >= DType.F16.smallest_normal
    # 255 times it is to be finite too: a product that needs the range of FP32 stays with TVM.
    is_small = np.abs(scales.astype(np.float64)) * 2**8 <= DType.F16.largest
    good = ((narrow == scales) | is_normal) & is_small
    return np.where(good, narrow, np.float16(np.nan)).astype(np.float16)


def _group(k: int, *arrays: Array) -> int:
    """The largest group whose rows have one number each in every array (N, K); 0 if there is none.

    No group is twice as long as a row.
    """
    ends: set[int] = set()
    for each in arrays:
        ends.update((np.flatnonzero((each[:, 1:] != each[:, :-1]).any(axis=0)) + 1).tolist())
    whole = (group for group in reversed(GROUPS) if group < 2 * k or group == GROUPS[0])
    return next((group for group in whole if not any(end % group for end in ends)), 0)
