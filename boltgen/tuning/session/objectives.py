"""Objectives that a session minimises: functions of the times of all its models.

They are f1 to f3 of Ansor's section 6.2 (Zheng et al., OSDI 2020). f4, early stopping of tasks
without progress, is the `patience` of a scheduler.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from boltgen.errors import BoltgenError


class Objective(Protocol):
    """A function of each model's time in microseconds; a session needs only its slopes."""

    def slopes(self, times_us: Sequence[float], began_us: Sequence[float]) -> list[float]:
        """Return the increase of the objective per microsecond that each model takes longer.

        `began_us` are the models' times when the session began; unknown ones are predicted.
        """
        ...


@dataclass(frozen=True, slots=True)
class Total:
    """f1: the sum of the models' times."""

    def slopes(self, times_us: Sequence[float], began_us: Sequence[float]) -> list[float]:
        """Return 1 for each model."""
        del began_us
        return [1.0] * len(times_us)


@dataclass(frozen=True, slots=True)
class Latencies:
    """f2: the sum of each model's time beyond its latency, in microseconds."""

    most_us: tuple[float, ...]

    def slopes(self, times_us: Sequence[float], began_us: Sequence[float]) -> list[float]:
        """Return 1 for a model that exceeds its latency, else 0."""
        del began_us
        return [float(time > most) for time, most in zip(times_us, self.most_us, strict=True)]


@dataclass(frozen=True, slots=True)
class Speedup:
    """f3: the geometric mean of the models' speed-ups since the session began, to maximise."""

    def slopes(self, times_us: Sequence[float], began_us: Sequence[float]) -> list[float]:
        """Return the mean, divided by the model's time and by the number of models."""
        ratios = [began / time for began, time in zip(began_us, times_us, strict=True)]
        mean = math.prod(ratios) ** (1 / len(ratios))
        return [mean / (len(ratios) * time) for time in times_us]


_UNITS_US = {"us": 1.0, "ms": 1e3, "s": 1e6}


def objective_of(text: str) -> Objective:
    """Return the objective that a text names.

    The texts are total, speedup, and latency:5ms,800us with a time for each model.

    Raises:
        BoltgenError: the text names no objective.
    """
    name, _, rest = text.partition(":")
    if text == "total":
        return Total()
    if text == "speedup":
        return Speedup()
    if name == "latency" and rest:
        return Latencies(tuple(_microseconds(each, text) for each in rest.split(",")))
    raise BoltgenError(
        f"unknown objective {text!r}; there are total, speedup, and latency:5ms,800us with a time "
        "for each model"
    )


def _microseconds(text: str, whole: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s)", text)
    if found is None or not float(found[1]):
        raise BoltgenError(f"objective {whole!r}: {text!r} is no time like 5ms, 800us or 1.5s")
    return float(found[1]) * _UNITS_US[found[2]]
