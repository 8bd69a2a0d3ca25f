"""Let contestants compute a problem, judge their results, and count their work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.race.contestant import CannotRunError, Contestant, Entry
from benchmarks.race.counting import figures, modelled_us, usage_of
from benchmarks.race.machine import LaunchError, Machine
from benchmarks.race.problems import Array, Arrays, Problem
from boltgen.arch import arch_named

# Largest error over the largest value of the result. FP16 rounds a result by 2^-11 of itself;
# contestants round values between two products too.
TOLERANCE = 2.0**-9
_HALF_BYTES = 2


class WrongResultError(Exception):
    """A contestant's result is wrong; the text has its error."""


@dataclass(frozen=True, kw_only=True)
class Race:
    """A problem on an architecture: its tensors, and the result that is expected."""

    machine: Machine
    problem: Problem
    arch: str
    arrays: Arrays
    expected: Array

    def row(self, contestants: Sequence[Contestant]) -> dict[str, Any]:
        """Return a row of the table: every contestant's figures, or its fault by name."""
        found = {}
        for contestant in contestants:
            try:
                told = self._figures_of(contestant.entries(self.problem, self.arch))
            except (CannotRunError, LaunchError, WrongResultError) as error:
                told = {"fault": str(error).partition("\n")[0]}
            found[contestant.name] = {"version": contestant.version, **told}
        return {"arch": self.arch, "unit": self.problem.unit, "contestants": found}

    def _figures_of(self, entries: Sequence[Entry]) -> dict[str, Any]:
        entry, tried = self._best(entries)
        output = self._run(entry, "on")
        counters = self.machine.vgpu.counters()
        off = np.abs(output.astype(np.float32) - self.expected).max()
        error = float(off / np.abs(self.expected).max())
        if not error <= TOLERANCE:  # NaN is wrong too
            raise WrongResultError(
                f"{entry.label}: wrong result: its largest error is {error:.2g} of the largest "
                f"value, and {TOLERANCE:.2g} is allowed"
            )
        least = sum(array.nbytes for array in self.arrays.values())
        told = figures(
            counters,
            usage_of(entry.compiled(), self.arch),
            work=self.problem.work,
            least_bytes=least + _HALF_BYTES * self.expected.size,
            arch=arch_named(self.arch),
        )
        return {"entry": entry.label, "tried": tried, "error": round(error, 6), **told}

    def _best(self, entries: Sequence[Entry]) -> tuple[Entry, int]:
        """Return the entry with the least modelled time, and how many ran; one alone is not tried.

        Raises:
            CannotRunError: none runs; the message is the first one's.
        """
        if len(entries) == 1:
            return entries[0], 1
        times: dict[int, float] = {}
        faults: list[str] = []
        for index, entry in enumerate(entries):
            try:
                self._run(entry, "sampled")
            except (CannotRunError, LaunchError) as error:
                faults.append(f"{entry.label}: {error}")
                continue
            times[index] = modelled_us(self.machine.vgpu.counters())
        if not times:
            raise CannotRunError(faults[0] if faults else "it has no configuration")
        return entries[min(times, key=lambda index: times[index])], len(times)

    def _run(self, entry: Entry, counters: str) -> Array:
        """Return an entry's result; the counters of its launches are the machine's."""
        machine = self.machine
        machine.become(self.arch)
        machine.vgpu.set_option("counters", counters)
        machine.vgpu.clear_launches()
        try:
            addresses = machine.upload(self.arrays)
            output = machine.allocate(_HALF_BYTES * self.expected.size)
            entry.launch(machine, addresses, output)
            return machine.download(output, self.expected.shape)
        finally:
            machine.free_all()
            machine.vgpu.set_option("counters", "off")


def race(
    machine: Machine, problem: Problem, arch: str, contestants: Sequence[Contestant]
) -> dict[str, Any]:
    """Draw a problem's tensors, and return its row."""
    arrays = problem.draw(np.random.default_rng(0))
    expected = problem.expected(arrays)
    made = Race(machine=machine, problem=problem, arch=arch, arrays=arrays, expected=expected)
    return made.row(contestants)
