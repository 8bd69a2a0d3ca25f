"""Observers: the step of a tensor's integers, from a histogram of its numbers on samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from boltgen.ir.dtypes import DType

Array: TypeAlias = npt.NDArray[Any]

_BINS = 4096
# The share of numbers that `percentile` keeps within the range.
_KEPT = 0.9999
# Thresholds that `mse` and `entropy` try, from this share of the largest magnitude on.
_TRIED, _LEAST_SHARE = 96, 0.2


class Observer(Enum):
    """The rules that choose the range of a tensor's integers from its histogram."""

    MINMAX = "minmax"
    PERCENTILE = "percentile"
    ENTROPY = "entropy"
    MSE = "mse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A number is `scale` times the distance of its integer, of `dtype`, from `zero`."""

    scale: float
    zero: int
    dtype: DType


@dataclass(slots=True)
class Histogram:
    """Numbers of a tensor on all samples.

    `counts` are those of magnitudes in equal bins from 0 to `largest`. `channels` has the largest
    magnitude of each element of the last axis, where that was asked for.
    """

    largest: float = 0.0
    least: float = 0.0
    counts: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(_BINS))
    channels: Array = field(default_factory=lambda: np.zeros(1))
    shape: tuple[int, ...] = ()

    def see_range(self, array: Array) -> None:
        """Add a sample to the ranges."""
        self.shape = self.shape or array.shape
        self.least = min(self.least, float(array.min(initial=0.0)))
        self.largest = max(self.largest, float(np.abs(array).max(initial=0.0)))

    def see_channels(self, array: Array) -> None:
        """Add a sample to the largest magnitudes of channels."""
        rows = np.abs(array.reshape(-1, array.shape[-1]))
        self.channels = np.maximum(self.channels, rows.max(axis=0, initial=0.0))

    def see_counts(self, array: Array) -> None:
        """Add a sample to the counts, once all ranges are known."""
        if self.largest > 0.0:
            found, _ = np.histogram(np.abs(array), bins=_BINS, range=(0.0, self.largest))
            self.counts += found

    @property
    def centres(self) -> npt.NDArray[np.float64]:
        """The magnitude in the middle of each bin."""
        return np.asarray((np.arange(_BINS) + 0.5) * (self.largest / _BINS), np.float64)


def step_of(seen: Histogram, observer: Observer) -> Step:
    """Return the step of a tensor's integers.

    They are uint8 from 0 on if no number was negative, else int8 around 0: no kernel has to correct
    a zero point then, and zeros around an image stay zeros.
    """
    dtype = DType.I8 if seen.least < 0.0 else DType.U8
    if seen.largest == 0.0:
        return Step(scale=1.0, zero=0, dtype=dtype)
    levels = 127 if dtype is DType.I8 else 255
    scale = np.float32(_THRESHOLDS[observer](seen, levels) / levels)
    return Step(scale=float(max(scale, np.finfo(np.float32).tiny)), zero=0, dtype=dtype)


def _largest(seen: Histogram, levels: int) -> float:
    del levels
    return seen.largest


def _percentile(seen: Histogram, levels: int) -> float:
    del levels
    share = np.cumsum(seen.counts) / seen.counts.sum()
    return float((np.searchsorted(share, _KEPT) + 1) * seen.largest / _BINS)


def _least_square(seen: Histogram, levels: int) -> float:
    """The threshold with the least mean square of rounding and clipping."""

    def error(threshold: float) -> float:
        step = threshold / levels
        rounded = np.minimum(np.rint(seen.centres / step), levels) * step
        return float((seen.counts * (rounded - seen.centres) ** 2).sum())

    return min(_tried(seen), key=error)


def _least_divergence(seen: Histogram, levels: int) -> float:
    """The threshold with the least Kullback-Leibler divergence of the integers' distribution.

    Source: Migacz, "8-bit inference with TensorRT", GTC 2017.
    """

    def divergence(threshold: float) -> float:
        bins = min(round(threshold / seen.largest * _BINS), _BINS)
        kept = seen.counts[:bins].copy()
        kept[-1] += seen.counts[bins:].sum()  # what is clipped becomes the largest integer
        integer = np.minimum((np.arange(bins) * levels) // bins, levels - 1)
        plain = seen.counts[:bins]
        is_seen = (kept > 0).astype(np.float64)
        sums = np.bincount(integer, weights=plain, minlength=levels)
        shares = np.bincount(integer, weights=is_seen, minlength=levels)
        spread = np.divide(sums, shares, out=np.zeros(levels), where=shares > 0)
        coded = spread[integer] * is_seen
        p, q = kept / kept.sum(), coded / max(coded.sum(), 1.0)
        both = (p > 0) & (q > 0)
        lost = p[(p > 0) & (q == 0)].sum()
        return float((p[both] * np.log(p[both] / q[both])).sum() + 20.0 * lost)

    return min(_tried(seen), key=divergence)


def _tried(seen: Histogram) -> list[float]:
    return [float(each) * seen.largest for each in np.linspace(1.0, _LEAST_SHARE, _TRIED)]


_THRESHOLDS: Mapping[Observer, Callable[[Histogram, int], float]] = {
    Observer.MINMAX: _largest,
    Observer.PERCENTILE: _percentile,
    Observer.ENTROPY: _least_divergence,
    Observer.MSE: _least_square,
}
