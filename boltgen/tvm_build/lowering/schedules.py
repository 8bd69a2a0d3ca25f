"""Schedules of TVM's kernels in a Relax model: TVM's rules, and the rules of `reductions`."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm.relax.backend.cuda import pipeline as cuda
from tvm.s_tir import dlight
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
from boltgen.tvm_build.lowering.reductions import schedule_row, schedule_vectors, schedule_window
from boltgen.tvm_build.lowering.special_values import with_infinite_padding


def pipeline(
    target: Target,
    look: Callable[[tvm.IRModule], None] | None = None,
    tuned: Callable[[tvm.IRModule], tvm.IRModule] | None = None,
) -> tvm.transform.Pass:
    """Return the pass by which `tvm.compile` lowers a Relax module for the CUDA target `target`.

    It is TVM's pipeline for CUDA, with the rules of `reductions` before TVM's rules for reductions.
    `look` receives the module before its kernels are scheduled; `tuned` then schedules the kernels
    for which tuning has found a faster schedule.
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
    """Return `module` with scheduled kernels; see `pipeline`.

    It is a function, because a TVM pass would replace every error by one of TVM's.

    Raises:
        CompileError: no rule schedules a kernel.
        ModelImportError: no kernel computes the form of an operator.
    """
    module = unscheduled(module, target)
    if look is not None:
        look(module)
    with target:
        module = by_rules(module if tuned is None else tuned(module), target)
    # Last, because TVM fuses kernels only with dimensions as arguments, not with formulas.
    return with_computed_dimensions(module)


def finish(target: Target) -> tvm.transform.Pass:
    """Return the pass that prepares a module of scheduled kernels for TVM's virtual machine."""
    return tvm.transform.Sequential(
        (*cuda.dataflow_lower_passes(target), *cuda.finalize_passes(target))
    )


def unscheduled(module: tvm.IRModule, target: Target) -> tvm.IRModule:
    """Return `module` with fused kernels, before they are scheduled for `target`."""
    *legalise, _ = cuda.legalize_passes(target)  # without the last pass, which schedules
    first = next(at for at, each in enumerate(legalise) if each.info.name == "FuseOps")
    before = (*cuda.library_dispatch_passes(target), *legalise[:first])
    with target:
        # NaN second, because one of boltgen's kernels may be written as a sort.
        module = tvm.transform.Sequential(before)(with_ordered_nan(with_device_kernels(module)))
        with limited_fusion(module):
            module = tvm.transform.Sequential(legalise[first:])(module)
        return with_extents_first(with_infinite_padding(module))


def by_rules(module: tvm.IRModule, target: Target) -> tvm.IRModule:
    """Schedule by rules all kernels of `module` that tuning has not scheduled.

    Raises:
        CompileError: no rule schedules a kernel.
    """
    rules = (
        *(_of_dlight(rule) for rule in (dlight.gpu.Matmul(), dlight.gpu.GEMV())),
        schedule_vectors,
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

    # These kernels may have no elements, and rules with barriers assume a block.
    plain = [
        name for name in kernels_of_data(module) if SCHEDULED not in (module[name].attrs or {})
    ]
    module = apply_rules(module, target, lambda name: rules[-1:] if name in plain else rules)
    for name in plain:
        module.update_func(module.get_global_var(name), guarded(module[name]))
    return module


def _of_dlight(rule: dlight.ScheduleRule) -> Rule:
    return lambda function, target: rule.apply(function, target, False)
