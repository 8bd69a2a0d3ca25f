"""Norms of several axes at the end of a tensor, as norms of rows, which kernels compute.

    group_norm(x), x: (N, C, H, W) -> x as (N groups, C / groups H W), each row normed, as it was

Layer norms of several axes and instance norms are the same, spelled out or not. A scale and a shift
of channels are no part of a row: they come after it. IR-neutral.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import cast

import numpy as np

from boltgen.frontend.graph import Expr, Graph, GraphBuilder, mapped, renamed
from boltgen.frontend.passes.norm_spellings import spelled_norm
from boltgen.ir.dtypes import DType
from boltgen.ir.extent import Dim, UndecidedExtentError
from boltgen.ir.norm import NormFunction

GROUP_NORM, _LAYER_NORM = "nn.group_norm", "nn.layer_norm"
_FLOATS = frozenset(dtype.value for dtype in DType)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joint:
    """What becomes a norm of rows of `columns`: that of `x`; `affine` is the operator's own.

    `along` is the shape in which the scale and the shift are multiplied and added.
    """

    x: int
    columns: int
    function: NormFunction
    epsilon: float
    affine: tuple[tuple[str, int], ...] = ()
    along: tuple[int, ...] = ()


def norms_of_joint_rows(graph: Graph) -> Graph:
    """`graph` with norms of several axes as norms of rows."""
    found = {index: each for index in range(len(graph)) if (each := _joint(graph, index))}
    if not found:
        return graph
    builder = GraphBuilder()
    names: dict[int, int] = {}
    for index, expr in enumerate(graph.exprs):
        if index in found:
            names[index] = _written(builder, names, found[index], expr)
        else:
            names[index] = builder.add(renamed(expr, names))
    return builder.graph(mapped(graph.results, names))


def _joint(graph: Graph, index: int) -> _Joint | None:
    expr = graph[index]
    if not expr.is_static or expr.dtype not in _FLOATS:
        return None
    if not all(graph[arg].is_static for arg in expr.args):
        return None
    try:
        if expr.op == GROUP_NORM:
            return _of_groups(graph, expr)
        if expr.op == _LAYER_NORM:
            return _of_axes(graph, expr)
        return _of_spelled(graph, index)
    except UndecidedExtentError:
        return None


def _of_groups(graph: Graph, expr: Expr) -> _Joint | None:
    shape, attrs = graph[expr.args[0]].static_shape, expr.attrs
    rank = len(shape)
    axes = tuple(sorted(axis % rank for axis in cast("tuple[int, ...]", attrs["axes"])))
    groups, is_after = cast("int", attrs["groups"]), axes == tuple(range(2, rank))
    if cast("int", attrs["channel_axis"]) % rank != 1 or not is_after:
        return None
    if any(isinstance(extent, Dim) for extent in shape[1:]) or shape[1] % groups:
        return None
    columns = shape[1] // groups * prod(shape[2:])
    return _with_affine(expr, columns, (shape[1], *(1,) * (rank - 2)))


def _of_axes(graph: Graph, expr: Expr) -> _Joint | None:
    shape = graph[expr.args[0]].static_shape
    rank = len(shape)
    axes = tuple(sorted(axis % rank for axis in cast("tuple[int, ...]", expr.attrs["axes"])))
    inner = shape[rank - len(axes) :]
    if len(axes) < 2 or axes != tuple(range(rank - len(axes), rank)):
        return None
    if any(isinstance(extent, Dim) for extent in inner):
        return None
    return _with_affine(expr, prod(inner), inner)


def _with_affine(expr: Expr, columns: int, along: tuple[int, ...]) -> _Joint:
    ops, given = ("multiply", "add"), (expr.attrs["scale"], expr.attrs["center"])
    affine = zip(ops, expr.args[1:], given, strict=True)
    return _Joint(
        x=expr.args[0],
        columns=columns,
        function=NormFunction.LAYER,
        epsilon=cast("float", expr.attrs["epsilon"]),
        affine=tuple((op, at) for op, at, is_given in affine if is_given),
        along=along,
    )


def _of_spelled(graph: Graph, index: int) -> _Joint | None:
    spelled = spelled_norm(graph, index, several_axes=True)
    if spelled is None or not graph[spelled.x].is_static:
        return None
    shape = graph[spelled.x].static_shape
    inner = shape[spelled.outer :]
    # A row of one axis needs no other shape.
    if prod(inner) == shape[-1] and prod(shape[:-1]) == prod(shape[: spelled.outer]):
        return None
    if shape != graph[index].static_shape or any(isinstance(extent, Dim) for extent in inner):
        return None
    return _Joint(
        x=spelled.x,
        columns=prod(inner),
        function=spelled.function,
        epsilon=spelled.epsilon,
    )


def _written(builder: GraphBuilder, names: dict[int, int], joint: _Joint, expr: Expr) -> int:
    """The norm spelled out in FP32, as `norm_spellings` reads it."""
    shape, wide = expr.static_shape, DType.F32.value
    x = names[joint.x]
    rows = prod(shape) // joint.columns
    flat = builder.reshape(x, (rows, joint.columns))
    flat = flat if builder.dtype(flat) == wide else builder.astype(flat, wide)

    def mean(of: int) -> int:
        return builder.operator("mean", (of,), (rows, 1), wide, axis=(1,), keepdims=True)

    if joint.function is NormFunction.LAYER:
        flat = builder.elementwise("subtract", flat, mean(flat))
    squares = mean(builder.elementwise("multiply", flat, flat))
    epsilon = builder.constant(np.array(joint.epsilon, wide))
    root = builder.elementwise("rsqrt", builder.elementwise("add", squares, epsilon))
    made = builder.reshape(builder.elementwise("multiply", flat, root), shape)
    made = made if expr.dtype == wide else builder.astype(made, expr.dtype)
    for op, at in joint.affine:
        made = builder.elementwise(op, made, builder.reshape(names[at], joint.along))
    return made
