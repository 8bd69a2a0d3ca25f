"""The worker: a process that owns one device and checks and times candidates.

`boltgen.measure.client` starts it as `python -m boltgen.measure.worker`; `protocol` defines its
input and output. A candidate that crashes the worker does not affect the client.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from boltgen.errors import RecordError
from boltgen.families.source import workspace_symbol
from boltgen.ir.outcome import DeviceIdentity, DeviceKind, Failure, Fault, Timing
from boltgen.measure.lines import from_line, to_line, work
from boltgen.measure.native import CudaError, Profiler, RefusedError, Verdict
from boltgen.measure.operands import BudgetError, Operands
from boltgen.measure.protocol import (
    VERSION,
    Answer,
    FromClient,
    FromWorker,
    Greeting,
    Refusal,
    Request,
    Setup,
)
from boltgen.measure.timing import (
    FIRST_SAMPLES,
    launches_of_sample,
    scratch_bytes,
    take_samples,
)
from boltgen.problems.workload import Workload

# A number of cudaError_t. Source: driver_types.h.
_OUT_OF_MEMORY = 2
_LOST = {3, 46, 100, 101, 214, 220, 802, 803, 804, 999}
_TIMED_OUT = 702
# After an error in this range every call fails until the process ends.
_FIRST_FATAL, _LAST_FATAL = 700, 720

MOST_SETS_BYTES = 512 << 20
_SHARE_OF_FREE = 0.9


class _FailedError(Exception):
    """Carries a candidate's failure out of the measurement."""

    def __init__(self, fault: Fault, reason: str) -> None:
        super().__init__(reason)
        self.failure = Failure(fault=fault, reason=reason)


@dataclass(slots=True)
class Prepared:
    """A candidate's launches, one per copy of its operands, ready to be enqueued."""

    kernel: ctypes._NamedFuncPointer
    arguments: list[Any]
    operands: Operands

    @property
    def address(self) -> int:
        """The address of the kernel's entry function."""
        return ctypes.cast(self.kernel, ctypes.c_void_p).value or 0


@dataclass(slots=True)
class Workplace:
    """A device with the operands of the current problem."""

    profiler: Profiler
    setup: Setup
    budget_bytes: int
    scratch: tuple[int, int] = (0, 0)
    _operands: Operands | None = None
    _busy_until: float = 0.0

    def __post_init__(self) -> None:
        if not self.setup.policy.modelled:
            size = scratch_bytes(self.profiler.device.l2_bytes)
            self.scratch = (self.profiler.allocate(size), size)
            self.budget_bytes -= size

    def measure(self, request: Request) -> Timing:
        """Check and time a candidate.

        Raises:
            _FailedError, BudgetError, RefusedError, CudaError: the candidate fails.
        """
        return self._check_and_time(self.prepare(request))

    def prepare(self, request: Request) -> Prepared:
        """Load a candidate, and place its operands and workspace on the device.

        Raises:
            _FailedError, BudgetError, RefusedError, CudaError: the candidate cannot be launched.
        """
        try:
            library = ctypes.CDLL(request.library)
            kernel = library[request.symbol]
            query = library[workspace_symbol(request.symbol)]
        except (OSError, AttributeError) as error:
            raise _FailedError(Fault.LAUNCH, f"the kernel cannot be loaded: {error}") from error
        operands = self._operands_for(request.workload)
        stream = self.profiler.device.stream
        arguments = [
            operands.arguments(one, request.launch, stream=stream) for one in operands.sets
        ]
        query.restype = ctypes.c_size_t
        workspace_bytes = int(query(ctypes.byref(arguments[0])))
        workspace = operands.workspace(workspace_bytes)
        for args in arguments:
            args.workspace, args.workspace_bytes = workspace, workspace_bytes
        return Prepared(kernel, arguments, operands)

    def _check_and_time(self, candidate: Prepared) -> Timing:
        policy, address = self.setup.policy, candidate.address
        arguments, operands = candidate.arguments, candidate.operands
        operands.poison()
        first = self.profiler.plan(address, arguments[:1], in_graph=False, scratch=self.scratch)
        try:
            once_us = min(first.sample_us(1 if policy.modelled else FIRST_SAMPLES))
        finally:
            first.close()
        _accept(operands.judge(), operands)
        if policy.modelled:
            return Timing.exact(once_us)
        count = launches_of_sample(once_us, len(arguments), policy)
        plan = self.profiler.plan(
            address,
            arguments[:count],
            in_graph=once_us < policy.graph_below_us,
            scratch=self.scratch,
        )
        try:
            idle = time.monotonic() - self._busy_until > policy.idle_s
            timing = take_samples(
                plan.sample_us,
                self.profiler.clock_mhz,
                policy,
                launches=count,
                warm_up_us=policy.cold_start_us if idle else policy.warm_up_us,
            )
        finally:
            plan.close()
        self._busy_until = time.monotonic()
        # Check again: a kernel may be correct first and wrong later.
        _accept(operands.judge(), operands)
        return timing

    def forget_operands(self) -> None:
        """Free the operands, which the last candidate may have changed; the next makes new ones."""
        held, self._operands = self._operands, None
        if held:
            held.close()

    def _operands_for(self, workload: Workload) -> Operands:
        """Return the last candidate's operands if the workload is the same, else new ones."""
        held = self._operands
        if held and held.workload == workload:
            return held
        self.forget_operands()
        self._operands = Operands(
            self.profiler,
            workload,
            budget_bytes=self.budget_bytes,
            most_sets=1 if self.setup.policy.modelled else self.setup.policy.most_sets,
            most_sets_bytes=MOST_SETS_BYTES,
        )
        return self._operands


