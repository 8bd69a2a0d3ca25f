"""A model on its way through the Relay frontend to a library."""

from __future__ import annotations

from pathlib import Path

from boltgen.arch import Arch
from boltgen.build.cache import Cache
from boltgen.build.toolchain import Toolchain
from boltgen.frontend.relay import steps
from boltgen.frontend.relay.importer import import_model
from boltgen.ir.region import Convention
from boltgen.pipeline import BuiltRegions, PipelineOptions
from boltgen.runtime import model, relay_link


class Model(model.Model):
    """A Relay module, then what `relay.build` makes for the graph executor."""

    frontend = model.Frontend(
        convention=Convention.RELAY,
        import_model=import_model,
        annotate=steps.annotate,
    )

    def build(  # noqa: D102 (inherited)
        self,
        built: BuiltRegions,
        arch: Arch,
        tools: Toolchain,
        cache: Cache,
        options: PipelineOptions,
    ) -> list[Path]:
        del options
        module = steps.attach(self.partitioned, built)
        self._executable, sources = relay_link.build_library(module, arch, tools, cache)
        return sources

    def export(self, output: Path, tools: Toolchain) -> Path:  # noqa: D102 (inherited)
        return relay_link.export_library(self._executable, output, tools)
