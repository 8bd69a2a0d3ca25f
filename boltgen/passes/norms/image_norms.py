"""Group norms of images: a kernel computes them where images lie, if that is in NHWC.

    group_norm(x), x: (N, C, H, W) or (N, H, W, C) by `channel_axis`, without scale and shift

No IR has this operator. For images in NCHW, and for images that no kernel reads in place, it
becomes a norm of rows. If it is left after regions are outlined, it is spelled out for TVM.
IR-neutral.
"""

from __future__ import annotations

from math import prod

import numpy as np

from boltgen.errors import InvalidProblemError
from boltgen.graph.attributes import ImageNorm
from boltgen.graph.graph import IMAGE_NORM, Expr, Graph, GraphBuilder, Noted, with_each
from boltgen.ir.dtypes import DType
from boltgen.passes.regions.products import Rejects
from boltgen.problems.group_norm.problem import GroupNorm
from boltgen.problems.norm.problem import NormFunction
from boltgen.problems.workload import Workload

CHANNELS_FIRST, CHANNELS_LAST = 1, 3
_TO_NCHW, _TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)


def image_norm_problem(graph: Graph | GraphBuilder, expr: Expr) -> GroupNorm:
    """The problem of a group norm of images in NHWC.

    Raises:
        InvalidProblemError: an extent is beyond what kernels take.
    """
    (x,) = expr.args
    n, h, w, c = graph[x].static_shape
    attrs = expr.attrs.of(ImageNorm)
    return GroupNorm(
        n=n,
        h=h,
        w=w,
        c=c,
        groups=attrs.groups,
        epsilon=attrs.epsilon,
        in_dtype=DType(graph[x].dtype),
        out_dtype=DType(expr.dtype),
    )


def image_norms_in_place(graph: Graph, rejects: Rejects) -> Noted:
    """Return `graph` with group norms that a kernel computes in place, and all others as norms of
    rows.
    """
    notes: dict[str, None] = {}

    def write(expr: Expr, builder: GraphBuilder) -> int | None:
        if expr.attrs.of(ImageNorm).channel_axis != CHANNELS_LAST:
            return _of_rows(builder, expr.args[0], expr)
        try:
            problem = image_norm_problem(builder, expr)
            reason = rejects(Workload.of(problem))
            name = problem.short
        except InvalidProblemError as error:
            name, reason = IMAGE_NORM, str(error)
        if reason is None:
            return None
        notes[f"{name} is computed in NCHW, with transpositions around it: {reason}"] = None
        made = _of_rows(builder, builder.permute_dims(expr.args[0], _TO_NCHW), expr)
        return builder.permute_dims(made, _TO_NHWC)

    return Noted(with_each(graph, IMAGE_NORM, write), tuple(notes))


def without_image_norms(graph: Graph) -> Graph:
    """Return `graph` with operators that IRs have in place of group norms of images."""

    def write(expr: Expr, builder: GraphBuilder) -> int:
        attrs, (x,) = expr.attrs.of(ImageNorm), expr.args
        if attrs.channel_axis == CHANNELS_FIRST:
            return _of_rows(builder, x, expr)
        n, h, w, c = builder.shape(x)
        apart = builder.reshape(x, (n, h * w, attrs.groups, c // attrs.groups))
        made = spelled_out(
            builder, apart, (1, 3), NormFunction.LAYER, epsilon=attrs.epsilon, dtype=expr.dtype
        )
        return builder.reshape(made, (n, h, w, c))

    return with_each(graph, IMAGE_NORM, write)


def spelled_out(
    builder: GraphBuilder,
    x: int,
    axes: tuple[int, ...],
    function: NormFunction,
    *,
    epsilon: float,
    dtype: str,
) -> int:
    """A layer or RMS norm along `axes`, spelled out in FP32 as `norm_spellings` reads it."""
    wide = DType.F32.value
    x = builder.in_dtype(x, wide)
    if function is NormFunction.LAYER:
        mean = builder.reduce("mean", x, axes, keepdims=True)
        x = builder.elementwise("subtract", x, mean)
    squares = builder.elementwise("multiply", x, x)
    squares = builder.reduce("mean", squares, axes, keepdims=True)
    raised = builder.elementwise("add", squares, builder.constant(np.array(epsilon, wide)))
    made = builder.elementwise("multiply", x, builder.elementwise("rsqrt", raised))
    return builder.in_dtype(made, dtype)


def spelled_rows(
    builder: GraphBuilder,
    x: int,
    columns: int,
    function: NormFunction,
    *,
    epsilon: float,
    dtype: str,
) -> int:
    """A norm of rows of so many of the elements of `x`, spelled out."""
    shape = builder.shape(x)
    rows = builder.reshape(x, (prod(shape) // columns, columns))
    made = spelled_out(builder, rows, (1,), function, epsilon=epsilon, dtype=dtype)
    return builder.reshape(made, shape)


def _of_rows(builder: GraphBuilder, x: int, expr: Expr) -> int:
    """The norm of images in NCHW as one of rows."""
    attrs, function = expr.attrs.of(ImageNorm), NormFunction.LAYER
    columns = prod(builder.shape(x)[1:]) // attrs.groups
    return spelled_rows(builder, x, columns, function, epsilon=attrs.epsilon, dtype=expr.dtype)
