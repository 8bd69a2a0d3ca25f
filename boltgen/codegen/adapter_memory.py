"""A region's call beside its kernel: layout transforms of A and D, and the workspace."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from boltgen.codegen.adapter_tensors import ShapeCheck, data_call, sequences, shape_check
from boltgen.codegen.adapter_views import view_call
from boltgen.ir.extent import Dim, greatest
from boltgen.problems.layout_transform.problem import LayoutTransform, Move, nhwc
from boltgen.problems.problem import Problem
from boltgen.problems.region import Region, Stored

# The operands of layout transforms are aligned to it, as TVM's allocations are. Source: tvm's
# runtime/device_api.h, kAllocAlignment.
_ALIGNMENT_BYTES = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMove:
    """A layout transform of one call, by the C symbol `kernel`; `offset` is into the workspace."""

    transform: LayoutTransform
    kernel: str
    offset: int

    @property
    def arguments(self) -> str:
        """The C++ arguments of `RegionCall::move_before` and `move_after`."""
        extents = ", ".join(
            f"static_cast<int32_t>({size})" if isinstance(size, Dim) else str(size)
            for size in self.transform.sizes.values()
        )
        return f"{self.kernel}, {{{extents}}}, {self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMemory:
    """The layout transforms of one call of a region, and the size of its workspace in bytes."""

    before: PlannedMove | None = None
    after: PlannedMove | None = None
    workspace_bytes: int = 0

    @property
    def moves(self) -> tuple[PlannedMove, ...]:
        """The layout transforms before and after the kernel."""
        return tuple(move for move in (self.before, self.after) if move is not None)

    def statements(self, *, planned: bool) -> Iterator[str]:
        """Yield the C++ statements; with `planned`, TVM passes the workspace as an argument."""
        if self.workspace_bytes:
            what = "workspace(workspace, " if planned else "allocate_workspace("
            yield f"call.{what}{self.workspace_bytes});"
        for name, move in (("before", self.before), ("after", self.after)):
            if move is not None:
                yield f"call.move_{name}({move.arguments});"

    def describe(self) -> Iterator[str]:
        """Yield a description of each layout transform, with the bytes that it reads and writes."""
        for role, planned in (("A", self.before), ("D", self.after)):
            if planned is not None:
                moved = planned.transform
                yield (
                    f"moves {role} from {moved.move.source} of {moved.source_channels} channels to "
                    f"{moved.move.target} of {moved.target_channels}: {moved.bytes_moved} bytes"
                )


def call_memory(
    region: Region, kernel_bytes: int, symbol_of: Callable[[LayoutTransform], str]
) -> CallMemory:
    """Plan the memory of a call whose kernel needs `kernel_bytes` of workspace.

    `symbol_of` returns the C symbol of a layout transform's kernel.
    """
    end = _aligned(kernel_bytes)
    before = after = None
    if region.a_stored is not None:
        first = region.workload.first.problem
        before = _planned(_into(region.a_stored, first), symbol_of, end)
        elements = greatest(math.prod(first.a_shape))
        end = _aligned(end + elements * first.in_dtype.size_bytes)
    if region.d_stored is not None:
        last = region.workload.last.problem
        after = _planned(_out_of(region.d_stored, last), symbol_of, end)
        elements = greatest(math.prod(last.d_shape))
        end = _aligned(end + elements * last.out_dtype.size_bytes)
    moved = before is not None or after is not None
    return CallMemory(before=before, after=after, workspace_bytes=end if moved else kernel_bytes)


def _planned(
    transform: LayoutTransform, symbol_of: Callable[[LayoutTransform], str], offset: int
) -> PlannedMove:
    return PlannedMove(transform=transform, kernel=symbol_of(transform), offset=offset)


def _into(stored: Stored, problem: Problem) -> LayoutTransform:
    """Return the transform from TVM's tensor to the kernel's operand."""
    images, pixels = stored.rows
    extents = (images, pixels, *problem.a_shape)
    channels = problem.a_shape[-1]
    if all(type(each) is int for each in extents):  # the kernel may read a pair of pixels as one
        channels = math.prod(problem.a_shape) // (images * pixels)
    return LayoutTransform(
        move=Move(source=stored.form, target=nhwc(problem.in_dtype)),
        images=images,
        pixels=pixels,
        source_channels=stored.channels,
        target_channels=channels,
    )


def _out_of(stored: Stored, problem: Problem) -> LayoutTransform:
    """Return the transform from the kernel's result to TVM's tensor."""
    images, pixels = stored.rows
    return LayoutTransform(
        move=Move(source=nhwc(problem.out_dtype), target=stored.form),
        images=images,
        pixels=pixels,
        source_channels=problem.d_shape[-1],
        target_channels=stored.channels,
    )


def a_call(region: Region, problem: Problem) -> str:
    """Return the C++ call that checks A in TVM's form and returns its pointer."""
    if region.a_view is not None:
        outer = sequences(problem.batch, region.a_view.heads), problem.gemm.m
        return view_call(region.a_view, region.a, "A", problem.in_dtype, outer)
    stored = region.a_stored
    shape = problem.a_shape if stored is None else stored.shape
    dtype = problem.in_dtype if stored is None else stored.form.dtype
    return data_call(region.a, "A", dtype, shape_check(problem, shape))


def d_call(region: Region, problem: Problem) -> str:
    """Return the C++ call that checks D in TVM's form and returns its pointer."""
    index = region.parameter_count
    if region.d_view is not None:
        outer = sequences(problem.batch, region.d_view.heads), problem.gemm.m
        return view_call(region.d_view, index, "D", problem.out_dtype, outer, tensor="output")
    if region.d_stored is None:
        # If the model reads rows, an image may be written as rows of pixels.
        check: ShapeCheck = problem.d_shape, "kMatrix"
        return data_call(index, "D", problem.out_dtype, check, tensor="output")
    check = shape_check(problem, region.d_stored.shape)
    return data_call(index, "D", region.d_stored.form.dtype, check, tensor="output")


def _aligned(size: int) -> int:
    return math.ceil(size / _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
