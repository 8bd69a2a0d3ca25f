"""The Relax frontend's two steps: annotate a module with regions, then put their kernels in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import tvm
from tvm import relax

from boltgen import pipeline
from boltgen.frontend.padding import PADDING
from boltgen.frontend.relax import codegen
from boltgen.frontend.relax.normalise import normalise as _normalise
from boltgen.frontend.relax.padding import pad
from boltgen.frontend.relax.patterns import annotate as _annotate
from boltgen.frontend.relax.patterns import is_region, regions
from boltgen.frontend.relax.workspaces import with_workspaces
from boltgen.ir.chain import Cutter, separate
from boltgen.ir.padding import PaddingCosts


def annotate(
    module: tvm.IRModule,
    *,
    normalise: bool = True,
    allow_nonfinite: bool = False,
    cut: Cutter = separate,
    padding: PaddingCosts | None = None,
) -> tvm.IRModule:
    """`module` with each region that boltgen computes in a function of its own.

    `normalise` first makes the model FP16, NHWC and free of batch norms; a module that is so
    already keeps its form. `cut` says which products become one kernel, `padding` by what times
    tensors are padded, if at all. The result has "Codegen" functions and is no input for
    `tvm.compile` before `attach` or `compile_regions`.

    Raises:
        ModelImportError: a weight is NaN or infinite in FP16, and `allow_nonfinite` is not set.
    """
    if normalise:
        module = _normalise(module, allow_nonfinite=allow_nonfinite)
    if padding is None:
        return _annotate(module, cut)
    padded, plan = pad(module, padding)
    return _annotate(padded, cut).with_attr(PADDING, "\n".join(plan))


def compile_regions(
    module: tvm.IRModule, *, arch: str, options: pipeline.PipelineOptions | None = None
) -> tvm.IRModule:
    """An annotated module with its regions' kernels built for `arch` and attached.

    Raises:
        BoltgenError: a kernel cannot be chosen or compiled.
    """
    # Not left to the hook: through TVM's foreign function interface an error loses its type.
    built = pipeline.build_regions(regions(module), arch, options)
    return attach(module, built.objects, built.symbols, built.plan.workspaces)


def partition(
    module: tvm.IRModule,
    *,
    arch: str = "sm_80",
    normalise: bool = True,
    options: pipeline.PipelineOptions | None = None,
) -> tvm.IRModule:
    """`module` with its matrix products and convolutions in kernels compiled for `arch`.

    The result compiles with plain `tvm.compile` for target cuda, and exports with
    `export_library(path, cc="nvcc")`. `normalise` first makes the model FP16 and NHWC inside; its
    inputs and outputs keep their dtypes and layouts. `options` says how kernels are compiled.

    Raises:
        BoltgenError: a kernel cannot be chosen or compiled.
    """
    chosen = options or pipeline.PipelineOptions()
    annotated = annotate(
        module,
        normalise=normalise,
        cut=pipeline.cutter(arch, chosen),
        padding=pipeline.padding_costs(arch, chosen),
    )
    return compile_regions(annotated, arch=arch, options=chosen)


def attach(
    module: tvm.IRModule,
    objects: Sequence[Path],
    symbols: Sequence[str],
    workspaces: Mapping[str, int],
) -> tvm.IRModule:
    """An annotated module with kernels attached that were built before.

    `objects` are what `pipeline.build_regions` made of `regions(module)`, `workspaces` the bytes
    that its plan wants.
    """
    options: dict[str, object] = {
        codegen.OBJECTS: [str(path) for path in objects],
        codegen.SYMBOLS: list(symbols),
    }
    return with_workspaces(_run_codegen(module, options), workspaces)


def _run_codegen(module: tvm.IRModule, options: dict[str, object]) -> tvm.IRModule:
    codegen.register()
    entries = [
        gvar.name_hint
        for gvar, function in module.functions.items()
        if isinstance(function, relax.Function) and not is_region(function)
    ]
    return relax.transform.RunCodegen({"boltgen": options}, entry_functions=entries)(module)
