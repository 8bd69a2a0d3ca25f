"""Ends what takes too long, within this process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

# Code that takes any failure for one of what it tries would go on: it is told again.
_TOLD_AGAIN_S = 5.0


class _OverdueError(BaseException):
    """Ends what takes too long. No `Exception`, which PyTorch's autotuner takes as a choice's."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Ends the `with` block after so long, by an exception. In the main thread only.

    Raises:
        TimeoutError: it took longer.
    """

    is_over = False

    def end(signal_number: int, frame: object) -> None:
        if not is_over:
            raise _OverdueError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, _TOLD_AGAIN_S)
    try:
        yield
    except _OverdueError as error:
        raise TimeoutError(f"it took over {seconds:.0f} s") from error
    finally:
        is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
