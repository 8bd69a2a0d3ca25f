"""The share of a model's work that boltgen's kernels do, and the operators outside of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from boltgen.arch import Arch
from boltgen.families.constants import ModelConstants
from boltgen.intake.numerals import counted

# Below this share a user would not have expected what they got.
LEAST_SHARE = 0.5
_MOST_NAMED = 3
_MIDDLE = ", at sizes in the middle of their ranges"


class Placed(Protocol):
    """The place of an operator: a region, or TVM with a reason; `flops` of its anchors."""

    @property
    def operator(self) -> str: ...  # noqa: D102
    @property
    def region(self) -> str | None: ...  # noqa: D102
    @property
    def reason(self) -> str: ...  # noqa: D102
    @property
    def flops(self) -> int: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Anchors of one operator that stay with TVM for one reason."""

    operator: str
    reason: str
    count: int
    flops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Floating-point operations of a model's anchors: in boltgen's kernels, and in total.

    `rest` has the anchors that stay with TVM, the largest first.
    """

    offloaded_flops: int
    total_flops: int
    rest: tuple[Rest, ...]

    @property
    def share(self) -> float:
        """The part of the work that boltgen's kernels do; 1 without anchors."""
        return self.offloaded_flops / self.total_flops if self.total_flops else 1.0

    @property
    def is_low(self) -> bool:
        """Whether a user should be warned."""
        return self.share < LEAST_SHARE

    def headline(self) -> str:
        """The share alone."""
        if not self.total_flops:
            return "the model has no matrix products and no convolutions: all of it is TVM's"
        return f"boltgen computes {_percent(self.share)} of {_scaled(self.total_flops)}"

    def verdict(self) -> str:
        """Return the share, and the operators that reduce it, in one line."""
        line = self.headline()
        if not self.rest:
            return line
        named = "; ".join(
            f"{each.count} x {each.operator}, {_percent(each.flops / self.total_flops)}: "
            f"{each.reason}"
            for each in self.rest[:_MOST_NAMED]
        )
        more = len(self.rest) - _MOST_NAMED
        others = f"; and {counted(more, 'more kind', 'more kinds')}" if more > 0 else ""
        # An operator may have a name of several lines.
        return " ".join(f"{line}; with TVM stay {named}{others}".split())


@dataclass(frozen=True, slots=True, kw_only=True)
class RestKernel:
    """A kernel of TVM's that a model launches `count` times; bytes and operations of one launch.

    One that `is_open` has them of the sizes in the middle of their ranges.
    """

    name: str
    count: int
    bytes_moved: int
    flops: int
    is_open: bool = False

    def time_us(self, arch: Arch, constants: ModelConstants) -> float:
        """The least time of all launches, at the bandwidth of DRAM or the rate of FP32."""
        busy_us = max(
            constants.copy_us(self.bytes_moved, arch), self.flops / (arch.fp32_tflops * 1e6)
        )
        return self.count * (constants.launch_us + busy_us)


def rest_verdict(launches: int, rest_us: float, regions_us: float, *, is_open: bool = False) -> str:
    """Return the least time of TVM's own kernels beside the regions' time, in one line.

    With `is_open`, both times are for sizes in the middle of their ranges.
    """
    if not launches:
        return "TVM launches no kernel of its own"
    share = _percent(rest_us / ((rest_us + regions_us) or 1.0))
    return (
        f"TVM's own kernels: {counted(launches, 'launch', 'launches')}, at least {rest_us:.1f} us "
        f"(predicted), {share} of the time of all{_MIDDLE if is_open else ''}"
    )


def coverage(placements: Iterable[Placed]) -> Coverage:
    """Return the coverage of a model whose operators are placed so."""
    offloaded = 0
    counts: dict[tuple[str, str], int] = defaultdict(int)
    flops: dict[tuple[str, str], int] = defaultdict(int)
    for placed in placements:
        if placed.region is not None:
            offloaded += placed.flops
        elif placed.flops:
            counts[placed.operator, placed.reason] += 1
            flops[placed.operator, placed.reason] += placed.flops
    rest = tuple(
        Rest(operator=key[0], reason=key[1], count=counts[key], flops=flops[key])
        for key in sorted(flops, key=lambda key: (-flops[key], key))
    )
    total = offloaded + sum(flops.values())
    return Coverage(offloaded_flops=offloaded, total_flops=total, rest=rest)


def _percent(share: float) -> str:
    # Never "100 %" of what is not all, nor "0 %" of what is something.
    if 0.0 < share < 1.0:
        share = min(max(share, 0.001), 0.999)
    return f"{share:.1%}".replace("%", " %").replace(".0 ", " ")


def _scaled(flops: int) -> str:
    for unit, size in (("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6)):
        if flops >= size:
            return f"{flops / size:.3g} {unit}"
    return f"{flops} FLOP"
