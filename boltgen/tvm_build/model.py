"""A user's model on its way through a frontend to a library.

Compiling, tuning and advice share it: `import_model`, then `partition` or `tasks_of_model`.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy.typing as npt

from boltgen.arch import Arch
from boltgen.artifact.coverage import RestKernel
from boltgen.build.cache import Cache
from boltgen.build.toolchain import Toolchain
from boltgen.device.choose import provide_cuda_runtime
from boltgen.errors import ModelImportError
from boltgen.frontend.imported import ImportedModel, TensorSpec, narrowed
from boltgen.frontend.relay.versions import installed_tvm, require_relax, require_relay
from boltgen.intake.files import require_regular
from boltgen.intake.model_files import other_kind
from boltgen.ir.dtypes import DType
from boltgen.model_passes import Survey, passes_for
from boltgen.options import ModelOptions
from boltgen.passes.precision.observe_ranges import Range
from boltgen.passes.run import Partitioned, Passes
from boltgen.pipeline import BuiltRegions, PipelineOptions, tasks_of
from boltgen.problems.region import Convention, Region
from boltgen.problems.workload import separate
from boltgen.tuning.choice.graph_costs import CostSurvey
from boltgen.tuning.choice.select import Task

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontend:
    """The functions of a frontend."""

    convention: Convention
    import_model: Callable[..., ImportedModel]
    with_narrow_border: Callable[[Any, DType], Any]
    annotate: Callable[..., Partitioned]


class Model(ABC):
    """An imported model; call `annotate`, then `build`, then `export`.

    If `border` is a type, FP32 inputs and outputs of the model get this type.

    Raises:
        ModelImportError: the model cannot be read or imported.
    """

    frontend: ClassVar[Frontend]

    def __init__(
        self,
        source: object,
        shapes: Mapping[str, tuple[int, ...]],
        border: DType | None = None,
    ) -> None:
        imported = self.frontend.import_model(source, shapes=shapes)
        if border is not None:
            module = self.frontend.with_narrow_border(imported.module, border)
            imported = narrowed(imported, module, border)
        self.inputs: tuple[TensorSpec, ...] = imported.inputs
        self.outputs: tuple[TensorSpec, ...] = imported.outputs
        self.dimensions: Mapping[str, tuple[int, int | None]] = imported.dimensions
        self._import_notes = imported.notes
        self._imported = imported.module
        self._narrowed = imported.narrowed
        self._partitioned: Partitioned | None = None
        self.ranges: tuple[Range, ...] = ()
        self.rest: tuple[RestKernel, ...] | None = None
        # For each measured TVM kernel, by name: its schedule and the reason.
        self.rest_schedules: Mapping[str, str] = {}

    def calibrate(self, samples: Sequence[Sequence[Array]]) -> None:
        """Run the original model on each of `samples`, which has inputs in calling order.

        Afterwards `annotate` keeps a tensor in FP32 if it leaves the range of the passes'
        precision, or if all its numbers are small there; `ranges` has the range of every tensor.
        """
        self.ranges = tuple(self._measured_ranges(samples))

    @abstractmethod
    def _measured_ranges(self, samples: Sequence[Sequence[Array]]) -> list[Range]:
        """Return the ranges of the tensors of `main`, computed by TVM on the host."""

    @abstractmethod
    def reference(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the original model's outputs for inputs in calling order, computed on the host."""

    def annotate(self, passes: Passes) -> None:
        """Apply `passes` to the imported model; each call starts from the imported model."""
        observed = {each.index: (each.low, each.high) for each in self.ranges}
        self._partitioned = self.frontend.annotate(
            self._imported, passes=replace(passes, observed=observed, narrowed=self._narrowed)
        )

    @property
    def partitioned(self) -> Partitioned:
        """The result of the last `annotate`."""
        assert self._partitioned is not None, "annotate comes first"
        return self._partitioned

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for people about the import and the normalisation."""
        return (*self._import_notes, *self.partitioned.notes)

    @property
    def regions(self) -> tuple[Region, ...]:
        """The regions that were outlined."""
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
        """Build the remaining model with TVM; return the CUDA sources that TVM generated.

        Raises:
            CompileError: nvcc rejects TVM's sources.
        """

    def rest_functions(self, arch: Arch) -> Sequence[Any]:
        """Return TVM's kernels on `arch` that TVM's tuner supports; see `rest.relax_kernels`."""
        del arch
        return ()

    @abstractmethod
    def export(self, output: Path, tools: Toolchain) -> Path:
        """Write the shared library to `output`.

        Raises:
            ToolchainError: the linker fails.
        """


_REQUIRE = {"relax": require_relax, "relay": require_relay}


def frontend_of(options: ModelOptions) -> str:
    """Return the frontend that the user names, or the installed TVM's frontend."""
    if options.frontend is not None:
        return options.frontend
    found = installed_tvm()
    return "relay" if found is not None and found.has_relay else "relax"


def import_model(model: object, options: PipelineOptions) -> Model:
    """Import a whole model by its frontend; `annotate` comes next.

    Raises:
        ModelImportError: the model cannot be read or imported.
        ToolchainError: no TVM with that frontend is installed.
    """
    if isinstance(model, (str, Path)):
        _require_file(Path(model))
    frontend = frontend_of(options)
    with options.phase("load TVM"):
        _REQUIRE[frontend]()
        provide_cuda_runtime(options.settings, options.reporter)
        # Imported by name, because a process has only one of the two TVMs.
        steps = importlib.import_module(f"boltgen.tvm_build.{frontend}_model")
    with options.phase("import the model"):
        imported: Model = steps.Model(model, options.shapes, options.border)
    return imported


def _require_file(path: Path) -> None:
    """Raise ModelImportError for a path that is no file, before anything is loaded or built."""
    try:
        if (kind := other_kind(path)) is not None:
            raise ModelImportError(f"{path} is {kind}")
        require_regular(path, path.stat())
    except FileNotFoundError:
        raise ModelImportError(f"{path}: there is no such file") from None
    except OSError as error:
        raise ModelImportError(f"{path} cannot be read: {error.strerror or error}") from error


def partition(imported: Model, arch: str, options: PipelineOptions) -> None:
    """Outline the regions of a model, each with the number of anchors that is fastest on `arch`."""
    with options.phase("normalise and partition"):
        imported.annotate(passes_for(arch, options))


def tasks_of_model(imported: Model, arch: str, options: PipelineOptions) -> tuple[Task, ...]:
    """Return the tasks to tune for a model.

    They are its anchors as they are, with other padding, or with horizontal fusion, and
    back-to-back candidates. Afterwards the model has one region per anchor.

    Raises:
        NoLegalConfigError: no kernel computes an anchor.
    """
    survey = Survey()
    with options.phase("normalise and partition"):
        passes = passes_for(arch, options)
        padding = CostSurvey(passes.padding) if passes.padding else None
        joining = CostSurvey(passes.joining) if passes.joining else None
        cut = survey if options.fuse else separate
        imported.annotate(replace(passes, cut=cut, padding=padding, joining=joining))
        asked = filter(None, (padding, joining))
        alternatives = [task for costs in asked for task in costs.tasks]
        # No budget is spent on sizes outside the expected traffic.
        found = tasks_of(imported.regions, options.traffic)
        expected = [task for task in found if task.share > 0.0]
        return (*expected, *alternatives, *survey.tasks(arch))
