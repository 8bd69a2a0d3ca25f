"""A region's call beside its kernel: the moves of A and D, and the workspace of it all."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from boltgen.codegen.adapter_tensors import ShapeCheck, data_call, tensor_shapes
from boltgen.codegen.move import move_symbol
from boltgen.ir.dtypes import DType
from boltgen.ir.move import NHWC_F16, ImageLayout, Move
from boltgen.ir.problem import Conv2d, Problem
from boltgen.ir.region import AnyRegion, Stored

# What moves are launched on begins there; TVM's allocations do too. Source: tvm's
# runtime/device_api.h, kAllocAlignment.
_ALIGNMENT_BYTES = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMove:
    """A move of one call: `rows` is (images, pixels of each), `offset` into the workspace."""

    move: Move
    rows: tuple[int, int]
    source_channels: int
    target_channels: int
    offset: int

    def bytes_moved(self) -> int:
        """What it reads and writes."""
        sides = ((self.move.source, self.source_channels), (self.move.target, self.target_channels))
        return sum(math.prod(self.rows) * c * form.dtype.size_bytes for form, c in sides)

    @property
    def arguments(self) -> str:
        """The C++ arguments of `RegionCall::move_before` and `move_after`."""
        sizes = (*self.rows, self.source_channels, self.target_channels)
        extents = ", ".join(map(str, sizes))
        return f"{move_symbol(self.move)}, {{{extents}}}, {self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMemory:
    """The moves of one call of a region, and the bytes of its workspace."""

    before: PlannedMove | None
    after: PlannedMove | None
    workspace_bytes: int

    @property
    def moves(self) -> tuple[PlannedMove, ...]:
        """Those that there are."""
        return tuple(move for move in (self.before, self.after) if move is not None)

    def statements(self, *, planned: bool) -> Iterator[str]:
        """The C++ that says so; `planned` where TVM passes the workspace as an argument."""
        if self.workspace_bytes:
            what = "workspace(workspace, " if planned else "allocate_workspace("
            yield f"call.{what}{self.workspace_bytes});"
        for name, move in (("before", self.before), ("after", self.after)):
            if move is not None:
                yield f"call.move_{name}({move.arguments});"

    def describe(self) -> Iterator[str]:
        """Each move in words, with the bytes that it costs."""
        for role, move in (("A", self.before), ("D", self.after)):
            if move is not None:
                yield (
                    f"moves {role} from {move.move.source} of {move.source_channels} channels to "
                    f"{move.move.target} of {move.target_channels}: {move.bytes_moved()} bytes"
                )


def call_memory(
    first: Problem,
    last: Problem,
    a_stored: Stored | None,
    d_stored: Stored | None,
    kernel_bytes: int,
) -> CallMemory:
    """The memory of a call whose kernel computes `first` to `last` and takes `kernel_bytes`."""
    end = _aligned(kernel_bytes)
    before = after = None
    if a_stored is not None:
        *rows, channels = tensor_shapes(first)[0][0]
        before = PlannedMove(
            move=Move(source=a_stored.form, target=NHWC_F16),
            rows=_rows(first, tuple(rows)),
            source_channels=a_stored.channels,
            target_channels=channels,
            offset=end,
        )
        end = _aligned(end + math.prod(rows) * channels * DType.F16.size_bytes)
    if d_stored is not None:
        *rows, channels = tensor_shapes(last)[2][0]
        after = PlannedMove(
            move=Move(source=NHWC_F16, target=d_stored.form),
            rows=_rows(last, tuple(rows)),
            source_channels=channels,
            target_channels=d_stored.channels,
            offset=end,
        )
        end = _aligned(end + math.prod(rows) * channels * DType.F16.size_bytes)
    moved = before is not None or after is not None
    return CallMemory(before=before, after=after, workspace_bytes=end if moved else kernel_bytes)


def a_call(region: AnyRegion, dtype: DType, check: ShapeCheck) -> str:
    """The C++ call that checks A as TVM has it and returns its pointer."""
    shape, stored = _stored(check, dtype, region.a_stored)
    return data_call(region.a, "A", stored, shape)


def d_call(region: AnyRegion, dtype: DType, check: ShapeCheck) -> str:
    """The C++ call that checks D as TVM has it and returns its pointer."""
    shape, stored = _stored(check, dtype, region.d_stored)
    return data_call(region.parameter_count, "D", stored, shape, tensor="output")


def _stored(check: ShapeCheck, dtype: DType, stored: Stored | None) -> tuple[ShapeCheck, DType]:
    """The shape and dtype by which TVM's tensor is checked."""
    if stored is None:
        return check, dtype
    (*rows, _), rank = check
    if stored.form.layout is ImageLayout.NCHW:
        n, h, w = rows
        return ((n, stored.channels, h, w), rank), stored.form.dtype
    return ((*rows, stored.channels), rank), stored.form.dtype


def _aligned(size: int) -> int:
    return math.ceil(size / _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def _rows(problem: Problem, rows: tuple[int, ...]) -> tuple[int, int]:
    """Images and pixels of each; a matrix, or a batch of them, is one image."""
    if isinstance(problem, Conv2d):
        return rows[0], math.prod(rows[1:])
    return 1, math.prod(rows)
