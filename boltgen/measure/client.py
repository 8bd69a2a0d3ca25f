"""Keep a worker running: send candidates, wait within a limit, restart it after a crash."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from boltgen.errors import DeviceError, RecordError
from boltgen.ir.outcome import Failure, Fault, Outcome
from boltgen.measure.channel import (
    Channel,
    EndedError,
    OpenChannel,
    SilentError,
    local_worker,
)
from boltgen.measure.protocol import (
    VERSION,
    Answer,
    FromClient,
    FromWorker,
    Greeting,
    Refusal,
    Request,
    Setup,
    from_line,
    to_line,
)

_START_SECONDS = 60.0


class Worker:
    """A worker of one device; started now, and again after a candidate has killed it.

    `open_channel` starts the process, by default on this machine.

    Raises:
        DeviceError: the worker does not start, or its device cannot be used.
    """

    def __init__(
        self,
        setup: Setup,
        open_channel: OpenChannel | None = None,
        *,
        start_seconds: float = _START_SECONDS,
    ) -> None:
        self._setup, self._open = setup, open_channel or local_worker()
        self._start_seconds = start_seconds
        self._number = 0
        self._lost: Failure | None = None
        self._channel: Channel | None = None
        self.greeting = self._start()

    def _start(self) -> Greeting:
        channel = self._open()
        try:
            there = replace(
                self._setup,
                profiler=channel.send_file(Path(self._setup.profiler)),
                runtime=channel.send_file(Path(self._setup.runtime)),
            )
            channel.send(to_line(FromClient, there))
            message = from_line(FromWorker, channel.receive(self._start_seconds))
        except (SilentError, EndedError, RecordError) as error:
            how = channel.stop()
            raise DeviceError(
                f"the worker {how} instead of naming its device"
                f"{f': {error}' if isinstance(error, RecordError) else ''}\n{channel.said()}"
            ) from error
        if isinstance(message, Greeting) and message.version == VERSION:
            self._channel = channel
            return message
        channel.stop()
        if isinstance(message, Refusal):
            raise DeviceError(f"the device cannot be used: {message.reason}")
        raise DeviceError(f"the worker speaks another version of the protocol than {VERSION}")

    @property
    def process_id(self) -> int | None:
        """The worker's process ID, which is also its process group's; None if no worker runs."""
        return self._channel.process_id if self._channel else None

    def measure(self, request: Request, timeout_s: float) -> Outcome:
        """Return the outcome of a candidate; a crash of the worker becomes part of the outcome.

        A worker may also be killed from outside, for instance if memory is short: a candidate is
        blamed only if two workers end with it. The request gets the next number.
        """
        try:
            return self._ask(request, timeout_s)
        except EndedError:
            self._end(Fault.CRASH, "")
        try:
            return self._ask(request, timeout_s)
        except EndedError:
            return self._end(Fault.CRASH, "the worker {how} while it ran this candidate")

    def _ask(self, request: Request, timeout_s: float) -> Outcome:
        """Return the worker's outcome of a candidate.

        Raises:
            EndedError: the worker ended without an answer.
        """
        if self._lost:
            return self._lost
        if self._channel is None:
            try:
                self._start()
            except DeviceError as error:
                self._lost = Failure(fault=Fault.DEVICE_LOST, reason=str(error))
                return self._lost
        channel = self._channel
        assert channel is not None
        self._number += 1
        library = channel.send_file(Path(request.library))
        there = replace(request, number=self._number, library=library)
        channel.send(to_line(FromClient, there))
        try:
            message = from_line(FromWorker, channel.receive(timeout_s))
        except SilentError:
            return self._end(Fault.TIMEOUT, f"no answer within {timeout_s:g} s")
        except EndedError:
            raise
        except RecordError as error:
            return self._end(Fault.PROTOCOL, f"the worker printed something else: {error}")
        except BaseException:  # Ctrl-C: a late answer would be read as the next candidate's
            self.close()
            raise
        if not isinstance(message, Answer) or message.number != self._number:
            return self._end(Fault.PROTOCOL, "the worker answered another question")
        if message.fatal:
            self._end(Fault.CRASH, "")
        return message.outcome

    def _end(self, fault: Fault, reason: str) -> Failure:
        """Stop the worker, which the next candidate starts again, and return the failure."""
        assert self._channel is not None
        channel, self._channel = self._channel, None
        how = channel.stop()
        return Failure(fault=fault, reason=reason.replace("{how}", how), log=channel.said())

    def close(self) -> None:
        """Stop the worker. A second call is harmless."""
        if self._channel is not None:
            self._channel.stop()
            self._channel = None
