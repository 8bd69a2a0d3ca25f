"""Times by which graph passes choose: measured times, else the analytical model's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from boltgen.arch import Arch
from boltgen.errors import NoLegalConfigError
from boltgen.families.constants import model_constants
from boltgen.ir.extent import typical
from boltgen.problems.graph_costs import GraphCosts, KernelTimes
from boltgen.problems.workload import Workload
from boltgen.tuning.choice.fusion import measured_us, predicted_us
from boltgen.tuning.choice.select import Measurements, ModelCosts, Task

# Opens measurements for the time of a lookup.
OpenMeasurements = Callable[[], AbstractContextManager[Sequence[Measurements]]]


def nothing_measured() -> AbstractContextManager[Sequence[Measurements]]:
    """Yield no measurements, for any device."""
    return nullcontext(())


@dataclass(frozen=True, slots=True)
class GraphTimes:
    """Times on `arch`.

    The times of compared kernels come from the first of the measurements that has timed all of
    them, else from the analytical model. Layout transforms are never measured: they only read and
    write, and the model knows the bandwidth of a copy. Symbolic sizes count as the middle of their
    ranges.
    """

    arch: Arch
    measurements: OpenMeasurements = nothing_measured

    @property
    def move_origin(self) -> str:
        """The analytical model."""
        return ModelCosts(self.arch).origin

    def kernels_us(self, workloads: Sequence[Workload]) -> KernelTimes:
        """Return the best configurations' times; infinite if none is legal, or all failed."""
        workloads = [workload.typical for workload in workloads]
        with self.measurements() as measurements:
            for known in measurements:
                measured = [_measured_us(known, workload) for workload in workloads]
                timed = [time_us for time_us in measured if time_us is not None]
                if len(timed) == len(workloads):
                    return KernelTimes(times_us=tuple(timed), origin=known.origin)
        predicted = tuple(_predicted_us(workload, self.arch) for workload in workloads)
        return KernelTimes(times_us=predicted, origin=self.move_origin)

    def move_us(self, bytes_moved: int, launches: int) -> float:
        """Return the time of a layout transform, in microseconds.

        It has the latency of each launch, which waits for its reads and writes, and the time of its
        bytes at the bandwidth of a copy.
        """
        constants = model_constants(self.arch)
        wait_us = 2 * self.arch.memory_latency_clocks / self.arch.boost_mhz
        copy_us = constants.copy_us(typical(bytes_moved), self.arch)
        return launches * (constants.launch_us + wait_us) + copy_us


def _measured_us(known: Measurements, workload: Workload) -> float | None:
    """Return the least time that a device measured; infinite if all its trials failed."""
    time_us = measured_us(known, workload)
    return math.inf if time_us is None and known.outcomes(workload) else time_us


def _predicted_us(workload: Workload, arch: Arch) -> float:
    """Return the analytical model's time of the best configuration; infinite if none is legal."""
    try:
        return predicted_us(workload, arch)
    except NoLegalConfigError:
        return math.inf


@dataclass(frozen=True, slots=True)
class CostSurvey:
    """Answer as `costs` does, and record every requested workload, so that it can be timed."""

    costs: GraphCosts
    asked: dict[Workload, float] = field(default_factory=dict)

    @property
    def move_origin(self) -> str:
        """The origin of the times of `costs`."""
        return self.costs.move_origin

    def kernels_us(self, workloads: Sequence[Workload]) -> KernelTimes:
        """Return the times of `costs`."""
        found = self.costs.kernels_us(workloads)
        asked = (workload.typical for workload in workloads)
        self.asked.update(zip(asked, found.times_us, strict=True))
        return found

    def move_us(self, bytes_moved: int, launches: int) -> float:
        """Return the time of `costs`."""
        return self.costs.move_us(bytes_moved, launches)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Return the recorded workloads as tasks, for other padding or horizontal fusion."""
        return tuple(
            Task(workload=workload, is_alternative=True)
            for workload, time_us in self.asked.items()
            if math.isfinite(time_us)
        )
