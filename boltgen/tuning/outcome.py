"""The values that a tuning session, its database and its bench exchange.

A bench is where kernels are compiled and timed: a worker process beside a GPU, the virtual GPU, a
table of recorded measurements, or a fake in tests.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

from boltgen.families.family import Config
from boltgen.families.registry import kernel_spec
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.workload import Workload


class DeviceKind(Enum):
    """Where times come from."""

    CUDA = "cuda"  # measured on a GPU
    VGPU = "vgpu"  # modelled by the virtual GPU, from its counters
    RECORDED = "recorded"  # measured earlier, replayed


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceIdentity:
    """What two devices must have in common for times of one to speak for the other."""

    kind: DeviceKind
    name: str
    arch: str  # "sm_80"
    sm_count: int
    clock_mhz: int
    memory_clock_mhz: int
    memory_bytes: int
    driver: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One launch to be timed: `workload` in `config`, with the launch's arguments in that."""

    workload: Workload
    config: Config

    def spec(self, arch: str) -> KernelSpec:
        """The kernel that is launched, for `arch` ("sm_80")."""
        return kernel_spec(self.workload, self.config, arch)


class Fault(Enum):
    """Why a trial has no time."""

    COMPILE = "compile"  # the compiler refused the kernel
    LAUNCH = "launch"  # the kernel or the driver refused the launch
    WRONG_RESULT = "wrong_result"
    NOT_FINITE = "not_finite"
    ILLEGAL_ACCESS = "illegal_access"
    CRASH = "crash"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    DEVICE_LOST = "device_lost"  # says nothing about the candidate
    PROTOCOL = "protocol"  # the worker printed something else than an answer
    NOT_RECORDED = "not_recorded"  # a recorded device has no such row; says nothing either


# Faults of the device, not of the candidate: nothing to remember it by.
BLAMELESS = frozenset({Fault.DEVICE_LOST, Fault.NOT_RECORDED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A trial that has no time: the kind of fault, a sentence for people, and the log kept."""

    fault: Fault
    reason: str
    log: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Times of one launch, in microseconds, over `repeats` samples of `launches` launches each.

    `low_us` to `high_us` is the 95 % interval of the median. `clock_mhz` is the SM clock seen
    during the samples, None where it cannot be read.
    """

    median_us: float
    p20_us: float
    p80_us: float
    low_us: float
    high_us: float
    repeats: int
    launches: int
    cold_l2: bool
    clock_mhz: float | None = None

    @classmethod
    def exact(cls, us: float) -> Timing:
        """A time that is known, not measured: from a model, and the same every time."""
        return cls(
            median_us=us,
            p20_us=us,
            p80_us=us,
            low_us=us,
            high_us=us,
            repeats=1,
            launches=1,
            cold_l2=True,
        )


Outcome: TypeAlias = Timing | Failure


class Bench(Protocol):
    """Compiles and times trials; compiles the next while it times the last."""

    @property
    def device(self) -> DeviceIdentity:
        """Whose times these are."""
        ...

    @property
    def toolchain(self) -> str:
        """What the kernels are compiled with: compilers, CUTLASS, boltgen's headers."""
        ...

    @property
    def lock_name(self) -> str | None:
        """What one session at a time may use (a GPU's UUID); None where sessions do not disturb
        each other.
        """
        ...

    def run(self, trials: Sequence[Trial]) -> Generator[tuple[Trial, Outcome], None, None]:
        """Each trial with its outcome, as they finish; closing the generator drops the rest."""
        ...

    def close(self) -> None:
        """Stop workers and compilers; harmless when done twice."""
        ...
