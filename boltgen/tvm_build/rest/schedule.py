"""A schedule of a kernel of TVM: its name, and the scheduled function that it makes.

Arrow: a kernel's function and a text to what TVM builds. Tuning times what this makes, and
compiling ships it.
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
# The block around all others, which TVM finds by this name.
_ROOT = "root"
# MetaSchedule's traces name their function so.
ENTRY = "main"
# A trace has some ten kilobytes.
_MOST_BYTES = 1 << 20


def identity(function: tirx.PrimFunc) -> str:
    """Return the identity of a kernel: its structure, without its name and its variables' names."""
    bare = function.without_attr(_SYMBOL)
    return f"{tvm_ffi.structural_hash(bare) & (1 << 64) - 1:016x}"


def named(function: tirx.PrimFunc) -> tvm.IRModule:
    """The module of one kernel that MetaSchedule's traces are of.

    Traces name blocks, which TVM names after tensors: here they are numbered. All of it is new:
    some primitives write into the body that they are given, whoever has it too.
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
    """The name of the schedule that boltgen's and TVM's rules give a kernel today."""
    return BUILT_IN + identity(_by_rules(function, target))


def trace_text(trace: Trace) -> str:
    """The name of a schedule of MetaSchedule's."""
    return json.dumps(trace.as_json(), separators=(",", ":"), default=lambda number: number.value)


def scheduled(function: tirx.PrimFunc, config: str, target: Target) -> tirx.PrimFunc:
    """`function` with the schedule that has this name.

    Raises:
        Exception: the trace is not of this function: TVM raises what it likes.
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
    """JSON's values as TVM's reader of traces takes them."""
    match form:
        case list():
            return [_values(each) for each in form]
        case float():
            return tirx.FloatImm("float64", form)
        case _:
            return form
