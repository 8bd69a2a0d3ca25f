"""Rewrite norms of several axes at the end of a tensor as norms of rows, which kernels compute.

    group_norm(x), x: (N, C, L) -> x as (N groups, C / groups L), each row normed, as it was

Layer norms of several axes and instance norms are the same, spelled out or not. A scale and a shift
of channels are no part of a row: they come after it. Images have an operator of their own until it
is known how they lie: `image_norms`. IR-neutral.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from boltgen.graph.attributes import ImageNorm, LayerNorm, ScaledGroupNorm
from boltgen.graph.facts import FLOATS, are_static, behind, is_filled
from boltgen.graph.graph import IMAGE_NORM, Expr, Graph, GraphBuilder, rewritten
from boltgen.ir.extent import Dim, UndecidedExtentError, has_dynamic
from boltgen.passes.norms.image_norms import CHANNELS_FIRST, spelled_rows
from boltgen.passes.norms.spelled_norms import Spelled, spelled_norm
from boltgen.problems.norm.problem import NormFunction

GROUP_NORM, _LAYER_NORM, _RESHAPE = "nn.group_norm", "nn.layer_norm", "reshape"
_IMAGE_RANK = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joint:
    """A norm of `x` as a norm of rows of `columns`; `affine` is the operator's scale and shift.

    `along` is the shape in which the scale and the shift are multiplied and added. If `groups` is
    not 0, `x` is images in NCHW with so many groups of channels.
    """

    x: int
    columns: int
    function: NormFunction
    epsilon: float
    affine: tuple[tuple[str, int], ...] = ()
    along: tuple[int, ...] = ()
    groups: int = 0


def norms_of_joint_rows(graph: Graph) -> Graph:
    """Return `graph` with norms of several axes as norms of rows."""
    found = {index: each for index in range(len(graph)) if (each := _joint(graph, index))}

    def write(index: int, builder: GraphBuilder, names: dict[int, int]) -> None:
        names[index] = _written(builder, names, found[index], graph[index])

    return rewritten(graph, found, write)


def _joint(graph: Graph, index: int) -> _Joint | None:
    expr = graph[index]
    if not expr.is_static or expr.dtype not in FLOATS:
        return None
    if not are_static(graph, *expr.args):
        return None
    try:
        if expr.op == GROUP_NORM:
            return _of_groups(graph, expr)
        if expr.op == _LAYER_NORM:
            return _of_axes(graph, expr)
        if expr.op == _RESHAPE:
            return _of_images_in_groups(graph, index)
        return _of_spelled(graph, index)
    except UndecidedExtentError:
        return None


def _of_groups(graph: Graph, expr: Expr) -> _Joint | None:
    shape, attrs = graph[expr.args[0]].static_shape, expr.attrs.of(ScaledGroupNorm)
    rank, groups = len(shape), attrs.groups
    is_after = sorted(axis % rank for axis in attrs.axes) == list(range(2, rank))
    if attrs.channel_axis % rank != 1 or not is_after:
        return None
    if has_dynamic(shape[1:]) or shape[1] % groups:
        return None
    columns = shape[1] // groups * prod(shape[2:])
    made = _with_affine(expr, columns, (shape[1], *(1,) * (rank - 2)))
    return replace(made, groups=groups) if rank == _IMAGE_RANK else made


def _of_axes(graph: Graph, expr: Expr) -> _Joint | None:
    shape = graph[expr.args[0]].static_shape
    rank = len(shape)
    axes = tuple(sorted(axis % rank for axis in expr.attrs.of(LayerNorm).axes))
    inner = shape[rank - len(axes) :]
    if len(axes) < 2 or axes != tuple(range(rank - len(axes), rank)):
        return None
    if has_dynamic(inner):
        return None
    return _with_affine(expr, prod(inner), inner)


def _with_affine(expr: Expr, columns: int, along: tuple[int, ...]) -> _Joint:
    attrs = expr.attrs.of(LayerNorm)
    affine = zip(("multiply", "add"), expr.args[1:], (attrs.scale, attrs.center), strict=True)
    return _Joint(
        x=expr.args[0],
        columns=columns,
        function=NormFunction.LAYER,
        epsilon=attrs.epsilon,
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
    if shape != graph[index].static_shape or has_dynamic(inner):
        return None
    return _Joint(
        x=spelled.x,
        columns=prod(inner),
        function=spelled.function,
        epsilon=spelled.epsilon,
        groups=_groups_of(shape, spelled),
    )


def _groups_of(shape: tuple[int, ...], spelled: Spelled) -> int:
    """Return the groups of channels of a layer norm of whole images, or of their channels."""
    is_image = len(shape) == _IMAGE_RANK and spelled.function is NormFunction.LAYER
    if not is_image or isinstance(shape[1], Dim):
        return 0
    return {1: 1, 2: shape[1]}.get(spelled.outer, 0)


def _of_images_in_groups(graph: Graph, index: int) -> _Joint | None:
    """Match a norm of images that a reshape splits into groups, and that ends at `index`.

    Each channel may be an image of its own, as PyTorch decomposes instance norms: then the scale
    and the shift are tiled. Multiplying by ones and adding zeros in an instance norm of groups
    changes nothing.
    """
    shape = graph[index].static_shape
    at, affine = _affine_of(graph, graph[index].args[0])
    found = _of_instances(graph, at)
    if len(shape) != _IMAGE_RANK or found is None:
        return None
    x, epsilon = found
    apart = graph[x]
    if apart.op != _RESHAPE or not apart.is_static:
        return None
    (source,) = apart.args
    if graph[source].shape != shape or has_dynamic(shape[1:]):
        return None
    if graph[source].dtype != graph[index].dtype:
        return None
    rows, columns = prod(apart.static_shape[:2]), prod(apart.static_shape[2:])
    groups = rows // shape[0]
    if isinstance(groups, Dim) or rows != groups * shape[0] or shape[1] % groups:
        return None
    if any(graph[each].static_shape != (groups,) for _, each in affine):
        return None
    if affine and groups != shape[1]:
        return None
    return _Joint(
        x=source,
        columns=columns,
        function=NormFunction.LAYER,
        epsilon=epsilon,
        affine=affine,
        along=(shape[1], 1, 1),
        groups=groups,
    )


def _of_instances(graph: Graph, at: int) -> tuple[int, float] | None:
    """Return the operand and epsilon of the norm at `at`, if its rows are the axes after the
    second.

    It neither scales nor shifts.
    """
    expr = graph[at]
    if expr.op != GROUP_NORM:
        spelled = spelled_norm(graph, at, several_axes=True)
        is_of_instances = spelled is not None and spelled.outer == 2
        if spelled is None or not is_of_instances or spelled.function is not NormFunction.LAYER:
            return None
        return spelled.x, spelled.epsilon
    x, *affine = expr.args
    joint = _of_groups(graph, expr) if graph[x].is_static else None
    if joint is None or expr.attrs.of(ScaledGroupNorm).groups != graph[x].static_shape[1]:
        return None
    is_plain = all(_is_filled(graph, each, n) for each, n in zip(affine, (1.0, 0.0), strict=True))
    return (x, joint.epsilon) if is_plain else None


def _affine_of(graph: Graph, at: int) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Return the scaled and shifted value up to `at`, and the vectors, tiled along axis 1."""
    neutral, found = {"add": 0.0, "multiply": 1.0}, list[tuple[str, int]]()
    while graph[at].op in neutral:
        op = graph[at].op
        left, right = graph[at].args
        if graph[left].shape != graph[at].shape:
            left, right = right, left
        tiled = _tiled(graph, right, graph[at])
        if tiled is not None:
            found.insert(0, (op, tiled))
        elif not _is_filled(graph, right, neutral[op]):
            break
        at = left
    return at, tuple(found)


