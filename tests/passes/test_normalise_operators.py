"""An operator computes the same in FP16 and NHWC, however its operand lies or is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from boltgen.graph.graph import Graph
from boltgen.graph.numpy_semantics.interpret import run
from boltgen.ir.dtypes import DType
from boltgen.passes.precision.walk import normalise
from tests.passes.differential import drawn, operators
from tests.passes.networks import F16, F32, IMAGE, ROWS, N, Net

Build = Callable[[Net, int], int]


def _image(b: Net) -> int:
    """A convolution's result, which lies in NHWC."""
    return b.elementwise("nn.relu", b.conv(b.input(*IMAGE)))


def _flat(b: Net) -> int:
    """An image's pixels in a row, whose elements stay where they lie."""
    image = _image(b)
    return b.reshape(image, (N, int(np.prod(b.shape(image)[1:]))))


def _large(b: Net) -> int:
    """An image of numbers that FP16 has not."""
    return b.elementwise("square", b.elementwise("multiply", _image(b), b.number(500.0)))


def _constant(b: Net) -> int:
    return b.weight(*IMAGE)


SOURCES: dict[str, Callable[[Net], int]] = {
    "rows": lambda b: b.product(b.input(*ROWS), 8),
    "image": _image,
    "flat": _flat,
    "large": _large,
    "constant": _constant,
    "input": lambda b: b.input(*IMAGE),
    "half": lambda b: b.input(*IMAGE, dtype=F16),
    "integers": lambda b: b.elementwise(
        "add", b.input(*IMAGE, dtype="int32"), b.constant(np.array(3, np.int32))
    ),
    "truths": lambda b: b.input(*IMAGE, dtype="bool"),
}


def _along(b: Net, x: int, op: str, axis: int, extent: int, *others: int, **attrs: Any) -> int:
    before = b.shape(x)
    shape = (*before[:axis], extent, *before[axis + 1 :])
    return b.operator(op, (x, *others), shape, b.dtype(x), axis=axis, **attrs)


def _cut(axis: int) -> Build:
    return lambda b, x: _along(b, x, "strided_slice", axis, 1, begin=1, end=2)


def _joined(axis: int) -> Build:
    return lambda b, x: _along(b, x, "concat", axis, 2 * b.shape(x)[axis], x)


def _beside_a_constant(b: Net, x: int) -> int:
    other = b.constant(np.ones(b.shape(x), b.dtype(x)))
    return _along(b, x, "concat", 1, 2 * b.shape(x)[1], other)


def _repeated(axis: int) -> Build:
    return lambda b, x: _along(b, x, "repeat", axis, 2 * b.shape(x)[axis], repeats=2)


def _taken(axis: int) -> Build:
    def build(b: Net, x: int) -> int:
        rows = b.constant(np.array([1, 0, 1], np.int64))
        return _along(b, x, "take", axis, 3, rows, mode="fast")

    return build


def _one_taken(b: Net, x: int) -> int:
    shape = (b.shape(x)[0], *b.shape(x)[2:])
    args = (x, b.constant(np.array(1, np.int64)))
    return b.operator("take", args, shape, b.dtype(x), axis=1, mode="fast")


def _reduced(op: str, *axes: int, keepdims: bool = True) -> Build:
    def build(b: Net, x: int) -> int:
        own = [axis % len(b.shape(x)) for axis in axes]
        shape = tuple(
            1 if axis in own else extent
            for axis, extent in enumerate(b.shape(x))
            if keepdims or axis not in own
        )
        return b.operator(op, (x,), shape, b.dtype(x), axis=axes, keepdims=keepdims)

    return build


def _padded(number: float, axis: int = 1, mode: str = "constant") -> Build:
    def build(b: Net, x: int) -> int:
        widths = [(1, 2) if at == axis else (0, 0) for at in range(len(b.shape(x)))]
        before = b.shape(x)
        shape = tuple(e + sum(pair) for e, pair in zip(before, widths, strict=True))
        attrs = {"widths": tuple(widths), "value": number, "mode": mode}
        return b.operator("nn.pad", (x,), shape, b.dtype(x), **attrs)

    return build


def _stacked(axis: int) -> Build:
    def build(b: Net, x: int) -> int:
        before = b.shape(x)
        shape = (*before[:axis], 2, *before[axis:])
        return b.operator("stack", (x, x), shape, b.dtype(x), axis=axis)

    return build


def _most_of_a_stack(b: Net, x: int) -> int:
    return _reduced("max", 0, keepdims=False)(b, _stacked(0)(b, x))


def _chosen(b: Net, x: int) -> int:
    shape, dtype = b.shape(x), b.dtype(x)
    args = (x, b.constant(np.array(1, dtype)))
    seen = b.operator("greater", args, shape, "bool")
    return b.operator("where", (seen, x, b.constant(np.array(2, dtype))), shape, dtype)


def _reversed(b: Net, x: int) -> int:
    shape = b.shape(x)[::-1]
    return b.operator("permute_dims", (x,), shape, b.dtype(x), axes=None)


def _whole(b: Net, x: int) -> int:
    return b.reshape(x, (int(np.prod(b.shape(x))),))


