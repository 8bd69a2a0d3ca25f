"""The Relay frontend's steps: annotate a module with regions, then build their kernels."""

from __future__ import annotations

import tvm

from boltgen import pipeline
from boltgen.frontend.relay import codegen
from boltgen.frontend.relay.patterns import annotate as _annotate
from boltgen.frontend.relay.patterns import is_region, regions
from boltgen.ir.region import Convention


def annotate(module: tvm.IRModule) -> tvm.IRModule:
    """`module` with each region that boltgen computes in a function of its own."""
    return _annotate(module)


def compile_regions(
    module: tvm.IRModule, *, arch: str, options: pipeline.PipelineOptions | None = None
) -> tvm.IRModule:
    """An annotated module whose regions' kernels are built for `arch`; `relay.build` finds them.

    Raises:
        BoltgenError: a kernel cannot be chosen or compiled.
    """
    codegen.register()
    built = pipeline.build_regions(regions(module), arch, options, Convention.RELAY)
    codegen.remember(built)
    functions = {
        gvar: codegen.with_arch([function], arch)[0] if is_region(function) else function
        for gvar, function in module.functions.items()
    }
    return tvm.IRModule(functions, module.type_definitions)
