"""The process that checks and times candidate schedules of TVM's kernels.

Started by `rest.bench` as `python -m boltgen.tvm_build.rest.worker`. It is told a Setup, and
answers Ready or a Refusal; then every Request gets a Timing or a Failure.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from boltgen.device.choose import activate
from boltgen.errors import DeviceError
from boltgen.ir.outcome import Failure, Fault, Timing
from boltgen.measure.lines import from_line, to_line, work
from boltgen.measure.protocol import Refusal
from boltgen.running.loaded import last_line
from boltgen.tvm_build.rest.schedule import ENTRY

_Arrays = list[npt.NDArray[Any]]
# Sums in another order than the built-in schedule's are rounded differently; a wrong result differs
# far more. A choice.
_TOLERANCE = 2.0**-6
# So many samples, of launches for so many milliseconds each; a modelled time is always the same.
_SAMPLES, _SAMPLE_MS = 10, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The device: GPU number `ordinal`, or the virtual GPU as an `arch`."""

    device: str
    ordinal: int
    arch: str

    @property
    def is_modelled(self) -> bool:
        """Return whether times are the virtual GPU's."""
        return self.device == "vgpu"


@dataclass(frozen=True, slots=True)
class Ready:
    """The device can be used."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """The shape and the type of an argument."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A kernel with `tensors` for its arguments, in a `library`.

    Its results must agree with the results of the kernel in the library `reference`.
    """

    library: str
    reference: str
    tensors: tuple[Tensor, ...]


FromWorker: TypeAlias = Ready | Refusal | Timing | Failure


def _answer(setup: Setup, request: Request) -> Timing | Failure:
    try:
        samples_us = _times_us(setup, request)
    except ArithmeticError as error:
        return Failure(fault=Fault.WRONG_RESULT, reason=last_line(error))
    except MemoryError as error:
        return Failure(fault=Fault.OUT_OF_MEMORY, reason=last_line(error))
    except Exception as error:  # TVM raises any type for a launch that fails
        return Failure(fault=Fault.LAUNCH, reason=last_line(error))
    if setup.is_modelled:
        (once_us,) = samples_us
        return Timing.exact(once_us)
    p20, _, _, p80 = statistics.quantiles(samples_us, n=5, method="inclusive")
    return Timing(
        median_us=statistics.median(samples_us),
        p20_us=p20,
        p80_us=p80,
        low_us=min(samples_us),
        high_us=max(samples_us),
        repeats=len(samples_us),
        launches=1,
        cold_l2=False,
    )


def _times_us(setup: Setup, request: Request) -> list[float]:
    """Return the times of a kernel, whose results are compared with the reference's.

    Raises:
        ArithmeticError: the results differ.
    """
    import tvm  # noqa: PLC0415 (after `serve` has said which CUDA it has)

    module = tvm.runtime.load_module(request.library)
    place = tvm.runtime.device("cuda", setup.ordinal)
    arguments = [tvm.runtime.tensor(each, place) for each in _operands(request.tensors)]
    module[ENTRY](*arguments)
    place.sync()
    wanted = _wanted(request.reference, request.tensors, setup.ordinal)
    _require_equal([each.numpy() for each in arguments], wanted)
    samples, least_ms = (1, 0) if setup.is_modelled else (_SAMPLES, _SAMPLE_MS)
    timer = module.time_evaluator(ENTRY, place, number=1, repeat=samples, min_repeat_ms=least_ms)
    return [1e6 * seconds for seconds in timer(*arguments).results]


@lru_cache(maxsize=1)
def _wanted(reference: str, tensors: tuple[Tensor, ...], ordinal: int) -> _Arrays:
    import tvm  # noqa: PLC0415

    module, place = tvm.runtime.load_module(reference), tvm.runtime.device("cuda", ordinal)
    arguments = [tvm.runtime.tensor(each, place) for each in _operands(tensors)]
    module[ENTRY](*arguments)
    place.sync()
    return [each.numpy() for each in arguments]


def _operands(tensors: Sequence[Tensor]) -> _Arrays:
    """Arrays of these shapes and types: reals between 1 and 2, which have logarithms and roots, and
    integers that are 0, which is always a valid index.
    """
    rng = np.random.default_rng(0)
    made = []
    for tensor in tensors:
        shape, kind = tensor.shape, np.dtype(tensor.dtype)
        is_real = kind.kind not in "iub"
        made.append(rng.uniform(1.0, 2.0, shape).astype(kind) if is_real else np.zeros(shape, kind))
    return made


def _require_equal(found: _Arrays, wanted: _Arrays) -> None:
    for index, (got, right) in enumerate(zip(found, wanted, strict=True)):
        a, b = got.astype(np.float64), right.astype(np.float64)
        least = _TOLERANCE * float(np.nan_to_num(np.abs(b)).max(initial=0.0))
        if not np.allclose(a, b, rtol=_TOLERANCE, atol=least, equal_nan=True):
            raise ArithmeticError(
                f"argument {index} is off the built-in schedule's by up to "
                f"{np.abs(a - b).max(initial=0.0):.3g}"
            )


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer every request, until there are no more or a launch has failed."""

    def say(message: FromWorker) -> None:
        answers.write(to_line(FromWorker, message))
        answers.flush()

    setup = from_line(Setup, requests.readline())
    assert isinstance(setup, Setup)
    try:
        activate(setup.device, arch=setup.arch)
    except DeviceError as error:
        return say(Refusal(reason=str(error)))
    say(Ready())
    for line in iter(requests.readline, b""):
        request = from_line(Request, line)
        assert isinstance(request, Request)
        answer = _answer(setup, request)
        say(answer)
        # A device after a fault wants a new process.
        if isinstance(answer, Failure) and answer.fault is Fault.LAUNCH:
            return None
    return None


if __name__ == "__main__":
    work(serve)
