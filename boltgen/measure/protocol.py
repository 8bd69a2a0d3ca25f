"""The protocol between a worker and its client: one JSON object per line.

    client -> worker   Setup                       once
    worker -> client   Greeting, or Refusal        once; after a Refusal the worker ends
    client -> worker   Request                     then, again and again:
    worker -> client   Answer                      after a fatal one the worker ends

A worker that prints anything else, ends without an answer, or is silent for too long is killed; the
client reports this in the candidate's outcome and starts another worker. Modelled times do not
vary: one launch is both checked and timed, and an answer has one repeat.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from boltgen.families.registry import launch
from boltgen.families.trial import Trial
from boltgen.ir.kernel import Launch
from boltgen.ir.outcome import DeviceIdentity, Outcome
from boltgen.problems.workload import Workload

VERSION = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The precision and the time limits of a measurement.

    `modelled`: times come from the virtual GPU's model. A sample takes about `sample_us` of
    launches, on at most `most_sets` copies of the operands; launches shorter than `graph_below_us`
    run as a CUDA graph. Samples are taken until the 95 % interval of their median is within
    `tolerance` of the median: at least `least_samples`, at most `most_samples`, for at most
    `most_s`. Before, the device is kept busy for `warm_up_us`, or for `cold_start_us` after
    `idle_s` of idleness.
    """

    modelled: bool = False
    tolerance: float = 0.02
    least_samples: int = 10
    most_samples: int = 200
    most_s: float = 1.0
    sample_us: float = 200.0
    most_sets: int = 32
    graph_below_us: float = 100.0
    warm_up_us: float = 3e3
    cold_start_us: float = 1e5
    idle_s: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The setup of a worker; `profiler` and `runtime` are paths of libraries.

    `budget_bytes` limits its device memory; None means nine tenths of the free memory.
    """

    ordinal: int
    profiler: str
    runtime: str
    budget_bytes: int | None = None
    policy: Policy = field(default_factory=Policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """The worker's device; `uuid` distinguishes equal devices of one machine."""

    version: int
    device: DeviceIdentity
    uuid: str
    budget_bytes: int
    reads_clock: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The reason why the worker cannot work, as a sentence for people."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A candidate: the kernel `symbol` in the shared library `library`, its workload and launch.

    The worker does not need the kernel's family.
    """

    library: str
    symbol: str
    workload: Workload
    launch: Launch
    number: int = 0

    @classmethod
    def of(cls, trial: Trial, library: str, symbol: str) -> Request:
        """Return the request for `trial`'s launch of that kernel."""
        asked = launch(trial.workload, trial.config)
        return cls(library=library, symbol=symbol, workload=trial.workload, launch=asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The outcome of request `number`; after a fatal outcome the device needs a new process."""

    number: int
    outcome: Outcome
    fatal: bool = False


FromWorker: TypeAlias = Greeting | Refusal | Answer
FromClient: TypeAlias = Setup | Request
