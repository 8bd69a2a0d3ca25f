"""A bench without a device: times by a formula, and faults as told."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from boltgen.families.b2b.config import B2bConfig
from boltgen.families.source import kernel_symbol
from boltgen.families.trial import Trial
from boltgen.ir.outcome import DeviceIdentity, Failure, Outcome
from tests.tuning.samples import A100, TOOLS, content_of, timing


def formula_us(trial: Trial) -> float:
    """Likes 128x64 tiles, four stages, a swizzle of 2; deterministic.

    Layers back to back take as long as one of them.
    """
    config = trial.config
    if isinstance(config, B2bConfig):
        return 50.0 + config.warps
    tile = abs(config.threadblock.m - 128) + abs(config.threadblock.n - 64)
    off = tile + 10 * abs(config.stages - 4) + 3 * abs(config.swizzle - 2) + config.split_k
    return 50.0 + off + 0.1 * len(trial.workload.last.epilogue.nodes)


class FakeBench:
    """Answers with `answer(trial)`; keeps the trials that it was asked for."""

    def __init__(
        self,
        answer: Callable[[Trial], Outcome | float] = formula_us,
        *,
        device: DeviceIdentity = A100,
        toolchain: str = TOOLS,
        lock_name: str | None = None,
        versions: Callable[[Trial], str] = lambda trial: "",
    ) -> None:
        self.device = device
        self.toolchain = toolchain
        self.lock_name = lock_name
        self.trials: list[Trial] = []
        self.closed_early = 0
        self._answer = answer
        self._versions = versions

    def run(self, trials: Sequence[Trial]) -> Generator[tuple[Trial, Outcome], None, None]:
        try:
            for trial in trials:
                self.trials.append(trial)
                found = self._answer(trial)
                yield trial, timing(found) if isinstance(found, (int, float)) else found
        except GeneratorExit:
            self.closed_early += 1
            raise

    def kernel(self, trial: Trial) -> str:
        """The content of the kernel in its version."""
        symbol = kernel_symbol(trial.spec(self.device.arch))
        return content_of(symbol, self._versions(trial))

    def close(self) -> None:
        """Nothing to stop."""


def failing(failure: Failure, when: Callable[[Trial], bool]) -> Callable[[Trial], Outcome | float]:
    """The formula, except where `when` holds."""
    return lambda trial: failure if when(trial) else formula_us(trial)
