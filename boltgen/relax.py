"""boltgen for users of Relax: `mod = boltgen.relax.partition(mod)`, then `tvm.compile` as usual."""

from __future__ import annotations

import tvm

from boltgen.frontend.relax import annotate, codegen, compile_regions
from boltgen.pipeline import PipelineOptions

__all__ = ["partition"]

# For those who call RunCodegen themselves on a module that they annotated.
codegen.register()


def partition(
    module: tvm.IRModule,
    *,
    arch: str = "sm_80",
    normalise: bool = True,
    options: PipelineOptions | None = None,
) -> tvm.IRModule:
    """`module` with its matrix products and convolutions in kernels compiled for `arch`.

    The result compiles with plain `tvm.compile` for target cuda, and exports with
    `export_library(path, cc="nvcc")`. `normalise` first makes the model FP16 and NHWC inside; its
    inputs and outputs keep their dtypes and layouts. `options` says how kernels are compiled.

    Raises:
        BoltgenError: a kernel cannot be chosen or compiled.
    """
    annotated = annotate(module, normalise=normalise)
    return compile_regions(annotated, arch=arch, options=options)
