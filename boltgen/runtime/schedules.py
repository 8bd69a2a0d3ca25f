"""How TVM's part of a Relax model runs on a GPU: TVM's own rules, but for windows.

TVM gives every result of a reduction that something elementwise follows a threadblock of its own,
also where it has nine summands: an average pool divides, a depthwise convolution has a ReLU. They
get a thread for each result here.
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.relax.backend.cuda import pipeline as cuda
from tvm.s_tir import dlight
from tvm.s_tir.dlight.analysis import normalize_prim_func
from tvm.s_tir.dlight.base import try_inline
from tvm.target import Target

_THREADS = 256
# A thread does so many steps at most where there are few threads; where there are so many threads
# that they fill a GPU by themselves, any number. Choices, not measured.
_MOST_STEPS = 64
_MANY_RESULTS = 1 << 16


def pipeline(target: Target) -> tvm.transform.Pass:
    """What `tvm.compile` is to do with a Relax module for the CUDA target `target`.

    TVM's pipeline for CUDA, with one rule of ours before its rules for reductions.
    """
    *legalise, schedule = cuda.legalize_passes(target)
    window = dlight.ScheduleRule.from_callable("Window")(schedule_window)
    first = dlight.ApplyDefaultSchedule(dlight.gpu.Matmul(), dlight.gpu.GEMV(), window)
    passes = (
        *cuda.library_dispatch_passes(target),
        *legalise,
        first,
        schedule,
        *cuda.dataflow_lower_passes(target),
        *cuda.finalize_passes(target),
    )

    def run(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        with target:
            return tvm.transform.Sequential(passes)(module)

    return tvm.transform.module_pass(run, opt_level=0, name="boltgen.relax.pipeline")


def schedule_window(func: tirx.PrimFunc, target: Target, tunable: bool) -> s_tir.Schedule | None:
    """A thread for each result of a reduction that neighbouring threads read side by side.

    Padding before it and elementwise operators behind it are of the same kernel. None where `func`
    is no such reduction. A rule of TVM's dlight.
    """
    del target, tunable
    schedule = s_tir.Schedule(func)
    blocks = normalize_prim_func(schedule)
    if blocks is None or sum(block.is_reduction() for block in blocks) != 1:
        return None
    reduction, *behind = try_inline(schedule, blocks)
    if not reduction.is_reduction() or not _is_window(schedule, reduction):
        return None
    if len(behind) > 1 or any(block.dom() != _results(reduction) for block in behind):
        return None
    try:
        _schedule(schedule, reduction, *behind)
    except s_tir.ScheduleError:  # two results leave the function, say: TVM's rules are next
        return None
    return schedule


def _schedule(schedule: s_tir.Schedule, reduction: Any, behind: Any = None) -> None:
    block = reduction.block_rv
    if behind is None:
        last = schedule.cache_write(block, 0, "local")
    else:
        last = behind.block_rv
        schedule.set_scope(block, 0, "local")
    kinds = [each.kind for each in reduction.iters]
    loops = schedule.get_loops(block)
    results = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "S"]
    steps = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "R"]
    schedule.reorder(*results, *steps)
    grid, thread = schedule.split(schedule.fuse(*results), factors=[None, _THREADS])
    schedule.bind(grid, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    schedule.reverse_compute_at(last, thread)
    if steps:  # a 1x1 pool has none
        schedule.decompose_reduction(block, steps[0])


def _results(block: Any) -> list[Any]:
    """The extents of what a reduction gives."""
    return [each.dom for each in block.iters if each.kind == "S"]


def _is_window(schedule: s_tir.Schedule, block: Any) -> bool:
    if any(not isinstance(each.dom, (int, tirx.IntImm)) for each in block.iters):
        return False
    results = prod(map(int, _results(block)))
    steps = prod(map(int, block.dom())) // results
    if steps > _MOST_STEPS and results < _MANY_RESULTS:
        return False
    # Of what it reads, the tensor with most elements; the accumulator is none of it.
    reads = schedule.get(block.block_rv).reads
    largest = max(reads, key=lambda read: prod(map(int, read.source.shape)))
    spatial = {each.var for each in block.iters if each.kind == "S"}
    return bool(spatial.intersection(tirx.analysis.undefined_vars(largest.region[-1].min)))
