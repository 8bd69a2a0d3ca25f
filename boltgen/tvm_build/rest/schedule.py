"""A schedule of a TVM kernel: its name, and the scheduled function that it makes.

Arrow: from a kernel's function and a text to the function that TVM builds. Tuning times this
function, and compiling ships it.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir.schedule import Trace
from tvm.target import Target

from boltgen.frontend.relax.region_calls import SCHEDULED
from boltgen.intake.json_text import parse_json
from boltgen.tuning.rest.tasks import BUILT_IN
from boltgen.tvm_build.lowering.schedules import by_rules

_SYMBOL = "global_symbol"
# The block around all others; TVM finds it by this name.
_ROOT = "root"
# The function's name in MetaSchedule's traces.
ENTRY = "main"
# A trace usually has some ten kilobytes.
_MOST_BYTES = 1 << 20


def identity(function: tirx.PrimFunc) -> str:
    """Return the identity of a kernel: its structure, without names of functions and variables."""
    bare = function.without_attr(_SYMBOL)
    return f"{tvm_ffi.structural_hash(bare) & (1 << 64) - 1:016x}"


def named(function: tirx.PrimFunc) -> tvm.IRModule:
    """Return the module of one kernel to which MetaSchedule's traces refer.

    Traces name blocks. TVM names blocks after tensors; here they are numbered. The whole function
    is copied, because some primitives write into the body that they are given.
    """
    numbers = itertools.count()

    def numbered(block: s_tir.SBlock) -> s_tir.SBlock:
        return s_tir.SBlock(
            block.iter_vars,
            block.reads,
            block.writes,
            block.name_hint if block.name_hint == _ROOT else f"block{next(numbers)}",
            block.body,
            block.init,
            block.alloc_buffers,
            block.match_buffers,
            block.annotations,
        )

    fresh = s_tir.renew_defs(function)
    body = tvm_ffi.structural_map(fresh.body, [(s_tir.SBlock, numbered)])
    return tvm.IRModule({ENTRY: fresh.with_body(body).with_attr(_SYMBOL, ENTRY)})


def built_in(function: tirx.PrimFunc, target: Target) -> str:
    """Return the name of the schedule that boltgen's and TVM's current rules give a kernel."""
    return BUILT_IN + identity(_by_rules(function, target))


def trace_text(trace: Trace) -> str:
    """Return the name of one of MetaSchedule's schedules."""
    return json.dumps(trace.as_json(), separators=(",", ":"), default=lambda number: number.value)


def scheduled(function: tirx.PrimFunc, config: str, target: Target) -> tirx.PrimFunc:
    """Return `function` with the schedule of this name.

    Raises:
        Exception: the trace is for another function; TVM raises any type.
    """
    if config.startswith(BUILT_IN):
        return _by_rules(function, target)
    schedule = s_tir.Schedule(named(function))
    Trace.apply_json_to_schedule(_values(parse_json(config, _MOST_BYTES)), schedule)
    made = schedule.mod[ENTRY].with_attr(SCHEDULED, True)
    symbol = (function.attrs or {}).get(_SYMBOL)
    return made.with_attr(_SYMBOL, symbol) if symbol else made.without_attr(_SYMBOL)


def _by_rules(function: tirx.PrimFunc, target: Target) -> tirx.PrimFunc:
    with target:
        return by_rules(named(function), target)[ENTRY]


def _values(form: Any) -> Any:
    """Convert JSON values to the types that TVM's reader of traces expects."""
    match form:
        case list():
            return [_values(each) for each in form]
        case float():
            return tirx.FloatImm("float64", form)
        case _:
            return form
