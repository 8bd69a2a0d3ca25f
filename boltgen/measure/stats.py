"""Medians and their confidence intervals, for samples of any distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Statistics of samples: median, 20th and 80th percentile, and the median's 95 % interval."""

    median: float
    p20: float
    p80: float
    low: float
    high: float

    def is_within(self, fraction: float) -> bool:
        """Return whether both ends of the interval are within `fraction` of the median."""
        return max(self.high - self.median, self.median - self.low) <= fraction * self.median


def summarise(samples: Sequence[float]) -> Summary:
    """Summarise one or more samples; the interval of fewer than six samples is their range."""
    ordered = sorted(samples)
    below = _rank(len(ordered))
    return Summary(
        median=percentile(ordered, 0.5),
        p20=percentile(ordered, 0.2),
        p80=percentile(ordered, 0.8),
        low=ordered[below],
        high=ordered[-1 - below],
    )


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """Return the `fraction` quantile of sorted samples, interpolated linearly."""
    place = fraction * (len(ordered) - 1)
    index = min(int(place), len(ordered) - 2) if len(ordered) > 1 else 0
    following = ordered[min(index + 1, len(ordered) - 1)]
    return ordered[index] + (place - index) * (following - ordered[index])


@lru_cache(maxsize=1024)
def _rank(count: int) -> int:
    """Return how many samples the interval may exclude at each end and still cover the median.

    The number of samples below the median is binomial for any distribution.
    """
    outside, cut = 0.0, 0
    while 2 * cut < count:
        outside += 2.0 * math.comb(count, cut) * 0.5**count
        if outside > 1.0 - _CONFIDENCE:
            break
        cut += 1
    return max(cut - 1, 0)
