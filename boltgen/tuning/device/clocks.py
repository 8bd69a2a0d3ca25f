"""Detect a GPU whose clock drifts during measurements, because the times are not comparable."""

from __future__ import annotations

from bisect import insort

from boltgen.ir.outcome import Timing

# Times follow the clock; at a larger deviation their difference exceeds the measurement's error.
_TOLERANCE = 0.03
_ENOUGH = 5


class ClockWatch:
    """Watches the clock of every timing of a session, and reports deviations from the median."""

    def __init__(self) -> None:
        self._ascending_mhz: list[float] = []
        self._warned = False

    def observe(self, timing: Timing) -> str | None:
        """Return a warning, once, if a timing's clock deviates from the others."""
        if timing.clock_mhz is None:
            return None
        insort(self._ascending_mhz, timing.clock_mhz)
        few = len(self._ascending_mhz) < _ENOUGH
        if self._warned or few or not self._is_away(timing.clock_mhz):
            return None
        self._warned = True
        return self.summary()

    @property
    def _usual_mhz(self) -> float:
        return self._ascending_mhz[len(self._ascending_mhz) // 2]

    def _is_away(self, clock_mhz: float) -> bool:
        return abs(clock_mhz / self._usual_mhz - 1) > _TOLERANCE

    def summary(self) -> str | None:
        """Return a warning for the end of the session, or None if the clock was steady."""
        away = sum(map(self._is_away, self._ascending_mhz))
        if not away:
            return None
        return (
            f"the GPU's clock drifts: {away} of {len(self._ascending_mhz)} measurements were not "
            f"at {self._usual_mhz:.0f} MHz but between {self._ascending_mhz[0]:.0f} and "
            f"{self._ascending_mhz[-1]:.0f}; lock it (`nvidia-smi --lock-gpu-clocks`) and measure "
            "again for times that can be compared"
        )
