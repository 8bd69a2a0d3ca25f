"""A model on its way through a frontend to a library: what both frontends' have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy.typing as npt

from boltgen.arch import Arch
from boltgen.build.cache import Cache
from boltgen.build.toolchain import Toolchain
from boltgen.frontend.imported import ImportedModel, TensorSpec
from boltgen.frontend.partitioning import Partitioned, Passes
from boltgen.frontend.ranges import Range
from boltgen.ir.region import AnyRegion, Convention
from boltgen.pipeline import BuiltRegions, PipelineOptions

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontend:
    """A frontend's steps."""

    convention: Convention
    import_model: Callable[..., ImportedModel]
    annotate: Callable[..., Partitioned]


class Model(ABC):
    """An imported model; `annotate` comes next, then `build`, then `export`.

    Raises:
        ModelImportError: the model cannot be read or imported.
    """

    frontend: ClassVar[Frontend]

    def __init__(self, source: object, shapes: Mapping[str, tuple[int, ...]]) -> None:
        imported = self.frontend.import_model(source, shapes=shapes)
        self.inputs: tuple[TensorSpec, ...] = imported.inputs
        self.outputs: tuple[TensorSpec, ...] = imported.outputs
        self._import_notes = imported.notes
        self._imported = imported.module
        self._partitioned: Partitioned | None = None
        self.ranges: tuple[Range, ...] = ()

    def calibrate(self, samples: Sequence[Sequence[Array]]) -> None:
        """Run the model as its author has it on each of `samples`, its inputs in calling order.

        What leaves FP16's range is FP32 from then on, wherever `annotate` is called; `ranges` has
        the range of every tensor.
        """
        self.ranges = tuple(self._measured_ranges(samples))

    @abstractmethod
    def _measured_ranges(self, samples: Sequence[Sequence[Array]]) -> list[Range]:
        """The ranges of the tensors of `main`, computed by TVM on the host."""

    @abstractmethod
    def reference(self, arrays: Sequence[Array]) -> list[Array]:
        """What the model as its author has it gives for inputs in calling order, by TVM's code for
        the host.
        """

    def annotate(self, passes: Passes) -> None:
        """Take the model through `passes`; may be done again, with others."""
        large = frozenset(each.index for each in self.ranges if each.is_beyond)
        self._partitioned = self.frontend.annotate(
            self._imported, passes=replace(passes, large=large)
        )

    @property
    def partitioned(self) -> Partitioned:
        """The model as it was last annotated."""
        assert self._partitioned is not None, "annotate comes first"
        return self._partitioned

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of the import and of normalisation, in sentences."""
        return (*self._import_notes, *self.partitioned.notes)

    @property
    def regions(self) -> tuple[AnyRegion, ...]:
        """The regions that were carved out."""
        return self.partitioned.regions

    @abstractmethod
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

    @abstractmethod
    def export(self, output: Path, tools: Toolchain) -> Path:
        """Write the one shared library.

        Raises:
            ToolchainError: the linker fails.
        """
