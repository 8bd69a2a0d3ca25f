"""Schedules for TVM's part of a Relax model on a GPU: TVM's own rules, except for windows and short
rows.

TVM gives every result of a reduction that something elementwise follows a threadblock of its own,
also where it has nine summands: an average pool divides, a depthwise convolution has a ReLU. They
get a thread for each result here. A row of a softmax or of a layer norm has a threadblock of 256
too, however short it is: short ones get a warp here.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.relax.backend.cuda import pipeline as cuda
from tvm.s_tir import dlight
from tvm.s_tir.dlight.analysis import normalize_prim_func
from tvm.s_tir.dlight.base import try_inline
from tvm.target import Target

from boltgen.frontend.relax.derived_extents import with_computed_dimensions
from boltgen.frontend.relax.region_calls import SCHEDULED
from boltgen.tvm_build.lowering.data_extents import (
    guarded,
    kernels_of_data,
    with_extents_first,
)
from boltgen.tvm_build.lowering.fusion_depth import limited_fusion
from boltgen.tvm_build.lowering.nan_order import with_ordered_nan
from boltgen.tvm_build.lowering.operators import with_device_kernels
from boltgen.tvm_build.lowering.plain_schedule import (
    Rule,
    apply_rules,
    schedule_plainly,
)
from boltgen.tvm_build.lowering.special_values import with_infinite_padding

_THREADS = 256
# The longest row that a warp is given, and how many rows a threadblock has. With longer ones TVM's
# threads all have something to do. Choices, not measured.
_LONGEST_ROW = 256
_WARP, _ROWS = 32, 4
# The most steps of a thread if there are few threads (first number). So many threads (second
# number) fill a GPU by themselves; then a thread may take any number of steps. Choices, not
# measured.
_MOST_STEPS = 64
_MANY_RESULTS = 1 << 16


def pipeline(
    target: Target,
    look: Callable[[tvm.IRModule], None] | None = None,
    tuned: Callable[[tvm.IRModule], tvm.IRModule] | None = None,
) -> tvm.transform.Pass:
    """Return the pass by which `tvm.compile` lowers a Relax module for the CUDA target `target`.

    TVM's pipeline for CUDA, with two rules of ours before its rules for reductions. `look` is given
    the module whose kernels have no schedules yet; `tuned` then schedules the kernels for which
    tuning has found something faster.
    """

    def run(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        with target:
            return finish(target)(scheduled(module, target, look, tuned))

    return tvm.transform.module_pass(run, opt_level=0, name="boltgen.relax.pipeline")


def scheduled(
    module: tvm.IRModule,
    target: Target,
    look: Callable[[tvm.IRModule], None] | None = None,
    tuned: Callable[[tvm.IRModule], tvm.IRModule] | None = None,
) -> tvm.IRModule:
    """`module` with the schedules of TVM's kernels; see `pipeline`.

    It is no pass of TVM's, which would turn every error into one of its own.

    Raises:
        CompileError: no rule schedules a kernel.
        ModelImportError: an operator has a form that no kernel computes.
    """
    module = unscheduled(module, target)
    if look is not None:
        look(module)
    with target:
        module = by_rules(module if tuned is None else tuned(module), target)
    # After TVM has fused kernels, which take dimensions and no formulas of them.
    return with_computed_dimensions(module)


def finish(target: Target) -> tvm.transform.Pass:
    """Return the pass that prepares a module of scheduled kernels for TVM's virtual machine."""
    return tvm.transform.Sequential(
        (*cuda.dataflow_lower_passes(target), *cuda.finalize_passes(target))
    )


def unscheduled(module: tvm.IRModule, target: Target) -> tvm.IRModule:
    """Return `module` with TVM's kernels before scheduling for `target`: operators are fused."""
    *legalise, _ = cuda.legalize_passes(target)  # the last one schedules
    first = next(at for at, each in enumerate(legalise) if each.info.name == "FuseOps")
    before = (*cuda.library_dispatch_passes(target), *legalise[:first])
    with target:
        # NaN second: a kernel of ours may be written as a sort.
        module = tvm.transform.Sequential(before)(with_ordered_nan(with_device_kernels(module)))
        with limited_fusion(module):
            module = tvm.transform.Sequential(legalise[first:])(module)
        return with_extents_first(with_infinite_padding(module))


def by_rules(module: tvm.IRModule, target: Target) -> tvm.IRModule:
    """Schedule all kernels of `module` that have no better schedule, by rules.

    Raises:
        CompileError: no rule schedules a kernel.
    """
    rules = (
        *(_of_dlight(rule) for rule in (dlight.gpu.Matmul(), dlight.gpu.GEMV())),
        schedule_window,
        schedule_row,
        *(
            _of_dlight(rule)
            for rule in (
                dlight.gpu.Reduction(),
                dlight.gpu.GeneralReduction(),
                dlight.gpu.Fallback(),
            )
        ),
        schedule_plainly,
    )

    # These may have no elements, and rules with barriers take one block for granted.
    plain = [
        name for name in kernels_of_data(module) if SCHEDULED not in (module[name].attrs or {})
    ]
    module = apply_rules(module, target, lambda name: rules[-1:] if name in plain else rules)
    for name in plain:
        module.update_func(module.get_global_var(name), guarded(module[name]))
    return module


def _of_dlight(rule: dlight.ScheduleRule) -> Rule:
    return lambda function, target: rule.apply(function, target, False)


def schedule_window(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Give a thread to each result of a reduction that neighbouring threads read side by side.

    Padding before it and elementwise operators after it belong to the same kernel. Return None if
    `func` is no such reduction.
    """
    del target
    schedule, blocks = _inlined(func)
    if sum(block.is_reduction() for block in blocks) != 1:
        return None
    reduction, *behind = blocks
    if not reduction.is_reduction() or not _is_window(schedule, reduction):
        return None
    if len(behind) > 1 or any(block.dom() != _results(reduction) for block in behind):
        return None
    try:
        _schedule_window(schedule, reduction, *behind)
    except s_tir.ScheduleError:  # two results leave the function, say: TVM's rules are next
        return None
    return schedule


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
    if steps > _MOST_STEPS and results < _MANY_RESULTS:
        return False
    # The operand with most elements; the accumulator is no operand.
    reads = schedule.get(block.block_rv).reads
    largest = max(reads, key=lambda read: prod(map(int, read.source.shape)))
    spatial = {each.var for each in block.iters if each.kind == "S"}
    return bool(spatial.intersection(tirx.analysis.undefined_vars(largest.region[-1].min)))