def _accept(verdict: Verdict, operands: Operands) -> None:
    if not verdict.wrong:
        return
    fault = Fault.NOT_FINITE if verdict.not_finite else Fault.WRONG_RESULT
    raise _FailedError(
        fault,
        f"{verdict.wrong} elements of {operands.workload.describe()} are wrong, of which "
        f"{verdict.not_finite} are NaN; the first is number {verdict.first_wrong}: "
        f"{verdict.got:.8g}, where a right kernel gives {verdict.low:.8g} to {verdict.high:.8g}",
    )


def answer(place: Workplace, request: Request) -> Answer:
    """Return the outcome of a request; any failure of the candidate becomes part of it."""
    try:
        return Answer(number=request.number, outcome=place.measure(request))
    except _FailedError as failed:
        place.forget_operands()
        return Answer(number=request.number, outcome=failed.failure)
    except BudgetError as error:
        failure = Failure(fault=Fault.OUT_OF_MEMORY, reason=str(error))
        return Answer(number=request.number, outcome=failure)
    except RefusedError as error:
        failure = Failure(fault=Fault.LAUNCH, reason=str(error))
        return Answer(number=request.number, outcome=failure)
    except CudaError as error:
        fault = fault_of(error.number)
        failure = Failure(fault=fault, reason=str(error))
        fatal = _FIRST_FATAL <= error.number < _LAST_FATAL or fault is Fault.DEVICE_LOST
        return Answer(number=request.number, outcome=failure, fatal=fatal)


def fault_of(number: int) -> Fault:
    """Classify a CUDA error as a fault of the candidate."""
    if number == _OUT_OF_MEMORY:
        return Fault.OUT_OF_MEMORY
    if number in _LOST:
        return Fault.DEVICE_LOST
    if number == _TIMED_OUT:
        return Fault.TIMEOUT
    # 701 is "too many resources requested"; the others are bad addresses, instructions, assertions.
    if _FIRST_FATAL <= number < _LAST_FATAL and number != 701:
        return Fault.ILLEGAL_ACCESS
    return Fault.LAUNCH


def open_device(setup: Setup) -> tuple[Workplace, Greeting]:
    """Open the device of `setup`.

    Raises:
        CudaError, OSError: the device cannot be used.
    """
    _load_runtime(setup.runtime)
    modelled = setup.policy.modelled
    profiler = Profiler(Path(setup.profiler), setup.ordinal, with_nvml=not modelled)
    found = profiler.device
    budget = setup.budget_bytes or int(_SHARE_OF_FREE * profiler.free_bytes())
    major, minor = found.compute_capability
    greeting = Greeting(
        version=VERSION,
        device=DeviceIdentity(
            kind=DeviceKind.VGPU if modelled else DeviceKind.CUDA,
            name=found.name,
            arch=f"sm_{major}{minor}",
            sm_count=found.sm_count,
            clock_mhz=found.clock_mhz,
            memory_clock_mhz=found.memory_clock_mhz,
            memory_bytes=found.memory_bytes,
            driver=found.driver,
        ),
        uuid=found.uuid,
        budget_bytes=budget,
        reads_clock=profiler.clock_mhz() is not None,
    )
    return Workplace(profiler=profiler, setup=setup, budget_bytes=budget), greeting


def _load_runtime(path: str) -> None:
    """Load CUDA's runtime: the one in the process, the one on the linker's path, or the file."""
    try:
        ctypes.CDLL(Path(path).name, ctypes.RTLD_GLOBAL)
    except OSError:
        ctypes.CDLL(path, ctypes.RTLD_GLOBAL)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more or a request is fatal."""

    def say(message: FromWorker) -> None:
        answers.write(to_line(FromWorker, message))
        answers.flush()

    setup = from_line(FromClient, requests.readline())
    if not isinstance(setup, Setup):
        raise RecordError(f"the first message is a {type(setup).__name__}, not a Setup")
    try:
        place, greeting = open_device(setup)
    except (CudaError, RefusedError, OSError) as error:
        say(Refusal(reason=str(error)))
        return
    say(greeting)
    for line in iter(requests.readline, b""):
        request = from_line(FromClient, line)
        if not isinstance(request, Request):
            raise RecordError(f"a {type(request).__name__} where a Request was expected")
        told = answer(place, request)
        say(told)
        if told.fatal:
            return


if __name__ == "__main__":
    work(serve)
