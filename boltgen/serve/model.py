"""A served model: its sessions, its queue, and the test whether requests can share a run."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from boltgen.artifact.metadata import Metadata, TensorInfo
from boltgen.errors import DeadlineError, DeviceError, InputError, NotReadyError, ServingError
from boltgen.running.artifact import Artifact
from boltgen.running.inputs import check_inputs
from boltgen.running.session import Session
from boltgen.serve.batching import Arrays, Batcher, BatchLimits, Observer, Timing
from boltgen.serve.rest import InferRequest
from boltgen.serve.tensors import Array, datatype_of

_log = logging.getLogger("boltgen.serve")
# The test for batching multiplies the numbers of other rows by this factor, so that a result over
# all rows, such as a maximum, changes.
_LOUDER = 8.0
# The runs per session whose launches the virtual GPU records, because a server runs for weeks.
_RUNS_REMEMBERED = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """The device, the workers and the limits of served models.

    `max_batch` is the most rows of a run, None for the most that a model takes. `graphs` is the
    number of CUDA graphs that each worker keeps.
    """

    device: str = "vgpu"
    workers: int = 1
    max_batch: int | None = None
    max_delay_us: int = 0
    queue: int = 256
    graphs: int = 8


class ServedModel:
    """A version of a model, which is ready after a first inference in each session.

    Raises:
        ArtifactError: the folder has no compiled model, or a damaged one.
        DeviceError: the device does not exist, cannot run the model, or reports a fault.
        ServingError: the protocol has no name for the type of a tensor.
    """

    def __init__(
        self, name: str, version: str, folder: Path, options: ModelOptions, observer: Observer
    ) -> None:
        self.name, self.version, self.folder = name, version, folder
        self._artifact = Artifact.load(folder)
        self.metadata: Metadata = self._artifact.metadata
        for info in (*self.metadata.inputs, *self.metadata.outputs):
            datatype_of(info.dtype)
        self._sessions = [
            self._artifact.open(options.device, graphs=options.graphs)
            for _ in range(options.workers)
        ]
        for session in self._sessions:
            session.warm_up()
        self.batched = _batched_dimension(self.metadata)
        if self.batched and options.max_batch != 1:
            self.batched = self._confirmed(self.batched)
        self._most = self._most_rows(options)
        limits = BatchLimits(rows=self._most, delay_us=options.max_delay_us, queue=options.queue)
        self._outputs = [info.name for info in self.metadata.outputs]
        self._failure: str | None = None
        self._closing = threading.Lock()
        self._batcher = Batcher(
            [self._run_of(session) for session in self._sessions], limits, observer, name=name
        )

    @property
    def is_ready(self) -> bool:
        """Whether the model answers; a fault ends the device's context, and so readiness."""
        return self._failure is None

    @property
    def most_rows(self) -> int:
        """The largest number of rows in a batch; 1 if requests go alone."""
        return self._most

    async def infer(self, request: InferRequest) -> tuple[dict[str, Array], Timing]:
        """Return the outputs of a request; a waiting request is dropped if its client disconnects.

        Raises:
            InputError: a name, shape or type does not fit the model.
            BusyError: the queue is full.
            NotReadyError: the model has failed or is unloaded.
            DeadlineError: the request's time is over.
            BoltgenError: the run failed.
        """
        self._check(request)
        rows = next(iter(request.inputs.values())).shape[0] if self.batched else 1
        timeout_s = None if request.timeout_us is None else request.timeout_us / 1e6
        answered = self._batcher.at_once(request.inputs, rows=rows, timeout_s=timeout_s)
        if answered is not None:
            return answered
        if timeout_s is None:
            return await self._submitted(request, rows)
        try:
            return await asyncio.wait_for(self._submitted(request, rows), timeout_s)
        except asyncio.TimeoutError:
            raise DeadlineError(
                f"model {self.name!r}: no answer within the request's {request.timeout_us} us"
            ) from None

    def _check(self, request: InferRequest) -> None:
        if self._failure is not None:
            raise NotReadyError(f"model {self.name!r} has failed: {self._failure}")
        unknown = [name for name in request.outputs or () if name not in self._outputs]
        if unknown:
            raise InputError(
                f"unknown output {', '.join(map(repr, unknown))}; the model gives "
                + "; ".join(map(str, self.metadata.outputs))
            )
        check_inputs(self.metadata.inputs, request.inputs, self.metadata.dimensions)

    def _submitted(
        self, request: InferRequest, rows: int
    ) -> asyncio.Future[tuple[dict[str, Array], Timing]]:
        answer = _Awaited()
        form = None
        if self.batched:
            form = tuple(request.inputs[info.name].shape[1:] for info in self.metadata.inputs)
        self._batcher.submit(
            request.inputs,
            answer,
            rows=rows,
            form=form,
            timeout_s=None if request.timeout_us is None else request.timeout_us / 1e6,
        )
        return answer.future

    def hurry(self) -> None:
        """Run waiting requests without waiting for others."""
        self._batcher.hurry()

    def close(self) -> None:
        """Answer waiting requests, then free the device's memory."""
        with self._closing:
            self._batcher.close()
            for session in self._sessions:
                session.close()

    def _run_of(self, session: Session) -> Any:
        runs = itertools.count(1)

        def run(inputs: Arrays) -> dict[str, Array]:
            if next(runs) % _RUNS_REMEMBERED == 0:
                session.forget_launches()
            try:
                return session.run(inputs)
            except DeviceError as error:
                # No later call in this process can succeed; readiness tells whoever restarts the
                # server.
                self._failure = str(error).splitlines()[0]
                raise

        return run

    def _most_rows(self, options: ModelOptions) -> int:
        if not self.batched:
            return 1
        high = next(
            (each.high for each in self.metadata.dimensions if each.name == self.batched), None
        )
        asked = [each for each in (high, options.max_batch) if each is not None]
        return min(asked) if asked else 1

    def _confirmed(self, dimension: str) -> str | None:
        """Return `dimension` if no output row depends on other input rows; else None.

        The same kernels run on the same sizes again with the last half of the rows replaced, then
        with the first half replaced. The results of the other rows must be bitwise equal.
        """
        session = self._sessions[0]
        sizes = {each.name: each.high for each in self.metadata.dimensions}
        largest = sizes.get(dimension) or 0
        if largest < 2:
            return None
        rng = np.random.default_rng(0)
        base = {
            info.name: _numbers(rng, session.zeros()[info.name], 1.0)
            for info in self.metadata.inputs
        }
        expected = session.run(base)
        half = largest // 2
        for changed, kept in (
            (slice(half, None), slice(None, half)),
            (slice(None, half), slice(half, None)),
        ):
            other = {name: array.copy() for name, array in base.items()}
            for array in other.values():
                array[changed] = _numbers(rng, array[changed], _LOUDER)
            found = session.run(other)
            for name, array in found.items():
                if array[kept].tobytes() != expected[name][kept].tobytes():
                    _log.warning(
                        "model %r: output %r computes over %r, so that requests go alone",
                        self.name,
                        name,
                        dimension,
                    )
                    return None
        return dimension


