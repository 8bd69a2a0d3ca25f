"""The Relay frontend's steps: annotate a module with regions, then build their kernels."""

from __future__ import annotations

from collections.abc import Mapping

import tvm

from boltgen import pipeline
from boltgen.frontend.padding import PADDING
from boltgen.frontend.relay import codegen
from boltgen.frontend.relay.bind import Parameters, bind
from boltgen.frontend.relay.normalise import normalise as _normalise
from boltgen.frontend.relay.padding import pad
from boltgen.frontend.relay.patterns import annotate as _annotate
from boltgen.frontend.relay.patterns import is_region, regions
from boltgen.frontend.relay.workspaces import with_workspaces
from boltgen.ir.chain import Cutter, separate
from boltgen.ir.padding import PaddingCosts
from boltgen.ir.region import Convention


def annotate(
    module: tvm.IRModule,
    params: Parameters | None = None,
    *,
    normalise: bool = True,
    allow_nonfinite: bool = False,
    cut: Cutter = separate,
    padding: PaddingCosts | None = None,
) -> tvm.IRModule:
    """`module` with each region that boltgen computes in a function of its own.

    `params` become constants. `normalise` first makes the model FP16, NHWC and free of batch norms;
    a module that is so already keeps its form. `cut` says which products become one kernel,
    `padding` by what times tensors are padded, if at all.

    Raises:
        ModelImportError: the module has no types or no function `main`, `params` are not its
            parameters, or a weight is NaN or infinite in FP16 and `allow_nonfinite` is not set.
    """
    typed = bind(module, params or {}, allow_nonfinite=allow_nonfinite)
    if normalise:
        typed = _normalise(typed, allow_nonfinite=allow_nonfinite)
    if padding is None:
        return _annotate(typed, cut)
    padded, plan = pad(typed, padding)
    said = tvm.runtime.String("\n".join(plan))
    return _annotate(padded, cut).with_attr(PADDING, said)


def compile_regions(
    module: tvm.IRModule, *, arch: str, options: pipeline.PipelineOptions | None = None
) -> tvm.IRModule:
    """An annotated module whose regions' kernels are built for `arch`; `relay.build` finds them.

    Raises:
        BoltgenError: a kernel cannot be chosen or compiled.
    """
    chosen = options or pipeline.PipelineOptions()
    # Not left to the hook: through TVM's foreign function interface an error loses its type.
    built = pipeline.build_regions(regions(module), arch, chosen, Convention.RELAY)
    codegen.remember(built)
    return mark(module, arch=arch, options=chosen, workspaces=built.plan.workspaces)


def mark(
    module: tvm.IRModule,
    *,
    arch: str,
    options: pipeline.PipelineOptions,
    workspaces: Mapping[str, int],
) -> tvm.IRModule:
    """An annotated module whose regions say how they are to be built, and return `workspaces`."""
    codegen.register()
    functions = {
        gvar: codegen.marked(function, arch, options.accumulate)
        if is_region(function)
        else function
        for gvar, function in module.functions.items()
    }
    marked = tvm.IRModule(functions, module.type_definitions)
    return with_workspaces(marked, workspaces)


def partition(
    module: tvm.IRModule,
    params: Parameters | None = None,
    *,
    arch: str = "sm_80",
    normalise: bool = True,
    allow_nonfinite: bool = False,
    options: pipeline.PipelineOptions | None = None,
) -> tvm.IRModule:
    """`module` with its matrix products and convolutions in kernels compiled for `arch`.

    The result builds with plain `relay.build` for target cuda, for every executor. `params` become
    constants. `normalise` first makes the model FP16 and NHWC inside; its inputs and outputs keep
    their dtypes and layouts. `options` says how kernels are compiled.

    Raises:
        ModelImportError: the module or its parameters cannot be used; the message says why.
        BoltgenError: a kernel cannot be chosen or compiled.
    """
    chosen = options or pipeline.PipelineOptions()
    annotated = annotate(
        module,
        params,
        normalise=normalise,
        allow_nonfinite=allow_nonfinite,
        cut=pipeline.cutter(arch, chosen),
        padding=pipeline.padding_costs(arch, chosen),
    )
    return compile_regions(annotated, arch=arch, options=chosen)
