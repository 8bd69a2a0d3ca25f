"""The interface that compiles and times trials for a tuning session.

Implementations are a worker process with a GPU, the virtual GPU, a table of recorded measurements,
and fakes in tests.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from boltgen.families.trial import Trial
from boltgen.ir.outcome import DeviceIdentity, Outcome


class Bench(Protocol):
    """Compiles and times trials; compiles the next trial while the last one is timed."""

    @property
    def device(self) -> DeviceIdentity:
        """The device that is measured."""
        ...

    @property
    def toolchain(self) -> str:
        """The compilers and CUTLASS that make the kernels."""
        ...

    @property
    def lock_name(self) -> str | None:
        """The name of a device that only one session may use at a time (a GPU's UUID), or None."""
        ...

    def run(self, trials: Sequence[Trial]) -> Generator[tuple[Trial, Outcome], None, None]:
        """Yield each trial with its outcome, as they finish.

        Closing the generator drops the remaining trials.
        """
        ...

    def kernel(self, trial: Trial) -> str:
        """Return the content of the kernel of a trial that `run` has yielded; see `records.Record`.

        Raises:
            KernelContentError: the content cannot be determined.
        """
        ...

    def close(self) -> None:
        """Stop workers and compilers. A second call is harmless."""
        ...
