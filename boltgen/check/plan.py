"""Choose the launches that check a library. Arrow: metadata to jobs."""

from __future__ import annotations

from collections.abc import Sequence

from boltgen.arch import arch_named
from boltgen.artifact.metadata import Metadata
from boltgen.check.protocol import Job
from boltgen.errors import ArtifactError
from boltgen.families.registry import boundaries, launch
from boltgen.families.trial import Trial


def jobs_of(metadata: Metadata) -> dict[str, tuple[Job, ...]]:
    """Return the launches that check each kernel of a library, by its symbol.

    Each launch of a kernel in the model adds launches at its boundary shapes.

    Raises:
        ArtifactError: the metadata does not say what the kernels compute.
    """
    for kernel in metadata.kernels:
        if not kernel.trials:
            raise ArtifactError(
                f"{metadata.model}: an older version of boltgen has not written what kernel "
                f"{kernel.symbol} computes: compile the model again"
            )
    return {
        kernel.symbol: jobs_of_trials(kernel.symbol, kernel.trials, metadata.arch)
        for kernel in metadata.kernels
    }


def jobs_of_trials(symbol: str, trials: Sequence[Trial], arch: str) -> tuple[Job, ...]:
    """Return the launches that check the kernel `symbol`, used for the workloads of `trials`."""
    found: list[Job] = []
    for trial in trials:
        for workload in boundaries(trial.workload, trial.config, arch_named(arch)):
            for is_sliced in _slicings(trial):
                job = Job(
                    symbol=symbol,
                    workload=workload,
                    launch=launch(workload, trial.config),
                    is_sliced=is_sliced,
                )
                if job not in found:
                    found.append(job)
    return tuple(found)


def _slicings(trial: Trial) -> tuple[bool, ...]:
    """Return the values of `Job.is_sliced` to check: both for a batch with operands, else False."""
    has_operands = any(layer.loads for layer in trial.workload.layers)
    return (False, True) if trial.workload.batch > 1 and has_operands else (False,)
