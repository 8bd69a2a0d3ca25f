"""Kernels that failed the check of a library, and what is chosen instead of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from boltgen.arch import Arch
from boltgen.ir.chain import AnyProblem
from boltgen.ir.epilogue import Epilogue
from boltgen.ir.problem import Problem
from boltgen.space.b2b_kernel import AnyKernelSpec
from boltgen.space.config import AnyConfig, B2bConfig
from boltgen.tune.outcome import Failure, Fault, Outcome, Trial
from boltgen.tune.select import Costs, CostSource, Measurements, ModelCosts

# A choice: each kernel takes a compiler half a minute, and one that fails is no accident of its
# tiles where two others fail as well.
_MOST_TRIED = 3


class Excluded:
    """The kernels that failed. None is chosen again; a problem of which several failed is given up.

    Kernels are excluded whatever problem they failed on.
    """

    def __init__(self) -> None:
        self._kernels: dict[AnyKernelSpec, Failure] = {}
        self._configs: set[AnyConfig] = set()
        self._reasons: dict[AnyProblem, list[str]] = {}

    def add(self, trials: tuple[Trial, ...], arch: str, reason: str) -> None:
        """Exclude the kernel that all of `trials` launch."""
        for trial in trials:
            failure = Failure(fault=Fault.WRONG_RESULT, reason=f"it failed the check: {reason}")
            self._kernels[trial.spec(arch)] = failure
            self._configs.add(trial.config)
        for problem in {trial.problem for trial in trials}:
            self._reasons.setdefault(problem, []).append(reason)

    def gives_up(self, problem: AnyProblem) -> str | None:
        """Why no kernel is to compute `problem`; None where one may."""
        reasons = self._reasons.get(problem, [])
        if len(reasons) < _MOST_TRIED:
            return None
        return f"{len(reasons)} kernels for it failed their check, the last with: {reasons[-1]}"

    def out_of(self, source: CostSource, arch: Arch) -> CostSource:
        """The costs of `source`, those of excluded kernels failures."""
        return _Costs(source, self, arch) if self._kernels else source

    def failure(self, trial: Trial, arch: Arch) -> Failure | None:
        """Why the kernel that `trial` launches must not be chosen; None where it may."""
        return self._kernels.get(trial.spec(arch.name))

    def failures(
        self, problem: AnyProblem, epilogue: Epilogue, arch: Arch
    ) -> dict[AnyConfig, Outcome]:
        """The excluded chains among the configurations of `problem`."""
        found: dict[AnyConfig, Outcome] = {}
        for config in self._configs:
            if isinstance(config, B2bConfig):
                trial = Trial(problem=problem, epilogue=epilogue, config=config)
                if failure := self.failure(trial, arch):
                    found[config] = failure
        return found


@dataclass(frozen=True, slots=True)
class _Costs:
    """`CostSource` without the kernels that are excluded."""

    source: CostSource
    excluded: Excluded
    arch: Arch

    def costs(self, problem: Problem, epilogue: Epilogue) -> Costs:
        """Those of the source; the analytical model's where it knows of excluded kernels only."""
        found = self._without(problem, epilogue, self.source.costs(problem, epilogue))
        if all(isinstance(cost, Failure) for cost in found.by_config.values()):
            modelled = ModelCosts(self.arch).costs(problem, epilogue)
            found = self._without(problem, epilogue, modelled)
        return found

    def _without(self, problem: Problem, epilogue: Epilogue, costs: Costs) -> Costs:
        def cost(config: AnyConfig) -> Failure | None:
            trial = Trial(problem=problem, epilogue=epilogue, config=config)
            return self.excluded.failure(trial, self.arch)

        by_config = {config: cost(config) or known for config, known in costs.by_config.items()}
        return replace(costs, by_config=by_config)

    @property
    def measurements(self) -> tuple[Measurements, ...]:
        """Those of the source, and what the check found."""
        known = (_Known(each, self.excluded, self.arch) for each in self.source.measurements)
        return (*known, _Known(None, self.excluded, self.arch))


@dataclass(frozen=True, slots=True)
class _Known:
    """`Measurements` without the kernels that are excluded; `known` None has no others."""

    known: Measurements | None
    excluded: Excluded
    arch: Arch

    @property
    def origin(self) -> str:
        """That of the measurements."""
        return self.known.origin if self.known else "found by the check"

    def outcomes(self, problem: AnyProblem, epilogue: Epilogue) -> Mapping[AnyConfig, Outcome]:
        """The outcomes of a problem's launches, those of excluded kernels failures."""
        known = self.known.outcomes(problem, epilogue) if self.known else {}
        return {**known, **self.excluded.failures(problem, epilogue, self.arch)}
