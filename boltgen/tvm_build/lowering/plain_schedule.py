"""Schedules that are correct for every function: one thread per result, or one thread in all.

TVM's rules for GPUs (0.27) raise errors on some functions, and leave blocks of others without
threads. `apply_rules` takes the first rule with a complete schedule; `schedule_plainly` is the last
rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import normalize_prim_func
from tvm.target import Target

from boltgen.errors import CompileError
from boltgen.frontend.relax.region_calls import SCHEDULED

_THREADS = 256
_SPATIAL = tirx.IterVar.DataPar
Rule: TypeAlias = Callable[[tirx.PrimFunc, Target], "s_tir.Schedule | None"]


def apply_rules(
    module: tvm.IRModule, target: Target, rules: Callable[[str], Sequence[Rule]]
) -> tvm.IRModule:
    """Schedule every function of `module` by the first of its `rules` that is complete.

    A rule that raises an error is skipped: TVM's rules raise assertions and internal errors on
    functions that they do not support.

    Raises:
        CompileError: no rule can schedule a function.
    """
    made = {
        gvar: _scheduled(gvar.name_hint, function, target, rules(gvar.name_hint))
        for gvar, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc) and SCHEDULED not in (function.attrs or {})
    }
    functions = {**dict(module.functions_items()), **made}
    return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def _scheduled(
    name: str, function: tirx.PrimFunc, target: Target, rules: Sequence[Rule]
) -> tirx.PrimFunc:
    failures = []
    function = _without_empty_loops(function)
    if not _blocks(function.body.block.body):
        return function.with_attr(SCHEDULED, True)  # its results have no elements
    for rule in rules:
        try:
            schedule = rule(function, target)
        except Exception as error:
            failures.append(error)
            continue
        if schedule is not None and is_complete(schedule):
            return schedule.mod["main"].with_attr(SCHEDULED, True)
    raise CompileError(
        f"TVM has no CUDA schedule for the function {name} of this model. Compute this operator "
        "outside the model, or report the model"
    ) from (failures[-1] if failures else None)


def _without_empty_loops(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Remove loops without steps from `function`; rules would split them by 0 or run them once.

    Raises:
        CompileError: a result is a reduction over no elements.
    """

    def emptied(loop: tirx.For) -> tirx.Stmt:
        if not (isinstance(loop.extent, tirx.IntImm) and int(loop.extent) == 0):
            return loop
        if any(block.init is not None and _has_results(block) for block in _blocks(loop)):
            raise CompileError(
                "an operator of this model reduces an extent of 0, and no kernel computes it. Give "
                "the input another shape"
            )
        return tirx.Evaluate(0)

    return function.with_body(tvm_ffi.structural_map(function.body, (tirx.For, emptied)))


def _has_results(block: s_tir.SBlock) -> bool:
    extents = [each.dom.extent for each in block.iter_vars if each.iter_type == _SPATIAL]
    return not any(isinstance(each, tirx.IntImm) and int(each) == 0 for each in extents)


def _blocks(part: tirx.Stmt) -> list[s_tir.SBlock]:
    found: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(part, (s_tir.SBlock, found.append), order="post")
    return found


def is_complete(schedule: s_tir.Schedule) -> bool:
    """Return whether every block has a grid, and each global tensor connects several grids.

    TVM would run a block without a grid on the host. It would allocate a global tensor of one grid
    inside the kernel, which CUDA cannot do.
    """
    blocks = _outer_blocks(schedule)
    return not any(_own_results(schedule, block) for block in blocks) and all(
        _launches_threads(schedule.get(block).body)
        or {"blockIdx", "threadIdx"} <= set(_bindings(schedule, schedule.get_loops(block)))
        for block in blocks
    )


