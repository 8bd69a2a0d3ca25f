"""The tensors of a region's call: checked pointers by role and shape."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from boltgen.errors import assert_never
from boltgen.ir.dtypes import ElementType
from boltgen.ir.elementwise import Load, LoadKind
from boltgen.ir.extent import Dim
from boltgen.problems.problem import Problem
from boltgen.problems.region import Operand, RowView, Sharing
from boltgen.problems.results import store_batch_stride, store_ld, store_shape
from boltgen.problems.slices import loaded_shape
from boltgen.problems.workload import Layer

# A tensor's shape, in numbers or C++ expressions, and the enumerator of boltgen::Rank that says how
# strictly the shape is compared.
ShapeCheck: TypeAlias = tuple[tuple[int | str, ...], str]
# A field of a kernel's argument struct, and the C++ expression for its value.
Field: TypeAlias = tuple[str, str]


def data_call(
    index: int, role: str, dtype: ElementType, check: ShapeCheck, tensor: str = ""
) -> str:
    """Return the C++ call that checks parameter `index` and returns its pointer."""
    shape, rank = check
    extents = ", ".join(map(str, shape))
    name = tensor or f"p{index}"
    return f'call.data({name}, {index}, "{role}", {dtype.adapter}, {{{extents}}}, Rank::{rank})'


def shape_check(problem: Problem, shape: tuple[int, ...]) -> ShapeCheck:
    """Return `shape` with the strictness of its comparison, for A, B or D."""
    return shape, "kMatrix" if problem.is_matrix else "kExact"


def operand_fields(
    layer: Layer, operands: Sequence[Operand], who: str = "", heads: int = 1
) -> Iterator[Field]:
    """Yield the fields of an epilogue's operands; messages name their owner `who`.

    The batch consists of sequences of `heads` heads.
    """
    problem, m = layer.problem, layer.problem.matrix[0]
    seen = dict.fromkeys(LoadKind, 0)
    loads = zip(layer.loads, layer.columns_of_loads, operands, strict=True)
    for index, (load, n, operand) in enumerate(loads):
        graph = "prologue" if index < len(layer.prologue.loads) else "epilogue"
        role = f"{who}{graph} operand {load.kind.value}{seen[load.kind]}"
        seen[load.kind] += 1
        if load.kind.is_of_slices or operand.view is not None:
            view = operand.view or RowView(offset=0, columns=n)
            count = _rows_of_load(problem, load.kind)
            check = (count, view.columns), "kMatrix" if operand.view is None else "kVector"
            pointer = data_call(operand.parameter, role, load.dtype, check)
            for name, value in _row_fields(problem, load, view, pointer):
                yield f"operands[{index}].{name}", value
            continue
        ahead = _slices(operand, problem.batch)
        rows, columns = (m, n) if operand.within is None else operand.within
        shape, rank = _operand_shape(load, rows, columns)
        pointer = data_call(operand.parameter, role, load.dtype, ((*ahead, *shape), rank))
        ld = columns if load.kind is LoadKind.TENSOR else load.parts_ld
        yield f"operands[{index}].pointer", pointer
        yield f"operands[{index}].ld", str(ld)
        by_sequence, by_head = _slice_strides(operand, math.prod(shape) if ahead else 0, heads)
        yield f"operands[{index}].batch_stride", str(by_sequence)
        if heads > 1:
            yield f"operand_head_strides[{index}]", str(by_head)


def _row_fields(problem: Problem, load: Load, view: RowView, pointer: str) -> Iterator[Field]:
    """Yield the fields of one row, or one per slice or position, at `view` after `pointer`."""
    has_slices, skipped = load.kind.is_of_slices, view.offset * load.dtype.size_bytes
    yield "pointer", f"call.behind({pointer}, {skipped})" if skipped else pointer
    yield "ld", str(problem.slice_rows if has_slices else 0)
    yield "batch_stride", str(view.columns if has_slices else 0)


def _rows_of_load(problem: Problem, kind: LoadKind) -> int | str:
    """Return the rows of an operand that is read by rows, as a number or a C++ expression."""
    m, rows = problem.matrix[0], problem.slice_rows
    is_open = isinstance(m, Dim) or isinstance(rows, Dim)
    if kind is LoadKind.SLICE_ROW and is_open:
        return f"({m} - 1) / ({rows}) + 1"
    return loaded_shape(problem, kind, 1)[0]


def _slices(operand: Operand, batch: int) -> tuple[int | str, ...]:
    """Return the leading dimension of an operand that has several slices, as a tuple, or ()."""
    if operand.shared is None:
        return (batch,) if operand.batched and batch > 1 else ()
    if operand.shared.by is Sharing.HEADS:
        return (sequences(batch, operand.shared.heads),)
    return (operand.shared.slices(batch),)


def sequences(batch: int, heads: int) -> int | str:
    """Return the number of sequences in a batch, as a number or a C++ expression."""
    return f"{batch} / {heads}" if isinstance(batch, Dim) else batch // heads


def _slice_strides(operand: Operand, slice_elements: int, heads: int) -> tuple[int, int]:
    """Return the strides between sequences and between heads, in elements."""
    if operand.shared is None:
        # Without heads in any launch, each matmul is a sequence of its own.
        return slice_elements * heads, slice_elements
    match operand.shared.by:
        case Sharing.HEADS:
            return slice_elements, 0
        case Sharing.SEQUENCES:
            return 0, slice_elements
    assert_never(operand.shared.by)


def result_name(index: int) -> str:
    """Return the adapter's variable name for the tensor of a further result."""
    return f"result{index + 1}"


def result_fields(layer: Layer, first: int) -> Iterator[Field]:
    """Yield the fields of an epilogue's further results; `first` is the first one's parameter.

    They follow the fields of the operands.
    """
    problem, behind = layer.problem, len(layer.loads)
    for index, (store, dtype) in enumerate(layer.further):
        name, shape = result_name(index), store_shape(problem, store)
        is_vector = store.reduction and not store.columns
        check = (shape, "kVector" if is_vector else "kMatrix")
        where = f"operands[{behind + index}]"
        pointer = data_call(first + index, name, dtype, check, tensor=name)
        yield f"{where}.pointer", f"call.result({pointer})"
        yield f"{where}.ld", str(store_ld(problem, store))
        yield f"{where}.batch_stride", str(store_batch_stride(problem, store))


def _operand_shape(load: Load, m: int, n: int) -> tuple[tuple[int, ...], str]:
    """Return the shape of one slice of an operand, and the strictness of its comparison."""
    match load.kind:
        case LoadKind.TENSOR:
            return (m, n), "kMatrix"
        case LoadKind.ROW:
            return (n,), "kVector"
        case LoadKind.COLUMN if load.parts > 1:
            return (m, load.parts), "kMatrix"
        case LoadKind.COLUMN:
            return (m,), "kVector"
        case LoadKind.SLICE_ROW | LoadKind.POSITION_ROW:
            raise AssertionError("a batch has no rows of slices")
