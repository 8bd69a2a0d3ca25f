"""The outcome of a kernel on a device: a time or a failure, and whose it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

# The kernel of a failure to compile: a later compilation of the same spec is another kernel.
NOT_COMPILED = "not compiled"


class DeviceKind(Enum):
    """The source of times."""

    CUDA = "cuda"  # measured on a GPU
    VGPU = "vgpu"  # modelled by the virtual GPU, from its counters
    RECORDED = "recorded"  # measured earlier, replayed


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceIdentity:
    """The facts that two devices share if the times of one hold for the other."""

    kind: DeviceKind
    name: str
    arch: str  # "sm_80"
    sm_count: int
    clock_mhz: int
    memory_clock_mhz: int
    memory_bytes: int
    driver: str


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
    during the samples, None if it cannot be read.
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
        """Return a time that is known, not measured: from a model, and the same every time."""
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