def _tiled(graph: Graph, at: int, whole: Expr) -> int | None:
    """Return the vector that is tiled along the second axis of `whole`, or None."""
    rank, expr = len(whole.static_shape), graph[at]
    if not expr.is_static:
        return None
    shape = (1,) * (rank - len(expr.static_shape)) + expr.static_shape
    if rank < 2 or shape != (1, whole.static_shape[1], *(1,) * (rank - 2)):
        return None
    while graph[at].op == _RESHAPE:
        (at,) = graph[at].args
    if graph[at].op != "tile":
        return None
    source = graph[at].args[0]
    is_vector = graph[source].is_static and len(graph[source].static_shape) == 1
    return source if is_vector and len(graph[at].shape or ()) == 1 else None


def _is_filled(graph: Graph, at: int, number: float) -> bool:
    """Return whether all elements of a constant, in any shape, are this number."""
    return is_filled(graph[behind(graph, at, {_RESHAPE})], number)


def _written(builder: GraphBuilder, names: dict[int, int], joint: _Joint, expr: Expr) -> int:
    """The norm of images, or of rows, and the scale and the shift after it."""
    x = names[joint.x]
    if joint.groups:
        attrs = ImageNorm(joint.groups, joint.epsilon, CHANNELS_FIRST)
        made = builder.operator(IMAGE_NORM, (x,), builder.shape(x), expr.dtype, attrs)
    else:
        made = spelled_rows(
            builder, x, joint.columns, joint.function, epsilon=joint.epsilon, dtype=expr.dtype
        )
    for op, at in joint.affine:
        made = builder.elementwise(op, made, builder.reshape(names[at], joint.along))
    return made
