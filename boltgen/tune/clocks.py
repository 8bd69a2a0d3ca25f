"""Notices a GPU whose clock drifts while it is measured: its times cannot be compared then."""

from __future__ import annotations

import statistics

from boltgen.tune.outcome import Timing

# Times follow the clock: beyond this they differ by more than what a measurement is certain of.
_TOLERANCE = 0.03
_ENOUGH = 5


class ClockWatch:
    """Hears every timing of a session, and tells how far the clock was from its median."""

    def __init__(self) -> None:
        self._clocks_mhz: list[float] = []
        self._warned = False

    def observe(self, timing: Timing) -> str | None:
        """A sentence, once, when a timing's clock is away from what the others had."""
        if timing.clock_mhz is None:
            return None
        self._clocks_mhz.append(timing.clock_mhz)
        if self._warned or len(self._clocks_mhz) < _ENOUGH or not self.drifted:
            return None
        self._warned = True
        return self.summary()

    @property
    def drifted(self) -> int:
        """How many timings had a clock away from the median."""
        if not self._clocks_mhz:
            return 0
        usual = statistics.median(self._clocks_mhz)
        return sum(abs(clock / usual - 1) > _TOLERANCE for clock in self._clocks_mhz)

    def summary(self) -> str | None:
        """What to say at the end; None where the clock was steady."""
        if not self.drifted:
            return None
        usual = statistics.median(self._clocks_mhz)
        return (
            f"the GPU's clock drifts: {self.drifted} of {len(self._clocks_mhz)} measurements were "
            f"not at {usual:.0f} MHz but between {min(self._clocks_mhz):.0f} and "
            f"{max(self._clocks_mhz):.0f}; lock it (`nvidia-smi --lock-gpu-clocks`) and measure "
            "again for times that can be compared"
        )
