"""Ship no kernel that fails its check: use another kernel, let TVM compute, or raise an error.

Arrow: the last one of a compilation; it surrounds the building of a library.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from boltgen.artifact.checked import KernelCheck, LibraryCheck
from boltgen.artifact.metadata import Metadata
from boltgen.build.vgpu import vgpu_key
from boltgen.check.kernels import check_kernels
from boltgen.check.model import Reference, check_model
from boltgen.errors import CheckError
from boltgen.families.trial import Trial
from boltgen.intake.choices import CheckLevel
from boltgen.pipeline import PipelineOptions
from boltgen.running.artifact import Artifact
from boltgen.settings import Settings

_log = logging.getLogger(__name__)

# Builds a library from the current choices; returns it and each kernel's object file.
Build: TypeAlias = Callable[[], tuple[Artifact, Mapping[str, Path]]]


def checking_vgpu(level: CheckLevel, settings: Settings) -> str:
    """Return the identity of the virtual GPU that checks, or "" if nothing is executed.

    Raises:
        ToolchainError: the host compiler that builds the virtual GPU is missing.
    """
    return "" if level is CheckLevel.NONE else vgpu_key(settings)


def checked(
    build: Build, level: CheckLevel, reference: Reference, options: PipelineOptions
) -> Artifact:
    """Build and check a library until all kernels pass; write the outcome to its metadata.

    Raises:
        CheckError: the model fails, or a kernel without a replacement does, such as a layout
            transform.
        NoLegalConfigError: a problem has no kernel left.
        ToolchainError, DeviceError: the virtual GPU cannot be built or used.
    """
    failures: list[_Failure] = []
    while True:
        artifact, objects = build()
        if level is CheckLevel.NONE:
            return _with(artifact, LibraryCheck(level=level))
        with options.phase("check"):
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
        with options.phase("check"):
            model = check_model(artifact, reference)
        found = replace(found, level=level, model=model)
        if not model.passed:
            raise CheckError(f"the compiled model is wrong: {model.faults[0]}")
    return _with(artifact, found)


@dataclass(frozen=True, slots=True)
class _Failure:
    """A kernel that failed, and the trials that it ran in the model."""

    kernel: KernelCheck
    trials: tuple[Trial, ...]

    def told(self, metadata: Metadata) -> str:
        """Return a sentence on the kernels that compute its workloads now."""
        now = {
            trial.workload: kernel.symbol for kernel in metadata.kernels for trial in kernel.trials
        }
        workloads = dict.fromkeys(trial.workload for trial in self.trials)
        instead = "; ".join(
            f"{now.get(workload, 'TVM, or another kernel with its neighbours,')} computes "
            f"{workload.describe()}"
            for workload in workloads
        )
        return f"kernel {self.kernel.symbol} failed its check; {instead}"


def _failure(kernel: KernelCheck, metadata: Metadata) -> _Failure:
    (trials,) = (each.trials for each in metadata.kernels if each.symbol == kernel.symbol)
    if not any(region.runs(kernel.symbol) for region in metadata.regions):
        raise CheckError(
            f"{kernel.symbol}, which no other kernel can replace, failed its check: "
            f"{kernel.faults[0]}"
        )
    return _Failure(kernel, trials)


def _with(artifact: Artifact, check: LibraryCheck) -> Artifact:
    metadata = replace(artifact.metadata, check=check)
    metadata.write(artifact.folder)
    return Artifact(artifact.folder, metadata, keep=artifact)
