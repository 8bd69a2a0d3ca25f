"""Rules for reductions of TVM's part of a model: windows and short rows.

TVM gives every result of a reduction that something elementwise follows a threadblock of its own,
also where it has nine summands: an average pool divides, a depthwise convolution has a ReLU. They
get a thread for each result here, or for a few channels. A row of a softmax or of a layer norm has
a threadblock of 256 too, however short it is: short ones get a warp here.
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import normalize_prim_func
from tvm.s_tir.dlight.base import try_inline
from tvm.target import Target

from boltgen.tvm_build.lowering.special_values import PADDING

_THREADS = 256
# A thread's vectors: of so many bytes, where so many threads remain, with steps unrolled up to so
# many. Choices, not measured.
_VECTOR_BYTES, _VECTOR_DTYPES = 16, frozenset({"float16", "float32"})
_VECTOR_THREADS, _LEAST_THREADS, _MOST_UNROLLED = 128, 1 << 13, 64
# The longest row that a warp is given, and how many rows a threadblock has. With longer ones TVM's
# threads all have something to do. Choices, not measured.
_LONGEST_ROW = 256
_WARP, _ROWS = 32, 4
# The most steps of a thread if there are few threads (first number), and how many threads allow
# one step more (second number). So many threads (third number) fill a GPU by themselves; then a
# thread may take any number of steps. Choices, not measured.
_MOST_STEPS, _RESULTS_OF_STEP = 64, 64
_MANY_RESULTS = 1 << 16


def schedule_window(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Give a thread to each result of a reduction that neighbouring threads read side by side.

    Padding before it and elementwise operators after it belong to the same kernel. Return None if
    `func` is no such reduction.
    """
    del target
    schedule, blocks = _inlined(func)
    found = _window(schedule, blocks)
    if found is None:
        return None
    try:
        _schedule_window(schedule, *found)
    except s_tir.ScheduleError:  # two results leave the function, say: TVM's rules are next
        return None
    return schedule


