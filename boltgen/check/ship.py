"""Nothing that fails its check ships: a kernel is replaced, or left to TVM, or it is an error.

Arrow: the last one of a compilation, around the building of a library.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from boltgen.build.cache import Cache
from boltgen.build.vgpu import vgpu_libraries
from boltgen.check.library import check_kernels
from boltgen.check.model import Reference, check_model
from boltgen.errors import CheckError
from boltgen.ir.chain import describe_any
from boltgen.pipeline import PipelineOptions
from boltgen.runtime.artifact import Artifact
from boltgen.runtime.checked import CheckLevel, KernelCheck, LibraryCheck
from boltgen.runtime.metadata import Metadata
from boltgen.settings import Settings
from boltgen.tune.outcome import Trial

_log = logging.getLogger(__name__)

# Builds a library of what is chosen now; also the object of each of its kernels.
Build: TypeAlias = Callable[[], tuple[Artifact, Mapping[str, Path]]]


def level_named(name: str) -> CheckLevel:
    """How much a user wants executed.

    Raises:
        CheckError: there is no such level.
    """
    try:
        return CheckLevel(name)
    except ValueError:
        known = ", ".join(level.value for level in CheckLevel)
        raise CheckError(f"unknown check {name!r}; the checks are {known}") from None


def check_identity(level: CheckLevel, settings: Settings, cache: Cache) -> str:
    """What a check that passed is worth: its level, and the virtual GPU that it is done on.

    Raises:
        ToolchainError: the virtual GPU cannot be built.
    """
    executes = level is not CheckLevel.NONE
    return f"{level.value} {vgpu_libraries(settings, cache).name if executes else ''}"


def checked(
    build: Build, level: CheckLevel, reference: Reference, options: PipelineOptions
) -> Artifact:
    """A library of which everything that was executed is right, with the outcome in its metadata.

    Raises:
        CheckError: something fails that no kernel can replace: a layout transform, or the model.
        NoLegalConfigError: no kernel is left for a problem.
        ToolchainError, DeviceError: there is nothing to execute it on.
    """
    failures: list[_Failure] = []
    while True:
        artifact, objects = build()
        if level is CheckLevel.NONE:
            return _with(artifact, LibraryCheck(level=level))
        with options.phases.phase("check"):
            found = check_kernels(
                artifact.folder,
                artifact.metadata,
                options.settings,
                reporter=options.reporter,
                workers=options.jobs,
                objects=objects,
                cache=options.cache,
            )
        if found.passed:
            break
        for kernel in found.failed:
            failures.append(_failure(kernel, artifact.metadata))
            options.excluded.add(failures[-1].trials, artifact.metadata.arch, kernel.faults[0])
            _log.warning(
                "kernel %s failed its check and does not ship: %s", kernel.symbol, kernel.faults[0]
            )
    replaced = tuple(failure.told(artifact.metadata) for failure in failures)
    for sentence in replaced:
        _log.warning("%s", sentence)
    found = replace(found, replaced=replaced)
    if level is CheckLevel.FULL:
        with options.phases.phase("check"):
            model = check_model(artifact, reference)
        found = replace(found, level=level, model=model)
        if not model.passed:
            raise CheckError(f"the compiled model is wrong: {model.faults[0]}")
    return _with(artifact, found)


@dataclass(frozen=True, slots=True)
class _Failure:
    """A kernel that failed, and the launches of the model that wanted it."""

    kernel: KernelCheck
    trials: tuple[Trial, ...]

    def told(self, metadata: Metadata) -> str:
        """What runs in its place, for people."""
        now = {region.trial.problem: region.kernel for region in metadata.regions if region.trial}
        problems = dict.fromkeys(trial.problem for trial in self.trials)
        instead = "; ".join(
            f"{now.get(problem, 'TVM, or another kernel with its neighbours,')} computes "
            f"{describe_any(problem)}"
            for problem in problems
        )
        return f"kernel {self.kernel.symbol} failed its check; {instead}"


def _failure(kernel: KernelCheck, metadata: Metadata) -> _Failure:
    wanted = (region.trial for region in metadata.regions if region.kernel == kernel.symbol)
    trials = tuple(trial for trial in wanted if trial is not None)
    if not trials:
        raise CheckError(
            f"{kernel.symbol}, which no other kernel can replace, failed its check: "
            f"{kernel.faults[0]}"
        )
    return _Failure(kernel, trials)


def _with(artifact: Artifact, check: LibraryCheck) -> Artifact:
    metadata = replace(artifact.metadata, check=check)
    metadata.write(artifact.folder)
    return Artifact(artifact.folder, metadata, keep=artifact)
