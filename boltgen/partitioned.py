"""A model as its user has it, imported and carved into regions: what compiling and tuning share."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from boltgen.errors import BoltgenError, InvalidProblemError, ModelImportError
from boltgen.frontend.partitioning import Passes
from boltgen.frontend.relay.versions import installed_tvm, require_relax, require_relay
from boltgen.intake.files import require_regular
from boltgen.ir.chain import separate
from boltgen.ir.dtypes import DType
from boltgen.pipeline import PipelineOptions, Survey, cutter, padding_costs, rejecter, tasks_of
from boltgen.runtime.device import provide_cuda_runtime
from boltgen.runtime.model import Model
from boltgen.tune.padding import PaddingSurvey
from boltgen.tune.select import AnyTask

_FRONTENDS = {"relax": require_relax, "relay": require_relay}


def accumulator_named(name: str) -> DType:
    """The type in which products are summed.

    Raises:
        InvalidProblemError: `name` is no type that a tensor core sums in.
    """
    accumulators = {dtype.value: dtype for dtype in DType.F16.accumulators()}
    if name not in accumulators:
        known = " or ".join(map(repr, accumulators))
        raise InvalidProblemError(f"products cannot be accumulated in {name!r}; give {known}")
    return accumulators[name]


def frontend_named(name: str | None) -> str:
    """The frontend that a user names, or that the installed TVM has.

    Raises:
        BoltgenError: there is none of that name.
    """
    if name is None:
        found = installed_tvm()
        return "relay" if found is not None and found.has_relay else "relax"
    if name not in _FRONTENDS:
        raise BoltgenError(
            f"unknown frontend {name!r}; the frontends are {' and '.join(_FRONTENDS)}"
        )
    return name


def import_model(
    model: object, shapes: Mapping[str, Sequence[int]], frontend: str, options: PipelineOptions
) -> Model:
    """A model as its frontend has it, whole: `annotate` comes next.

    Raises:
        ModelImportError: the model cannot be read or imported.
        ToolchainError: there is no TVM with that frontend.
    """
    if isinstance(model, (str, Path)):
        _require_file(Path(model))
    with options.phases.phase("load TVM"):
        _FRONTENDS[frontend]()
        provide_cuda_runtime(options.settings, options.reporter)
        steps = importlib.import_module(f"boltgen.runtime.{frontend}_model")
    with options.phases.phase("import the model"):
        fixed = {name: tuple(shape) for name, shape in shapes.items()}
        imported: Model = steps.Model(model, fixed)
    return imported


def _require_file(path: Path) -> None:
    """Refuse a path that is no file's before anything is loaded or built for it."""
    try:
        require_regular(path, path.stat())
    except FileNotFoundError:
        raise ModelImportError(f"{path}: there is no such file") from None
    except OSError as error:
        raise ModelImportError(f"{path} cannot be read: {error.strerror or error}") from error


def partition(imported: Model, arch: str, options: PipelineOptions) -> None:
    """Carve the regions of a model out, with as many products in each as is faster on `arch`."""
    with options.phases.phase("normalise and partition"):
        imported.annotate(
            Passes(
                cut=cutter(arch, options),
                padding=padding_costs(arch, options),
                rejects=rejecter(arch, options),
            )
        )


def tasks_of_model(imported: Model, arch: str, options: PipelineOptions) -> tuple[AnyTask, ...]:
    """What is to be tuned for a model: its products, as they are and padded otherwise, and what
    could be one kernel of them.

    The model is left with a region for each product.

    Raises:
        NoLegalConfigError: no kernel computes one of its products.
    """
    survey = Survey()
    with options.phases.phase("normalise and partition"):
        cut = survey if options.fuse else separate
        costs = padding_costs(arch, options)
        padding = PaddingSurvey(costs) if costs else None
        imported.annotate(Passes(cut=cut, padding=padding, rejects=rejecter(arch, options)))
        products = tasks_of(imported.regions, options.accumulate)
        alternatives = padding.tasks(options.accumulate) if padding else ()
        return (*products, *alternatives, *survey.tasks(arch, options.accumulate))
