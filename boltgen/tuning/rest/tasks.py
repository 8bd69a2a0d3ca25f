"""Interfaces to tune TVM's own kernels, by TVM's tuner, in the same session as boltgen's tasks.

Arrow: tasks to records, as `tuning.session.session` says. `tvm_build.rest` knows which kernels
these are and builds them; here a kernel is its identity, and a configuration is a text.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from boltgen.families.trial import Trial
from boltgen.ir.key import digest
from boltgen.ir.outcome import Outcome, Timing
from boltgen.tuning.session.scheduler import TaskState

# Prefix of the identity of a kernel as TVM's and boltgen's rules schedule it: a tuned schedule has
# to beat it.
BUILT_IN = "built in "


@dataclass(frozen=True, slots=True, kw_only=True)
class RestTrial:
    """A schedule of the kernel `name`, whose identity is `task`.

    `config` is MetaSchedule's trace as JSON, or the built-in schedule's name.
    """

    name: str
    task: str
    config: str


AnyTrial: TypeAlias = Trial | RestTrial


@dataclass(frozen=True, slots=True, kw_only=True)
class RestResult:
    """The known times of one of TVM's kernels: built-in, best, and how many schedules were tried.

    `uses` are how often all models together launch it, by their weights; an unknown time is None.
    """

    name: str
    uses: float
    built_in_us: float | None
    best: str | None
    best_us: float | None
    timed: int
    failed: int


class RestSearch(Protocol):
    """Propose schedules of one kernel, as `search.Search` proposes configurations of a workload."""

    @property
    def task(self) -> str:
        """The kernel's identity."""
        ...

    @property
    def state(self) -> TaskState:
        """The state that a scheduler decides by."""
        ...

    @property
    def result(self) -> RestResult:
        """The times that are known now."""
        ...

    def resume(self, known: Mapping[str, Outcome]) -> None:
        """Take what earlier sessions measured: it is not measured again."""
        ...

    def propose(self, count: int) -> list[RestTrial]:
        """Return at most `count` trials whose outcome is not known; counts as a grant."""
        ...

    def observe(self, trial: RestTrial, outcome: Outcome) -> None:
        """Hear the outcome of a trial that was proposed."""
        ...


class Rest(Protocol):
    """The TVM kernels of a session's models, and the bench that builds and times them."""

    @property
    def searches(self) -> Sequence[RestSearch]:
        """One for each kernel."""
        ...

    @property
    def toolchain(self) -> str:
        """The tools that generate and compile the kernels."""
        ...

    def run(self, trials: Sequence[RestTrial]) -> Generator[tuple[RestTrial, Outcome], None, None]:
        """Yield each trial with its outcome, as they finish; closing the generator drops the
        others.
        """
        ...

    def close(self) -> None:
        """Stop what runs candidates; harmless when done twice."""
        ...


def rest_toolchain(toolchain: str, tvm: str) -> str:
    """Name the tools that make TVM's kernels: boltgen's compilers, and TVM's version."""
    return f"{toolchain}; TVM {tvm}"


def short_name(config: str) -> str:
    """A short name of a configuration, for people: a trace is kilobytes long."""
    return "built in" if config.startswith(BUILT_IN) else f"MetaSchedule {digest(config)[:8]}"


def summary(name: str, uses: float, known: Mapping[str, Outcome], built_in: str) -> RestResult:
    """Summarise the outcomes of a kernel whose built-in schedule is `built_in` today."""
    times = {c: o.median_us for c, o in known.items() if isinstance(o, Timing)}
    chosen = fastest(times, built_in)
    return RestResult(
        name=name,
        uses=uses,
        built_in_us=times.get(built_in),
        best=short_name(chosen) if chosen else None,
        best_us=times[chosen] if chosen else None,
        timed=len(times),
        failed=len(known) - len(times),
    )


def fastest(times_us: Mapping[str, float], built_in: str) -> str | None:
    """The schedule to ship: the built-in one unless another one was measured to be faster.

    Return None if today's built-in schedule has no time: then nothing is known to beat it.
    """
    if built_in not in times_us:
        return None
    traces = [config for config in times_us if not config.startswith(BUILT_IN)]
    best = min(traces, key=lambda config: (times_us[config], config), default=built_in)
    return best if times_us[best] < times_us[built_in] else built_in
