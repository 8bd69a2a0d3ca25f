"""The device with all that sections share: built kernels, operands, launches in turn."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu.built import Builders, Built, State
from benchmarks.gpu.capture import Capturing, at_most, uncollected
from benchmarks.gpu.items import Choice, Product
from benchmarks.gpu.timing import Timed, Turns, time_in_turn
from benchmarks.gpu.vendor import Vendor
from boltgen.families.trial import Trial
from boltgen.ir.outcome import DeviceIdentity, Failure, Fault, Outcome, Timing
from boltgen.measure.native import CudaError, Plan, Profiler
from boltgen.measure.protocol import Policy, Request
from boltgen.measure.timing import launches_of_sample, scratch_bytes
from boltgen.measure.worker import Prepared, Workplace, answer
from boltgen.tuning.database.records import Record

Array: TypeAlias = NDArray[Any]
# Names the error of all of PyTorch's columns together.
PYTORCH = "pytorch"
# int kernel(void const* arguments, void* status), as every generated kernel has it.
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_STATUS_OK, _STATUS_FAILED = 0, 4
# PyTorch's libraries choose algorithms. An item has more time than that (`worker`), so that ours is
# measured whatever PyTorch takes.
_MOST_BESIDE_S = 40.0
# Seconds at the end of a run that are kept for timing: PyTorch compiles until then at most.
_LAST_S = 20.0
# Candidates are told apart by a few samples each; the best is then timed against the vendor's.
SELECTION = Policy(least_samples=6, most_samples=20, most_s=0.2)
MODELLED = Policy(modelled=True)


class UnusableError(Exception):
    """An item that cannot be measured here; the message says why."""


class FatalError(Exception):
    """The device is of no more use to this process; the message says why."""


@dataclass(frozen=True, slots=True)
class Step:
    """A kernel's entry, and the arguments of each of its launches."""

    kernel: ctypes._NamedFuncPointer
    arguments: Sequence[ctypes.Structure]


class Launched:
    """Launches of anything that enqueues work on the profiler's stream, as one sample.

    `enqueue(index, status)` enqueues launch number `index`, and returns a `boltgen_status` code.
    Where they are `captured` the first is launched, then it is called once for each, and then a
    CUDA graph is replayed.
    """

    def __init__(
        self,
        rig: Rig,
        enqueue: Callable[[int, int], int],
        launches: int,
        *,
        captured: bool,
        per_call: int = 1,
    ) -> None:
        self.launches, self._per_call = launches * per_call, per_call
        self._raised: BaseException | None = None

        def entry(arguments: int, status: int) -> int:
            try:
                return enqueue(ctypes.c_int64.from_address(arguments).value, status)
            except BaseException as error:
                self._raised = error
                return _STATUS_FAILED

        self._entry: object = None
        called = _ENTRY(entry)
        self._indices = [ctypes.c_int64(index) for index in range(launches)]
        # A cast would make `called` refer to itself, so that only a collection would free it.
        address = ctypes.c_void_p.from_buffer(called).value or 0
        try:
            if captured:
                _launch_once(rig.profiler, address, self._indices[:1])
            with uncollected():
                self._plan: Plan = rig.profiler.plan(
                    address, self._indices, in_graph=captured, scratch=rig.scratch
                )
        except Exception as error:
            raise self._cause(error) from error
        self._entry = called

    def _cause(self, error: Exception) -> BaseException:
        """Return the error that `enqueue` raised if it is the cause."""
        raised, self._raised = self._raised, None
        return raised or error

    def sample_us(self, samples: int) -> list[float]:
        """Times of one launch, in microseconds."""
        try:
            taken = self._plan.sample_us(samples)
        except Exception as error:
            raise self._cause(error) from error
        return [sample / self._per_call for sample in taken]

    def close(self) -> None:
        """Free the events and the graph, and what `enqueue` holds: memory of the device, too."""
        self._plan.close()
        self._entry = None


def _launch_once(profiler: Profiler, address: int, indices: Sequence[ctypes.c_int64]) -> None:
    """Let the driver load a kernel, which it does at the first launch: not while capturing."""
    plan = profiler.plan(address, indices, in_graph=False, scratch=(0, 0))
    try:
        plan.sample_us(1)
    finally:
        plan.close()


