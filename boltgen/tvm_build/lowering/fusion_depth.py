"""Limit how many elementwise operators TVM fuses into one kernel.

TVM inlines a fused operator into each of its readers. If results are read twice, as in a repeated
`y = y + y`, the kernel's expression doubles with every operator, and TVM compiles for minutes. Such
a model gets a limit; all other models keep TVM's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

import tvm
from tvm import ir, relax

# The most operators in one kernel's expression, counting every copy. A choice: below it the
# compilation time does not grow with the expression.
LARGEST = 1024
# TVM's own limit of fused operators. Source: tvm/src/relax/transform/fuse_ops.cc, kMaxFusedOps.
_TVM_DEPTH = 256
# kElemWise, kBroadcast and kInjective, whose expressions are inlined into their readers. Source:
# tvm/relax/op_attr_types.h, OpPatternKind.
_INJECTIVE = 2
_CALL_TIR = ir.Op.get("relax.call_tir")
# The variable of a result, and the variables that its elementwise kernel reads.
_Step: TypeAlias = tuple[relax.Var, Sequence[relax.Var]]


def limited_fusion(module: tvm.IRModule) -> AbstractContextManager[object]:
    """Return a context in which `FuseOps` makes no expression of more than `LARGEST` operators.

    `module` has its operators as kernels with patterns, after `AnnotateTIROpPattern`.
    """
    depth = largest_depth(_elementwise(module))
    if depth is None:
        return nullcontext()
    now = tvm.transform.PassContext.current()
    limited: AbstractContextManager[object] = tvm.transform.PassContext(
        opt_level=now.opt_level,
        required_pass=now.required_pass,
        disabled_pass=now.disabled_pass,
        instruments=now.instruments,
        config={**now.config, "relax.FuseOps.max_depth": depth},
    )
    return limited


def largest_depth(steps: Sequence[_Step]) -> int | None:
    """Return the most steps in sequence that one kernel may fuse; None without a limit."""
    sizes: dict[relax.Var, int] = {}
    for var, read in steps:
        sizes[var] = min(1 + sum(sizes.get(each, 0) for each in read), LARGEST + 1)
    if max(sizes.values(), default=0) <= LARGEST:
        return None
    sizes = {}
    for depth in range(_TVM_DEPTH):
        sizes = {var: 1 + sum(sizes.get(each, 0) for each in read) for var, read in steps}
        if max(sizes.values()) > LARGEST:
            return max(depth, 1)
    return None  # TVM's own limit suffices


def _elementwise(module: tvm.IRModule) -> list[_Step]:
    """Return the calls of elementwise kernels in order."""
    found: list[_Step] = []
    for function in module.functions.values():
        if not isinstance(function, relax.Function):
            continue
        for binding in (each for block in function.body.blocks for each in block.bindings):
            call = getattr(binding, "value", None)
            if not isinstance(call, ir.Call) or call.op != _CALL_TIR:
                continue
            pattern = (module[call.args[0]].attrs or {}).get("op_pattern")
            if pattern is not None and int(pattern) <= _INJECTIVE:
                read = [each for each in call.args[1] if isinstance(each, relax.Var)]
                found.append((binding.var, read))
    return found
