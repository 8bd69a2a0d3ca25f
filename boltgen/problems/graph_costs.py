"""The interface through which graph passes compare the times of kernels and layout transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from boltgen.problems.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTimes:
    """Times in microseconds, infinite if no kernel is legal, and the source of all times."""

    times_us: tuple[float, ...]
    origin: str


def shown_us(time_us: float) -> str:
    """Show a time for people; an infinite time means that no kernel is legal."""
    return f"{time_us:.1f} us" if math.isfinite(time_us) else "no kernel"


class GraphCosts(Protocol):
    """Times on one architecture."""

    @property
    def move_origin(self) -> str:
        """The source of the times of layout transforms, in words."""
        ...

    def kernels_us(self, workloads: Sequence[Workload]) -> KernelTimes:
        """Return the time of the best kernel for each workload, all from one source."""
        ...

    def move_us(self, bytes_moved: int, launches: int) -> float:
        """Return the time to read and write `bytes_moved` bytes, in microseconds."""
        ...
