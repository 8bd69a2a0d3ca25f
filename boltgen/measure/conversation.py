"""Questions to a worker, each answered within a limit; a worker that is lost is started again."""

from __future__ import annotations

from collections.abc import Callable

from boltgen.errors import RecordError
from boltgen.ir.outcome import Failure, Fault
from boltgen.measure.channel import Channel, EndedError, OpenChannel, SilentError
from boltgen.measure.lines import from_line


class LostError(Exception):
    """A worker that gave no answer, and was stopped.

    `fault` is TIMEOUT, CRASH or PROTOCOL. `how` says how the process ended, `printed` what came in
    place of an answer, and `said` is the end of the worker's output.
    """

    def __init__(self, fault: Fault, reason: str, *, how: str, printed: str, said: str) -> None:
        super().__init__(reason)
        self.fault, self.how, self.printed, self.said = fault, how, printed, said

    @property
    def failure(self) -> Failure:
        """The outcome of the kernel that the worker ran."""
        return Failure(fault=self.fault, reason=str(self), log=self.said)


def ask(
    channel: Channel, line_for: Callable[[Channel], bytes], kind: object, seconds: float
) -> object:
    """Send a line to a worker, and return its answer, a message of the union `kind`.

    `line_for` makes the line, and brings files to the worker.

    Raises:
        LostError: the worker was silent for `seconds`, ended, or printed something else.
    """
    printed = ""
    try:
        channel.send(line_for(channel))
        return from_line(kind, channel.receive(seconds))
    except SilentError:
        fault = Fault.TIMEOUT
    except EndedError:
        fault = Fault.CRASH
    except RecordError as error:
        fault, printed = Fault.PROTOCOL, str(error)
    except BaseException:  # Ctrl-C: a late answer would be taken for the next question's
        channel.stop()
        raise
    how = channel.stop()
    reasons = {
        Fault.TIMEOUT: f"no answer within {seconds:g} s",
        Fault.CRASH: f"the worker {how} while it ran the kernel",
        Fault.PROTOCOL: f"the worker printed something else: {printed}",
    }
    raise LostError(fault, reasons[fault], how=how, printed=printed, said=channel.said())


class Conversation:
    """A worker that is started for its first question, and again after it was lost.

    `open_channel` starts a process, and `greet` brings it to its first question. `greet` raises
    DeviceError if the worker cannot work.
    """

    def __init__(self, open_channel: OpenChannel, greet: Callable[[Channel], object]) -> None:
        self._open, self._greet = open_channel, greet
        self._channel: Channel | None = None

    @property
    def process_id(self) -> int | None:
        """The worker's process, which leads a process group of that number; None without one."""
        return self._channel.process_id if self._channel else None

    def start(self) -> None:
        """Start the worker unless it runs.

        Raises:
            DeviceError: it cannot be started, or cannot work.
        """
        if self._channel is not None:
            return
        channel = self._open()
        try:
            self._greet(channel)
        except BaseException:
            channel.stop()
            raise
        self._channel = channel

    def ask(self, line_for: Callable[[Channel], bytes], kind: object, seconds: float) -> object:
        """Ask the worker as the function `ask` does; start it where none runs.

        Raises:
            LostError: it gave no answer.
            DeviceError: it cannot be started again.
        """
        self.start()
        channel, self._channel = self._channel, None
        assert channel is not None
        answer = ask(channel, line_for, kind, seconds)
        self._channel = channel
        return answer

    def stop(self) -> str:
        """Stop the worker; return the end of its output. Harmless when done twice."""
        channel, self._channel = self._channel, None
        if channel is None:
            return ""
        channel.stop()
        return channel.said()
