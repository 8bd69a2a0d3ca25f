"""The times of kernels and layout transforms, by which passes over a graph choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from boltgen.problems.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTimes:
    """Times in microseconds, infinite where no kernel is legal, and where all of them are from."""

    times_us: tuple[float, ...]
    origin: str


class GraphCosts(Protocol):
    """Times on one architecture."""

    @property
    def move_origin(self) -> str:
        """The source of the times of layout transforms, in words."""
        ...

    def kernels_us(self, workloads: Sequence[Workload]) -> KernelTimes:
        """The best kernel's time for each: times that compare, since all have one origin."""
        ...

    def move_us(self, bytes_moved: int, launches: int) -> float:
        """A pass over memory that reads and writes so many bytes, in microseconds."""
        ...