class _Awaited:
    """An answer for which an event loop waits.

    A wrapped future of `concurrent.futures` would double the time to the worker and back.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[tuple[dict[str, Array], Timing]] = self._loop.create_future()
        self.cancelled = self.future.cancelled
        self.add_done_callback = self.future.add_done_callback

    def set_running_or_notify_cancel(self) -> bool:
        return not self.future.cancelled()

    def set_result(self, result: tuple[dict[str, Array], Timing], /) -> None:
        self._loop.call_soon_threadsafe(self._end, self.future.set_result, result)

    def set_exception(self, exception: BaseException, /) -> None:
        self._loop.call_soon_threadsafe(self._end, self.future.set_exception, exception)

    def _end(self, end: Callable[[Any], None], value: Any) -> None:
        if not self.future.done():  # the client may have gone, or the time may be over
            end(value)


def _batched_dimension(metadata: Metadata) -> str | None:
    """Return the dimension that leads every input and output, and occurs nowhere else."""
    tensors = (*metadata.inputs, *metadata.outputs)
    names = {_leading(info) for info in tensors}
    if len(names) != 1 or not metadata.inputs or metadata.frontend != "relax":
        return None
    (name,) = names
    elsewhere = any(name in (info.shape or ())[1:] for info in tensors)
    return None if elsewhere or not isinstance(name, str) else name


def _leading(info: TensorInfo) -> int | str | None:
    return info.shape[0] if info.shape else None


def _numbers(rng: np.random.Generator, like: Array, scale: float) -> Array:
    """Return random numbers; integers, which may index a table, are 0 or 1."""
    if like.dtype.kind in "biu":
        return rng.integers(0, 2, like.shape).astype(like.dtype)
    return (scale * rng.normal(0, 1, like.shape)).astype(like.dtype)


def metadata_of(model: ServedModel, versions: list[str]) -> Mapping[str, Any]:
    """Return the protocol's metadata of a model; a dynamic size is -1, with its range beside it."""
    ranges = {each.name: f"{each.low}..{each.high or ''}" for each in model.metadata.dimensions}
    return {
        "name": model.name,
        "versions": versions,
        "platform": "boltgen",
        "inputs": [_tensor(info, ranges) for info in model.metadata.inputs],
        "outputs": [_tensor(info, ranges) for info in model.metadata.outputs],
        "parameters": {"arch": model.metadata.arch, "max_batch": model.most_rows},
    }


def _tensor(info: TensorInfo, ranges: Mapping[str, str]) -> dict[str, Any]:
    if info.shape is None:
        raise ServingError(f"tensor {info.name!r} has no rank that is known before the model runs")
    told: dict[str, Any] = {
        "name": info.name,
        "datatype": datatype_of(info.dtype),
        "shape": [-1 if isinstance(extent, str) else extent for extent in info.shape],
    }
    if any(isinstance(extent, str) for extent in info.shape):
        shown = (ranges.get(str(extent), str(extent)) for extent in info.shape)
        told["parameters"] = {"ranges": ",".join(shown)}
    return told
