"""The search of one workload: its proposed trials and known outcomes."""

from __future__ import annotations

from collections.abc import Sequence

from boltgen.families.family import Config
from boltgen.families.space import AnySpace
from boltgen.families.trial import Trial
from boltgen.ir.outcome import Failure, Fault, Outcome, Timing
from boltgen.tuning.choice.select import Task
from boltgen.tuning.session.scheduler import TaskState, kind_of
from boltgen.tuning.strategies.strategy import Strategy

# A strategy ends if it proposes more illegal configurations than this. A choice.
_ILLEGAL = 256


class Search:
    """A task, its strategy, and the known outcomes.

    A strategy may propose configurations that are illegal in `spaces`. `known` is shared with other
    searches of the same workload, and grows. `first` are measured before the strategy proposes;
    `candidates` are in the cost model's order.
    """

    def __init__(
        self,
        task: Task,
        strategy: Strategy,
        spaces: Sequence[AnySpace],
        known: dict[Config, Outcome],
        *,
        expected_us: float,
        uses: tuple[float, ...],
        candidates: tuple[Config, ...] = (),
        first: tuple[Config, ...] = (),
    ) -> None:
        self._task = task
        self._spaces = {space.family: space for space in spaces}
        self._strategy = strategy
        self._known = known
        self._expected_us = expected_us
        self._uses = uses
        self._places = {config: place for place, config in enumerate(candidates, 1)}
        self._early = frozenset(first)
        self._first = [config for config in reversed(first) if self._answer(config) is None]
        self._pending: set[Config] = set()
        # Configurations that the strategy proposed and whose outcomes are pending.
        self._asked: set[Config] = set()
        self._granted = 0
        self._history_us: list[float | None] = []
        self._history_trials: list[int] = []
        self._exhausted = False
        self._waits = False

    def propose(self, count: int) -> list[Trial]:
        """Return at most `count` trials with unknown outcomes; the call counts as a grant."""
        self._history_us.append(best_us(self._known))
        self._history_trials.append(self._granted)
        trials: list[Trial] = []
        while len(trials) < count and self._first:
            trials.append(self._begun(self._first.pop()))
        illegal = 0
        while len(trials) < count and not self._exhausted:
            configs = self._strategy.propose(count - len(trials))
            if not configs or illegal > _ILLEGAL:
                self._waits = bool(self._pending)
                self._exhausted = not self._waits
                break
            for config in configs:
                answer = self._answer(config)
                if answer is not None:
                    illegal += config not in self._known
                    self._strategy.observe([(config, answer)])
                    continue
                self._asked.add(config)
                if config not in self._pending:
                    trials.append(self._begun(config))
        self._granted += len(trials)
        return trials

    def _begun(self, config: Config) -> Trial:
        self._pending.add(config)
        return Trial(workload=self._task.workload, config=config)

    def _answer(self, config: Config) -> Outcome | None:
        """Return a configuration's outcome if it is known without a measurement, else None."""
        if config in self._known:
            return self._known[config]
        if broken := self._spaces[config.family].broken(config):
            return Failure(fault=Fault.LAUNCH, reason=f"not legal: {broken[0].message}")
        return None

    def observe(self, config: Config, outcome: Outcome) -> None:
        """Note the outcome of a proposed trial."""
        self._pending.discard(config)
        self._waits = False
        self._known[config] = outcome
        if config in self._asked:
            self._asked.discard(config)
            self._strategy.observe([(config, outcome)])

    def why(self, config: Config) -> str:
        """Return why a configuration was tried, for people."""
        if config in self._early:
            return "it was fast elsewhere"
        if config in self._places:
            return f"place {self._places[config]} of {len(self._places)} by the cost model"
        return "the strategy came to it"

    @property
    def state(self) -> TaskState:
        """The state by which a scheduler decides."""
        return TaskState(
            kind=kind_of(self._task.workload),
            flops=self._task.workload.flops,
            uses=self._uses,
            expected_us=self._expected_us,
            trials=self._granted,
            history_us=(*self._history_us, best_us(self._known)),
            history_trials=(*self._history_trials, self._granted),
            exhausted=self._exhausted or self._waits,
        )


def times_us(known: dict[Config, Outcome]) -> dict[Config, float]:
    """Return the median times among outcomes."""
    return {c: o.median_us for c, o in known.items() if isinstance(o, Timing)}


def best_us(known: dict[Config, Outcome]) -> float | None:
    """Return the least median time among outcomes, or None."""
    return min(times_us(known).values(), default=None)
