"""A model on its way through the Relay frontend to a library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import tvm
from tvm import relay
from tvm.contrib import graph_executor

from boltgen.arch import Arch
from boltgen.build.cache import Cache
from boltgen.build.toolchain import Toolchain
from boltgen.frontend.imported import require_module
from boltgen.frontend.onnx import fix_shape
from boltgen.frontend.relay import steps
from boltgen.frontend.relay.bind import Parameters
from boltgen.frontend.relay.border import with_narrow_border
from boltgen.frontend.relay.codegen import Linked
from boltgen.frontend.relay.importer import import_model
from boltgen.ir.dtypes import DType
from boltgen.model_passes import passes_for
from boltgen.passes.precision.observe_ranges import Range, ranges
from boltgen.passes.run import Partitioned
from boltgen.pipeline import BuiltRegions, PipelineOptions, build_regions
from boltgen.problems.region import Convention
from boltgen.tvm_build import model, relay_link
from boltgen.tvm_build.lowering import relay_special_values
from boltgen.tvm_build.lowering.relay_nan_order import with_ordered_nan


class Model(model.Model):
    """A Relay module, later the result of `relay.build` for the graph executor.

    Raises:
        ModelImportError: an input has a dynamic dimension; the graph executor allocates all tensors
            before it runs.
    """

    frontend = model.Frontend(
        convention=Convention.RELAY,
        import_model=import_model,
        with_narrow_border=with_narrow_border,
        annotate=steps.annotate,
    )

    def __init__(
        self,
        source: object,
        shapes: Mapping[str, tuple[int, ...]],
        border: DType | None = None,
    ) -> None:
        super().__init__(source, shapes, border)
        for each in self.inputs:
            fix_shape(each.name, each.shape, None)

    def _measured_ranges(self, samples: Sequence[Sequence[model.Array]]) -> list[Range]:
        module, graph, found = steps.watched(self._imported)
        return ranges(graph, found, _run_on_host(module, samples))

    def reference(self, arrays: Sequence[model.Array]) -> list[model.Array]:  # noqa: D102 (inherited)
        return _run_on_host(self._imported, [arrays])[0]

    def build(  # noqa: D102 (inherited)
        self,
        built: BuiltRegions,
        arch: Arch,
        tools: Toolchain,
        cache: Cache,
        options: PipelineOptions,
    ) -> list[Path]:
        del options
        module = _attached(self.partitioned, built)
        self._executable, sources = relay_link.build_library(module, arch, tools, cache)
        return sources

    def export(self, output: Path, tools: Toolchain) -> Path:  # noqa: D102 (inherited)
        return relay_link.export_library(self._executable, output, tools)


def partition(
    module: tvm.IRModule,
    params: Parameters | None = None,
    *,
    arch: str = "sm_80",
    normalise: bool = True,
    allow_nonfinite: bool = False,
    options: PipelineOptions | None = None,
) -> tvm.IRModule:
    """Return `module` with its matmuls and convolutions in kernels compiled for `arch`.

    The result builds with plain `relay.build` for target cuda, for every executor, in this or
    another process on this machine. `params` become constants. `normalise` first converts the
    model's inside to FP16 and NHWC; inputs and outputs keep their dtypes and layouts. `options`
    control how kernels are compiled. A partitioned module may be partitioned again; its kernels
    stay.

    Raises:
        ModelImportError: the module or its parameters cannot be used; the message says why.
        BoltgenError: a kernel cannot be chosen or compiled.
    """
    require_module(module, tvm.IRModule, "Relay")
    chosen = options or PipelineOptions()
    passes = replace(passes_for(arch, chosen), normalise=normalise, allow_nonfinite=allow_nonfinite)
    return compile_regions(steps.annotate(module, params, passes), arch=arch, options=chosen)


def compile_regions(
    partitioned: Partitioned, *, arch: str, options: PipelineOptions | None = None
) -> tvm.IRModule:
    """Build the kernels of a partitioned module's regions for `arch`, for `relay.build` to find.

    Raises:
        BoltgenError: a kernel cannot be chosen or compiled.
    """
    # Build here in parallel; the hook would build one kernel after the other.
    built = build_regions(partitioned.regions, arch, options, Convention.RELAY)
    return _attached(partitioned, built)


def _attached(partitioned: Partitioned, built: BuiltRegions) -> tvm.IRModule:
    linked = {symbol: Linked(*parts) for symbol, parts in built.linked.items()}
    return steps.attach(partitioned, linked, built.plan.workspaces)


def _run_on_host(
    module: tvm.IRModule, samples: Sequence[Sequence[model.Array]]
) -> list[list[model.Array]]:
    """Return the outputs of each run of `module`, compiled for the host."""
    with tvm.transform.PassContext(opt_level=3, config=relay_special_values.config()):
        library = relay.build(with_ordered_nan(module), target="llvm")
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    runs = []
    for arrays in samples:
        for position, array in enumerate(arrays):
            executor.set_input(position, array)
        executor.run()
        count = executor.get_num_outputs()
        runs.append([executor.get_output(place).numpy() for place in range(count)])
    return runs
