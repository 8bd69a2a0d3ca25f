"""Attention heads inside TVM's tensors: strides, and pointers at an offset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from boltgen.codegen.adapter_tensors import Field, data_call, sequences, shape_check
from boltgen.ir.dtypes import DType, Layout
from boltgen.problems.gemm.problem import packed_weights
from boltgen.problems.grouped.problem import in_groups
from boltgen.problems.problem import Problem, element_b, further_inputs, gathered
from boltgen.problems.region import HeadView, LayerRoles, Region


def viewed_sizes(region: Region, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of a launch with the strides of the region's views.

    `sizes` describe dense matrices. All operands of a launch have the same number of heads, so a
    dense operand gets a stride between heads too.
    """
    made = dict(sizes)
    if region.heads == 1 and not region.views:
        return made
    made["heads"] = region.heads
    for index, roles in enumerate(region.layers):
        made[f"layers[{index}].group_b"] = roles.b_group
    for where, name, view, rows in _operands(region):
        dense = made[f"{where}batch_stride_{name}"]
        matrices = region.heads // made.get(f"{where}group_{name}", 1)
        made[f"{where}head_stride_{name}"] = dense if view is None else view.stride
        if view is None:
            made[f"{where}batch_stride_{name}"] = dense * matrices
            continue
        apart = (region.workload.batch // region.heads, 1) if view.rows_first else (1, rows)
        made[f"{where}ld{name}"] = apart[0] * view.row
        made[f"{where}batch_stride_{name}"] = apart[1] * view.row
    return made


def _operands(region: Region) -> Iterator[tuple[str, str, HeadView | None, int]]:
    """Yield each operand's layer and name in a launch's sizes, its view, and its rows."""
    scores, output = (layer.problem.gemm for layer in region.workload.layers)
    k, v = (roles.b_view for roles in region.layers)
    yield "", "a", region.a_view, scores.m
    yield "layers[0].", "b", k, scores.n
    yield "layers[1].", "b", v, output.k
    yield "", "d", region.d_view, scores.m


def view_call(
    view: HeadView,
    index: int,
    role: str,
    dtype: DType,
    outer: tuple[int | str, int],
    *,
    tensor: str = "",
) -> str:
    """Return the C++ call that checks the tensor of a view and returns its first head's pointer.

    `outer` has the number of sequences, and the rows of each matrix.
    """
    shape = (*(reversed(outer) if view.rows_first else outer), *view.inner)
    whole = data_call(index, role, dtype, (shape, "kMatrix"), tensor)
    skipped = view.offset * dtype.size_bytes
    return f"call.behind({whole}, {skipped})" if skipped else whole


def b_call(roles: LayerRoles, role: str, problem: Problem) -> str | None:
    """Return the C++ call that checks B and returns its pointer, or None if there is no B."""
    if roles.b is None:
        return None
    dtype = problem.in_dtype
    if roles.b_view is not None:
        heads = roles.b_view.heads * roles.b_group
        outer = (sequences(problem.batch, heads), b_rows(problem))
        return view_call(roles.b_view, roles.b, role, dtype, outer)
    shape, rank = shape_check(problem, problem.b_shape)
    if packed_weights(problem) is not None or dtype.is_whole:
        return data_call(roles.b, role, element_b(problem), (shape, rank))
    if roles.b_group > 1:
        shape = (sequences(problem.batch, roles.b_group), *shape[1:])
    return data_call(roles.b, role, dtype, (shape, rank))


def ends_call(roles: LayerRoles, role: str, problem: Problem) -> str | None:
    """Return the C++ call that checks the ends of groups and returns their pointer, or None."""
    grouped = in_groups(problem)
    if grouped is None or roles.ends is None:
        return None
    return data_call(roles.ends, role, grouped.ends_dtype, ((grouped.groups,), "kVector"))


def rows_call(roles: LayerRoles, role: str, problem: Problem) -> str | None:
    """Return the C++ call that checks a gather's indices and returns their pointer, or None."""
    taken = gathered(problem)
    if taken is None or roles.rows is None:
        return None
    return data_call(roles.rows, role, taken.dtype, ((taken.rows,), "kVector"))


def further_calls(roles: LayerRoles, problem: Problem) -> Iterator[Field]:
    """Return the fields of a problem's further inputs, and the C++ calls that check each."""
    for parameter, each in zip(roles.further, further_inputs(problem), strict=True):
        yield each.field, data_call(parameter, each.field, each.dtype, (each.shape, "kExact"))


def b_rows(problem: Problem) -> int:
    """Return the rows of B in its memory layout."""
    gemm = problem.gemm
    return gemm.k if gemm.b_layout is Layout.ROW else gemm.n


def tensor_shape(
    view: HeadView | None, problem: Problem, rows: int, dense: tuple[int, ...], group: int = 1
) -> tuple[tuple[int, ...], int]:
    """Return the shape of TVM's tensor, and the factor of its first extent.

    The shape of a view begins with the batch: the number of sequences times the heads, of which
    `group` share a matrix.
    """
    if view is None:
        return dense, group
    return (problem.batch, rows, *view.inner), view.heads * group
