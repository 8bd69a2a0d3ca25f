"""Keep a worker running: send candidates, wait within a limit, restart it after a crash."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from boltgen.errors import DeviceError
from boltgen.ir.outcome import Failure, Fault, Outcome
from boltgen.measure.channel import Channel, OpenChannel, local_worker
from boltgen.measure.conversation import Conversation, LostError, ask
from boltgen.measure.lines import to_line
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

WORKER = "boltgen.measure.worker"

_START_SECONDS = 60.0


class Worker:
    """A worker of one device; started now, and again after a candidate has killed it.

    `open_channel` starts the process, by default on this machine.

    Raises:
        DeviceError: the worker does not start, or its device cannot be used.
    """

    greeting: Greeting

    def __init__(
        self,
        setup: Setup,
        open_channel: OpenChannel | None = None,
        *,
        start_seconds: float = _START_SECONDS,
    ) -> None:
        self._setup = setup
        self._start_seconds = start_seconds
        self._number = 0
        self._lost: Failure | None = None
        self._conversation = Conversation(open_channel or local_worker(WORKER), self._greet)
        self._conversation.start()

    def _greet(self, channel: Channel) -> None:
        try:
            message = ask(channel, self._setup_line, FromWorker, self._start_seconds)
        except LostError as lost:
            printed = f": {lost.printed}" if lost.printed else ""
            raise DeviceError(
                f"the worker {lost.how} instead of naming its device{printed}\n{lost.said}"
            ) from lost
        if isinstance(message, Refusal):
            raise DeviceError(f"the device cannot be used: {message.reason}")
        if not isinstance(message, Greeting) or message.version != VERSION:
            raise DeviceError(f"the worker speaks another version of the protocol than {VERSION}")
        if self._number == 0:  # a worker that is started again has the same device
            self.greeting = message

    def _setup_line(self, channel: Channel) -> bytes:
        profiler, runtime = map(Path, (self._setup.profiler, self._setup.runtime))
        there = replace(
            self._setup, profiler=channel.send_file(profiler), runtime=channel.send_file(runtime)
        )
        return to_line(FromClient, there)

    @property
    def process_id(self) -> int | None:
        """The worker's process, which leads a process group of that number; None without one."""
        return self._conversation.process_id

    def measure(self, request: Request, timeout_s: float) -> Outcome:
        """Return the outcome of a candidate; a crash of the worker becomes part of the outcome.

        A worker may also be killed from outside, for instance if memory is short: a candidate is
        blamed only if two workers end with it. The request gets the next number.
        """
        try:
            return self._ask(request, timeout_s)
        except LostError as lost:
            if lost.fault is not Fault.CRASH:
                return lost.failure
        try:
            return self._ask(request, timeout_s)
        except LostError as lost:
            return lost.failure

    def _ask(self, request: Request, timeout_s: float) -> Outcome:
        """Return the worker's outcome of a candidate.

        Raises:
            LostError: the worker gave no answer.
        """
        if self._lost:
            return self._lost
        self._number += 1
        line_for = partial(_request_line, replace(request, number=self._number))
        try:
            message = self._conversation.ask(line_for, FromWorker, timeout_s)
        except DeviceError as error:
            self._lost = Failure(fault=Fault.DEVICE_LOST, reason=str(error))
            return self._lost
        if not isinstance(message, Answer) or message.number != self._number:
            reason = "the worker answered another question"
            return Failure(fault=Fault.PROTOCOL, reason=reason, log=self._conversation.stop())
        if message.fatal:
            self.close()
        return message.outcome

    def close(self) -> None:
        """Stop the worker; harmless when done twice."""
        self._conversation.stop()


def _request_line(request: Request, channel: Channel) -> bytes:
    library = channel.send_file(Path(request.library))
    return to_line(FromClient, replace(request, library=library))
