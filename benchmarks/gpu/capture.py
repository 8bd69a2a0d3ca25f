"""Capture CUDA graphs within limits: a graph's rules for Python, and PyTorch's time limit."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

# Code that takes any failure for one of what it tries would go on: it is told again.
_TOLD_AGAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Replay:
    """A CUDA graph of PyTorch's with `launches` launches."""

    replay: Callable[[], None]
    launches: int


# Captured, and given operands, when they are called for: one that fails leaves the others as they
# are.
Capturing: TypeAlias = Mapping[str, Callable[[], Replay]]


class _OverdueError(BaseException):
    """Ends what takes too long. No `Exception`, which PyTorch's autotuner takes as a choice's."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """End the `with` block after so long, by an exception. In the main thread only.

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


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no cycles meanwhile.

    What a collection finds may free device memory or unload a kernel, which CUDA forbids while a
    stream is captured, and the capture would be lost.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
