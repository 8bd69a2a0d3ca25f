"""The configurations that a search can reach: a problem's candidates, and unlisted legal ones.

A matmul has half a million settings of the knobs; to check all would take a quarter of a minute.
Most values of a knob lead to no legal kernel, so only a few hundred kernels are legal, and all of
them are predicted once. Launch arguments are varied in steps, starting at the likeliest
configurations: a best-first search. Source: Ansor, OSDI 2020, section 4, which samples sketches and
then annotates them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from boltgen.families.family import Config
from boltgen.tuning.strategies.experience import Array
from boltgen.tuning.strategies.residual import Points, Residual
from boltgen.tuning.strategies.strategy import SearchProblem

# Each call corrects the times of this many predicted fastest configurations (first number), and
# varies the launches of this many expected fastest ones (second number). Choices.
_CORRECTED, _VARIED = 256, 12

_Numbers = NDArray[np.intp]


class Reach:
    """Configurations that may be proposed; `likeliest` adds more at each call."""

    def __init__(self, problem: SearchProblem, residual: Residual) -> None:
        self._spaces = {space.family: space for space in problem.spaces}
        self._residual = residual
        self._numbers: dict[Config, int] = {}
        self._configs: list[Config] = []
        self._points: Points = residual.points(())
        # Per configuration: whether it may still be proposed, and whether its launches were varied.
        self._is_open = np.zeros(0, dtype=bool)
        self._is_varied = np.zeros(0, dtype=bool)
        self._is_whole = False
        self._listed = len(problem.candidates)
        self.add(problem.candidates)

    def add(self, configs: Iterable[Config]) -> None:
        """Add legal configurations; known ones stay unchanged."""
        new = [each for each in dict.fromkeys(configs) if each not in self._numbers]
        if not new:
            return
        self._numbers.update({each: n for n, each in enumerate(new, len(self._configs))})
        self._configs += new
        self._points = self._points.joined(self._residual.points(new))
        self._is_open = np.append(self._is_open, np.ones(len(new), dtype=bool))
        self._is_varied = np.append(self._is_varied, np.zeros(len(new), dtype=bool))

    def take(self, configs: Iterable[Config]) -> None:
        """Mark configurations as proposed, so that they are never proposed again."""
        self._is_open[[self._numbers[each] for each in configs]] = False

    def predicted(self, count: int, *, listed: bool = False) -> list[Config]:
        """Return at most `count` configurations with the least times by the uncorrected cost model.

        If `listed`, return only candidates of the problem.
        """
        numbers = np.flatnonzero(self._is_open[: self._listed] if listed else self._is_open)
        fastest = np.argsort(self._points.predicted_us[numbers], kind="stable")
        return [self._configs[number] for number in numbers[fastest[:count]]]

    def likeliest(self) -> list[Config]:
        """Return some hundred configurations, the shortest hoped time first."""
        if not self._is_whole:
            self._is_whole = True
            for space in self._spaces.values():
                self.add(space.legal_kernels())
        numbers, expected_us = self._expected(np.flatnonzero(self._is_open))
        reached = len(self._configs)
        self.add(self._varied(numbers[:_VARIED]))
        more, more_us = self._expected(np.arange(reached, len(self._configs)))
        fastest = np.argsort(np.append(expected_us, more_us), kind="stable")
        return [self._configs[number] for number in np.append(numbers, more)[fastest]]

    def _varied(self, numbers: Sequence[int] | _Numbers) -> Iterator[Config]:
        """Yield the other launches of configurations; each configuration is varied once."""
        for number in numbers:
            if not self._is_varied[number]:
                self._is_varied[number] = True
                config = self._configs[number]
                yield from self._spaces[config.family].relaunched(config)

    def _expected(self, numbers: _Numbers) -> tuple[_Numbers, Array]:
        """Return the predicted fastest of `numbers`, sorted by hoped time, and these times."""
        predicted_us = self._points.predicted_us[numbers]
        if len(numbers) > _CORRECTED:
            numbers = numbers[np.argpartition(predicted_us, _CORRECTED)[:_CORRECTED]]
        expected_us = self._residual.hopeful_us(self._points[numbers])
        fastest = np.argsort(expected_us, kind="stable")
        return numbers[fastest], expected_us[fastest]
