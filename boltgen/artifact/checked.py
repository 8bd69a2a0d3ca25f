"""The result of checking a library, a part of its metadata."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from boltgen.intake.choices import CheckLevel
from boltgen.intake.numerals import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCheck:
    """The check of one kernel.

    `launches` describe the launches. `worst_error` is the largest error of any element as a
    fraction of its bound, None if a launch gave no output. `faults` are sentences; none means that
    the kernel passed. An `earlier` check ran the same object and launches on the same virtual GPU,
    at `checked_at`.
    """

    symbol: str
    launches: tuple[str, ...]
    worst_error: float | None
    faults: tuple[str, ...]
    seconds: float
    checked_at: datetime
    earlier: bool = False

    @property
    def passed(self) -> bool:
        """Return whether every launch gave the correct result without findings."""
        return not self.faults


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCheck:
    """The run of a whole model on random inputs.

    `error` is the root mean square (RMS) of the difference from the outputs that TVM computes for
    the original model on the host, relative to their RMS; None without a comparison. `why_not` says
    why the model was not run.
    """

    seconds: float
    error: float | None = None
    faults: tuple[str, ...] = ()
    why_not: str = ""

    @property
    def passed(self) -> bool:
        """Whether there are no faults."""
        return not self.faults


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryCheck:
    """The check of a library on the virtual GPU with the identity `vgpu`.

    `replaced` names the kernels that failed before, and their replacements.
    """

    level: CheckLevel
    vgpu: str = ""
    kernels: tuple[KernelCheck, ...] = ()
    model: ModelCheck | None = None
    replaced: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def failed(self) -> tuple[KernelCheck, ...]:
        """The kernels that must not ship."""
        return tuple(kernel for kernel in self.kernels if not kernel.passed)

    @property
    def passed(self) -> bool:
        """Return whether everything that was executed passed; true if nothing was executed."""
        return not self.failed and (self.model is None or self.model.passed)

    def __str__(self) -> str:
        if self.level is CheckLevel.NONE:
            return "not checked: nothing of the library was executed"
        if self.failed:
            named = ", ".join(kernel.symbol for kernel in self.failed)
            count = counted(len(self.kernels), "kernel")
            return f"{len(self.failed)} of {count} FAILED the check: {named}"
        worst = max((kernel.worst_error or 0.0 for kernel in self.kernels), default=0.0)
        launches = sum(len(kernel.launches) for kernel in self.kernels)
        earlier = sum(kernel.earlier for kernel in self.kernels)
        lines = (
            f"checked: {counted(len(self.kernels), 'kernel')} executed on the virtual GPU, "
            f"{counted(launches, 'launch', 'launches')}, {_judged(worst)}"
            + (f", {earlier} of them by an earlier check of the same object" if earlier else ""),
            self._model_text(),
        )
        return "; ".join(filter(None, lines))

    def _model_text(self) -> str:
        if self.model is None:
            return ""
        if self.model.why_not:
            return f"the whole model was not run: {self.model.why_not}"
        if not self.model.passed:
            return f"the whole model FAILED: {self.model.faults[0]}"
        if self.model.error is None:
            return "the whole model ran, its outputs are finite"
        return (
            f"the whole model ran; it differs from TVM's by {self.model.error:.2g} of its outputs"
        )


def _judged(worst: float) -> str:
    """Return the largest error of passed kernels, rounded down: 1.00 would look like a failure."""
    return f"largest error: {math.floor(100 * worst) / 100:.2f} of the allowed bound (pass)"