def schedule_plainly(function: tirx.PrimFunc, target: Target) -> s_tir.Schedule:
    """Schedule one thread per result of a block; one thread for a block with other iterations.

    Blocks are not fused: a tensor between two blocks lies in global memory.
    """
    del target
    schedule = s_tir.Schedule(function)
    blocks = normalize_prim_func(schedule)
    if blocks is None:
        schedule = s_tir.Schedule(function)
        for block in _outer_blocks(schedule):
            if not _launches_threads(schedule.get(block).body):
                loops = schedule.get_loops(block)
                _bind(schedule, schedule.add_unit_loop(loops[0] if loops else block), 1)
        return schedule
    for block in blocks:
        if _launches_threads(schedule.get(block.block_rv).body):
            continue
        loops = schedule.get_loops(block.block_rv)
        kinds = block.dom_kind()
        results = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "S"]
        others = [loop for loop, kind in zip(loops, kinds, strict=True) if kind != "S"]
        if not results:
            results = [schedule.add_unit_loop(loops[0] if loops else block.block_rv)]
        for position in _own_results(schedule, block.block_rv):
            schedule.set_scope(block.block_rv, position, "local")
        schedule.reorder(*results, *others)
        _bind_results(schedule, results)
    return schedule


def _bind_results(schedule: s_tir.Schedule, results: Sequence[Any]) -> None:
    """Give each step of the loops `results` a thread.

    If an extent is a formula of dimensions, such as s + 2, TVM cannot split the fused loops,
    because it cannot prove the divisors of their product. Then only the last loop has the threads
    of a block.
    """
    *outer, last = results
    extents = [schedule.get(loop).extent for loop in results]
    is_formula = any(not isinstance(each, (tirx.Var, tirx.IntImm)) for each in extents)
    if not is_formula:
        _bind(schedule, schedule.fuse(*results), _THREADS)
        return
    known = extents[-1]
    threads = min(int(known), _THREADS) if isinstance(known, tirx.IntImm) else _THREADS
    beyond, thread = schedule.split(last, factors=[None, threads])
    if isinstance(known, tirx.IntImm):
        schedule.bind(schedule.fuse(*outer), "blockIdx.x")  # the formula is in an outer extent
        schedule.bind(beyond, "blockIdx.y")
    else:
        schedule.bind(schedule.fuse(*outer, beyond), "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")


def _bind(schedule: s_tir.Schedule, loop: Any, threads: int) -> None:
    grid, thread = schedule.split(loop, factors=[None, threads])
    schedule.bind(grid, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")


def _root(schedule: s_tir.Schedule) -> s_tir.SBlock:
    (name,) = (gvar.name_hint for gvar in schedule.mod.get_global_vars())
    return schedule.mod[name].body.block


def _outer_blocks(schedule: s_tir.Schedule) -> list[Any]:
    """Return the blocks directly below a function's root."""
    return list(schedule.get_child_blocks(schedule.get_sblock(_root(schedule).name_hint)))


def _grid(schedule: s_tir.Schedule, block: Any) -> Any:
    """Return the outermost statement around a block, which becomes a grid."""
    loops = schedule.get_loops(block)
    return schedule.get(loops[0] if loops else block)


def _own_results(schedule: s_tir.Schedule, block: Any) -> list[int]:
    """Return the positions of a block's results in global memory that no other grid uses."""
    own = _grid(schedule, block)
    used = [
        region.source
        for other in _outer_blocks(schedule)
        if not own.same_as(_grid(schedule, other))
        for region in (*schedule.get(other).reads, *schedule.get(other).writes)
    ]
    made = [each for each in _root(schedule).alloc_buffers if each.scope() == "global"]
    return [
        position
        for position, region in enumerate(schedule.get(block).writes)
        if any(region.source.same_as(each) for each in made)
        and not any(region.source.same_as(each) for each in used)
    ]


def _bindings(schedule: s_tir.Schedule, loops: Sequence[Any]) -> Iterator[str]:
    """Yield the kinds of threads to which `loops` are bound."""
    for loop in loops:
        binding = schedule.get(loop).thread_binding
        if binding is not None:
            yield str(binding.thread_tag).split(".", maxsplit=1)[0]


def _launches_threads(body: tirx.Stmt) -> bool:
    """Return whether a statement launches threads itself, as TVM's kernels for sorting do."""
    found = False

    def see_attribute(node: tirx.AttrStmt) -> None:
        nonlocal found
        found |= node.attr_key in {"thread_extent", "virtual_thread"}

    def see_loop(node: tirx.For) -> None:
        nonlocal found
        found |= node.kind == tirx.ForKind.THREAD_BINDING

    tvm_ffi.structural_walk(
        body, [(tirx.AttrStmt, see_attribute), (tirx.For, see_loop)], order="post"
    )
    return found
