"""Schedule rules for reductions that TVM computes: windows and short rows.

TVM gives each result of a reduction with a following elementwise operator a threadblock, even for
nine summands: for example an average pool with its division, or a depthwise convolution with ReLU.
Here a thread computes one result, or a few channels. TVM also gives each row of a softmax or layer
norm a threadblock of 256; here a short row gets a warp.
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
# Vectors of a thread: their bytes, the threads per threadblock, the least number of threads, and
# the most unrolled steps. Choices, not measured.
_VECTOR_BYTES, _VECTOR_DTYPES = 16, frozenset({"float16", "float32"})
_VECTOR_THREADS, _LEAST_THREADS, _MOST_UNROLLED = 128, 1 << 13, 64
# The longest row for a warp, and the rows of a threadblock. On longer rows all threads of TVM's
# rules have work. Choices, not measured.
_LONGEST_ROW = 256
_WARP, _ROWS = 32, 4
# The most steps of a thread if there are few threads (first number), and how many threads allow one
# step more (second number). With as many threads as the third number, which fill a GPU, a thread
# may take any number of steps. Choices, not measured.
_MOST_STEPS, _RESULTS_OF_STEP = 64, 64
_MANY_RESULTS = 1 << 16


def schedule_window(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Give each result of a reduction a thread; neighbouring threads read neighbouring data.

    Padding before it and elementwise operators after it join the kernel. Return None if `func` is
    another kind of function.
    """
    del target
    schedule, blocks = _inlined(func)
    found = _window(schedule, blocks)
    if found is None:
        return None
    try:
        _schedule_window(schedule, *found)
    except s_tir.ScheduleError:  # for example, two results leave the function: TVM's rules are next
        return None
    return schedule


def schedule_vectors(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Give a thread the results of a few channels, which it reads and writes as vectors.

    The rule is for windows as in `schedule_window` whose last dimension is contiguous in input and
    output: NHWC pools, depthwise convolutions and means over images. Return None if `func` is
    another kind of function, or has too few results.
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
    except s_tir.ScheduleError:  # for example, two results leave the function: other rules are next
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
    """Return the channels of a thread: 1 if it cannot read vectors or there are few results."""
    read = schedule.get(reduction.block_rv).reads[_largest_read(schedule, reduction)]
    channel = [each for each in reduction.iters if each.kind == "S"][-1]
    if not read.region[-1].min.same_as(channel.var):
        return 1
    sources = [read.source]
    if pad is not None:
        padding = schedule.get(pad.block_rv)
        sources.append(padding.reads[0].source)
        if not padding.reads[0].region[-1].min.same_as(padding.iter_vars[-1].var):
            return 1  # the channels are padded, too
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
    """Return the position of the operand with the most elements, except the accumulator."""
    reads = schedule.get(reduction.block_rv).reads
    return max(range(len(reads)), key=lambda at: prod(map(int, reads[at].source.shape)))


def _size_bytes(buffer: tirx.Buffer) -> int:
    return int(tvm.DataType(str(buffer.dtype)).itemsize)


def _loops(schedule: s_tir.Schedule, reduction: Any) -> tuple[list[Any], list[Any]]:
    """Return the loops of a reduction over results, and over steps."""
    loops = zip(schedule.get_loops(reduction.block_rv), reduction.iters, strict=True)
    kinds: dict[str, list[Any]] = {"S": [], "R": []}
    for loop, each in loops:
        kinds[each.kind].append(loop)
    return kinds["S"], kinds["R"]


def _window(schedule: s_tir.Schedule, blocks: list[Any]) -> list[Any] | None:
    """Return a window reduction and the elementwise block after it, if there is one.

    Return None if `blocks` are something else.
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
    """Return a schedule of `func` with elementwise blocks inlined, and the remaining blocks.

    Return no blocks if TVM's rules find no normal form.
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
        for position, _ in enumerate(schedule.get(block).writes):  # an argmax has two results
            schedule.set_scope(block, position, "local")
    results, steps = _loops(schedule, reduction)
    schedule.reorder(*results, *steps)
    grid, thread = schedule.split(schedule.fuse(*results), factors=[None, _THREADS])
    schedule.bind(grid, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    schedule.reverse_compute_at(last, thread)
    if steps:  # a 1x1 pool has no steps
        schedule.decompose_reduction(block, steps[0])


def schedule_row(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Give a warp to each row that is reduced, once or repeatedly, and then written: a softmax.

    Operators between the reductions are inlined. Return None if `func` is another kind of function,
    or if its rows are long.
    """
    del target
    schedule, blocks = _inlined(func)
    if len(blocks) < 2:  # a reduction, and the block that writes the result
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
    except s_tir.ScheduleError:  # for example, an intermediate operator is a result of the function
        return None


def _schedule_row(schedule: s_tir.Schedule, reductions: list[Any], last: Any) -> bool:
    """Give each row a warp; return False if the reductions are along another dimension."""
    *rows, column = schedule.get_loops(last.block_rv)
    grid, row = schedule.split(schedule.fuse(*rows), factors=[None, _ROWS])
    schedule.bind(grid, "blockIdx.x")
    schedule.bind(row, "threadIdx.y")
    _bind_lanes(schedule, column)
    for reduction in reversed(reductions):
        block = reduction.block_rv
        schedule.compute_at(block, row)
        schedule.set_scope(block, 0, "local")  # per lane, because each lane has the result
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
