"""Arrow: from samples to a Timing; defines a sample and the stopping rule."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from boltgen.ir.outcome import Timing
from boltgen.measure.protocol import Policy
from boltgen.measure.stats import Summary, summarise

# Samples for an estimate of a candidate's time. The least counts, because the driver loads a kernel
# at its first launch.
FIRST_SAMPLES = 3
_BATCH = 10
# Twice the cache, so that nothing stays in it under any common replacement policy.
_SCRATCH_PER_L2 = 2
_LEAST_SCRATCH_BYTES = 64 << 20


def scratch_bytes(l2_bytes: int) -> int:
    """Return the bytes to read before a sample so that an L2 cache of that size is cold."""
    return max(_SCRATCH_PER_L2 * l2_bytes, _LEAST_SCRATCH_BYTES)


def launches_of_sample(once_us: float, copies: int, policy: Policy) -> int:
    """Return the launches per sample if one takes `once_us` and there are `copies` operand sets."""
    return min(copies, max(1, round(policy.sample_us / max(once_us, 1.0))))


def warm_up(sample_us: Callable[[int], list[float]], launches: int, least_us: float) -> None:
    """Keep the device busy for `least_us` with unrecorded samples of `launches` launches."""
    warm = 0.0
    while warm < least_us:
        warm += launches * sum(sample_us(1))


def take_samples(
    sample_us: Callable[[int], list[float]],
    clock_mhz: Callable[[], float | None],
    policy: Policy,
    *,
    launches: int,
    warm_up_us: float,
) -> Timing:
    """Take samples after a warm-up until the interval of their median is narrow enough.

    `sample_us(n)` takes n samples of `launches` launches and returns the time per launch of each.
    """
    warm_up(sample_us, launches, warm_up_us)
    samples: list[float] = []
    clocks: list[float] = []
    started = time.monotonic()
    while True:
        samples += sample_us(min(_BATCH, policy.most_samples - len(samples)))
        clock = clock_mhz()
        if clock is not None:
            clocks.append(clock)
        summary = summarise(samples)
        if _is_enough(summary, len(samples), time.monotonic() - started, policy):
            break
    return Timing(
        median_us=summary.median,
        p20_us=summary.p20,
        p80_us=summary.p80,
        low_us=summary.low,
        high_us=summary.high,
        repeats=len(samples),
        launches=launches,
        cold_l2=True,
        clock_mhz=statistics.median(clocks) if clocks else None,
    )


def _is_enough(summary: Summary, count: int, elapsed_s: float, policy: Policy) -> bool:
    if count >= policy.most_samples or elapsed_s >= policy.most_s:
        return True
    return count >= policy.least_samples and summary.is_within(policy.tolerance)
