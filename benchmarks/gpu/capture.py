"""What capturing launches as a CUDA graph asks of Python."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No cycles are collected meanwhile.

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
