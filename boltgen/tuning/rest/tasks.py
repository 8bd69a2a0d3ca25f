"""Interfaces to tune TVM's own kernels, by TVM's tuner, in the same session as boltgen's tasks.

Arrow: from tasks to records, as in `tuning.session.session`. `tvm_build.rest` finds and builds the
kernels; here a kernel is its identity, and a configuration is a text.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from boltgen.families.trial import Trial
from boltgen.ir.key import digest
from boltgen.ir.outcome import Outcome, Timing
from boltgen.tuning.session.scheduler import TaskState

# Prefix of the built-in schedule's name, by TVM's and boltgen's rules. A tuned schedule must be
# faster than the built-in one.
BUILT_IN = "built in "


@dataclass(frozen=True, slots=True, kw_only=True)
class RestTrial:
    """A schedule of the kernel `name` with the identity `task`.

    `config` is MetaSchedule's trace as JSON, or the built-in schedule's name.
    """

    name: str
    task: str
    config: str


AnyTrial: TypeAlias = Trial | RestTrial


@dataclass(frozen=True, slots=True, kw_only=True)
class RestResult:
    """The known times of a TVM kernel, and the numbers of timed and failed schedules.

    `uses` is the number of its launches by all models, weighted. An unknown time is None.
    """

    name: str
    uses: float
    built_in_us: float | None
    best: str | None
    best_us: float | None
    timed: int
    failed: int


class RestSearch(Protocol):
    """Proposes schedules of one kernel, as `search.Search` proposes configurations."""

    @property
    def task(self) -> str:
        """The kernel's identity."""
        ...

    @property
    def state(self) -> TaskState:
        """The state by which a scheduler decides."""
        ...

    @property
    def result(self) -> RestResult:
        """The times that are known now."""
        ...

    def resume(self, known: Mapping[str, Outcome]) -> None:
        """Take the outcomes of earlier sessions, which are not measured again."""
        ...

    def propose(self, count: int) -> list[RestTrial]:
        """Return at most `count` trials with unknown outcomes; the call counts as a grant."""
        ...

    def observe(self, trial: RestTrial, outcome: Outcome) -> None:
        """Note the outcome of a proposed trial."""
        ...


class Rest(Protocol):
    """The TVM kernels of a session's models, and the bench that builds and times them."""

    @property
    def searches(self) -> Sequence[RestSearch]:
        """One search for each kernel."""
        ...

    @property
    def toolchain(self) -> str:
        """The tools that generate and compile the kernels."""
        ...

    def run(self, trials: Sequence[RestTrial]) -> Generator[tuple[RestTrial, Outcome], None, None]:
        """Yield each trial with its outcome, as they finish.

        Closing the generator drops the remaining trials.
        """
        ...

    def close(self) -> None:
        """Stop the processes that run candidates. A second call is harmless."""
        ...


def rest_toolchain(toolchain: str, tvm: str) -> str:
    """Return the tools that make TVM's kernels, as text: boltgen's compilers and TVM's version."""
    return f"{toolchain}; TVM {tvm}"


def short_name(config: str) -> str:
    """Return a short name of a configuration for people, because a trace has kilobytes."""
    return "built in" if config.startswith(BUILT_IN) else f"MetaSchedule {digest(config)[:8]}"


def summary(name: str, uses: float, known: Mapping[str, Outcome], built_in: str) -> RestResult:
    """Summarise the outcomes of a kernel whose current built-in schedule is `built_in`."""
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
    """Return the schedule to ship: the built-in one unless another was measured to be faster.

    Return None if the current built-in schedule has no time, because then no comparison is
    possible.
    """
    if built_in not in times_us:
        return None
    traces = [config for config in times_us if not config.startswith(BUILT_IN)]
    best = min(traces, key=lambda config: (times_us[config], config), default=built_in)
    return best if times_us[best] < times_us[built_in] else built_in
