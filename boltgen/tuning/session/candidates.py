"""Choose the configurations of a session: round one ranks kernels, round two times finalists.

Bolt (Xing et al., section 3.2.2) times generic kernels and takes the best. Here generic kernels are
only ranked: a chosen kernel was timed as it ships, with its epilogue, swizzle and split of K. A
family whose kernels depend too much on fused operators has no round one; its kernels with the least
predicted times are timed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from boltgen.arch import Arch
from boltgen.cost.model import CostModel
from boltgen.families.family import Config, Level
from boltgen.families.registry import FAMILIES, compiled, order, spaces
from boltgen.families.space import AnySpace
from boltgen.problems.workload import Workload
from boltgen.tuning.strategies.experience import Experience
from boltgen.tuning.strategies.strategy import SearchProblem

# The kernels of each task that reach round two, and the launches that round two times. Choices: the
# best fused kernel is rarely behind the third best plain one, and each kernel takes seconds to
# compile.
FINALISTS = 3
FINAL_TRIALS = 12
# The finalists among kernels that round one cannot rank: one more, as only the model ranks them.
UNRANKED_FINALISTS = 4


class Field:
    """The legal configurations of one workload by kernel, with the cost model's predictions.

    The kernels come from a library of `level`, or are all kernels of a family of which the library
    has no suitable one. At the full level `beyond` adds every legal kernel, listed or not.

    Raises:
        NoLegalConfigError: no configuration is legal.
    """

    def __init__(self, workload: Workload, arch: Arch, level: Level, model: CostModel) -> None:
        self.workload = workload
        self.spaces = spaces(workload, arch)
        self.has_more = level is Level.FULL
        self._arch = arch
        self._model = model
        self._by_kernel: dict[Config, list[Config]] = {}
        self._predicted_us: dict[Workload, dict[Config, float]] = defaultdict(dict)
        for space in self.spaces:
            by_kernel: dict[Config, list[Config]] = defaultdict(list)
            for config in space.candidates:
                by_kernel[compiled(config)].append(config)
            held = FAMILIES.named(space.family).held(workload, arch, level) & by_kernel.keys()
            self._by_kernel |= {each: by_kernel[each] for each in sorted(held or by_kernel)}

    def predicted_us(self, workload: Workload, configs: Sequence[Config]) -> list[float]:
        """Return the cost model's times; `workload` may have another epilogue than the field's."""
        known = self._predicted_us[workload]
        new = [config for config in configs if config not in known]
        times_us = self._model.predict_us(workload, new, self._arch) if new else ()
        known.update(zip(new, times_us, strict=True))
        return [known[config] for config in configs]

    def searched(
        self,
        workload: Workload,
        configs: tuple[Config, ...],
        experience: Experience,
        *,
        beyond: bool = False,
    ) -> SearchProblem:
        """Return the search problem of `configs`; `workload` may have another epilogue.

        Without `beyond` only `configs` are legal, so that no other kernel is compiled; with it, all
        configurations of the families are.
        """
        return SearchProblem(
            workload=workload,
            candidates=configs,
            spaces=self.spaces if beyond else tuple(_only(self.spaces, configs)),
            predicted_us=partial(self.predicted_us, workload),
            experience=experience,
        )

    @property
    def best_us(self) -> float:
        """The least predicted time of the workload, in microseconds."""
        launches = [config for each in self._by_kernel.values() for config in each]
        return min(self.predicted_us(self.workload, launches))

    @property
    def ranking(self) -> Workload | None:
        """The workload of round one, or None if no family has a round one."""
        found = (FAMILIES.named(space.family).ranking(self.workload) for space in self.spaces)
        return next((ranking for ranking in found if ranking is not None), None)

    def opening(self) -> tuple[Config, ...]:
        """Return the configurations of round one: launches of every kernel that can be ranked.

        Each kernel occurs with its compiled defaults and with the launch arguments that the model
        predicts to be best. Launch arguments cost a measurement, but no compilation. The predicted
        fastest come first.
        """
        ranking = self.ranking
        if ranking is None:
            return ()
        chosen: list[Config] = []
        for kernel, launches in self._by_kernel.items():
            if self._is_ranked(kernel):
                times_us = self.predicted_us(ranking, launches)
                likeliest = min(zip(times_us, map(order, launches), launches, strict=True))[2]
                chosen += dict.fromkeys((kernel, likeliest) if kernel in launches else (likeliest,))
        return self._sorted(ranking, chosen)

    def finalists(self, ranked_us: Mapping[Config, float]) -> tuple[Config, ...]:
        """Return the launches of round two, for the fastest kernels of round one.

        They include kernels found beyond the field. `ranked_us` are times of the ranking workload.
        If fewer than `FINALISTS` kernels have a time, the model adds others. A launch's expected
        time is its kernel's time in round one, scaled by the predicted ratio. The fastest expected
        launches come first, one of each kernel before the second of any.
        """
        kernel_us, measured = self._kernel_times(ranked_us)
        chosen = sorted(measured, key=lambda kernel: (kernel_us[kernel], order(kernel)))[:FINALISTS]
        ranked = [each for each in self._by_kernel if self._is_ranked(each)]
        others = self._likeliest(kernel for kernel in ranked if kernel not in chosen)
        chosen += others[: FINALISTS - len(chosen)]
        unranked = (each for each in self._by_kernel if not self._is_ranked(each))
        chosen += self._likeliest(unranked)[:UNRANKED_FINALISTS]
        expected = []
        for kernel in chosen:
            scale = 1.0
            if kernel in measured and self.ranking is not None:
                (base_us,) = self.predicted_us(self.ranking, [measured[kernel]])
                scale = kernel_us[kernel] / base_us
            launches = self._by_kernel.get(kernel) or self._launches(kernel)
            times_us = self.predicted_us(self.workload, launches)
            timed = [(scale * us, config) for us, config in zip(times_us, launches, strict=True)]
            expected.append(sorted(timed, key=_by_time))
        return _interleaved(expected)[:FINAL_TRIALS]

    def _launches(self, kernel: Config) -> list[Config]:
        """Return the legal launches of a kernel that is not in the field."""
        (space,) = (each for each in self.spaces if each.family == kernel.family)
        found = {kernel: None} if not space.broken(kernel) else {}
        reached = list(found)
        while reached:
            new = [each for each in space.relaunched(reached.pop()) if each not in found]
            found |= dict.fromkeys(new)
            reached += new
        return list(found)

    def _is_ranked(self, kernel: Config) -> bool:
        return FAMILIES.of(kernel).ranking(self.workload) is not None

    def _likeliest(self, kernels: Iterable[Config]) -> list[Config]:
        """Return kernels by the least predicted time of their launches."""
        best = {
            kernel: min(self.predicted_us(self.workload, self._by_kernel[kernel]))
            for kernel in kernels
        }
        return sorted(best, key=lambda kernel: (best[kernel], order(kernel)))

    def _sorted(self, workload: Workload, configs: Sequence[Config]) -> tuple[Config, ...]:
        times_us = self.predicted_us(workload, configs)
        timed = sorted(zip(times_us, configs, strict=True), key=_by_time)
        return tuple(config for _, config in timed)

    def _kernel_times(
        self, ranked_us: Mapping[Config, float]
    ) -> tuple[dict[Config, float], dict[Config, Config]]:
        """Return the best time of each kernel in round one, and the launch with this time."""
        best: dict[Config, float] = {}
        launch: dict[Config, Config] = {}
        for config, time_us in sorted(ranked_us.items(), key=lambda each: order(each[0])):
            kernel = compiled(config)
            is_known = kernel in self._by_kernel or self.has_more
            if is_known and time_us < best.get(kernel, float("inf")):
                best[kernel], launch[kernel] = time_us, config
        return best, launch


def _only(spaces: Iterable[AnySpace], configs: Sequence[Config]) -> Iterator[AnySpace]:
    """Yield the spaces with only these configurations legal."""
    for space in spaces:
        yield space.only(config for config in configs if config.family == space.family)


def _by_time(each: tuple[float, Config]) -> tuple[float, object]:
    return each[0], order(each[1])


def _interleaved(expected: Sequence[Sequence[tuple[float, Config]]]) -> tuple[Config, ...]:
    """Return the first of each list, then all others, each group by expected time."""
    first = sorted((launches[0] for launches in expected), key=_by_time)
    rest = sorted((each for launches in expected for each in launches[1:]), key=_by_time)
    return tuple(config for _, config in (*first, *rest))
