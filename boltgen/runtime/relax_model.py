"""A model on its way through the Relax frontend to a library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tvm
from tvm.relax import VirtualMachine

from boltgen.arch import Arch
from boltgen.build.cache import Cache
from boltgen.build.toolchain import Toolchain
from boltgen.frontend import relax
from boltgen.frontend.ranges import Range, ranges
from boltgen.ir.region import Convention
from boltgen.pipeline import BuiltRegions, PipelineOptions
from boltgen.runtime import link, model


class Model(model.Model):
    """A Relax module, then an executable of TVM's virtual machine."""

    frontend = model.Frontend(
        convention=Convention.RELAX,
        import_model=relax.import_model,
        annotate=relax.annotate,
    )

    def _measured_ranges(self, samples: Sequence[Sequence[model.Array]]) -> list[Range]:
        module, graph, found = relax.watched(self._imported)
        machine = VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
        runs = [
            [end.numpy() for end in machine["main"](*map(tvm.runtime.tensor, arrays))]
            for arrays in samples
        ]
        return ranges(graph, found, runs)

    def reference(self, arrays: Sequence[model.Array]) -> list[model.Array]:  # noqa: D102 (inherited)
        machine = VirtualMachine(tvm.compile(self._imported, target="llvm"), tvm.cpu())
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
        del options
        workspaces = built.plan.workspaces
        module = relax.attach(self.partitioned, built.objects, built.symbols, workspaces)
        self._executable, sources = link.build_library(module, arch, tools, cache)
        return sources

    def export(self, output: Path, tools: Toolchain) -> Path:  # noqa: D102 (inherited)
        return link.export_library(self._executable, output, tools)
