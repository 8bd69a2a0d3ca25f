"""Times by which padding is chosen: measured ones, else those of the analytical model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from boltgen.arch import Arch
from boltgen.errors import NoLegalConfigError
from boltgen.ir.chain import ChainLayer
from boltgen.ir.dtypes import DType
from boltgen.ir.padding import KernelTimes, Launch, PaddingCosts
from boltgen.space.kernel import execution_problem
from boltgen.tune.chains import measured_us, predicted_us
from boltgen.tune.model_constants import model_constants
from boltgen.tune.select import MODEL_ORIGIN, Measurements, Task

# Opens what was measured, for as long as it is looked at.
OpenMeasurements = Callable[[], AbstractContextManager[Sequence[Measurements]]]


def nothing_measured() -> AbstractContextManager[Sequence[Measurements]]:
    """No device."""
    return nullcontext(())


@dataclass(frozen=True, slots=True)
class PaddingTimes:
    """Times on `arch`, products summed in `accumulate`.

    Kernels' are those of the first of the measurements that has timed all that are compared, else
    predictions. Moves are not measured: they do nothing but read and write, and what a copy reaches
    is among the analytical model's constants.
    """

    arch: Arch
    accumulate: DType
    measurements: OpenMeasurements = nothing_measured

    @property
    def move_origin(self) -> str:
        """The analytical model."""
        return MODEL_ORIGIN

    def kernels_us(self, launches: Sequence[Launch]) -> KernelTimes:
        """The best configurations' times; infinite where none is legal, or none works."""
        layers = [
            ChainLayer(
                problem=replace(problem, acc_dtype=self.accumulate),
                epilogue=epilogue,
            )
            for problem, epilogue in launches
        ]
        with self.measurements() as measurements:
            for known in measurements:
                measured = [_measured_us(known, layer) for layer in layers]
                timed = [time_us for time_us in measured if time_us is not None]
                if len(timed) == len(layers):
                    return KernelTimes(times_us=tuple(timed), origin=known.origin)
        predicted = tuple(_predicted_us(layer, self.arch) for layer in layers)
        return KernelTimes(times_us=predicted, origin=MODEL_ORIGIN)

    def move_us(self, bytes_moved: int, launches: int) -> float:
        """A move's launches, and its bytes at the bandwidth that a copy reaches."""
        constants = model_constants()
        bytes_per_us = self.arch.dram_gb_per_s * 1e3 * constants.dram_fraction
        return launches * constants.launch_us + bytes_moved / bytes_per_us


def _measured_us(known: Measurements, layer: ChainLayer) -> float | None:
    """The least time that a device has; infinite where all that it tried failed."""
    time_us = measured_us(known, (layer,))
    tried = time_us is None and known.outcomes(execution_problem(layer.problem), layer.epilogue)
    return math.inf if tried else time_us


def _predicted_us(layer: ChainLayer, arch: Arch) -> float:
    """The analytical model's time of the best configuration; infinite where none is legal."""
    try:
        predicted = predicted_us((layer,), arch)
    except NoLegalConfigError:
        return math.inf
    return predicted if isinstance(predicted, float) else math.inf


@dataclass(frozen=True, slots=True)
class PaddingSurvey:
    """Answers as `costs` does, and remembers what it was asked: all that is to be timed."""

    costs: PaddingCosts
    asked: dict[Launch, float] = field(default_factory=dict)

    @property
    def move_origin(self) -> str:
        """That of `costs`."""
        return self.costs.move_origin

    def kernels_us(self, launches: Sequence[Launch]) -> KernelTimes:
        """The times of `costs`."""
        found = self.costs.kernels_us(launches)
        self.asked.update(zip(launches, found.times_us, strict=True))
        return found

    def move_us(self, bytes_moved: int, launches: int) -> float:
        """The time of `costs`."""
        return self.costs.move_us(bytes_moved, launches)

    def tasks(self, accumulate: DType) -> tuple[Task, ...]:
        """What the model would run, were its tensors padded this way or that."""
        return tuple(
            Task(
                problem=execution_problem(replace(problem, acc_dtype=accumulate)),
                epilogue=epilogue,
                is_alternative=True,
            )
            for (problem, epilogue), time_us in self.asked.items()
            if math.isfinite(time_us)
        )
