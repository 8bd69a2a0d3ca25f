"""Products of bytes: their problems, and how they are written into a graph.

A product of int8 or uint8 by int8 has sums of int32. An image of few channels gets more, and a
border of its zero point, since kernels put zeros there.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from boltgen.errors import InvalidProblemError
from boltgen.graph.attributes import Convolution
from boltgen.graph.graph import Array, Expr, Graph, GraphBuilder
from boltgen.ir.dtypes import DType, Layout
from boltgen.passes.regions.anchor import CONV2D, MATMUL
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem

# A kernel of integers copies images in vectors of four bytes at least.
LEAST_CHANNELS = 4


class KeptError(Exception):
    """Carries the reason why a product of quantised tensors is none of bytes."""


def channels(graph: Graph, expr: Expr) -> tuple[int, int, int]:
    """Return the axis of channels in B and in the result, and the extent of K."""
    shape = graph[expr.args[1]].static_shape
    if expr.op == MATMUL:
        if len(shape) != 2:
            raise KeptError("its weight is no matrix")
        return 1, len(expr.static_shape) - 1, shape[0]
    attrs = expr.attrs.of(Convolution)
    channel = attrs.kernel_layout.index("O")
    return channel, attrs.out_layout.index("C"), prod(shape) // shape[channel]


def more_channels(graph: Graph, expr: Expr) -> int:
    """Return the channels that make an image's one to three channels a vector of four bytes.

    A kernel copies four bytes at least without passing them through registers.
    """
    if expr.op != CONV2D:
        return 0
    attrs = expr.attrs.of(Convolution)
    channels = graph[expr.args[0]].static_shape[attrs.data_layout.index("C")]
    return LEAST_CHANNELS - channels if attrs.groups == 1 and channels < LEAST_CHANNELS else 0


def problem_of(graph: Graph, expr: Expr, operand: DType, more: int, border: int) -> Problem:
    """Return the problem of a product of integers, as `add_sums` adds it, but in NHWC.

    Raises:
        KeptError: there is none.
    """
    a, b = (graph[arg].static_shape for arg in expr.args)
    types: dict[str, Any] = {
        "in_dtype": operand,
        "acc_dtype": DType.I32,
        "out_dtype": DType.I32,
    }
    try:
        if expr.op == MATMUL:
            m, (k, n) = prod(a[:-1]), b
            return Gemm(m=m, n=n, k=k, b_layout=Layout.COLUMN, **types)
        attrs = expr.attrs.of(Convolution)
        given = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout)
        is_plain = [sorted(each) for each in given[:2]] == [sorted("NCHW"), sorted("OIHW")]
        if not is_plain or attrs.out_layout != attrs.data_layout:
            raise KeptError("its layouts are {}, {} and {}".format(*given))
        widths = _widths(attrs, more, border)
        attrs = _without_padding(attrs, border)
        whole = (before + extent + after for extent, (before, after) in zip(a, widths, strict=True))
        image = dict(zip(attrs.data_layout, whole, strict=True))
        kernel = dict(zip(attrs.kernel_layout, b, strict=True))
        if 1 < attrs.groups == image["C"]:
            raise KeptError("a depthwise convolution has no kernel of integers")
        top, left, bottom, right = attrs.padding
        (down, along), (apart, beside) = attrs.strides, attrs.dilation
        return Conv2d(
            n=image["N"],
            h=image["H"],
            w=image["W"],
            c=image["C"],
            k=kernel["O"],
            r=kernel["H"],
            s=kernel["W"],
            stride=(down, along),
            padding=(top, left, bottom, right),
            dilation=(apart, beside),
            groups=attrs.groups,
            **types,
        )
    except InvalidProblemError as error:
        raise KeptError(str(error)) from None


def of_channels(array: Array, channel: int) -> Array:
    """Return a row for each channel."""
    return np.moveaxis(array, channel, 0).reshape(array.shape[channel], -1)


def _widths(attrs: Convolution, more: int, border: int) -> list[tuple[int, int]]:
    """Return the elements that are put before and after each axis of an image."""
    top, left, bottom, right = attrs.padding if border else (0, 0, 0, 0)
    known = {"H": (top, bottom), "W": (left, right), "C": (0, more)}
    return [known.get(axis, (0, 0)) for axis in attrs.data_layout]


def _without_padding(attrs: Convolution, border: int) -> Convolution:
    """Return the attributes of a convolution whose image already has a border that is not 0."""
    return replace(attrs, padding=(0, 0, 0, 0)) if border else attrs


def add_sums(  # noqa: PLR0917
    builder: GraphBuilder, expr: Expr, a: int, b: Array, more: int, border: int
) -> int:
    """Add the product of bytes `a` and of int8 `b` that takes the place of `expr`, with int32 sums.

    An image gets `more` channels, and `border` around it in the place of the padding.
    """
    attrs = expr.attrs
    if isinstance(attrs, Convolution):
        widths = _widths(attrs, more, border)
        if any(map(any, widths)):
            a = builder.pad(a, widths, float(border), "constant")
        attrs = _without_padding(attrs, border)
        b = np.pad(b, [(0, more * (axis == "I")) for axis in attrs.kernel_layout])
    args = (a, builder.constant(b))
    return builder.operator(expr.op, args, expr.static_shape, DType.I32.value, attrs)


def along(array: Array, shape: tuple[int, ...], axis: int) -> Array:
    """Return an array with a number for each place of an axis, as it broadcasts to `shape`."""
    return array.reshape((-1,) + (1,) * (len(shape) - 1 - axis))