def _wider(b: Net, x: int) -> int:
    return b.operator("broadcast_to", (x,), (3, *b.shape(x)), b.dtype(x))


def _prelu(b: Net, x: int) -> int:
    slopes = b.weight(b.shape(x)[1])
    return b.operator("nn.prelu", (x, slopes), b.shape(x), F32, axis=1)


def _one_slope(b: Net, x: int) -> int:
    return b.operator("nn.prelu", (x, b.weight(1)), b.shape(x), F32, axis=1)


def _unknown_slopes(b: Net, x: int) -> int:
    return b.operator("nn.prelu", (x, b.input(b.shape(x)[1])), b.shape(x), F32, axis=1)


def _biased(b: Net, x: int) -> int:
    bias = b.input(b.shape(x)[1])
    return b.operator("nn.bias_add", (x, bias), b.shape(x), F32, axis=1)


def _power(number: float) -> Build:
    return lambda b, x: b.elementwise("power", b.elementwise("abs", x), b.number(number))


def _cast(dtype: str) -> Build:
    return lambda b, x: b.astype(x, dtype)


MOVES: dict[str, Build] = {
    **{f"cut {axis}": _cut(axis) for axis in (0, 1)},
    **{f"joined {axis}": _joined(axis) for axis in (0, 1)},
    **{f"repeated {axis}": _repeated(axis) for axis in (0, 1)},
    **{f"taken {axis}": _taken(axis) for axis in (0, 1)},
    "one taken": _one_taken,
    "beside a constant": _beside_a_constant,
    "padded": _padded(0.0),
    "padded by ones": _padded(1.0),
    "padded by small numbers": _padded(2.0**-20),
    "padded by its edge": _padded(0.0, mode="edge"),
    "stacked 0": _stacked(0),
    "stacked 1": _stacked(1),
    "most of a stack": _most_of_a_stack,
    "reversed": _reversed,
    "whole": _whole,
    "wider": _wider,
    "cast": _cast(F32),
    "cast to halves": _cast(F16),
    "cast to integers": _cast("int32"),
}
ARITHMETIC: dict[str, Build] = {
    **{f"mean {axis}": _reduced("mean", axis) for axis in (0, 1, -1)},
    "mean of pixels": _reduced("mean", -2, -1, keepdims=False),
    "sum": _reduced("sum", -1),
    "sums of columns": _reduced("sum", 0, keepdims=False),
    "most": _reduced("max", 1),
    "variance": _reduced("variance", -1),
    **{f"softmax {axis}": lambda b, x, axis=axis: b.softmax(x, axis) for axis in (0, 1)},
    "norm": lambda b, x: b.layer_norm(x),
    "chosen": _chosen,
    "prelu": _prelu,
    "one slope": _one_slope,
    "unknown slopes": _unknown_slopes,
    "biased": _biased,
    **{f"power {number}": _power(number) for number in (0.5, 2.0)},
    "clipped": lambda b, x: b.elementwise("clip", x, low=-1.0, high=2.0),
    "added to a row": lambda b, x: b.elementwise("add", x, b.weight(b.shape(x)[-1])),
    "times itself": lambda b, x: b.elementwise("multiply", x, x),
}
# Sources of integers, for which arithmetic of floats is not defined, and casts whose result a
# rounding of the operand may change.
_WHOLE = {"half", "integers", "truths"}
_ROUNDED = {"image", "flat", "large", "rows"}
CASES = [
    *((source, each) for source in SOURCES for each in ARITHMETIC if source not in _WHOLE),
    *(
        (source, each)
        for source in SOURCES
        for each in MOVES
        if not (each == "cast to integers" and source in _ROUNDED)
        and not (each == "cast to halves" and source == "large")
    ),
]


def _graph(source: str, operator: str, *, is_read_again: bool) -> Graph:
    b = Net()
    x = SOURCES[source](b)
    made = (MOVES | ARITHMETIC)[operator](b, x)
    return b.graph((made, x) if is_read_again else made)


@pytest.mark.parametrize("is_read_again", [False, True])
@pytest.mark.parametrize(("source", "operator"), CASES)
def test_an_operator_computes_the_same(source: str, operator: str, *, is_read_again: bool) -> None:
    graph = _graph(source, operator, is_read_again=is_read_again)
    made = normalise(graph).graph
    given = drawn(graph)
    for left, right in zip(run(made, given), run(graph, given), strict=True):
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        if right.dtype.kind != "f":
            np.testing.assert_array_equal(left, right)
            continue
        largest = max(1.0, float(np.abs(right).max(initial=0.0)))
        np.testing.assert_allclose(left, right, rtol=0, atol=16 * DType.F16.ulp * largest)


@pytest.mark.parametrize("operator", [each for each in MOVES if not each.startswith("cast")])
def test_moves_of_narrow_values_are_narrow(operator: str) -> None:
    """A value is widened once, where the model returns it."""
    made = normalise(_graph("image", operator, is_read_again=False)).graph
    widened = [expr for expr in made.exprs if expr.op == "astype" and expr.dtype == F32]
    assert len(widened) == 1
    assert operators(made).count("nn.conv2d") == 1