def schedule_vectors(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Give a thread the results of a few channels, which it reads and writes by vectors.

    For windows as in `schedule_window` whose last dimension is contiguous in input and output:
    NHWC pools, depthwise convolutions and means over images. Return None if `func` is no such
    reduction, or has too few results.
    """
    del target
    schedule = s_tir.Schedule(func)
    blocks = normalize_prim_func(schedule) or []
    pads = [each for each in blocks if each.name.startswith(PADDING) and not each.is_reduction()]
    found = _window(schedule, try_inline(schedule, [each for each in blocks if each not in pads]))
    if found is None or len(pads) > 1:
        return None
    reduction, *behind = found
    lanes = _lanes(schedule, reduction, *pads)
    if lanes == 1:
        return None
    try:
        _schedule_vectors(schedule, lanes, reduction, pads, behind)
    except s_tir.ScheduleError:  # two results leave the function, say: other rules are next
        return None
    return schedule


def _schedule_vectors(
    schedule: s_tir.Schedule, lanes: int, reduction: Any, pads: list[Any], behind: list[Any]
) -> None:
    block = reduction.block_rv
    if pads:
        vector = pads[0].block_rv
        schedule.set_scope(vector, 0, "local")
    else:
        vector = schedule.cache_read(block, _largest_read(schedule, reduction), "local")
    computed = [block, *(each.block_rv for each in behind)]
    if behind:
        schedule.set_scope(block, 0, "local")
    written = schedule.cache_write(computed[-1], 0, "local")
    results, steps = _loops(schedule, reduction)
    results[-1], lane = schedule.split(results[-1], factors=[None, lanes])
    schedule.reorder(*results, *steps, lane)
    grid, thread = schedule.split(schedule.fuse(*results), factors=[None, _VECTOR_THREADS])
    schedule.bind(grid, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    for each in (*computed[1:], written):
        schedule.reverse_compute_at(each, thread)
    schedule.compute_at(vector, steps[-1])
    schedule.vectorize(schedule.get_loops(vector)[-1])
    size_bytes = _size_bytes(schedule.get(written).writes[0].source)
    most = min(lanes, _VECTOR_BYTES // size_bytes)
    piece, part = schedule.split(schedule.get_loops(written)[-1], factors=[None, most])
    schedule.vectorize(part)
    begin = schedule.decompose_reduction(block, steps[0])
    for each in (begin, *computed):
        schedule.unroll(schedule.get_loops(each)[-1])
    schedule.unroll(piece)
    unrolled = 1
    for step in reversed(steps):
        unrolled *= int(schedule.get(step).extent)
        if unrolled <= _MOST_UNROLLED:
            schedule.unroll(step)


def _lanes(schedule: s_tir.Schedule, reduction: Any, pad: Any = None) -> int:
    """Return how many channels a thread has: 1 if no vector can be read."""
    read = schedule.get(reduction.block_rv).reads[_largest_read(schedule, reduction)]
    channel = [each for each in reduction.iters if each.kind == "S"][-1]
    if not read.region[-1].min.same_as(channel.var):
        return 1
    sources = [read.source]
    if pad is not None:
        padding = schedule.get(pad.block_rv)
        sources.append(padding.reads[0].source)
        if not padding.reads[0].region[-1].min.same_as(padding.iter_vars[-1].var):
            return 1  # channels are padded, too
        if not padding.writes[0].source.same_as(read.source):
            return 1
    dtypes = {str(source.dtype) for source in sources}
    if len(dtypes) > 1 or not dtypes <= _VECTOR_DTYPES:
        return 1
    results = prod(map(int, _results(reduction)))
    lanes = _VECTOR_BYTES // _size_bytes(read.source)
    while lanes > 1 and (int(channel.dom) % lanes or results < lanes * _LEAST_THREADS):
        lanes //= 2
    return lanes


def _largest_read(schedule: s_tir.Schedule, reduction: Any) -> int:
    """Return the position of the operand with most elements; the accumulator is no operand."""
    reads = schedule.get(reduction.block_rv).reads
    return max(range(len(reads)), key=lambda at: prod(map(int, reads[at].source.shape)))


def _size_bytes(buffer: tirx.Buffer) -> int:
    return int(tvm.DataType(str(buffer.dtype)).itemsize)


def _loops(schedule: s_tir.Schedule, reduction: Any) -> tuple[list[Any], list[Any]]:
    """Return the loops of a reduction over its results, and over its steps."""
    loops = zip(schedule.get_loops(reduction.block_rv), reduction.iters, strict=True)
    kinds: dict[str, list[Any]] = {"S": [], "R": []}
    for loop, each in loops:
        kinds[each.kind].append(loop)
    return kinds["S"], kinds["R"]


def _window(schedule: s_tir.Schedule, blocks: list[Any]) -> list[Any] | None:
    """Return a reduction that neighbouring threads read side by side, and the elementwise block
    behind it, if there is one; None if `blocks` are something else.
    """
    if sum(block.is_reduction() for block in blocks) != 1:
        return None
    reduction, *behind = blocks
    if not reduction.is_reduction() or not _is_window(schedule, reduction):
        return None
    if len(behind) > 1 or any(block.dom() != _results(reduction) for block in behind):
        return None
    return blocks


def _inlined(func: tirx.PrimFunc) -> tuple[s_tir.Schedule, list[Any]]:
    """Return a schedule of `func` with elementwise blocks inlined, and the remaining blocks; no
    blocks if TVM's rules find no normal form.
    """
    schedule = s_tir.Schedule(func)
    blocks = normalize_prim_func(schedule)
    return schedule, try_inline(schedule, blocks) if blocks else []


def _schedule_window(schedule: s_tir.Schedule, reduction: Any, behind: Any = None) -> None:
    block = reduction.block_rv
    if behind is None:
        last = schedule.cache_write(block, 0, "local")
    else:
        last = behind.block_rv
        for position, _ in enumerate(schedule.get(block).writes):  # an argmax has two
            schedule.set_scope(block, position, "local")
    results, steps = _loops(schedule, reduction)
    schedule.reorder(*results, *steps)
    grid, thread = schedule.split(schedule.fuse(*results), factors=[None, _THREADS])
    schedule.bind(grid, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    schedule.reverse_compute_at(last, thread)
    if steps:  # a 1x1 pool has none
        schedule.decompose_reduction(block, steps[0])


def schedule_row(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Give a warp to each row that is reduced, once or repeatedly, and then written, such as a
    softmax.

    Operators between the reductions are computed where they are read. Return None if `func` is not
    of this kind, or if its rows are long.
    """
    del target
    schedule, blocks = _inlined(func)
    if len(blocks) < 2:  # a reduction, and what writes
        return None
    *reductions, last = blocks
    if last.is_reduction() or not _is_static(last):
        return None
    if any(block.dom() != last.dom() or not _reduces_rows(block) for block in reductions):
        return None
    if last.dom()[-1] > _LONGEST_ROW:
        return None
    try:
        return schedule if _schedule_row(schedule, reductions, last) else None
    except s_tir.ScheduleError:  # an operator between is a result of the function, for example
        return None


def _schedule_row(schedule: s_tir.Schedule, reductions: list[Any], last: Any) -> bool:
    """Give a warp all of a row; return whether it can: the reductions may be along another
    dimension.
    """
    *rows, column = schedule.get_loops(last.block_rv)
    grid, row = schedule.split(schedule.fuse(*rows), factors=[None, _ROWS])
    schedule.bind(grid, "blockIdx.x")
    schedule.bind(row, "threadIdx.y")
    _bind_lanes(schedule, column)
    for reduction in reversed(reductions):
        block = reduction.block_rv
        schedule.compute_at(block, row)
        schedule.set_scope(block, 0, "local")  # per lane: all lanes have the result
        _, _, *columns = schedule.get_loops(block)
        if len(columns) != 1:
            return False
        _bind_lanes(schedule, *columns)
    return True


def _bind_lanes(schedule: s_tir.Schedule, column: Any) -> None:
    _, lane = schedule.split(column, factors=[None, _WARP])
    schedule.bind(lane, "threadIdx.x")


def _reduces_rows(block: Any) -> bool:
    kinds = [each.kind for each in block.iters]
    return kinds == ["S"] * (len(kinds) - 1) + ["R"]


def _is_static(block: Any) -> bool:
    return all(isinstance(each.dom, (int, tirx.IntImm)) for each in block.iters)


def _results(block: Any) -> list[Any]:
    """Return the extents of a reduction's results."""
    return [each.dom for each in block.iters if each.kind == "S"]


def _is_window(schedule: s_tir.Schedule, block: Any) -> bool:
    if not _is_static(block):
        return False
    results = prod(map(int, _results(block)))
    steps = prod(map(int, block.dom())) // results
    if steps > max(_MOST_STEPS, results // _RESULTS_OF_STEP) and results < _MANY_RESULTS:
        return False
    largest = schedule.get(block.block_rv).reads[_largest_read(schedule, block)]
    spatial = {each.var for each in block.iters if each.kind == "S"}
    return bool(spatial.intersection(tirx.analysis.undefined_vars(largest.region[-1].min)))
