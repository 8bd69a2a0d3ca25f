"""What the virtual GPU counts of a launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.harness.kernel_launch import Cuda


def counted_of(cuda: Cuda, run: Callable[[], object]) -> dict[str, Any]:
    """The counters of the one launch of `run`."""
    cuda.vgpu.set_option("counters", "on")
    cuda.vgpu.clear_launches()
    try:
        run()
        (counted,) = cuda.vgpu.counters()
    finally:
        cuda.vgpu.set_option("counters", "off")
    return counted
