"""What compiles and times trials for a tuning session.

A worker process beside a GPU, the virtual GPU, a table of recorded measurements, or a fake in
tests.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from boltgen.families.trial import Trial
from boltgen.ir.outcome import DeviceIdentity, Outcome


class Bench(Protocol):
    """Compiles and times trials; compiles the next while it times the last."""

    @property
    def device(self) -> DeviceIdentity:
        """Whose times these are."""
        ...

    @property
    def toolchain(self) -> str:
        """What the kernels are compiled with: compilers and CUTLASS."""
        ...

    @property
    def lock_name(self) -> str | None:
        """What one session at a time may use (a GPU's UUID); None where sessions do not disturb
        each other.
        """
        ...

    def run(self, trials: Sequence[Trial]) -> Generator[tuple[Trial, Outcome], None, None]:
        """Each trial with its outcome, as they finish; closing the generator drops the rest."""
        ...

    def kernel(self, trial: Trial) -> str:
        """The content of the kernel of a trial that was answered; see `records.Record`.

        Raises:
            KernelContentError: it cannot be told.
        """
        ...

    def close(self) -> None:
        """Stop workers and compilers; harmless when done twice."""
        ...
