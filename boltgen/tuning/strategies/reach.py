"""What a search can reach: a problem's candidates, and what the enumerator does not list.

To ask about every setting of the knobs would take a quarter of a minute: a product has half a
million. But of most knobs' values no legal kernel comes: a few hundred are, and all of them are
predicted, once. The arguments of a launch are come to in steps, from configurations that are among
the likeliest: a best-first search. Source: Ansor, OSDI 2020, section 4, which samples sketches and
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

# Of so many that are predicted to be fastest the times are corrected, and the launches of so many
# that are then expected to be fastest are varied, each time. Choices.
_CORRECTED, _VARIED = 256, 12

_Numbers = NDArray[np.intp]


class Reach:
    """Configurations that may be proposed; they become more as they are asked for."""

    def __init__(self, problem: SearchProblem, residual: Residual) -> None:
        self._spaces = {space.family: space for space in problem.spaces}
        self._residual = residual
        self._numbers: dict[Config, int] = {}
        self._configs: list[Config] = []
        self._points: Points = residual.points(())
        # Of each: whether it may still be proposed, and whether its launches were varied.
        self._is_open = np.zeros(0, dtype=bool)
        self._is_varied = np.zeros(0, dtype=bool)
        self._is_whole = False
        self._listed = len(problem.candidates)
        self.add(problem.candidates)

    def add(self, configs: Iterable[Config]) -> None:
        """Add legal configurations. One that is here already stays as it is."""
        new = [each for each in dict.fromkeys(configs) if each not in self._numbers]
        if not new:
            return
        self._numbers.update({each: n for n, each in enumerate(new, len(self._configs))})
        self._configs += new
        self._points = self._points.joined(self._residual.points(new))
        self._is_open = np.append(self._is_open, np.ones(len(new), dtype=bool))
        self._is_varied = np.append(self._is_varied, np.zeros(len(new), dtype=bool))

    def take(self, configs: Iterable[Config]) -> None:
        """Never give these again."""
        self._is_open[[self._numbers[each] for each in configs]] = False

    def predicted(self, count: int, *, listed: bool = False) -> list[Config]:
        """At most so many, those that the cost model likes best; of the candidates if `listed`."""
        numbers = np.flatnonzero(self._is_open[: self._listed] if listed else self._is_open)
        fastest = np.argsort(self._points.predicted_us[numbers], kind="stable")
        return [self._configs[number] for number in numbers[fastest[:count]]]

    def likeliest(self) -> list[Config]:
        """Some hundred that are hoped to be fastest, by what was measured too, in that order."""
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
        """The launches beside configurations, of each once."""
        for number in numbers:
            if not self._is_varied[number]:
                self._is_varied[number] = True
                config = self._configs[number]
                yield from self._spaces[config.family].relaunched(config)

    def _expected(self, numbers: _Numbers) -> tuple[_Numbers, Array]:
        """Of these the predicted fastest, by the times that are hoped for, in microseconds."""
        predicted_us = self._points.predicted_us[numbers]
        if len(numbers) > _CORRECTED:
            numbers = numbers[np.argpartition(predicted_us, _CORRECTED)[:_CORRECTED]]
        expected_us = self._residual.hopeful_us(self._points[numbers])
        fastest = np.argsort(expected_us, kind="stable")
        return numbers[fastest], expected_us[fastest]
