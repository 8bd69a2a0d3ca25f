"""A model on its way through the Relax frontend to a library."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import tvm

from boltgen.arch import Arch
from boltgen.build.cache import Cache
from boltgen.build.toolchain import Toolchain
from boltgen.frontend import relax
from boltgen.frontend.imported import require_module
from boltgen.intake.choices import RestTuning
from boltgen.model_passes import passes_for
from boltgen.passes.precision.observe_ranges import Range, ranges
from boltgen.passes.run import Partitioned
from boltgen.pipeline import BuiltRegions, PipelineOptions, build_regions
from boltgen.problems.region import Convention
from boltgen.stored import stored_rest
from boltgen.tvm_build import model
from boltgen.tvm_build import relax_link as link
from boltgen.tvm_build.lowering import schedules
from boltgen.tvm_build.rest import tasks as rest
from boltgen.tvm_build.rest.relax_kernels import RestFunction, rest_functions, rest_kernels

_log = logging.getLogger(__name__)


class Model(model.Model):
    """A Relax module, later an executable of TVM's virtual machine."""

    frontend = model.Frontend(
        convention=Convention.RELAX,
        import_model=relax.import_model,
        with_narrow_border=relax.with_narrow_border,
        annotate=relax.annotate,
    )

    def _measured_ranges(self, samples: Sequence[Sequence[model.Array]]) -> list[Range]:
        module, graph, found = relax.watched(self._imported)
        machine = link.host_machine(module)
        runs = [
            [end.numpy() for end in machine["main"](*map(tvm.runtime.tensor, arrays))]
            for arrays in samples
        ]
        return ranges(graph, found, runs)

    def reference(self, arrays: Sequence[model.Array]) -> list[model.Array]:  # noqa: D102 (inherited)
        machine = link.host_machine(relax.with_computed_dimensions(self._imported))
        result = machine["main"](*map(tvm.runtime.tensor, arrays))
        return [end.numpy() for end in ([result] if hasattr(result, "numpy") else result)]

    def build(  # noqa: D102 (inherited)
        self,
        built: BuiltRegions,
        arch: Arch,
        tools: Toolchain,
        cache: Cache,
        options: PipelineOptions,
    ) -> list[Path]:
        module = _attached(self.partitioned, built)
        target = link.cuda_target(arch)

        def tuned(module: tvm.IRModule) -> tvm.IRModule:
            by = rest.toolchain(tools)
            with stored_rest(arch, by, options.settings, options.device) as times_of:
                module, self.rest_schedules = rest.with_tuned(module, target, times_of)
            return module

        self._executable, sources = link.build_library(
            module,
            arch,
            tools,
            cache,
            look=self._look,
            tuned=tuned if options.rest is RestTuning.ON else None,
        )
        return sources

    def rest_functions(self, arch: Arch) -> Sequence[RestFunction]:  # noqa: D102 (inherited)
        symbols = [region.symbol for region in self.regions]
        module = relax.attach(self.partitioned, (), symbols, {})
        return rest_functions(schedules.unscheduled(module, link.cuda_target(arch)))

    def _look(self, module: tvm.IRModule) -> None:
        self.rest = rest_kernels(module)

    def export(self, output: Path, tools: Toolchain) -> Path:  # noqa: D102 (inherited)
        return link.export_library(self._executable, output, tools)


def partition(
    module: tvm.IRModule,
    *,
    arch: str = "sm_80",
    normalise: bool = True,
    options: PipelineOptions | None = None,
) -> tvm.IRModule:
    """Return `module` with its matmuls and convolutions in kernels compiled for `arch`.

    The result compiles with plain `tvm.compile` for target cuda. `normalise` first converts the
    model's inside to FP16 or BF16, and NHWC; inputs and outputs keep their dtypes and layouts.
    `options` control how kernels are compiled. A partitioned module may be partitioned again; its
    kernels stay.

    Raises:
        ModelImportError: `module` is no module, or is already lowered and has no Relax operators.
        BoltgenError: a kernel cannot be chosen or compiled.
    """
    require_module(module, tvm.IRModule, "Relax")
    relax.require_operators(module)
    chosen = options or PipelineOptions()
    passes = replace(passes_for(arch, chosen), normalise=normalise)
    partitioned = relax.annotate(module, passes)
    if not partitioned.regions:
        _log.warning(
            "the module has no matrix product or convolution that boltgen computes: TVM computes "
            "all of it"
        )
    return compile_regions(partitioned, arch=arch, options=chosen)


def compile_regions(
    partitioned: Partitioned, *, arch: str, options: PipelineOptions | None = None
) -> tvm.IRModule:
    """Return a partitioned module with its regions' kernels built for `arch` and attached.

    Raises:
        BoltgenError: a kernel cannot be chosen or compiled.
    """
    return _attached(partitioned, build_regions(partitioned.regions, arch, options))


def _attached(partitioned: Partitioned, built: BuiltRegions) -> tvm.IRModule:
    return relax.attach(partitioned, built.objects, built.symbols, built.plan.workspaces)
