"""The interface that compiles and times trials for a tuning session.

A worker process beside a GPU, the virtual GPU, a table of recorded measurements, or a fake in
tests.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from boltgen.families.trial import Trial
from boltgen.ir.outcome import DeviceIdentity, Outcome


class Bench(Protocol):
    """Compile and time trials; compile the next while the last is timed."""

    @property
    def device(self) -> DeviceIdentity:
        """The device that gives the times."""
        ...

    @property
    def toolchain(self) -> str:
        """The compilers and CUTLASS that make the kernels."""
        ...

    @property
    def lock_name(self) -> str | None:
        """A device that one session at a time may use (a GPU's UUID), or None without a limit."""
        ...

    def run(self, trials: Sequence[Trial]) -> Generator[tuple[Trial, Outcome], None, None]:
        """Yield each trial with its outcome, as they finish; closing the generator drops the
        others.
        """
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