@dataclass(slots=True)
class Rig:
    """The device of this process, and what was built for it.

    Packages and libraries lie in the folder `work`; `state` says which there are. `vendor` is None
    where there is no PyTorch to compare with. The run ends at `deadline`, by `time.monotonic`.
    `records` are of the item at hand, as the database has them.
    """

    bundle: Path
    work: Path
    state: State
    builders: Builders
    profiler: Profiler
    device: DeviceIdentity
    turns: Turns
    vendor: Vendor | None
    runtime: ctypes.CDLL
    places: list[Workplace]
    deadline: float = math.inf
    scratch: tuple[int, int] = (0, 0)
    records: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.turns.modelled:
            # Twice what one process's own measuring reads: it also hides PyTorch's calls.
            size = 2 * scratch_bytes(self.profiler.device.l2_bytes)
            self.scratch = (self.profiler.allocate(size), size)

    def built(self, symbol: str) -> Built:
        """Find the library of a kernel or model.

        Raises:
            UnusableError: it was not built; the message says why.
        """
        found = self.state.find(symbol)
        if found is None or found.error:
            raise UnusableError(f"{symbol}: {found.error if found else 'it was not built'}")
        return found

    def place(self, number: int = 0) -> Workplace:
        """Workplace `number`: each holds the operands of one problem at a time."""
        first = self.places[0]
        while len(self.places) <= number:
            place = Workplace(self.profiler, first.setup, first.budget_bytes)
            self.places.append(place)
        return self.places[number]

    def measure(self, product: Product, choice: Choice, place: int = 0) -> Outcome:
        """Check and time one choice.

        Raises:
            FatalError: it took the device with it.
        """
        found = self.state.find(choice.kernel)
        if found is None or found.error:
            return Failure(fault=Fault.COMPILE, reason=found.error if found else "it was not built")
        told = answer(self.place(place), self._request(product, choice))
        if told.fatal and isinstance(told.outcome, Failure):
            raise FatalError(f"{choice.kernel}: {told.outcome.reason}")
        if found.content:
            self.records.append(
                Record(
                    trial=Trial(workload=product.workload, config=choice.config),
                    kernel=found.content,
                    device=self.device,
                    toolchain=found.toolchain,
                    outcome=told.outcome,
                    measured_at=datetime.now(timezone.utc),
                )
            )
        return told.outcome

    def best(self, product: Product, place: int = 0) -> tuple[Choice, Timing]:
        """The fastest choice.

        Raises:
            UnusableError: none of them has a time.
            FatalError: one of them took the device with it.
        """
        found: list[tuple[float, Choice, Timing]] = []
        failures: list[str] = []
        for choice in sorted(product.choices, key=lambda c: c.predicted_us):
            outcome = self.measure(product, choice, place)
            if isinstance(outcome, Failure):
                failures.append(f"{choice.config}: {outcome.reason}")
            else:
                found.append((outcome.median_us, choice, outcome))
        if not found:
            raise UnusableError("no configuration has a time: " + "; ".join(failures[:3]))
        _, choice, timing = min(found, key=lambda one: one[0])
        return choice, timing

    def prepared(self, product: Product, choice: Choice, place: int = 0) -> Prepared:
        """A choice with its operands, ready to be enqueued."""
        return self.place(place).prepare(self._request(product, choice))

    def in_turn(self, steps: Sequence[Step | Prepared], once_us: float) -> Launched:
        """Kernels one after another, as one thing to be timed."""
        sets = min(len(step.arguments) for step in steps)

        def enqueue(index: int, status: int) -> int:
            for step in steps:
                argument = ctypes.byref(step.arguments[index])
                if code := int(step.kernel(argument, ctypes.c_void_p(status))):
                    return code
            return _STATUS_OK

        modelled = self.turns.modelled  # by the virtual GPU, whose times have no gaps
        launches = 1 if modelled else launches_of_sample(once_us, sets, SELECTION)
        return Launched(self, enqueue, launches, captured=not modelled)

    def calling(
        self, function: Callable[[], object], *, captured: bool = False, per_call: int = 1
    ) -> Launched:
        """Time a function that enqueues `per_call` launches on the profiler's stream."""

        def enqueue(index: int, status: int) -> int:
            function()
            return _STATUS_OK

        return Launched(self, enqueue, 1, captured=captured, per_call=per_call)

    def beside(
        self, columns: Callable[[Vendor], Capturing], most_s: float = _MOST_BESIDE_S
    ) -> tuple[dict[str, Launched], dict[str, str]]:
        """Return the samplers of the vendor's `columns`, and why some columns have none.

        A column that is not captured within `most_s`, for all together, has none. Columns are
        captured in their order, so the cheap ones come first. Whatever PyTorch raises, even while
        `columns` are made, costs no column of ours.
        """
        samplers: dict[str, Launched] = {}
        errors: dict[str, str] = {}
        if self.vendor is None:
            return samplers, errors
        deadline = min(time.monotonic() + most_s, self.deadline - _LAST_S)
        try:
            capturing = columns(self.vendor)
        except Exception as error:  # PyTorch's own, of whatever kind: ours is measured still
            return samplers, {PYTORCH: self.forgotten(error)}
        for name, capture in capturing.items():
            try:
                with at_most(max(deadline - time.monotonic(), 1.0)):
                    replay = capture()
            except Exception as error:  # PyTorch's own, of whatever kind: ours is measured still
                errors[name] = self.forgotten(error)
            else:
                samplers[name] = self.calling(replay.replay, per_call=replay.launches)
        for name, sampler in list(samplers.items()):
            # After a capture that failed, PyTorch of 2024 replays no earlier graph.
            try:
                sampler.sample_us(1)
            except CudaError:
                raise
            except Exception as error:
                errors[name] = self.forgotten(error)
                samplers.pop(name).close()
        return samplers, errors

    def forgotten(self, error: Exception) -> str:
        """Describe an error in words; the runtime forgets it: it would be blamed on our launch."""
        self.runtime.cudaGetLastError()
        return f"{type(error).__name__}: {error}"[:1000]

    def timed(self, samplers: Mapping[str, Launched]) -> Timed:
        """Samples of everything in turn (`timing.time_in_turn`); frees what they hold."""
        try:
            return time_in_turn(samplers, self.turns, self.profiler.clock_mhz)
        finally:
            for sampler in samplers.values():
                sampler.close()

    def entry(self, symbol: str) -> ctypes._NamedFuncPointer:
        """The function of a kernel."""
        return ctypes.CDLL(self.built(symbol).path)[symbol]

    def download(self, address: int, shape: tuple[int, ...], dtype: str = "float16") -> Array:
        """A tensor of the device."""
        array = np.empty(shape, dtype)
        self.profiler.copy(array.ctypes.data, address, array.nbytes)
        return array

    def upload(self, address: int, array: Array) -> None:
        """Write a tensor of the device."""
        whole = np.ascontiguousarray(array)
        self.profiler.copy(address, whole.ctypes.data, whole.nbytes)

    def _request(self, product: Product, choice: Choice) -> Request:
        trial = Trial(workload=product.workload, config=choice.config)
        return Request.of(trial, self.built(choice.kernel).path, choice.kernel)
