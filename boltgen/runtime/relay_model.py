"""A model on its way through the Relay frontend to a library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from boltgen.arch import Arch
from boltgen.build.cache import Cache
from boltgen.build.toolchain import Toolchain
from boltgen.frontend.imported import TensorSpec
from boltgen.frontend.relay import codegen, patterns, steps
from boltgen.frontend.relay.importer import import_model
from boltgen.ir.region import Convention, Placement, Region
from boltgen.pipeline import BuiltRegions, PipelineOptions
from boltgen.runtime import relay_link


class Model:
    """An imported model; `annotate` comes next, then `regions`, then `build`.

    Raises:
        ModelImportError: the model cannot be read or imported.
    """

    convention = Convention.RELAY

    def __init__(self, source: object, shapes: Mapping[str, tuple[int, ...]]) -> None:
        imported = import_model(source, shapes=shapes)
        self.inputs: tuple[TensorSpec, ...] = imported.inputs
        self.outputs: tuple[TensorSpec, ...] = imported.outputs
        self._module = imported.module

    def annotate(self) -> None:
        """Normalise the model and carve its regions out."""
        self._module = steps.annotate(self._module)

    @property
    def regions(self) -> tuple[Region, ...]:
        """The regions that were carved out."""
        return patterns.regions(self._module)

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Where each operator runs."""
        return patterns.placements(self._module)

    def build(
        self,
        built: BuiltRegions,
        arch: Arch,
        tools: Toolchain,
        cache: Cache,
        options: PipelineOptions,
    ) -> list[Path]:
        """Build the rest with TVM; the CUDA sources that it generated.

        Raises:
            CompileError: nvcc refuses what TVM generated.
        """
        codegen.remember(built)
        module = steps.mark(self._module, arch=arch.name, options=options)
        self._executable, sources = relay_link.build_library(module, arch, tools, cache)
        return sources

    def export(self, output: Path, tools: Toolchain) -> Path:
        """Write the one shared library.

        Raises:
            ToolchainError: the linker fails.
        """
        return relay_link.export_library(self._executable, output, tools)
