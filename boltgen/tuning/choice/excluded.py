"""Exclude kernels that failed the check of a library from the costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from boltgen.arch import Arch
from boltgen.families.registry import kernel_spec
from boltgen.families.trial import Trial
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.outcome import Failure, Fault
from boltgen.problems.workload import Workload
from boltgen.tuning.choice.select import Costs, CostSource, Measurements, ModelCosts, launches_of

# A choice: each kernel takes half a minute to compile, and after three failures the tiles of one
# kernel are hardly the cause.
_MOST_TRIED = 3


class Excluded:
    """The kernels that failed; they are never chosen again, for any workload.

    A workload is given up after several of its kernels failed.
    """

    def __init__(self) -> None:
        self._kernels: dict[KernelSpec, Failure] = {}
        self._reasons: dict[Workload, list[str]] = {}

    def add(self, trials: Sequence[Trial], arch: str, reason: str) -> None:
        """Exclude the kernels that `trials` launch."""
        failure = Failure(fault=Fault.WRONG_RESULT, reason=f"it failed the check: {reason}")
        self._kernels.update({trial.spec(arch): failure for trial in trials})
        for workload in {trial.workload for trial in trials}:
            self._reasons.setdefault(workload, []).append(reason)

    def gives_up(self, workload: Workload) -> str | None:
        """Return why no kernel may compute `workload` any more, or None."""
        reasons = self._reasons.get(workload, [])
        if len(reasons) < _MOST_TRIED:
            return None
        return f"{len(reasons)} kernels for it failed their check, the last with: {reasons[-1]}"

    def out_of(self, source: CostSource, arch: Arch) -> CostSource:
        """Return the costs of `source` with excluded kernels as failures."""
        return _Costs(source, self._kernels, arch) if self._kernels else source


@dataclass(frozen=True, slots=True)
class _Costs:
    """A `CostSource` without the kernels that failed."""

    source: CostSource
    failed: dict[KernelSpec, Failure]
    arch: Arch

    def costs(self, workload: Workload) -> Costs:
        """Return the source's costs, or the analytical model's if it has only failed kernels."""
        found = self._without(workload, self.source.costs(workload))
        if all(isinstance(cost, Failure) for cost in found.by_config.values()):
            found = self._without(workload, ModelCosts(self.arch).costs(workload))
        return found

    def _without(self, workload: Workload, costs: Costs) -> Costs:
        launches = launches_of(self.failed, workload, costs, self.arch.name)
        failures = {
            config: self.failed[kernel_spec(workload, config, self.arch.name)]
            for config in launches
        }
        return replace(costs, by_config={**costs.by_config, **failures})

    @property
    def measurements(self) -> Sequence[Measurements]:
        """The source's measurements."""
        return self.source.measurements
