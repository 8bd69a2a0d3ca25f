"""Compute a region as its kernel does, by the NumPy oracle; the same for both frontends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from boltgen.codegen.adapter import SliceSource, symbol_sources
from boltgen.ir.elementwise import Load, LoadKind
from boltgen.ir.extent import Dim, Symbol
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.layout_transform.problem import Form, ImageLayout, Move, nhwc, reference_move
from boltgen.problems.oracle import enclose_results
from boltgen.problems.problem import Problem
from boltgen.problems.region import HeadView, Operand, Region, Sharing, Stored


def _operand(
    problem: Problem, load: Load, columns: int, operand: Operand, array: np.ndarray
) -> np.ndarray:
    kind = load.kind
    if operand.view is not None:
        end = operand.view.offset + columns
        array = array.reshape(-1, operand.view.columns)[:, operand.view.offset : end]
    if operand.within is not None:
        array = array.reshape(-1, *operand.within)[:, : problem.gemm.m, :columns]
    if kind.is_of_slices:
        return array.reshape(-1, columns)
    if operand.shared is not None:
        gemm = problem.gemm
        own = {LoadKind.TENSOR: (gemm.m, gemm.n), LoadKind.ROW: (gemm.n,)}.get(kind, (gemm.m,))
        slices = array.reshape(operand.shared.slices(problem.batch), *own)
        if operand.shared.by is Sharing.HEADS:
            return np.repeat(slices, operand.shared.heads, axis=0)
        return np.tile(slices, (problem.batch // operand.shared.heads, *(1 for _ in own)))
    if operand.batched and kind is not LoadKind.TENSOR:
        return array.reshape(problem.batch, -1, *load.parts_shape)
    if kind is not LoadKind.TENSOR:
        return array.reshape(-1, *load.parts_shape)
    is_shared = problem.batch > 1 and not operand.batched
    return array.reshape(*problem.d_shape[is_shared:-1], columns)


def _of_sizes(region: Region, arrays: Sequence[np.ndarray]) -> Region:
    """The region where its symbols have the values that a call with `arrays` gives them."""
    values: dict[Symbol, int] = {}
    for source in symbol_sources(region):
        shape = arrays[source.parameter].shape
        if isinstance(source, SliceSource):
            rows = source.rows.of(values) if isinstance(source.rows, Dim) else source.rows
            values[source.symbol] = rows * source.columns // math.prod(shape)
            continue
        end = len(shape) - source.behind
        size = math.prod(shape[:end]) if source.is_product else shape[end - 1]
        values[source.symbol] = source.times * size

    def known(stored: Stored | None) -> Stored | None:
        if stored is None:
            return None
        shape = (each.of(values) if isinstance(each, Dim) else each for each in stored.shape)
        return replace(stored, shape=tuple(shape))

    return replace(
        region,
        workload=region.workload.at(values),
        a_stored=known(region.a_stored),
        d_stored=known(region.d_stored),
    )


def compute(region: Region, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What the region's kernel computes, each result rounded to its type."""
    region = _of_sizes(region, arrays)
    layers = []
    for roles, layer in zip(region.layers, region.workload.layers, strict=True):
        operands = tuple(
            _operand(layer.problem, load, columns, operand, arrays[operand.parameter])
            for load, columns, operand in zip(
                layer.loads, layer.columns_of_loads, roles.operands, strict=True
            )
        )
        b, before = np.zeros(0), len(layer.prologue.loads)
        if roles.b is not None:
            b = _matrices(roles.b_view, arrays[roles.b], layer.problem.b_shape, roles.b_group)
        ends = np.zeros(0) if roles.ends is None else arrays[roles.ends]
        rows = np.zeros(0) if roles.rows is None else arrays[roles.rows].reshape(-1)
        given = tuple(arrays[each] for each in roles.further)
        layers.append(LayerInputs(b, operands[before:], operands[:before], ends, rows, given))
    first, last = region.workload.first.problem, region.workload.last.problem
    a = _matrices(region.a_view, _activation(region, arrays[region.a]), first.a_shape)
    dtypes = (last.out_dtype, *(dtype for _, dtype in region.workload.last.further))
    with np.errstate(over="ignore"):
        d, *further = (
            found.exact.astype(dtype.numpy)
            for found, dtype in zip(
                enclose_results(region.workload, a, layers), dtypes, strict=True
            )
        )
    if region.d_stored is not None:
        move = Move(source=nhwc(last.out_dtype), target=region.d_stored.form)
        images = d.reshape(region.d_stored.rows[0], -1, 1, d.shape[-1])
        d = reference_move(move, images, region.d_stored.channels)
    if region.d_view is not None:
        d = _in_rows(region.d_view, d)
    return [d, *further]


def _matrices(
    view: HeadView | None, array: np.ndarray, shape: tuple[int, ...], group: int = 1
) -> np.ndarray:
    """The batch of matrices, of `shape` all together, that a tensor has; `group` share each."""
    if group > 1:
        own = _matrices(view, array, (shape[0] // group, *shape[1:]))
        return np.repeat(own, group, axis=0)
    if view is None:
        return array.reshape(shape)
    rows, columns = shape[-2:]
    sequences = array.reshape(-1, rows, view.row)
    if view.rows_first:
        sequences = array.reshape(rows, -1, view.row).swapaxes(0, 1)
    firsts = (view.offset + head * view.stride for head in range(view.heads))
    heads = [sequences[..., first : first + columns] for first in firsts]
    return np.stack(heads, axis=1).reshape(shape)


def _in_rows(view: HeadView, d: np.ndarray) -> np.ndarray:
    """The tensor that has a batch of matrices side by side, and nothing else."""
    rows, columns = d.shape[-2:]
    assert (view.offset, view.row) == (0, view.heads * columns)
    assert view.heads == 1 or view.stride == columns
    heads = d.reshape(-1, view.heads, rows, columns)
    made: np.ndarray = heads.transpose(0, 2, 1, 3).reshape(-1, rows, *view.inner)
    return made.swapaxes(0, 1) if view.rows_first else made


def _activation(region: Region, array: np.ndarray) -> np.ndarray:
    """A as the kernel takes it."""
    if region.a_stored is None:
        return array
    first = region.workload.first.problem
    # The problem may take pixels in pairs, the call pads each one.
    channels = math.prod(first.a_shape) // math.prod(region.a_stored.rows)
    move = Move(source=region.a_stored.form, target=nhwc(first.in_dtype))
    if region.a_stored.form.layout is ImageLayout.NCHW:
        images = array.reshape(*array.shape[:2], 1, -1)
    elif array.ndim < 4:
        images = array.reshape(1, 1, -1, array.shape[-1])
    else:
        images = array.reshape(len(array), 1, -1, array.shape[-1])
    return reference_move(move, images, channels)


def assert_stored(found: Stored | None, form: Form, channels: int) -> None:
    """Check how TVM has a tensor at a region's border."""
    assert found is not None
    assert (found.form, found.channels) == (form, channels)
