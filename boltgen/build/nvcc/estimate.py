"""Estimate how long units still take to compile, by their kind and by the first ones' times; and
their memory.

The table's seconds are for one core of a Xeon of 2023 with CUDA 13; only their ratios matter.
"""

from __future__ import annotations

import heapq
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from boltgen.build.unit import TranslationUnit

# Seconds per kernel, by the header that it instantiates; measured with tests/golden.
_KERNEL_S: Mapping[str, float] = {
    **{"gemm": 6.4, "conv2d": 7.0, "prologue_gemm": 7.0, "grouped_gemm": 7.0},
    **{"b2b_gemm": 8.0, "b2b_conv2d": 8.5, "attention": 4.0, "norm": 3.2, "skinny": 4.6},
    **{"depthwise": 2.5, "separable": 7.0},
    **{"gemm_sm90": 43.0, "conv2d_sm90": 43.0, "b2b_gemm_sm90": 40.0, "b2b_conv2d_sm90": 40.0},
    **{"attention_sm90": 20.0, "move": 0.3, "recurrent": 3.5},
}
_OTHER_S = 4.0
# The most memory of a unit's compilers, and what each further kernel adds; measured with BERT-base
# by benchmarks/cold_compile.py, rounded up. A header of wgmma instructions ends in `_sm90`.
_WGMMA_BYTES, _OTHER_BYTES, _KERNEL_BYTES = 3.2e9, 0.8e9, 0.2e9
_COMPILER_S = 1.0
_KERNEL = re.compile(r"^namespace \w+_kernel {", re.MULTILINE)
_INCLUDE = re.compile(r'^#include "boltgen/(\w+)\.h"', re.MULTILINE)
_ADAPTER_S, _ADAPTER_LINE_S = 1.5, 0.005
_FATBIN_S = 1.0
# The weight of the table against measured times, in seconds of finished units.
_TRUST_S = 1.0
# The least remaining part of the expected time of a running unit.
_LEAST_LEFT = 0.1


def expected_seconds(unit: TranslationUnit) -> float:
    """Estimate the seconds to compile a unit if nothing else runs."""
    match unit.kind:
        case "adapter":
            return _ADAPTER_S + _ADAPTER_LINE_S * unit.text.count("\n")
        case "fatbin":
            return _FATBIN_S
    kernels = max(1, len(_KERNEL.findall(unit.text)))
    slowest = max((_KERNEL_S.get(name, 0.0) for name in _INCLUDE.findall(unit.text)), default=0.0)
    return _COMPILER_S + kernels * (slowest or _OTHER_S)


def expected_bytes(unit: TranslationUnit) -> float:
    """Estimate the most memory that a unit takes to compile."""
    kernels = max(1, len(_KERNEL.findall(unit.text)))
    has_wgmma = any(name.endswith("_sm90") for name in _INCLUDE.findall(unit.text))
    return (_WGMMA_BYTES if has_wgmma else _OTHER_BYTES) + (kernels - 1) * _KERNEL_BYTES


@dataclass(slots=True)
class Estimate:
    """The expected seconds of units by key, of which `jobs` are compiled at once."""

    expected: Mapping[str, float]
    jobs: int
    _running: dict[str, float] = field(default_factory=dict)
    _seen: dict[str, float] = field(default_factory=dict)

    def begin(self, key: str) -> None:
        """Note that the compiler of a unit starts."""
        self._running[key] = time.monotonic()

    def done(self, key: str) -> None:
        """Note that a unit was compiled or failed."""
        self._seen[key] = time.monotonic() - self._running.pop(key, time.monotonic())

    def left(self) -> float | None:
        """Return the seconds until the last unit is done, by simulating the jobs.

        Return None until a first unit has shown the speed of this machine.
        """
        now = time.monotonic()
        running = {key: now - begun for key, begun in self._running.copy().items()}
        slowness = self._slowness(running)
        if slowness is None:
            return None
        free = [
            max(slowness * self.expected[key] - spent, _LEAST_LEFT * slowness * self.expected[key])
            for key, spent in running.items()
        ]
        free += [0.0] * (min(self.jobs, len(self.expected)) - len(free))
        heapq.heapify(free)
        for key, seconds in self.expected.items():
            if key not in self._seen and key not in running:
                heapq.heapreplace(free, free[0] + slowness * seconds)
        return max(free)

    def _slowness(self, running: Mapping[str, float]) -> float | None:
        """Return the ratio of times here to times of the table, or None without any time."""
        spent = expected = _TRUST_S
        for key, seconds in self._seen.copy().items():
            spent, expected = spent + seconds, expected + self.expected[key]
        # A running unit counts as soon as it exceeds its estimate.
        for key, seconds in running.items():
            if seconds > spent / expected * self.expected[key]:
                spent, expected = spent + seconds, expected + self.expected[key]
        return None if expected == _TRUST_S else spent / expected
